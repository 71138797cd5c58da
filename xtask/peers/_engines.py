"""Both engines as processes of their own, pinned to the same CPUs."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

PINS = hasattr(os, "sched_setaffinity")
CPUS = sorted(os.sched_getaffinity(0)) if PINS else list(range(os.cpu_count()))
# Prompt tokens, generated tokens, depth before them, rows at once.
Shape = namedtuple("Shape", "prompt gen depth rows", defaults=(0, 1))
# Standard output, seconds from start to end, peak of the resident memory in MB.
Ran = namedtuple("Ran", "out seconds peak_mb")


class Failed(Exception):
    """A command ended in an error."""


class NotRun(Failed):
    """The CPU lacks the instruction set that the test is about."""


def run(command, threads, env=None):
    """Runs a command to its end on the first `threads` CPUs."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **(env or {})},
            preexec_fn=(lambda: os.sched_setaffinity(0, CPUS[:threads])) if PINS else None)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode:
            last = " / ".join(err.read().decode(errors="replace").strip().splitlines()[-3:])
            kind = NotRun if env and "lacks" in last else Failed
            raise kind(f"{' '.join(command)}: exit {process.returncode}: {last}")
        unit = 1 if sys.platform == "darwin" else 1024
        return Ran(out.read(), seconds, usage.ru_maxrss * unit / 1e6)


def _listed(shapes, field, without_zero=False):
    values = dict.fromkeys(getattr(s, field) for s in shapes)
    return ",".join(str(v) for v in values if v or not without_zero) or "0"


def _arguments(shapes):
    """The lists that both bench commands take: prompts and generations are tests of their own.

    >>> _arguments([Shape(512, 0), Shape(16, 0), Shape(0, 128)])
    ['-p', '512,16', '-n', '128']
    >>> _arguments([Shape(0, 32, 2048), Shape(0, 32, 8192)])
    ['-p', '0', '-n', '32', '-d', '2048,8192']
    """
    depths = _listed(shapes, "depth")
    return ["-p", _listed(shapes, "prompt", True), "-n", _listed(shapes, "gen", True),
            *(["-d", depths] if depths != "0" else [])]


def rates(text):
    """Tokens a second by shape, from either bench command's JSON.

    >>> row = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ts": [1.5, 2.5], "flash_attn": 1}
    >>> rates(json.dumps([row])) == {Shape(512, 0): [1.5, 2.5]}
    True
    """
    return {_shape(row): row["samples_ts"] for row in json.loads(text)}


def _shape(row):
    return Shape(row["n_prompt"], row["n_gen"], row.get("n_depth", 0), row.get("n_seqs", 1))


def shares(text):
    """By shape, from `minfer bench --roofline`: the share of the limit that binds (weight products of the
    integer peak in prefill, bytes of the read bandwidth in decode), and whether the machine's limits moved.

    >>> row = {"n_prompt": 0, "n_gen": 128, "read_share": 0.9, "products_share": 0.1, "disturbed": False}
    >>> shares(json.dumps([row])) == {Shape(0, 128): (0.9, False)}
    True
    """
    return {_shape(row): (row["products_share" if row["n_prompt"] else "read_share"], row["disturbed"])
            for row in json.loads(text)}


def batched_rates(text):
    """Tokens a second of generation by number of sequences, from `llama-batched-bench`'s JSON lines.

    >>> batched_rates('{"pl": 4, "speed_tg": 81.5}\\n{"pl": 8, "speed_tg": 120.0}\\n')
    {4: 81.5, 8: 120.0}
    """
    rows = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {row["pl"]: row["speed_tg"] for row in rows}


class Minfer:
    """`minfer` from the path `MINFER`."""

    name = "minfer"

    def __init__(self, program):
        self.program = program

    def bench(self, model, shapes, threads, repetitions, *more, cpu=None):
        """`minfer bench` of all shapes in one process: its rows."""
        rows = _listed(shapes, "rows")
        args = [*_arguments(shapes), *(["-b", rows] if rows != "1" else [])]
        command = [self.program, "bench", model, *args, "-t", threads, "-r", repetitions, "-o", "json", *more]
        return run(command, threads, {"MINFER_CPU": cpu} if cpu else None)

    def first_token(self, model, prompt, threads):
        """A run that ends with its first token. The context is what both engines are given."""
        return run([self.program, "run", model, prompt, "--no-template", "-n", 1, "--temp", 0, "-c", 4096,
                    "-t", threads], threads)

    def tokens(self, model, text):
        """How many tokens a text is, BOS included."""
        return len(json.loads(run([self.program, "tokenize", model, text, "--json"], 1).out)["ids"])


class LlamaCpp:
    """llama.cpp's programs in a folder with `native/bin` and `avx2/bin`."""

    name = "llama.cpp"

    def __init__(self, folder):
        self.folder = Path(folder)

    def bench(self, model, shapes, threads, repetitions, *more, cpu="native"):
        """`llama-bench` of all shapes in one process: its rows."""
        program = self.folder / cpu / "bin" / "llama-bench"
        if not program.is_file():
            raise NotRun(f"{program}: not built for this architecture")
        return run([program, "-m", model, *_arguments(shapes), "-t", threads, "-r", repetitions, "-o", "json",
                    *more], threads)

    def batched(self, model, prompt, gen, rows, threads, fa):
        """`llama-batched-bench`: every sequence with a prompt of its own, then all decode together."""
        program = self.folder / "native" / "bin" / "llama-batched-bench"
        if not program.is_file():
            raise NotRun(f"{program}: not built")
        return run([program, "-m", model, "-c", max(rows) * (prompt + gen), "-npp", prompt, "-ntg", gen,
                    "-npl", ",".join(map(str, rows)), "-t", threads, "-fa", ("off", "on")[fa],
                    "--output-format", "jsonl"], threads)

    def first_token(self, model, prompt, threads):
        """A run that ends with its first token."""
        program = self.folder / "native" / "bin" / "llama-completion"
        return run([program, "-m", model, "-p", prompt, "-n", 1, "--temp", 0, "-c", 4096, "-t", threads,
                    "--no-warmup", "-no-cnv"], threads)
