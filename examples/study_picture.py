"""The picture of a study, from its run.

    python examples/study_picture.py RUN [FOLDER]

It goes to FOLDER (runs/gallery by default). Of a run in which strategies begin anew until they accept, such as
examples/countdown.yaml or examples/programs.yaml: who has solved how much by any budget. Of another, such as
examples/equal_compute.yaml: what each configuration costs, and how often it is right. With 95% intervals over problems.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from solved_within import solved, spent

from metagen.analysis.figures import STYLES, Line, curves, save, small_multiples, style
from metagen.analysis.intervals import SHARES, interval
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read


def study(run: Path) -> Figure:
    """Who solves most within a budget, where strategies begin anew until they accept; else all, by what they cost."""
    lines = {line.name: line for line in RunDirectory(run).final_state().lines}
    if all(line.kind == "rejection" for line in lines.values()):
        return within(run)
    return compared(run, {name: line.kind for name, line in lines.items()})


def within(run: Path) -> Figure:
    """The share of problems solved, up to the FLOPs at which the budget of the run ended for the first time."""
    rows = read(run / "outcomes.parquet", ["flops", "exhausted"]).to_pylist()
    used = [row["flops"] for row in rows]
    most = min((row["flops"] for row in rows if row["exhausted"]), default=max(used))
    budgets = np.geomspace(min(used), most, 12)
    found, left_out = spent(run)
    lines = []
    for name, mine in found.items():
        share = interval(np.array([solved(mine.flops, budget) for budget in budgets]), support=SHARES)
        lines.append(
            Line(name, *(np.asarray(x).tolist() for x in (budgets, share.estimate, share.low, share.high)))
        )
    more = f", without {left_out} problems that not all have" if left_out else ""
    figure = curves({"": lines}, x="flops", title=f"{run.name}: solved within a budget{more}")
    figure.axes[0].set(xlabel="budget: FLOPs per problem", ylabel="problems solved")
    return figure


def compared(run: Path, kinds: dict[str, str]) -> Figure:
    """Votes and searches by FLOPs and accuracy, without single samples; names stand beside, the best at the top."""
    columns = ["configuration", "flops", "accuracy", "low", "high"]
    found = read(run / "configurations.parquet", columns).to_pylist()
    rows = [row for row in found if kinds[row["configuration"]] != "sample"]
    votes = {"majority", "weighted", "best_of_n"}
    with style():
        figure, (axes,) = small_multiples(1, f"{run.name}: accuracy against FLOPs", 1)
        figure.set_size_inches(7.4, 4.6)
        axes.set_xscale("log")
        axes.set_xlim(min(row["flops"] for row in rows) / 1.1, 1.2 * max(row["flops"] for row in rows))
        low, high = min(row["low"] for row in rows) - 0.01, max(row["high"] for row in rows) + 0.01
        axes.set_ylim(low, high)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 2.5, 4.0, 6.0)))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e9:g}·10⁹")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g}%")
        ranked = sorted(rows, key=lambda row: -row["accuracy"])
        for row, height in zip(ranked, np.linspace(high - 0.01, low + 0.01, len(ranked)), strict=True):
            colour, marker, _ = STYLES[0 if kinds[row["configuration"]] in votes else 1]
            axes.vlines(row["flops"], row["low"], row["high"], color=colour, alpha=0.35)
            axes.plot(row["flops"], row["accuracy"], marker, color=colour, zorder=3)
            axes.annotate(
                row["configuration"].rpartition("/")[2], (row["flops"], row["accuracy"]), (1.02, height),
                textcoords=axes.get_yaxis_transform(), va="center", fontsize=8, color=colour, annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5, "relpos": (0.0, 0.5)},
            )  # fmt: skip
        axes.set(xlabel="FLOPs per problem, the verifier's included", ylabel="accuracy")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/gallery"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    save(study(arguments.run), arguments.folder / arguments.run.name)
