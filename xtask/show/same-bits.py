"""Real models: equal tokens and last logits over threads, prefill chunks, fusion, instruction sets.

packages:
models: real

For each model a prompt of 600 tokens: its 64 greedy tokens, and the logits after them, must be the
same bytes in every setting. An instruction set that this CPU lacks is NOT RUN.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

MINFER = os.environ["MINFER"]
CACHE = Path(os.environ["MINFER_CACHE"])
MODELS = [
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-Q4_K_M.gguf",
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
]
TEXT = "The river rose in the night, and by morning 37 houses stood in water. "
PROMPT_TOKENS = 600
SETTINGS = [
    ("threads 1", ["-t", "1"], {}),
    ("threads 2", ["-t", "2"], {}),
    ("threads 3", ["-t", "3"], {}),
    *[(f"chunk {n}", ["--n-batch", str(n)], {}) for n in (1, 7, 32, 512)],
    ("no fusion", ["--no-fuse"], {}),
    ("no packing", ["--no-pack"], {}),
    *[(f"cpu {name}", [], {"MINFER_CPU": name})
      for name in ("avx2", "avxvnni", "avx512", "neon", "neon-nodot")],
    ("cpu scalar", [], {"MINFER_CPU": "scalar"}),
]


def minfer(*args, **env):
    """Standard output of one command; None where the CPU lacks the instruction set asked for."""
    done = subprocess.run([MINFER, *args], env={**os.environ, **env}, capture_output=True)
    if done.returncode == 1 and env and b"lacks" in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(f"minfer {' '.join(args)}: {done.stderr.decode()}")
    return done.stdout


def prompt_text(model):
    """A text of about PROMPT_TOKENS tokens."""
    text = TEXT * 60
    ids = json.loads(minfer("tokenize", model, text, "--json"))["ids"]
    return text[: len(text) * PROMPT_TOKENS // len(ids)]


def outcome(model, text, args, env):
    """Digest of the tokens and of the logits in one setting."""
    run = ["run", model, text, "--no-template", "--ignore-eos", "--temp", "0", "-n", "64", "--json"]
    tokens = minfer(*run, *args, **env)
    if tokens is None:
        return None
    tokens = json.loads(tokens)
    ids = tokens["ids"]
    assert len(ids) == 64, f"{len(ids)} tokens, not 64"
    every = ",".join(map(str, tokens["prompt_ids"] + ids))
    logits = minfer("logits", model, "--ids", every, "--json", *args, **env)
    digest = hashlib.sha256(json.dumps([ids, json.loads(logits)["logits"]]).encode())
    return digest.hexdigest()[:16]


def main():
    broken = not_run = 0
    for name in MODELS:
        model = str(CACHE / name)
        text = prompt_text(model)
        want = None
        for setting, args, env in SETTINGS:
            if setting == "cpu scalar" and not name.startswith("SmolLM2"):
                continue
            got = outcome(model, text, args, env)
            want = want or got
            word = "NOT RUN" if got is None else "same" if got == want else "DIFFERS"
            broken += word == "DIFFERS"
            not_run += word == "NOT RUN"
            print(f"{name:42} {setting:16} {got or '-':16} {word}", flush=True)
    print(f"\n{broken} differ, {not_run} NOT RUN")
    sys.exit(broken > 0)


main()
