"""The figure that a report begins with: what a budget buys, a line for each model, named where it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from metagen.analysis import figures
from metagen.analysis.figures import Axis, Line, looks, style
from metagen.analysis.frontier import Point, frontier

#: Lines that have a name and a colour at most; those that reach less stand behind in grey.
MOST: Final = 5
#: Sizes in inches: beside text, and on a phone.
WIDE, NARROW = (6.3, 3.9), (3.5, 3.3)
#: Size of the texts, in points, and the room of a character of it.
SIZE, ADVANCE = 8.5, 0.62
#: Where a label may stand beside its point: offsets in points, and how it is aligned.
PLACES: Final = (
    (6, -5, "left", "top"),
    (-6, 5, "right", "bottom"),
    (6, 5, "left", "bottom"),
    (-6, -5, "right", "top"),
)


def budgets(groups: Mapping[str, Sequence[Point]], *, x: Axis, narrow: bool = False) -> Figure:
    """The best accuracy that each budget buys with each group, such as the configurations of a model.

    The group that reaches most has a band, of the 95% intervals of its winners. A winner among all configurations has a
    filled mark, with its label where there is room. Raises InputError if there is no point, or a cost is not positive.
    """
    figures.something([point for points in groups.values() for point in points])
    won = {name: frontier(points) for name, points in groups.items() if points}
    # The highest first; of those that tie the cheapest.
    order = sorted(won, key=lambda name: (-won[name][-1].accuracy, won[name][-1].cost))
    named = order[:MOST]
    with style():
        figure = Figure(figsize=NARROW if narrow else WIDE, layout="constrained")
        figures.canvas(figure)
        axes = figure.subplots()
        every = [point for points in groups.values() for point in points]
        figures.cost_axis(axes, x, [p.cost for p in every], ticks=4 if narrow else 6)
        end = axes.get_xlim()[1]
        colours = {name: colour for name, (colour, _, _) in looks(named).items()}
        for name in reversed(order):
            colour = colours.get(name, "#BBBBBB")
            _steps(axes, won[name], end, colour, leads=name == order[0], named=name in named)
        figures.accuracy_axes([axes], list(_shown(won, order)))
        axes.set_xlabel(figures.LABELS[x])
        axes.set_ylabel("accuracy")
        best = {id(point) for point in frontier(every)}
        marks = [(p, colours[name]) for name in named for p in won[name] if id(p) in best]
        for point, colour in marks:
            axes.plot(
                point.cost, point.accuracy, "o", color=colour, markersize=6, markeredgecolor="white", zorder=5
            )
        if len(groups) > 1:
            figures.name_ends(
                axes, [(end, won[name][-1].accuracy, name, colours[name], None) for name in named], size=SIZE
            )
        _label(figure, axes, [(p, c) for p, c in marks if p.label], won.values(), end)
    return figure


def _steps(
    axes: Axes, winners: Sequence[Point], end: float, colour: str, *, leads: bool, named: bool
) -> None:
    costs = [*(p.cost for p in winners), end]
    accuracy = [*(p.accuracy for p in winners), winners[-1].accuracy]
    axes.step(
        costs, accuracy, where="post", color=colour, linewidth=1.8 if named else 0.9, zorder=4 if leads else 3
    )
    if leads:
        low, high = ([*bound, bound[-1]] for bound in ([p.low for p in winners], [p.high for p in winners]))
        axes.fill_between(costs, low, high, step="post", color=colour, alpha=0.12, linewidth=0, zorder=1)


def _shown(won: Mapping[str, Sequence[Point]], order: Sequence[str]) -> Iterator[Line]:
    """What the axis of accuracy has to hold."""
    for name in order:
        for p in won[name]:
            known = name == order[0] and isfinite(p.low) and isfinite(p.high)
            bounds = ([p.low], [p.high]) if known else (None, None)
            yield Line(p.label, [p.cost], [p.accuracy], *bounds)


def _label(
    figure: Figure,
    axes: Axes,
    marks: Sequence[tuple[Point, str]],
    lines: Iterable[Sequence[Point]],
    end: float,
) -> None:
    """Write labels beside their points, those that reach most first, where they hide nothing."""
    figure.draw_without_rendering()  # places are known from here on
    scale = 72.0 / figure.dpi
    taken = _ink(axes, lines, end) * scale
    frame = axes.get_window_extent()
    left, bottom, right, top = (edge * scale for edge in (frame.x0, frame.y0, frame.x1, frame.y1))
    boxes: list[tuple[float, float, float, float]] = []
    for point, colour in sorted(marks, key=lambda mark: -mark[0].accuracy):
        x, y = axes.transData.transform((point.cost, point.accuracy)) * scale
        width, height = SIZE * ADVANCE * len(point.label), SIZE * 1.3
        for dx, dy, ha, va in PLACES:
            x0 = x + dx - (width if ha == "right" else 0.0)
            y0 = y + dy - (height if va == "top" else 0.0)
            box = (x0, y0, x0 + width, y0 + height)
            inside = left <= x0 and bottom <= y0 and box[2] <= right and box[3] <= top
            if inside and not _covers(box, taken) and not any(_meet(box, other) for other in boxes):
                boxes.append(box)
                text: Text = axes.annotate(
                    point.label, (point.cost, point.accuracy), xytext=(dx, dy), textcoords="offset points",
                    ha=ha, va=va, fontsize=SIZE, color=colour, zorder=6,
                )  # fmt: skip
                text.set_in_layout(False)
                break


def _ink(axes: Axes, lines: Iterable[Sequence[Point]], end: float) -> Any:
    """Points along all lines, in pixels."""
    found = []
    for winners in lines:
        corners = []
        for i, p in enumerate(winners):
            after = winners[i + 1].cost if i + 1 < len(winners) else end
            corners += [(p.cost, p.accuracy), (after, p.accuracy)]
        pixels = axes.transData.transform(corners)
        for a, b in pairwise(pixels):
            steps = max(2, int(np.abs(b - a).max() / 3))
            found.append(a + (b - a) * np.linspace(0.0, 1.0, steps)[:, None])
    return np.concatenate(found)


def _covers(box: tuple[float, float, float, float], ink: Any) -> bool:
    x0, y0, x1, y1 = box
    return bool(((ink[:, 0] > x0) & (ink[:, 0] < x1) & (ink[:, 1] > y0) & (ink[:, 1] < y1)).any())


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
