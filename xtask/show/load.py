"""One server under load beside llama-server: total tokens a second, times to the first token.

packages: locust==2.47.0
models: real
peer: llama-server

Both serve Qwen2.5-Coder-0.5B on two threads with 16 slots, one after the other. Locust's users ask for streamed
chat answers: one system prompt for all, questions of mixed length, 64 tokens each, greedy; three requests a client, so that two
slow cores end in half an hour: a p99 over so few is their largest. llama.cpp's server is the one that
`cargo xtask peers` builds; `LLAMA_SERVER` names another. The generator runs on the same machine and takes its share from both.
"""

import gevent.monkey

gevent.monkey.patch_all()

import atexit  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import urllib.request  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402
from locust import HttpUser, constant, task  # noqa: E402
from locust.env import Environment  # noqa: E402

CACHE = Path(os.environ["MINFER_CACHE"])
MODEL = CACHE / "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
LLAMA = os.environ["LLAMA_SERVER"]
PORT = 18_080
# Clients at once, and requests in all: three a client.
LOADS = {1: 3, 4: 12, 16: 48}
ROUNDS = 1
ANSWER = 64
SYSTEM = "You are a careful assistant for programmers. " + " ".join(
    f"Rule {i}: say what you know about topic {i}, say what you do not know, and be brief." for i in range(16))
WORDS = ("the file holds a list of numbers and the function returns their sum unless an error is found while "
         "reading lines from the network or a cache of earlier values").split()


def question(seed):
    """A made-up question of 5 to 600 words; the same for the same seed."""
    rng = random.Random(seed)
    n = rng.choice([5, 20, 60, 150, 600])
    return f"Question {seed}: " + " ".join(rng.choice(WORDS) for _ in range(n)) + "?"


class Client(HttpUser):
    """Asks until no request is left."""

    wait_time = constant(0)
    left = []
    done = []
    # What went wrong; a single failure ends the run.
    lost = []

    @task
    def ask(self):
        if not self.left:
            gevent.sleep(0.05)
            return
        # Locust would log an exception and go on, and the run would wait for that answer for ever.
        try:
            self.done.append(self.answer(question(self.left.pop())))
        except Exception as e:
            self.lost.append(f"{type(e).__name__}: {e}")

    def answer(self, text):
        """Seconds to the first token, tokens of the prompt and of the answer."""
        body = {
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
            "max_tokens": ANSWER, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        start, first, usage = time.perf_counter(), None, None
        # A connection a request: llama-server closes kept ones at times just when the next request is written.
        with self.client.post("/v1/chat/completions", json=body, headers={"Connection": "close"}, stream=True,
                              catch_response=True) as response:
            if response.status_code != 200:
                raise RuntimeError(f"HTTP {response.status_code}: {response.error or response.text[:300]}")
            for line in response.iter_lines(chunk_size=None):
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if first is None and event["choices"] and event["choices"][0]["delta"].get("content"):
                    first = time.perf_counter() - start
            if first is None or usage is None:
                raise RuntimeError("an answer without text or usage")
            response.success()
        return first, usage["prompt_tokens"], usage["completion_tokens"]


def load(n, seed):
    """Total tokens a second and every time to the first token, with so many clients."""
    Client.left = list(range(seed, seed + LOADS[n]))
    Client.done = []
    Client.host = f"http://127.0.0.1:{PORT}"
    env = Environment(user_classes=[Client])
    runner = env.create_local_runner()
    start = time.perf_counter()
    runner.start(n, spawn_rate=1000)
    while len(Client.done) < LOADS[n]:
        if Client.lost:
            sys.exit(f"a request failed: {Client.lost[0]}")
        gevent.sleep(0.01)
    took = time.perf_counter() - start
    runner.quit()
    tokens = sum(p + c for _, p, c in Client.done)
    return tokens / took, [first for first, _, _ in Client.done]


def serve(command):
    """Starts a server and waits until it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health") as response:
                if response.status == 200:
                    return process
        except OSError:
            pass
        if process.poll() is not None:
            sys.exit(f"{command[0]} has ended with {process.returncode}")
        time.sleep(0.1)
    sys.exit(f"{command[0]} is not ready after a minute")


def percentile(values, share):
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    sides = {
        "minfer": [os.environ["MINFER"], "serve", str(MODEL), "--port", str(PORT), "-t", "2", "--parallel", "16", "-c", "2048"],
        "llama-server": [LLAMA, "-m", str(MODEL), "--port", str(PORT), "-t", "2", "-np", "16", "-c", str(16 * 2048), "--no-webui"],
    }
    found = {}
    for turn in range(ROUNDS):
        for side, command in sides.items():
            process = serve(command)
            atexit.register(process.kill)
            for n in LOADS:
                # The same requests for both sides, and others in every round.
                rate, firsts = load(n, seed=1000 * n + 100 * turn)
                found.setdefault((side, n), []).append((rate, firsts))
                print(f"{side:13} {n:3} clients  {rate:8.1f} tokens/s  first token: median {statistics.median(firsts):6.3f} s  "
                      f"p99 {percentile(firsts, 0.99):6.3f} s", flush=True)
            process.terminate()
            process.wait()
    print()
    missed = 0
    for n in LOADS:
        rates = {side: statistics.median(r for r, _ in found[side, n]) for side in sides}
        p99 = {side: percentile([f for _, firsts in found[side, n] for f in firsts], 0.99) for side in sides}
        ratio = rates["minfer"] / rates["llama-server"]
        good = p99["minfer"] < p99["llama-server"] and (n != 16 or ratio >= 2)
        missed += not good
        print(f"{n:3} clients: {ratio:.2f} times the tokens a second{' (mark 2)' if n == 16 else ''}, p99 of the first token "
              f"{p99['minfer']:.3f} s and {p99['llama-server']:.3f} s: {'ok' if good else 'MISSED'}")
    sys.exit(1 if missed else 0)


main()
