"""Speed beside llama.cpp in the same run: prefill 512, decode 128, load time, memory; the sampler's share.

packages: llama-cpp-python==0.3.36 numpy==2.4.6
models: real

Both engines take turns, A B A B, each as a process of its own with the same threads; medians with
their spread, and the ratio. A turn in which the peer falls below half of its own median is a turn in
which its spinning barrier lost a CPU: it is left out of the peer's median and counted.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MINFER = os.environ["MINFER"]
CACHE = Path(os.environ["MINFER_CACHE"])
MODELS = [
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-Q4_K_M.gguf",
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
]
VOCABULARY = dict(zip(MODELS, (49_152, 262_144, 151_936)))
PROMPT, DECODE, TURNS = 512, 128, 5
# The most that the sampler may take of a token's time.
SAMPLER_SHARE = 0.02
# (name, kind, least ratio to the peer that is promised)
MARKS = [("prefill 512", "pp", 2.0), ("decode 128", "tg", 1.0)]


def peer(model, threads):
    """One turn of llama.cpp in this process: speeds, load time and peak memory as JSON."""
    import llama_cpp as lib

    lib.llama_backend_init()
    start = time.perf_counter()
    handle = lib.llama_load_model_from_file(model.encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = PROMPT + DECODE, PROMPT, PROMPT
    params.n_threads = params.n_threads_batch = threads
    ctx = lib.llama_new_context_with_model(handle, params)
    load_ms = (time.perf_counter() - start) * 1e3

    def decode(tokens):
        array = (lib.llama_token * len(tokens))(*tokens)
        assert lib.llama_decode(ctx, lib.llama_batch_get_one(array, len(tokens))) == 0
        lib.llama_synchronize(ctx)

    decode([1, 2, 3])
    out = {"load_ms": load_ms}
    for kind in ("pp", "tg"):
        lib.llama_memory_clear(lib.llama_get_memory(ctx), True)
        start = time.perf_counter()
        if kind == "pp":
            decode([i % 1000 + 5 for i in range(PROMPT)])
        else:
            for i in range(DECODE):
                decode([i % 1000 + 5])
        out[kind] = (PROMPT if kind == "pp" else DECODE) / (time.perf_counter() - start)
    out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(out))


def peer_turn(model, threads):
    command = [sys.executable, __file__, "--peer", model, str(threads)]
    done = subprocess.run(command, check=True, capture_output=True)
    return json.loads(done.stdout.splitlines()[-1])


def own_turn(model, threads):
    """One turn of `minfer bench`, and of a short run for load time and memory."""
    bench = [MINFER, "bench", model, "-p", str(PROMPT), "-n", str(DECODE), "-t", str(threads)]
    rows = json.loads(subprocess.run([*bench, "-r", "1", "-o", "json"], check=True,
                                     capture_output=True).stdout)
    out = {("pp" if row["n_prompt"] else "tg"): row["avg_ts"] for row in rows}
    run = [MINFER, "run", model, "Hello", "--no-template", "-n", "1", "-t", str(threads), "--json"]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"run: status {status}"
    out["load_ms"] = json.loads(text)["timings"]["load_ms"]
    out["peak_mb"] = usage.ru_maxrss / 1024
    return out


def sampler_microseconds():
    """Median time of one choice with default settings, by size of the vocabulary."""
    example = ["cargo", "run", "--release", "-q", "-p", "minfer", "--example", "sampler_speed"]
    text = subprocess.run(example, check=True, capture_output=True).stdout.decode()
    rows = re.findall(r"(\d+) tokens, defaults: median +([\d.]+) us", text)
    return {int(n): float(us) for n, us in rows}


def spread(values):
    return f"{statistics.median(values):8.1f} [{min(values):.1f}..{max(values):.1f}]"


def main():
    missed = 0
    sampler = sampler_microseconds()
    for name in MODELS:
        model = str(CACHE / name)
        for threads in sorted({1, os.cpu_count()}):
            turns = [(own_turn(model, threads), peer_turn(model, threads)) for _ in range(TURNS)]
            print(f"{name}, {threads} threads")
            for label, kind, least in MARKS:
                own = [a[kind] for a, _ in turns]
                theirs = [b[kind] for _, b in turns]
                kept = [v for v in theirs if v >= statistics.median(theirs) / 2]
                ratio = statistics.median(own) / statistics.median(kept)
                missed += ratio < least
                word = "ok" if ratio >= least else f"MISSED, at least {least}"
                left = f", {len(theirs) - len(kept)} turns left out" if len(kept) < TURNS else ""
                print(f"  {label:12} minfer {spread(own)}  llama.cpp {spread(kept)} tokens/s"
                      f"  x{ratio:.2f} {word}{left}", flush=True)
            token = 1e6 / statistics.median(a["tg"] for a, _ in turns)
            share = sampler[VOCABULARY[name]] / token
            missed += share > SAMPLER_SHARE
            word = "ok" if share <= SAMPLER_SHARE else f"MISSED, at most {SAMPLER_SHARE:.0%}"
            print(f"  sampler      {sampler[VOCABULARY[name]]:.0f} us, {share:.2%} of a token {word}", flush=True)
            for label, key in (("load, ms", "load_ms"), ("peak, MB", "peak_mb")):
                own, theirs = [a[key] for a, _ in turns], [b[key] for _, b in turns]
                print(f"  {label:12} minfer {spread(own)}  llama.cpp {spread(theirs)}", flush=True)
    print(f"\n{missed} marks missed")
    sys.exit(missed > 0)


if sys.argv[1:2] == ["--peer"]:
    peer(sys.argv[2], int(sys.argv[3]))
else:
    main()
