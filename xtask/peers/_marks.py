"""What is measured, and what is promised."""

from collections import namedtuple

# `random`: shape and type of a model that `random_model.py` writes; `deep`: the tokens that stand for
# depth 8192, less where the model's context is 8192; `bandwidth`: the least share of one thread's read
# bandwidth that its decode at depth 0 reaches on one thread.
Model = namedtuple("Model", "file random deep bandwidth")


def _random(shape, kind):
    return Model(f"{shape}-{kind}.gguf", (shape, kind), 8192, 0.9)


MODELS = {
    "smollm2": Model("SmolLM2-135M-Instruct.Q4_1.gguf", None, 7936, 0.8),
    "gemma3-270m": Model("gemma-3-270m-Q4_K_M.gguf", None, 8192, 0.8),
    "qwen2.5-coder-0.5b": Model("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", None, 8192, 0.9),
    **{f"{shape}-{kind}": _random(shape, kind) for shape, kinds in {
        "qwen2.5-0.5b": ("Q4_0", "Q8_0", "Q4_1", "Q5_0", "Q5_1", "F16"),
        "qwen3-0.6b": ("Q8_0", "Q4_K", "Q5_K", "Q6_K"),
        "qwen2.5-1.5b": ("Q4_K_M",),
        "llama3.2-1b": ("Q4_0",),
    }.items() for kind in kinds},
}
TOKENIZER = "qwen2.5-coder-0.5b"

# What the tests are, in the order of the tables.
TESTS = {
    "pp512": "prefill of 512 tokens",
    "pp16": "prefill of 16 tokens, a short chat turn",
    "pp8192": "prefill of 8192 tokens",
    "tg128": "decode of 128 tokens at depth 0",
    "d2048": "decode at depth 2048",
    "d8192": "decode at depth 8192 (SmolLM2: 7936, its context is 8192)",
    "avx2-pp512": "prefill of 512 tokens, both with AVX2 alone",
    "avx2-tg128": "decode of 128 tokens, both with AVX2 alone",
    "t1-pp512": "prefill of 512 tokens on one thread, beside the int8 peak",
    "t1-tg128": "decode of 128 tokens on one thread, as a share of its read bandwidth",
    "t1-d2048": "the same at depth 2048, minfer alone",
    "t1-d8192": "the same at depth 8192, minfer alone",
    "rows8": "decode of 8 rows at once beside 1, minfer alone",
    "seqs2": "decode of 2 sequences at once at depth 128, beside llama-batched-bench",
    "seqs4": "the same of 4",
    "seqs8": "the same of 8",
    "seqs16": "the same of 16",
    "ttft": "time to first token of a whole process, warm file, prompt of 20 tokens",
    "memory": "peak memory of a process with a context of 4096 and its KV written",
}

# Tokens a second as a multiple of llama.cpp's, two threads: at least.
_RATIOS = """
                       pp512  pp16  pp8192  tg128  d2048  d8192  avx2-pp512  avx2-tg128
smollm2                6      1.5   -       2      1.5    2      1.5         1
gemma3-270m            3.5    1.5   -       1.6    1.5    1.6    1.5         1
qwen2.5-coder-0.5b     3.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-Q4_0      2      1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-Q8_0      3.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-Q4_1      3.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-Q5_0      3.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-Q5_1      3.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-0.5b-F16       1.1    1.5   -       1      1      1      1.5         1
qwen3-0.6b-Q8_0        3.5    1.5   -       1.2    1.5    2      1.5         1
qwen3-0.6b-Q4_K        2      1.5   -       1.2    1.5    2      1.5         1
qwen3-0.6b-Q5_K        2.5    1.5   -       1.2    1.5    2      1.5         1
qwen3-0.6b-Q6_K        2.5    1.5   -       1.2    1.5    2      1.5         1
qwen2.5-1.5b-Q4_K_M    2.2    1.5   2       1.2    1.5    2      1.5         1
llama3.2-1b-Q4_0       2      1.5   -       1.2    1.5    2      1.5         1
"""
# Share of one thread's read bandwidth at which weights and KV are read: at least.
_BANDWIDTH = {"t1-d2048": 0.8, "t1-d8192": 0.7}
# Tokens a second of 8 rows as a multiple of one row's: at least.
_ROWS8 = 3.5
# Tokens a second of several sequences as a multiple of llama.cpp's: at least, on this model.
_SEQUENCES = {"qwen2.5-coder-0.5b": 2.0}
# Time to first token as a multiple of llama.cpp's: below.
_TTFT = {"smollm2": 1.0, "gemma3-270m": 1.0}
# Peak memory in MB: at most.
_MEMORY = {"qwen2.5-1.5b-Q4_K_M": 1250}


def _ratios():
    head, *rows = (line.split() for line in _RATIOS.strip().splitlines())
    return {(model, test): float(mark) for model, *marks in rows
            for test, mark in zip(head, marks, strict=True) if mark != "-"}


RATIOS = _ratios()


def mark(model, test):
    """The mark of a test, or None where it has none.

    >>> mark("smollm2", "pp512"), mark("gemma3-270m", "d8192"), mark("qwen2.5-0.5b-F16", "tg128")
    (6.0, 1.6, 1.0)
    >>> mark("smollm2", "t1-tg128"), mark("llama3.2-1b-Q4_0", "t1-tg128"), mark("smollm2", "t1-d8192")
    (0.8, 0.9, 0.7)
    >>> mark("smollm2", "pp8192"), mark("smollm2", "t1-pp512")
    (None, None)
    >>> {model for model, _ in RATIOS} == set(MODELS)
    True
    """
    if test == "t1-tg128":
        return MODELS[model].bandwidth
    if test == "rows8":
        return _ROWS8
    if test.startswith("seqs"):
        return _SEQUENCES.get(model)
    alone = {"ttft": _TTFT.get(model), "memory": _MEMORY.get(model), **_BANDWIDTH}
    return alone.get(test, RATIOS.get((model, test)))


def applies(model, test):
    """Whether a test is made on a model: where something is promised, or costs little and tells much.

    >>> [m for m in MODELS if applies(m, "pp8192")], [m for m in MODELS if applies(m, "ttft")]
    (['qwen2.5-1.5b-Q4_K_M'], ['smollm2', 'gemma3-270m'])
    """
    shown = test == "t1-pp512" or test == "memory" and MODELS[model].random is None
    return shown or mark(model, test) is not None
