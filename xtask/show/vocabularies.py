"""Tokenizers: ids of the whole corpus against Hugging Face and llama.cpp, and speed beside Hugging Face.

packages: gguf==0.19.0 numpy==2.4.6 tokenizers==0.23.3 llama-cpp-python==0.3.36
models: real

The name of this file is not `tokenizers`, which would hide the package.

Whole vocabularies: the three real models and the vocabulary-only files in the source of
llama-cpp-python. The references, and where they may differ, are those of
xtask/golden/tokenizer.py. Speed: the corpus as one text, minfer and tokenizers in turn.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "xtask/golden"))
import _tokenizer_corpus
import tokenizer as golden

FULL = ["gpt-2", "gpt-neox", "mpt", "starcoder", "refact", "command-r", "qwen2", "llama-bpe", "deepseek-llm", "deepseek-coder", "falcon",
        "aquila", "llama-spm", "phi-3", "baichuan"]


def example(name, *args):
    cargo = ["cargo", "run", "-q", "--release", "-p", "minfer", "--example", name, "--"]
    done = subprocess.run(cargo + [str(a) for a in args], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def check_ids(models, folder):
    golden.start()
    failed, texts = [], _tokenizer_corpus.texts()
    for model in models:
        file = folder / f"{model.stem}.json"
        golden.write_full(model, texts, file)
        code, out = example("check_tokenizer", model, file)
        print(out.replace(str(folder) + "/", "minfer: "), end="", flush=True)
        failed += [model.name] if code else []
    return failed


def hugging_face_speed(tk, text):
    start = time.perf_counter()
    ids = tk.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return len(text.encode()) / 1e6 / (time.perf_counter() - start), len(ids)


def check_speed(models, folder):
    texts = folder / "texts.json"
    texts.write_text(json.dumps(_tokenizer_corpus.texts()))
    text, slower = "\n".join(_tokenizer_corpus.texts()), []
    for model in models:
        tk = golden.File(model).hugging_face(False)
        hugging_face_speed(tk, text)  # fills its cache of words: minfer keeps none between texts
        ours, theirs, build = [], [], []
        for _ in range(3):
            theirs += [hugging_face_speed(tk, text)[0] for _ in range(3)]
            code, out = example("bench_tokenizer", model, texts, 5)
            if code:
                sys.exit(f"bench_tokenizer {model}: {out}")
            got = json.loads(out)
            ours.append(got["mb_per_s"][0])
            build.append(got["build_ms"][0])
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{model.stem}: {got['n_vocab']} tokens, built in {statistics.median(build):.1f} ms; {a:.2f} MB/s ({min(ours):.2f}-{max(ours):.2f}), "
              f"tokenizers {b:.2f} MB/s ({min(theirs):.2f}-{max(theirs):.2f}), ratio {a / b:.2f}", flush=True)
        slower += [model.name] if a < b or statistics.median(build) > 100 else []
    return slower


def main():
    real = sorted(p for p in pathlib.Path(os.environ["MINFER_CACHE"]).rglob("*.gguf"))
    source = golden.sources()
    models = real + [source / f"ggml-vocab-{name}.gguf" for name in FULL]
    with tempfile.TemporaryDirectory() as folder:
        failed = check_ids(models, pathlib.Path(folder))
        slower = check_speed(models, pathlib.Path(folder))
    if failed or slower:
        sys.exit(f"ids differ: {failed}; slower than tokenizers, or built in more than 100 ms: {slower}")


main()
