"""Reference values of the sampler chain: what llama.cpp keeps, and with which probabilities.

packages: llama-cpp-python==0.3.36 numpy==2.4.6

    python sampling.py [DATA_DIR]

DATA_DIR is crates/minfer/tests/data/sampling where none is given. Writes chain.json: random logits (a vector a scale), and for each setting the
token ids and probabilities (rounded to 7 digits) left after penalties, top-k, typical, top-p, min-p and temperature. A case
whose cut lies so near a candidate that rounding decides is left out: it is tried with p a little lower and higher.
"""
import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

KEYS = ("top_k", "typical_p", "top_p", "min_p", "temperature", "repeat_penalty", "frequency_penalty", "presence_penalty", "repeat_last_n")
DEFAULT = dict(top_k=0, typical_p=1.0, top_p=1.0, min_p=0.0, temperature=1.0,
               repeat_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0, repeat_last_n=64)
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


def run(logits, history, s):
    n = len(logits)
    data = (llama_cpp.llama_token_data * n)()
    for i, x in enumerate(logits):
        data[i].id, data[i].logit, data[i].p = i, x, 0.0
    array = llama_cpp.llama_token_data_array(data=data, size=n, selected=-1, sorted=False)
    penalties = llama_cpp.llama_sampler_init_penalties(n, s["repeat_last_n"], s["repeat_penalty"], s["frequency_penalty"], s["presence_penalty"])
    chain = [penalties]
    if s["top_k"]:
        chain.append(llama_cpp.llama_sampler_init_top_k(s["top_k"]))
    chain += [llama_cpp.llama_sampler_init_typical(s["typical_p"], 1), llama_cpp.llama_sampler_init_top_p(s["top_p"], 1),
              llama_cpp.llama_sampler_init_min_p(s["min_p"], 1), llama_cpp.llama_sampler_init_temp(s["temperature"]),
              llama_cpp.llama_sampler_init_dist(1)]
    for t in history:
        llama_cpp.llama_sampler_accept(penalties, t)
    for sampler in chain:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    kept = sorted((array.data[i].id, array.data[i].p) for i in range(array.size))
    for sampler in chain:
        llama_cpp.llama_sampler_free(sampler)
    return kept


def main():
    rng = np.random.default_rng(20251129)
    vectors, cases = [], []
    for scale in (0.5, 3.0, 9.0):
        logits = rng.normal(size=300, scale=scale).astype(np.float32)
        history = [int(t) for t in rng.integers(0, 12, size=20)] + [int(t) for t in np.argsort(-logits)[[0, 3, 3, 9]]]
        vectors.append({"logits": [float(x) for x in logits], "history": history})
        for setting in SETTINGS:
            s = {**DEFAULT, **setting}
            kept = run(logits, history, s)
            near = [run(logits, history, {**s, **{k: s[k] * f for k in ("typical_p", "top_p", "min_p") if 0 < s[k] < 1}}) for f in (0.99999, 1.00001)]
            if any([i for i, _ in k] != [i for i, _ in kept] for k in near):
                continue
            cases.append({"vector": len(vectors) - 1, **{k: s[k] for k in KEYS},
                          "ids": [i for i, _ in kept], "p": [float(f"{p:.7g}") for _, p in kept]})
    print(len(cases), "cases of", 3 * len(SETTINGS))
    default = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/sampling"
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    Path(data, "chain.json").write_text(json.dumps({"vectors": vectors, "cases": cases}, separators=(",", ":")))


main()
