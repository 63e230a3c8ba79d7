"""The picture of the study in words, from its run.

    python examples/words_picture.py RUN [FOLDER]

RUN is the folder of `metagen study examples/words_study.yaml`. The picture goes to FOLDER (runs/gallery by default),
with one in dark colours beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from figures.dark import write_dark
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, PercentFormatter
from pyarrow import csv

from metagen.analysis.figures import STYLES, save, style

#: Curves with their labels, by generator and strategy; the label stands below its end (−1), beside it, or above it.
CURVES = {
    ("solver", "pass"): ("some sample is right\n(an oracle chooses)", 0),
    ("solver", "checked"): ("vote, a calculator checks lines", 1),
    ("solver", "majority"): ("vote", -1),
    ("base", "base-pass"): ("without adapter: some is right", 1),
    ("base", "base-majority"): ("without adapter: vote", -1),
}
#: Strategies in which the model without the adapter judges, chooses or criticises.
POINTS = {"judged": "judge", "universal": "chooser", "self-refine": "critic"}


def draw(curves: list[dict[str, Any]]) -> Figure:
    """curves: the rows of curves.csv."""
    figure = Figure(figsize=(7.4, 3.9), layout="constrained")
    axes = figure.add_subplot()
    for ((model, strategy), (label, side)), look in zip(CURVES.items(), STYLES, strict=False):
        colour, marker, dash = look
        line = points(curves, model, strategy)
        flops, solved, low, high = zip(*line, strict=True)
        axes.fill_between(flops, low, high, color=colour, alpha=0.1, linewidth=0)
        axes.plot(flops, solved, color=colour, marker=marker, linestyle=dash, markersize=4)
        axes.annotate(
            label, line[-1][:2], (6, 3 * side), textcoords="offset points", color=colour,
            va="center", fontsize=8.5,
        )  # fmt: skip
    for strategy, label in POINTS.items():
        place = points(curves, "solver", strategy)[-1][:2]
        axes.plot(*place, "x", color="#555555", markersize=5)
        axes.annotate(
            label, place, (0, -9), textcoords="offset points", color="#555555",
            ha="center", fontsize=7.5,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(2e10, 7e12)
    axes.set_yscale("log")
    axes.set_ylim(0.008, 1)
    axes.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("FLOPs a problem")
    axes.set_title("Word problems solved, SmolLM2-135M")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    return figure


def points(curves: list[dict[str, Any]], model: str, strategy: str) -> list[tuple[float, ...]]:
    """FLOPs, accuracy and both ends of its interval, the cheapest first."""
    found = (row for row in curves if (row["model"], row["strategy"]) == (model, strategy))
    return sorted((row["flops"], row["accuracy"], row["low"], row["high"]) for row in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/gallery"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    curves = csv.read_csv(arguments.run / "curves.csv").to_pylist()
    with style():
        _, svg = save(draw(curves), arguments.folder / "words_study")
    write_dark(svg)
