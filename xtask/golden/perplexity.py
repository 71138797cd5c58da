#!/usr/bin/env python3
"""llama.cpp's perplexity of three texts (xtask/show/texts) with SmolLM2-135M-Instruct Q4_1, chunked as by llama-perplexity -c 512 --chunks 1.

A text's first 512 tokens, BOS in the place of the first where the vocabulary wants one; judged are those of the second
half but its first. The log-likelihoods are llama-server's: a bias makes it choose the text's own token, and it says what the token's
probability was before that. Writes, by text, the tokens judged and their mean negative log-likelihood in nats.

The server (LLAMA_SERVER, else the one that `cargo xtask peers` has built) and the model (`cargo xtask models`) lie in MINFER_CACHE.
"""
# packages:
# output: crates/minfer-cli/tests/data/perplexity.json
import glob, json, math, os, pathlib, socket, subprocess, sys, time, urllib.error, urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("MINFER_CACHE") or pathlib.Path.home() / ".cache/minfer/models")
OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "crates/minfer-cli/tests/data/perplexity.json")
TEXTS = ["prose", "code", "dialogue"]  # in "languages" characters are cut, and of such tokens the server says nothing
CHUNK = 512


def server():
    if given := os.environ.get("LLAMA_SERVER"): return given
    found = glob.glob(str(CACHE / ".peers/llama-cpp-python-*/native/bin/llama-server"))
    if not found: sys.exit("no llama-server: run `cargo xtask peers` once, or name one in LLAMA_SERVER")
    return found[0]


def ask(port, path, **body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def wait(port, process):
    while process.poll() is None:
        try: return urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
        except (urllib.error.URLError, ConnectionError): time.sleep(0.2)
    sys.exit("llama-server has ended")


def log_likelihood(port, before, token):
    answer = ask(port, "/completion", prompt=before, n_predict=1, n_probs=1, temperature=0, cache_prompt=True, logit_bias=[[token, 10000]])
    (said,) = answer["completion_probabilities"]
    assert said["id"] == token, (said, token)
    return said["logprob"]


with socket.socket() as s:
    s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
command = [server(), "-m", CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf", "-c", "1024", "-np", "1", "-t", os.environ.get("THREADS", "2"), "--port", port]
process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    wait(port, process)
    out = {}
    tokenize = lambda text: ask(port, "/tokenize", content=text, add_special=True, parse_special=False)["tokens"]
    bos = tokenize("")[:1]
    for name in TEXTS:
        ids = tokenize((ROOT / f"xtask/show/texts/{name}.txt").read_text(encoding="utf-8"))[:CHUNK]
        assert len(ids) == CHUNK, (name, len(ids))
        ids[: len(bos)] = bos
        said = [log_likelihood(port, ids[:i], ids[i]) for i in range(CHUNK // 2 + 1, CHUNK)]
        out[name] = {"tokens": len(said), "nll": -sum(said) / len(said)}
        print(f"{name:<10} PPL {math.exp(out[name]['nll']):.4f} ({len(said)} tokens)", flush=True)
finally:
    process.terminate(); process.wait()
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text(json.dumps(out, indent=1) + "\n")
