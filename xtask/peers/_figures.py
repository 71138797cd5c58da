"""From samples to figures, lines and tables."""

import operator
from collections import namedtuple
from statistics import median


def kept(samples):
    """Samples without those below half of their median: turns in which a spinning barrier lost a CPU.

    >>> kept([100, 98, 12, 103])
    [100, 98, 103]
    >>> kept([100, 60])
    [100, 60]
    """
    least = median(samples) / 2
    return [s for s in samples if s >= least]


def faster(samples):
    """The key with the best single sample: a lost CPU spoils a turn, never improves one.

    >>> faster({0: [90, 91], 1: [12, 97]}), faster({0: [90], 1: []})
    (1, 0)
    """
    return max(samples, key=lambda key: max(samples[key], default=0))


def decides(turn, turns):
    """Whether a turn measures all settings, so that the next ones know the faster: the first two of many.

    >>> [decides(turn, 5) for turn in range(5)], [decides(turn, 2) for turn in range(2)]
    ([True, True, False, False, False], [True, False])
    """
    return turn < (1 if turns < 3 else 2)


def spread(samples):
    """Median and range, with as many digits as the size deserves.

    >>> spread([1203.4, 1190, 1310]), spread([0.1234])
    ('1203 [1190..1310]', '0.12')
    """
    low, high = min(samples), max(samples)
    text = number(median(samples))
    return text if low == high else f"{text} [{number(low)}..{number(high)}]"


def number(x):
    """Two digits after the point, fewer for large numbers.

    >>> number(1234.5), number(123.45), number(12.345), number(0.12345)
    ('1234', '123.5', '12.35', '0.12')
    """
    digits = 0 if x >= 1000 else 1 if x >= 100 else 2
    return f"{x:.{digits}f}"


# How a value must stand to its mark, and the words for it.
RULES = {">=": (operator.ge, "at least"), "<=": (operator.le, "at most"), "<": (operator.lt, "below")}


class Figure(namedtuple("Figure", "model test value unit rule mark own peer note", defaults=("", "", ""))):
    """One outcome: a value, the mark that it must keep by `rule` (None: nothing is promised), what either
    engine measured, and what there is to note.

    >>> Figure("m", "pp512", 2.5, "x", ">=", 2.0).word(), Figure("m", "ttft", 1.0, "x", "<", 1.0).word()
    ('ok, at least 2x', 'MISSED, below 1x')
    >>> Figure("m", "memory", 1250.0, " MB", "<=", 1250).word(), Figure("m", "t1-pp512", 0.5, "", ">=", None).word()
    ('ok, at most 1250 MB', '')
    """

    __slots__ = ()

    def missed(self):
        """Whether a mark is not kept."""
        return self.mark is not None and not RULES[self.rule][0](self.value, self.mark)

    def word(self):
        """The mark and whether it is kept."""
        if self.mark is None:
            return ""
        return f"{'MISSED' if self.missed() else 'ok'}, {RULES[self.rule][1]} {self.mark:g}{self.unit}"

    def line(self):
        """One line of the running output."""
        sides = [f"minfer {self.own}", f"llama.cpp {self.peer}" if self.peer else "",
                 f"{number(self.value)}{self.unit}", self.word(), self.note]
        return f"{self.model:20} {self.test:11} " + "  ".join(side for side in sides if side)


def table(figures, tests):
    """The figures as a Markdown table, a row a model; what misses its mark is bold, the mark beside it.

    >>> rows = [Figure("m", "pp512", 2.5, "x", ">=", 2.0), Figure("m", "tg128", 1.1, "x", ">=", 1.2)]
    >>> print(table(rows, ["pp512", "pp16", "tg128"]))
    | model | pp512 | tg128 |
    |---|---|---|
    | m | 2.50x | **1.10x** (1.2) |
    """
    cells = {(f.model, f.test): _cell(f) for f in figures}
    tests = [t for t in tests if any(test == t for _, test in cells)]
    models = dict.fromkeys(f.model for f in figures)
    lines = [["model", *tests]]
    lines += [[m, *(cells.get((m, t), "") for t in tests)] for m in models]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|---" * (len(tests) + 1) + "|", *text[1:]])


def _cell(figure):
    text = f"{number(figure.value)}{figure.unit}"
    return f"**{text}** ({figure.mark:g})" if figure.missed() else text
