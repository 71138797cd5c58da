"""Client suites against a live server: the official SDKs and the frameworks people use, unchanged.

packages: openai==2.54.0 anthropic==2.14.0 ollama==0.6.3 langchain-openai==1.4.3 instructor==1.17.0 pydantic-ai-slim==2.31.1 lm-eval[api]==0.4.13 httpx==0.28.1
models: real

`minfer serve` runs with two real models; every client speaks to it through a recorder that checks each response against the
SDKs' own types. `clients.py SUITE…` runs only these suites. What a client needs and the server lacks FAILS; a client that
can't be installed is NOT RUN and counted.
"""
import os
import sys
import tempfile
from pathlib import Path

from clients import QWEN, SMOL, Minfer, Tally
from clients.recorder import Recorder

CACHE = Path(os.environ["MINFER_CACHE"])
MODELS = {SMOL: CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf", QWEN: CACHE / "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"}


def suites(url, direct, scratch):
    """Name and loader of each; a loader imports its client, so that a missing one is told and not fatal."""
    from importlib import import_module
    load = lambda module, name="checks": lambda: getattr(import_module(f"clients.{module}"), name)(url, direct)
    yield "openai", load("openai_chat")
    yield "completions", load("openai_rest", "completions")
    yield "embeddings", load("openai_rest", "embeddings")
    yield "responses", load("openai_rest", "responses")
    yield "langchain", load("frameworks", "langchain")
    yield "instructor", load("frameworks", "instructor_checks")
    yield "pydantic-ai", load("frameworks", "pydantic_ai_checks")
    yield "anthropic", load("anthropic_ollama", "anthropic_checks")
    yield "ollama", load("anthropic_ollama", "ollama_checks")
    yield "lm-eval", lambda: import_module("clients.evals").checks(url, direct, MODELS[SMOL], scratch)


def main():
    command = [os.environ["MINFER"], "serve", *(f"{name}={path}" for name, path in MODELS.items()), "--port", "0"]
    server = Minfer(command)
    recorder = Recorder(server.port)
    tally = Tally(sys.argv[1:], recorder)
    with tempfile.TemporaryDirectory() as folder:
        for name, load in suites(recorder.url, server.url, Path(folder)):
            tally.suite(name, load)
        if not tally.only or "node" in tally.only:
            from clients.node import run
            run(tally, recorder.url, Path(folder))
    print()
    for shape, n in sorted(recorder.counts.items()):
        print(f"{n:5} responses of shape {shape}")
    alive, code = server.alive(), server.stop()
    if not alive or code != 0:
        tally.note("server", "lives to the end and stops when told", f"alive {alive}, exit {code}: {''.join(server.said)[-300:]}")
    print(f"\n{tally.passed} ok, {tally.failed} FAILED, {tally.missing} NOT RUN")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
