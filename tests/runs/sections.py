"""Sections made by hand: one of every kind that a report draws, with names that would do harm where they could."""

from __future__ import annotations

import numpy as np

from metagen.analysis.figures import Line
from metagen.runs.note import Note
from metagen.runs.questions.section import Finding, Heat, Plot, Section, Table

HOSTILE = '</script><img src=x onerror="window.hacked=1">|$x$*'
XS = [1e7, 4e7, 1.6e8, 6.4e8]
NAN, INF = float("nan"), float("inf")


def line(label: str, start: float = 0.3, scale: float = 1.0) -> Line:
    """Rises by 0.1 a point, with bounds."""
    y = [start + 0.1 * i for i in range(len(XS))]
    return Line(label, [scale * x for x in XS], y, [v - 0.05 for v in y], [v + 0.05 for v in y])


def plots(hostile: str = "") -> tuple[Plot, ...]:
    """One quantity against two costs, an error with a mark and a limit, and a quantity that is no share."""
    panels = {
        f"majority{hostile}": [line(f"small{hostile}"), line("large", 0.5)],
        "best": [line("large", 0.4)],
    }
    errors = {
        "": [Line("small", XS, [0.6, 0.3, 0.1, 0.0]), Line("large", [0.0, *XS[1:]], [0.5, 0.2, 0.1, 0.05])]
    }
    reward = {"proxy": [Line("best of n", [0.0, 1.0, 2.0], [-0.5, NAN, 12.0])]}
    return (
        Plot("by-flops", f"Accuracy{hostile}", "By compute.", "FLOPs per problem", "accuracy", panels),
        Plot("by-tokens", f"Accuracy{hostile}", "By tokens.", "tokens per problem", "accuracy", panels),
        Plot("errors-0.5M", "Error", "Logarithmic.", "FLOPs per problem", "error", errors, y_log=True, steps=True,
             marks={1e8: f"here{hostile}"}, points={"": {"limit": (INF, 0.02), "small": (1e8, 0.4)}}),
        Plot("reward", "Reward", "", "KL in nats", "reward", reward, "linear"),
        Plot("nothing", "Nothing", "", "FLOPs per problem", "accuracy", {"": [Line("none", [NAN], [NAN])]}),
    )  # fmt: skip


def every(hostile: str = "") -> list[Section]:
    """Two sections, which have everything between them."""
    found = (
        Finding(f"Does it pay{hostile}?", "Yes: +3.9 points [+1.2, +6.9].", 3.9, 1.2, 6.9, "points", 0.047, NAN,
                "It is said to.", f"Nobody 2024{hostile}", details=(f"At 1G{hostile}: no.", "At 2G: yes. " * 20)),
        Finding("Does nothing pay?", "There is no such strategy here.", shown=False),
    )  # fmt: skip
    heat = Heat(f"heat{hostile}", "Map", "By n.", (f"small{hostile}", "large"), ("1", "2"),
                np.array([[0.1, NAN], [0.5, 0.9]]),                axes=("model", "n"))  # fmt: skip
    rows = ((f"a{hostile}", "1.2G"), ("b|c", "–"), ("d", "30M"), ("e", "−4k"))
    costs = Table("costs", f"Costs{hostile}", ("name", "cost"), rows, frozenset({1}))
    return [
        Section("frontier", "Frontier", "Method.", (), (*plots(hostile), heat), (costs,),
                (Note(f"money{hostile}", "unknown"),)),
        Section("answers", f"Answers{hostile}", "", found),
    ]  # fmt: skip
