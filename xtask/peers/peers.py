"""llama.cpp and minfer in turn on the same files, same threads, pinned: ratios, spread, promised marks.

packages: gguf==0.19.0 numpy==2.4.6

Each turn is one process of minfer, then one of llama.cpp, with one warm-up of each test. llama.cpp is
given the faster of its flash-attention settings, chosen per test by the first turns (or the one of
--flash-attn; time to the first token is measured with its default). A turn in which it
falls below half of its own median is a turn in which its spinning barrier lost a CPU: left out of its
median, and counted.
"""

import argparse
import doctest
import os
import sys
from pathlib import Path
from statistics import median

import _engines
import _figures
import _marks
from _engines import Failed, LlamaCpp, Minfer, NotRun, Shape
from _figures import Figure, faster, kept, spread

# Decode steps at a depth: filling the KV takes most of the time, the steps cost all the same.
DEEP_STEPS = 32
# Prompt tokens of each of several sequences, and tokens that each of them then decodes.
SEQUENCE_STEPS = 128
WORDS = ("The river rose in the night and by morning the old houses near the mill stood in brown water up to the "
         "windows while people waited on roofs").split()


class Peers:
    """One run: both engines, the models' folder, the turns asked for, and the figures so far."""

    def __init__(self, args):
        self.own = Minfer(os.environ["MINFER"])
        self.peer = LlamaCpp(args.llama_cpp)
        self.turns = args.turns
        self.settings = {"off": (0,), "on": (1,), None: (0, 1)}[args.flash_attn]
        self.cache = Path(os.environ["MINFER_CACHE"])
        self.figures, self.not_run, self.failed = [], 0, 0

    def path(self, name):
        """The model's file; a random one is written on first use."""
        model = _marks.MODELS[name]
        if model.random is None:
            return self.cache / model.file
        path = self.cache / ".peers" / "models" / model.file
        if not path.is_file():
            import random_model
            print(f"writing {model.file}", file=sys.stderr, flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            random_model.write(*model.random, str(path), str(self.path(_marks.TOKENIZER)))
        return path

    def model(self, name, tests):
        """All tests of a model, those that can share a process together."""
        deep = _marks.MODELS[name].deep
        shapes = {
            "pp512": Shape(512, 0), "pp16": Shape(16, 0), "pp8192": Shape(8192, 0), "tg128": Shape(0, 128),
            "d2048": Shape(0, DEEP_STEPS, 2048), "d8192": Shape(0, DEEP_STEPS, deep),
        }
        groups = [
            (self.beside, ("pp512", "pp16", "tg128"), {"turns": 5}),
            # A warm-up of 8192 tokens warms nothing that its first tokens do not.
            (self.beside, ("pp8192",), {"turns": 2, "flags": ["--no-warmup"]}),
            (self.beside, ("d2048", "d8192"), {"turns": 2, "repetitions": 2}),
            (self.beside, ("avx2-pp512", "avx2-tg128"), {"turns": 3, "cpu": "avx2"}),
            (self.one_thread, ("t1-pp512", "t1-tg128", "t1-d2048", "t1-d8192"), {}),
            (self.rows, ("rows8",), {}),
            (self.sequences, ("seqs2", "seqs4", "seqs8", "seqs16"), {}),
            (self.first_token, ("ttft",), {}),
            (self.memory, ("memory",), {}),
        ]
        for measure, names, how in groups:
            chosen = {t: shapes.get(t.split("-")[-1]) for t in names if t in tests}
            if chosen:
                self.attempt(measure, name, chosen, how)

    def attempt(self, measure, name, tests, how):
        """Measures; what a machine can't run or what fails is told and counted, and the rest goes on."""
        try:
            measure(name, tests, **how)
        except (Failed, OSError) as e:
            word = "NOT RUN" if isinstance(e, NotRun) else "FAILED"
            for test in tests:
                print(f"{name:20} {test:11} {word}: {e}", flush=True)
            self.not_run += len(tests) * (word == "NOT RUN")
            self.failed += len(tests) * (word == "FAILED")

    def tell(self, *args, **more):
        """Adds a figure and prints its line."""
        figure = Figure(*args, **more)
        self.figures.append(figure)
        print(figure.line(), flush=True)

    def beside(self, name, tests, turns, repetitions=1, cpu=None, flags=()):
        """Tokens a second of both engines on two threads, in turn."""
        path, turns = self.path(name), self.turns or turns
        own = {t: [] for t in tests}
        peer = {t: {0: [], 1: []} for t in tests}
        for turn in range(turns):
            got = _engines.rates(self.own.bench(path, tests.values(), 2, repetitions, *flags, cpu=cpu).out)
            for t, shape in tests.items():
                own[t] += got[shape]
            self.peer_turn(path, tests, 2, peer, _figures.decides(turn, turns), repetitions, flags, cpu)
        for t in tests:
            fa = faster(peer[t])
            good = kept(peer[t][fa])
            lost = len(peer[t][fa]) - len(good)
            self.tell(name, t, median(own[t]) / median(good), "x", ">=", _marks.mark(name, t), spread(own[t]),
                      f"{spread(good)} fa {fa}", f"{lost} turns left out" if lost else "")

    def peer_turn(self, path, tests, threads, peer, deciding, repetitions=1, flags=(), cpu=None):
        """llama.cpp's speeds: with all flash-attention settings asked for in turns that decide, then with the faster."""
        for fa in self.settings:
            chosen = {t: s for t, s in tests.items() if deciding or faster(peer[t]) == fa}
            if chosen:
                args = (path, chosen.values(), threads, repetitions, "-fa", fa, *flags)
                got = _engines.rates(self.peer.bench(*args, cpu=cpu or "native").out)
                for t, shape in chosen.items():
                    peer[t][fa] += got[shape]

    def one_thread(self, name, tests):
        """Shares of one thread's limits; at depth 0 llama.cpp's speed beside them."""
        path, turns = self.path(name), self.turns or 3
        flat, deep = ({t: s for t, s in tests.items() if bool(s.depth) == d} for d in (False, True))
        own, share = ({t: [] for t in tests} for _ in range(2))
        peer = {t: {0: [], 1: []} for t in flat}
        for turn in range(turns):
            if flat:
                self.one_thread_turn(path, flat, 1, own, share)
                self.peer_turn(path, flat, 1, peer, _figures.decides(turn, turns))
            # Filling a deep KV on one thread takes long, and the steps after it repeat well.
            if deep and turn == 0:
                self.one_thread_turn(path, deep, 3, own, share)
        for t in tests:
            calm = [s for s, disturbed in share[t] if not disturbed]
            note = [] if calm else ["the machine changed meanwhile"]
            beside = ""
            if t in flat:
                fa = faster(peer[t])
                good = kept(peer[t][fa])
                note.insert(0, f"{median(own[t]) / median(good):.2f}x llama.cpp")
                beside = f"{spread(good)} fa {fa}"
            value = median(calm or [s for s, _ in share[t]])
            self.tell(name, t, value, "", ">=", _marks.mark(name, t), spread(own[t]), beside, ", ".join(note))

    def one_thread_turn(self, path, tests, repetitions, own, share):
        """One process of minfer on one thread; adds its speeds and shares."""
        out = self.own.bench(path, tests.values(), 1, repetitions, "--roofline").out
        speeds, shares = _engines.rates(out), _engines.shares(out)
        for t, s in tests.items():
            own[t] += speeds[s]
            share[t].append(shares[s])

    def rows(self, name, tests):
        """Tokens a second of 8 rows in a batch and of one."""
        one, eight = Shape(0, 64), Shape(0, 64, 0, 8)
        rates = {one: [], eight: []}
        for _ in range(self.turns or 3):
            got = _engines.rates(self.own.bench(self.path(name), rates, 2, 1).out)
            for shape in rates:
                rates[shape] += got[shape]
        value = median(rates[eight]) / median(rates[one])
        self.tell(name, "rows8", value, "x", ">=", _marks.mark(name, "rows8"),
                  f"{spread(rates[eight])}, one row {spread(rates[one])}")

    def sequences(self, name, tests):
        """Tokens a second of several sequences that decode together, both engines, in turn."""
        path, turns = self.path(name), self.turns or 3
        counts = {t: int(t.removeprefix("seqs")) for t in tests}
        own = {t: [] for t in tests}
        peer = {t: {0: [], 1: []} for t in tests}
        shapes = {t: Shape(0, SEQUENCE_STEPS, SEQUENCE_STEPS, n) for t, n in counts.items()}
        for turn in range(turns):
            got = _engines.rates(self.own.bench(path, shapes.values(), 2, 1).out)
            for t, shape in shapes.items():
                own[t] += got[shape]
            for fa in self.settings:
                chosen = {t: n for t, n in counts.items() if _figures.decides(turn, turns) or faster(peer[t]) == fa}
                if chosen:
                    out = self.peer.batched(path, SEQUENCE_STEPS, SEQUENCE_STEPS, list(chosen.values()), 2, fa).out
                    rates = _engines.batched_rates(out.decode())
                    for t, n in chosen.items():
                        peer[t][fa].append(rates[n])
        for t in tests:
            fa = faster(peer[t])
            good = kept(peer[t][fa])
            lost = len(peer[t][fa]) - len(good)
            self.tell(name, t, median(own[t]) / median(good), "x", ">=", _marks.mark(name, t), spread(own[t]),
                      f"{spread(good)} fa {fa}", f"{lost} turns left out" if lost else "")

    def first_token(self, name, tests):
        """Wall time of whole processes that end with their first token."""
        path = self.path(name)
        prompt = next(text for n in range(len(WORDS)) if self.own.tokens(path, text := " ".join(WORDS[: n + 1])) >= 20)
        own, peer = [], []
        for _ in range(1 + (self.turns or 9)):
            own.append(self.own.first_token(path, prompt, 2).seconds * 1e3)
            peer.append(self.peer.first_token(path, prompt, 2).seconds * 1e3)
        # The first turn warmed the file.
        own, peer = own[1:], peer[1:]
        self.tell(name, "ttft", median(own) / median(peer), "x", "<", _marks.mark(name, "ttft"),
                  f"{spread(own)} ms", f"{spread(peer)} ms")

    def memory(self, name, tests):
        """Peak resident memory of a process that wrote the KV of a whole context."""
        path, shapes = self.path(name), [Shape(4096, 0)]
        own = self.own.bench(path, shapes, 2, 1).peak_mb
        peer = min(self.peer.bench(path, shapes, 2, 1, "-fa", fa, "--no-warmup").peak_mb for fa in self.settings)
        self.tell(name, "memory", own, " MB", "<=", _marks.mark(name, "memory"), f"{own:.0f} MB", f"{peer:.0f} MB")


def arguments():
    """The command line; an unknown model or test is refused with the list of those there are."""
    parser = argparse.ArgumentParser(prog="cargo xtask peers", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models by name, or a part of it (default: all)")
    parser.add_argument("--tests", metavar="T,…", help="only these tests (default: all)")
    parser.add_argument("--turns", type=int, metavar="N", help="turns of each test (default: 2 to 9, by its cost)")
    parser.add_argument("--flash-attn", choices=("on", "off"),
                        help="only this setting in llama.cpp's benches (default: the faster; at depth both take long)")
    parser.add_argument("--llama-cpp", metavar="DIR", help="use the programs in DIR/native/bin and DIR/avx2/bin")
    parser.add_argument("--list", action="store_true", help="print the models, tests and marks, and measure nothing")
    args = parser.parse_args()
    if args.turns is not None and args.turns < 1:
        parser.error("--turns: at least 1")
    for word in args.models:
        if not any(word in name for name in _marks.MODELS):
            parser.error(f"no model `{word}`; there are: {', '.join(_marks.MODELS)}")
    if args.llama_cpp and not (Path(args.llama_cpp) / "native" / "bin").is_dir():
        parser.error(f"--llama-cpp: {args.llama_cpp} holds no folder native/bin")
    args.tests = args.tests.split(",") if args.tests else list(_marks.TESTS)
    for word in args.tests:
        if word not in _marks.TESTS:
            parser.error(f"no test `{word}`; there are: {', '.join(_marks.TESTS)}")
    args.models = [m for m in _marks.MODELS if not args.models or any(word in m for word in args.models)]
    return args


def main():
    args = arguments()
    wanted = {m: [t for t in _marks.TESTS if t in args.tests and _marks.applies(m, t)] for m in args.models}
    if args.list:
        for test, what in _marks.TESTS.items():
            print(f"{test:12} {what}")
        for model, tests in wanted.items():
            marks = (f"{t} {_marks.mark(model, t):g}" for t in tests if _marks.mark(model, t) is not None)
            print(f"{model:20} {', '.join(marks)}")
        return
    if any(doctest.testmod(m).failed for m in (_engines, _figures, _marks)):
        sys.exit("the runner's own tests failed")
    if len(_engines.CPUS) < 2:
        sys.exit("the marks are for two threads, and this process may use one CPU")

    peers = Peers(args)
    for model, tests in wanted.items():
        peers.model(model, tests)
    print("\nWhat misses its mark is bold, the mark beside it.\n")
    print(_figures.table(peers.figures, _marks.TESTS))
    missed = sum(f.missed() for f in peers.figures)
    print(f"\n{len(peers.figures)} figures, {missed} marks missed, {peers.failed} failed, {peers.not_run} NOT RUN")
    sys.exit(missed + peers.failed > 0)


if __name__ == "__main__":
    main()
