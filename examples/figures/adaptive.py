"""Pictures of adaptive compute: what stopping rules save, whom one budget goes to, and which samples are given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.analysis.stopping import Replayed
from metagen.errors import InputError

Floats = NDArray[np.float64]


def savings(curve: ArrayLike, rules: Mapping[str, Replayed], *, title: str = "") -> Figure:
    """Accuracy against the mean number of samples: the plain vote as a curve, each rule as a point with its interval.

    curve: [most], accuracy of the vote over n = 1 … most samples for every problem. A rule to the left of the curve
    reaches that accuracy with fewer samples. Raises InputError if there is nothing to draw.
    """
    accuracy = np.asarray(curve, dtype=np.float64)
    if accuracy.ndim != 1 or not len(accuracy) or not rules:
        raise InputError(
            f"a curve of shape {accuracy.shape} and {len(rules)} rules: expected [most] and at least one"
        )
    with style():
        figure, (axes,) = small_multiples(1, title, 1)
        axes.plot(
            np.arange(1, len(accuracy) + 1), accuracy, color="#333333", label="as many for every problem"
        )
        for i, (name, found) in enumerate(rules.items()):
            colour, marker, _ = STYLES[i % len(STYLES)]
            bounds = found.fewer_interval()
            drawn = float(found.drawn.mean())
            width = [[drawn - found.most / float(bounds.high)], [found.most / float(bounds.low) - drawn]]
            axes.errorbar(
                [drawn], [float(found.accuracy.mean())], xerr=np.nan_to_num(np.maximum(width, 0.0)),
                color=colour, marker=marker, linestyle="none", label=name,
                # The second time round, hollow.
                markerfacecolor=colour if i < len(STYLES) else "none",
            )  # fmt: skip
        axes.set_xlabel("samples drawn, mean over problems")
        _accuracy(axes)
        axes.legend()
    return figure


def spending(
    groups: ArrayLike, samples: Mapping[str, ArrayLike], names: list[str], *, title: str = ""
) -> Figure:
    """Mean number of samples that each group of problems gets, as bars side by side.

    groups: [problems], the group of each, from 0. samples: by budget or method, [problems]. names: of the groups,
    hardest first. Raises InputError for shapes that differ.
    """
    of = np.asarray(groups, dtype=np.int64)
    given = {name: np.asarray(values, dtype=np.float64) for name, values in samples.items()}
    if not given or not len(of) or any(values.shape != of.shape for values in given.values()):
        raise InputError(
            f"groups of shape {of.shape} and samples of {[v.shape for v in given.values()]}: expected one [problems]"
        )
    if of.min() < 0 or of.max() >= len(names):
        raise InputError(
            f"groups from {of.min()} to {of.max()} for {len(names)} names: expected a name for each"
        )
    with style():
        figure, (axes,) = small_multiples(1, title, 1)
        width = 0.8 / len(given)
        counts = np.bincount(of, minlength=len(names))
        for i, (name, values) in enumerate(given.items()):
            colour = STYLES[i % len(STYLES)][0]
            means = np.bincount(of, values, len(names)) / np.maximum(counts, 1)
            axes.bar(np.arange(len(names)) + (i + 0.5) * width - 0.4, means, width, color=colour, label=name)
        axes.set_xticks(
            range(len(names)), [f"{name}\n{count}" for name, count in zip(names, counts, strict=True)]
        )
        axes.set_xlabel("group, and how many problems it has")
        axes.set_ylabel("samples per problem")
        axes.legend()
    return figure


@dataclass(frozen=True, slots=True)
class Confided:
    """A sample's confidence by group, at the tokens with which groups end; right is None where it was given up."""

    ends: Sequence[int]
    groups: Sequence[float]
    right: bool | None


def confidence_traces(
    panels: Mapping[str, Sequence[Confided]], threshold: float, *, title: str = ""
) -> Figure:
    """Confidence along the tokens, a line for each sample, and the threshold below which samples are given up.

    panels: title of the panel → its samples. Lines end in a dot where the answer is right, in a ring where it is wrong,
    and in a cross where the sample was given up. Raises InputError if there is nothing to draw.
    """
    samples = [one for panel in panels.values() for one in panel]
    if not panels or not all(panels.values()) or not all(one.groups for one in samples):
        raise InputError(
            "nothing to draw: expected at least one panel, with samples of at least one group each"
        )
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        for axes, (heading, panel) in zip(grid, panels.items(), strict=True):
            for one in panel:
                _, colour, mark, size, fill = _ENDS[one.right]
                axes.plot(one.ends, one.groups, color=colour, linewidth=0.8, alpha=0.55, zorder=2)
                axes.plot(
                    one.ends[-1], one.groups[-1], mark, color=colour, markersize=size, zorder=3,
                    markerfacecolor=fill,
                )  # fmt: skip
            axes.axhline(threshold, color="#333333", linewidth=1.1, linestyle=(0, (5, 3)))
            axes.set_title(heading)
            axes.set_xlabel("tokens")
        grid[0].set_ylabel("confidence of the group")
        figure.legend(
            handles=[
                Line2D([], [], color=colour, marker=mark, markersize=size, markerfacecolor=fill, label=name)
                for name, colour, mark, size, fill in _ENDS.values()
            ]
            + [Line2D([], [], color="#333333", linestyle=(0, (5, 3)), label="threshold")],
            loc="outside lower left", ncols=4,
        )  # fmt: skip
    return figure


#: How lines end: name, colour, marker, its size and face.
_ENDS: dict[bool | None, tuple[str, str, str, float, str]] = {
    True: ("right", STYLES[0][0], "o", 5.5, STYLES[0][0]),
    False: ("wrong", STYLES[1][0], "o", 5.5, "white"),
    None: ("given up", "#777777", "x", 6.0, "none"),
}


def _accuracy(axes: Axes) -> None:
    axes.set_ylabel("accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
