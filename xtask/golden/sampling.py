"""Reference values of the sampler chain: what llama.cpp keeps, and with which probabilities.

packages: llama-cpp-python==0.3.36 numpy==2.4.6

    python sampling.py [DATA_DIR]

DATA_DIR is crates/minfer/tests/data/sampling where none is given. Writes
- chain.json: random logits (a vector a scale), and for each setting the token ids and probabilities (rounded to 7 digits) left
  after penalties, top-k, typical, top-p, min-p and temperature;
- samplers.json: the same vectors through chains with the other samplers, in llama.cpp's order and in others, and mirostat, step
  by step with the mu that its draws led to;
- dry.json: texts in the cut-down vocabularies beside it (../tokenizer), and what DRY takes from which token after them.
A case whose cut lies so near a candidate that rounding decides is left out: it is tried with the limits a little lower and higher.
"""
import ctypes
import json
import math
import sys
from pathlib import Path

import llama_cpp as lib
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = dict(top_k=0, typical_p=1.0, top_p=1.0, min_p=0.0, temperature=1.0,
               repeat_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0, repeat_last_n=64)
OTHERS = dict(top_n_sigma=-1.0, xtc_probability=0.0, xtc_threshold=0.1, dynatemp_range=0.0, dynatemp_exponent=1.0,
              mirostat=0, mirostat_ent=5.0, mirostat_lr=0.1,
              samplers="penalties;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature")
LIMITS = ("typical_p", "top_p", "min_p", "top_n_sigma", "xtc_threshold", "mirostat_ent")
SETTINGS = [
    dict(), dict(top_k=1), dict(top_k=40), dict(top_k=250),
    dict(top_p=0.95), dict(top_p=0.5), dict(top_p=0.05), dict(min_p=0.05), dict(min_p=0.5), dict(min_p=1.0),
    dict(typical_p=0.9), dict(typical_p=0.5), dict(typical_p=0.1),
    dict(temperature=0.2), dict(temperature=2.5),
    dict(top_k=40, top_p=0.95, temperature=0.8),
    dict(top_k=40, top_p=0.95, temperature=0.8, repeat_penalty=1.1),
    dict(top_k=30, typical_p=0.8, top_p=0.9, min_p=0.02, temperature=1.3),
    dict(typical_p=0.7, top_p=0.8, min_p=0.01, temperature=0.5),
    dict(repeat_penalty=1.5), dict(frequency_penalty=0.7), dict(presence_penalty=1.2), dict(presence_penalty=-0.5),
    dict(repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.4, repeat_last_n=8, top_k=20),
    dict(repeat_penalty=0.8, repeat_last_n=0, top_k=20),
]
MORE = [
    dict(top_n_sigma=0.3), dict(top_n_sigma=1.0), dict(top_n_sigma=2.5), dict(top_n_sigma=1.5, top_k=10, temperature=1.4),
    dict(top_n_sigma=2.0, top_p=0.9, repeat_penalty=1.3),
    dict(xtc_probability=1.0), dict(xtc_probability=1.0, xtc_threshold=0.02), dict(xtc_probability=1.0, xtc_threshold=0.5),
    dict(xtc_probability=1.0, xtc_threshold=0.51), dict(xtc_probability=1.0, xtc_threshold=0.0, top_k=7),
    dict(xtc_probability=1.0, xtc_threshold=0.05, top_k=40, min_p=0.02, temperature=0.7),
    dict(xtc_probability=1.0, xtc_threshold=0.05, temperature=0.4, samplers="temperature;xtc"),
    dict(dynatemp_range=0.5), dict(dynatemp_range=3.0), dict(dynatemp_range=0.3, dynatemp_exponent=0.5, temperature=0.8, top_k=40),
    dict(dynatemp_range=0.8, dynatemp_exponent=2.0, temperature=1.2, min_p=0.03), dict(dynatemp_range=0.4, temperature=0.0, top_k=20),
    dict(dynatemp_range=0.4, top_k=1), dict(dynatemp_range=0.4, dynatemp_exponent=0.0, top_k=30),
    dict(temperature=0.0, repeat_penalty=1.3), dict(temperature=0.0, typical_p=0.3), dict(temperature=0.0, xtc_probability=1.0, xtc_threshold=0.01),
    dict(temperature=0.6, top_p=0.9, samplers="temperature;top_p"), dict(temperature=2.0, min_p=0.1, samplers="temperature;min_p"),
    dict(temperature=1.7, typical_p=0.6, samplers="temperature;typ_p"), dict(temperature=0.5, top_n_sigma=1.0, samplers="temperature;top_n_sigma"),
    dict(temperature=0.5, repeat_penalty=1.4, presence_penalty=0.5, samplers="temperature;penalties"),
    dict(top_k=12, repeat_penalty=1.6, frequency_penalty=0.3, samplers="top_k;penalties"),
    dict(top_k=12, repeat_penalty=1.6, temperature=0.0, samplers="top_k;penalties;temperature"),
    dict(top_p=0.8, top_k=15, min_p=0.05, samplers="min_p;top_p;top_k"), dict(typical_p=0.6, top_k=15, samplers="typ_p;top_k"),
    dict(top_p=0.7, top_k=5, samplers="top_k;temperature"), dict(top_p=0.7, top_k=5, samplers=""),
]
MIROSTAT = [dict(mirostat=v, mirostat_ent=tau, mirostat_lr=eta, temperature=t)
            for v in (1, 2) for tau, eta, t in ((5.0, 0.1, 0.8), (2.0, 0.5, 1.0), (3.0, 0.3, 1.5), (1.0, 1.0, 1.0))]
STEPS = 7


class Chain:
    """llama.cpp's chain of a setting, as its common library builds it."""

    def __init__(self, n, s, history):
        s = {**DEFAULT, **OTHERS, **s}
        make = {
            "penalties": lambda: lib.llama_sampler_init_penalties(n, s["repeat_last_n"], s["repeat_penalty"], s["frequency_penalty"], s["presence_penalty"]),
            "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(s["top_n_sigma"]),
            "top_k": lambda: lib.llama_sampler_init_top_k(s["top_k"]),
            "typ_p": lambda: lib.llama_sampler_init_typical(s["typical_p"], 1),
            "top_p": lambda: lib.llama_sampler_init_top_p(s["top_p"], 1),
            "min_p": lambda: lib.llama_sampler_init_min_p(s["min_p"], 1),
            "xtc": lambda: lib.llama_sampler_init_xtc(s["xtc_probability"], s["xtc_threshold"], 1, 1),
            "temperature": lambda: lib.llama_sampler_init_temp_ext(s["temperature"], s["dynatemp_range"], s["dynatemp_exponent"]),
        }
        if s["mirostat"]:
            self.samplers = [lib.llama_sampler_init_temp(s["temperature"]),
                             lib.llama_sampler_init_mirostat(n, 1, s["mirostat_ent"], s["mirostat_lr"], 100) if s["mirostat"] == 1
                             else lib.llama_sampler_init_mirostat_v2(1, s["mirostat_ent"], s["mirostat_lr"])]
        else:
            self.samplers = [make[name]() for name in s["samplers"].split(";") if name] + [lib.llama_sampler_init_dist(1)]
        for token in history:
            for sampler in self.samplers:
                lib.llama_sampler_accept(sampler, token)

    def apply(self, logits):
        """[(id, probability)] of what is left, by ids; what was drawn, as (id, probability)."""
        n = len(logits)
        data = (lib.llama_token_data * n)()
        for i, x in enumerate(logits):
            data[i].id, data[i].logit, data[i].p = i, x, 0.0
        array = lib.llama_token_data_array(data=data, size=n, selected=-1, sorted=False)
        for sampler in self.samplers:
            lib.llama_sampler_apply(sampler, ctypes.byref(array))
        left = [(array.data[i].id, array.data[i].p) for i in range(array.size)]
        return sorted(left), left[array.selected]

    def free(self):
        for sampler in self.samplers:
            lib.llama_sampler_free(sampler)


def run(logits, history, s):
    chain = Chain(len(logits), s, history)
    kept, _ = chain.apply(logits)
    chain.free()
    return kept


def likely(kept):
    """Without what has no probability, as the tokens that a sampler puts at minus infinity."""
    return [c for c in kept if c[1] > 0.0]


def is_sure(logits, history, s, kept):
    """Whether the limits may be a little lower or higher without another token left."""
    for factor in (0.99999, 1.00001):
        near = {k: s[k] * factor for k in LIMITS if k in s and (k in ("top_n_sigma", "mirostat_ent") or 0 < s[k] < 1)}
        if [i for i, _ in likely(run(logits, history, {**s, **near}))] != [i for i, _ in likely(kept)]:
            return False
    return True


def listed(kept):
    return {"ids": [i for i, _ in kept], "p": [float(f"{p:.7g}") for _, p in kept]}


def chains(settings, vectors, whole):
    """The cases of settings; every field of `DEFAULT` if `whole`, else what is set."""
    cases = []
    for i, v in enumerate(vectors):
        for setting in settings:
            kept = run(v["logits"], v["history"], setting)
            if is_sure(v["logits"], v["history"], {**DEFAULT, **setting} if whole else setting, kept):
                cases.append({"vector": i, **({**DEFAULT, **setting} if whole else {"set": setting}), **listed(kept if whole else likely(kept))})
    print(len(cases), "cases of", len(vectors) * len(settings))
    return cases


def mirostat(vectors):
    """Steps of mirostat: the mu before each, what it leaves, what is drawn."""
    cases = []
    for setting in MIROSTAT:
        chain, mu = Chain(len(vectors[0]["logits"]), setting, []), 2.0 * setting["mirostat_ent"]
        for step in range(STEPS):
            i = step % len(vectors)
            kept, (token, p) = chain.apply(vectors[i]["logits"])
            after = mu - setting["mirostat_lr"] * (-math.log2(p) - setting["mirostat_ent"])
            # The chain's own mu is out of reach. A fresh one with half of ours for tau begins with ours: it must leave the same.
            fresh = {**setting, "mirostat_ent": mu / 2}
            if is_sure(vectors[i]["logits"], [], fresh, run(vectors[i]["logits"], [], fresh)):
                assert [c[0] for c in likely(run(vectors[i]["logits"], [], fresh))] == [c[0] for c in likely(kept)], (setting, step)
                cases.append({"vector": i, "set": setting, "mu": mu, "token": token, "after": after, **listed(likely(kept))})
            mu = after
        chain.free()
    print(len(cases), "steps of mirostat of", STEPS * len(MIROSTAT))
    return cases


TEXTS = {
    "list": "one apple, one pear, one plum and one apple, one pear, one plum and one apple, one pear,",
    "lines": "The cat sat on the mat.\nThe cat sat on the rug.\nThe cat sat on the",
    "colon": "name: the cat sat here, name: the cat sat",
    "stars": "the cat * the cat ** the cat * the",
    "turns": "the old man said to the old man said User: the old man said to the old man said User: the old man said to the old",
    "same": "the the the the the the the the the the the the",
    "long": "a man and a cat and a dog and a man and a cat and a dog and a man and a cat and a dog and a man and a",
}
# Breakers end where a token does: llama.cpp looks for the rest of one as the tokens that it is by itself, and misses one that ends within a
# token of the text.
DRY = [
    dict(), dict(dry_multiplier=0.5, dry_base=1.2), dict(dry_allowed_length=1), dict(dry_allowed_length=0), dict(dry_allowed_length=5),
    dict(dry_penalty_last_n=10), dict(dry_penalty_last_n=3), dict(dry_breakers=[]), dict(dry_breakers=["User:"]),
    dict(dry_breakers=["cat", " plum"]), dict(dry_breakers=["he old", "at sat"]), dict(dry_breakers=["said", "at"], dry_base=2.0),
]


def dry():
    cases = []
    for family in ("qwen2", "llama-spm", "gpt-2"):
        params = lib.llama_model_default_params()
        params.vocab_only, params.n_gpu_layers = True, 0
        path = ROOT / f"crates/minfer/tests/data/tokenizer/{family}.gguf"
        model = lib.llama_model_load_from_file(str(path).encode(), params)
        assert model, path
        vocab = lib.llama_model_get_vocab(model)
        n = lib.llama_vocab_n_tokens(vocab)
        for name, text in TEXTS.items():
            raw = text.encode()
            buffer = (lib.llama_token * (len(raw) + 16))()
            tokens = list(buffer[:lib.llama_tokenize(vocab, raw, len(raw), buffer, len(buffer), False, False)])
            for setting in DRY:
                # SentencePiece puts a space before every text, so llama.cpp never finds the rest of a breaker there.
                if family == "llama-spm" and any(len(b) > 1 for b in setting.get("dry_breakers", [])):
                    continue
                s = {**dict(dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=-1, dry_breakers=["\n", ":", '"', "*"]), **setting}
                breakers = (ctypes.c_char_p * max(1, len(s["dry_breakers"])))(*(b.encode() for b in s["dry_breakers"]))
                last_n = s["dry_penalty_last_n"] if s["dry_penalty_last_n"] >= 0 else 4096
                chain = Chain(n, dict(samplers=""), [])
                chain.samplers.insert(0, lib.llama_sampler_init_dry(vocab, s["dry_multiplier"], s["dry_base"], s["dry_allowed_length"], last_n,
                                                                    breakers, len(s["dry_breakers"])))
                for token in tokens:
                    lib.llama_sampler_accept(chain.samplers[0], token)
                data = (lib.llama_token_data * n)()
                for i in range(n):
                    data[i].id = i
                array = lib.llama_token_data_array(data=data, size=n, selected=-1, sorted=False)
                lib.llama_sampler_apply(chain.samplers[0], ctypes.byref(array))
                losses = sorted((array.data[i].id, -array.data[i].logit) for i in range(n) if array.data[i].logit != 0.0)
                chain.free()
                cases.append({"family": family, "text": name, "tokens": tokens, "set": setting,
                              "losses": [[i, float(f"{x:.7g}")] for i, x in losses]})
        lib.llama_model_free(model)
    print(len(cases), "cases of DRY,", sum(bool(c["losses"]) for c in cases), "with a loss")
    return cases


def main():
    rng = np.random.default_rng(20251129)
    vectors = []
    for scale in (0.5, 3.0, 9.0):
        logits = rng.normal(size=300, scale=scale).astype(np.float32)
        history = [int(t) for t in rng.integers(0, 12, size=20)] + [int(t) for t in np.argsort(-logits)[[0, 3, 3, 9]]]
        vectors.append({"logits": [float(x) for x in logits], "history": history})
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "crates/minfer/tests/data/sampling"
    write = lambda name, value: Path(data, name).write_text(json.dumps(value, separators=(",", ":")))
    write("chain.json", {"vectors": vectors, "cases": chains(SETTINGS, vectors, True)})
    write("samplers.json", {"chains": chains(MORE, vectors, False), "mirostat": mirostat(vectors)})
    write("dry.json", dry())


main()
