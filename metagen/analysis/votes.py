"""A vote as a picture: the answers of one problem as bars, by one way of counting beside the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.errors import InputError

#: Answers that are drawn; the others are one bar.
MOST = 8
RIGHT, WRONG, OTHERS, INK = STYLES[2][0], "#9A9A9A", "#D5D5D5", "#111111"


def vote_bars(
    counts: Mapping[str, Mapping[str, float]], *, right: Sequence[str] = (), title: str = ""
) -> Figure:
    """What each answer has gathered; the winner has an edge.

    counts: title of the panel, such as a strategy → answer → votes or weight. right: the answers that are right, in
    another colour. Answers stand in the order of the first panel, the heaviest first; beyond `MOST` they are one bar.
    Raises InputError if there is nothing to draw.
    """
    if not counts or not all(counts.values()):
        raise InputError("nothing to draw: expected at least one panel, and at least one answer in each")
    first = next(iter(counts.values()))
    order = sorted({a for panel in counts.values() for a in panel}, key=lambda a: (-first.get(a, 0.0), a))
    shown = order[:MOST]
    with style():
        figure, grid = small_multiples(len(counts), title, rows_of=3)
        for axes, (heading, panel) in zip(grid, counts.items(), strict=True):
            winner = max(panel, key=lambda a: (panel[a], a in right))
            bars = {answer: panel.get(answer, 0.0) for answer in shown}
            if len(order) > MOST:
                bars[f"{len(order) - MOST} others"] = sum(panel.get(answer, 0.0) for answer in order[MOST:])
            places = range(len(bars))
            looks = [RIGHT if a in right else WRONG if a in shown else OTHERS for a in bars]
            edges = [1.6 if answer == winner else 0.0 for answer in bars]
            axes.barh(places, list(bars.values()), color=looks, height=0.72, edgecolor=INK, linewidth=edges)
            axes.set_yticks(places, list(bars))
            if not axes.yaxis_inverted():  # the panels share it
                axes.invert_yaxis()
            axes.grid(axis="y", visible=False)
            axes.set_title(heading)
            axes.set_xlim(left=0.0)
    return figure
