"""A program of steps as a picture: what reads what, and what each step has made."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill, shorten
from typing import Any

import networkx
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from metagen.analysis.figures import STYLES, style
from metagen.errors import InputError

#: Inches of a column and of a row.
COLUMN, ROW = 2.3, 1.3
#: A box, as a share of these.
WIDE, HIGH = 0.84, 0.7
#: Letters of a line, and of a text as a whole.
LINE, LETTERS = 26, 96


def program_diagram(
    graph: networkx.DiGraph[Any], texts: Mapping[str, str], *, output: str = "", title: str = ""
) -> Figure:
    """Steps from left to right, each as soon as what it reads is there, with an arrow from what it reads.

    graph: as `Chain.graph`. texts: step → what it has made in a run; steps without a text are drawn empty. output: the
    step whose result is returned, drawn in another colour. Raises InputError for a graph that has cycles or no nodes.
    """
    if not len(graph) or not networkx.is_directed_acyclic_graph(graph):
        raise InputError(f"{len(graph)} nodes that are no program; expected a graph such as Chain.graph")
    places = layout(graph)
    columns = 1 + max(x for x, _ in places.values())
    rows = max(sum(x == column for x, _ in places.values()) for column in range(columns))
    # Room above for what skips a column.
    above = 0.35 if any(places[b][0] - places[a][0] > 1 for a, b in graph.edges) else 0.0
    with style():
        figure = Figure(
            (COLUMN * columns, ROW * (rows + above) + (0.4 if title else 0.1)), layout="constrained"
        )
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.axis("off")
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_ylim(rows / 2, -rows / 2 - above)
        if title:
            axes.set_title(title)
        for before, after in graph.edges:
            _arrow(axes, places[before], places[after])
        for name, place in places.items():
            _box(axes, name, texts.get(name, ""), place, STYLES[1][0] if name == output else STYLES[0][0])
    return figure


def layout(graph: networkx.DiGraph[Any]) -> dict[str, tuple[int, float]]:
    """Column and height of each step: columns by the longest way there, steps of one column around the middle."""
    places: dict[str, tuple[int, float]] = {}
    for column, names in enumerate(networkx.topological_generations(graph)):
        for row, name in enumerate(sorted(names)):
            places[name] = (column, row - (len(names) - 1) / 2)
    return places


def _arrow(axes: Axes, start: tuple[int, float], end: tuple[int, float]) -> None:
    """From box to box; an arrow that skips a column goes above what stands there."""
    skips = end[0] - start[0] > 1
    axes.annotate(
        "",
        xy=(end[0] - (WIDE / 4 if skips else WIDE / 2), end[1] - (HIGH / 2 if skips else 0)),
        xytext=(start[0] + (WIDE / 4 if skips else WIDE / 2), start[1] - (HIGH / 2 if skips else 0)),
        arrowprops={
            "arrowstyle": "-|>",
            "color": "#555555",
            "linewidth": 1.1,
            "shrinkA": 0,
            "shrinkB": 1,
            "connectionstyle": "arc3,rad=-0.15" if skips else "arc3",
        },
        zorder=1,
    )


def _box(axes: Axes, name: str, text: str, place: tuple[int, float], colour: str) -> None:
    x, y = place
    frame = FancyBboxPatch(
        (x - WIDE / 2, y - HIGH / 2), WIDE, HIGH, boxstyle="round,pad=0,rounding_size=0.05",
        facecolor="white", edgecolor=colour, linewidth=1.4, zorder=2,
    )  # fmt: skip
    axes.add_patch(frame)
    made = fill(shorten(" ".join(text.split()), LETTERS, placeholder=" …"), LINE)
    # Not mathematics: what a model writes may hold dollars.
    body = made.replace("$", r"\$")
    axes.text(
        x,
        y,
        f"{name}\n{body}" if body else name,
        ha="center",
        va="center",
        fontsize=8,
        color="#333333",
        zorder=3,
    )
