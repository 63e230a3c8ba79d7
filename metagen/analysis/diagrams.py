"""Figures of a verifier: its reliability, and the best of n that it chooses beside what was to be expected."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from metagen.analysis.calibration import Reliability
from metagen.analysis.figures import STYLES, Line, small_multiples, style
from metagen.analysis.verifier_quality import VerifierQuality
from metagen.errors import InputError

#: Height of the tallest bar of counts, as a share of the panel.
BARS = 0.25


def reliability_diagram(panels: Mapping[str, Reliability], *, title: str = "") -> Figure:
    """Accuracy against score, bin by bin, with bounds; the diagonal is calibration. Bars: how many samples a
    bin holds.

    panels: title of the panel, such as a verifier's name → its reliability. Raises InputError if there is none.
    """
    if not panels:
        raise InputError("nothing to draw: expected at least one reliability")
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        for axes, (name, found) in zip(grid, panels.items(), strict=True):
            axes.set_title(
                f"{name}\nECE {found.expected_error:.3f}" if name else f"ECE {found.expected_error:.3f}"
            )
            _draw(axes, found)
            place = axes.get_subplotspec()
            if place is None or place.is_first_col():
                axes.set_ylabel("share that is right")
    return figure


def _draw(axes: Axes, found: Reliability) -> None:
    colour, marker, _ = STYLES[0]
    heights = BARS * found.count / max(1, int(found.count.max()))
    axes.bar(
        found.edges[:-1], heights, np.diff(found.edges), align="edge", color="#E4E4E4", linewidth=0, zorder=1
    )
    axes.plot([0, 1], [0, 1], color="#555555", linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    used = found.count > 0
    axes.vlines(
        found.score[used], found.low[used], found.high[used], color=colour, linewidth=1.1, alpha=0.7, zorder=3
    )
    axes.plot(
        found.score[used], found.accuracy[used], color=colour, marker=marker, markersize=5, linewidth=1.6,
        markeredgecolor="white", markeredgewidth=0.6, zorder=4, clip_on=False,
    )  # fmt: skip
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("score")
    axes.xaxis.set_major_locator(MultipleLocator(0.2))
    axes.yaxis.set_major_locator(MultipleLocator(0.2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))


def best_of_n_lines(quality: VerifierQuality) -> list[Line]:
    """The curve of a report, for `figures.curves`: an oracle's choice, the verifier's, and what its error
    rates predict.
    """
    ns = [float(at.n) for at in quality.curve]

    def line(label: str, name: str) -> Line:
        found = [getattr(at, name) for at in quality.curve]
        return Line(label, ns, *([getattr(e, part) for e in found] for part in ("value", "low", "high")))

    return [
        line("oracle", "oracle"),
        line("best of n", "chosen"),
        Line("predicted", ns, [at.predicted for at in quality.curve]),
        Line("accepted, at random", ns, [at.accepted for at in quality.curve]),
        Line("predicted from two rates", ns, [at.accepted_predicted for at in quality.curve]),
    ]
