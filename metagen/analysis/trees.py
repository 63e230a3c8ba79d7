"""The tree of a search as a picture: steps on the branches, scores as colours, and what was given up."""

from __future__ import annotations

from typing import Any

import networkx
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from metagen.analysis.figures import style
from metagen.errors import InputError

#: Inches of a level, of a row, and around everything.
LEVEL, ROW, MARGIN, FOOT = 1.75, 0.36, 0.35, 0.45
#: Letters of a step that fit on its branch.
LETTERS = 22
CHOSEN, KEPT, GIVEN_UP = "#D55E00", "#555555", "#B0B0B0"
#: The place on the way to the next level at which a branch turns.
TURN = 0.1


def tree_diagram(graph: networkx.DiGraph[Any], *, title: str = "") -> Figure:
    """A tree from left to right: a branch bears its step, and under it score and multiplicity.

    graph: as `Tree.graph` makes it. Nodes have the attributes step, value, state (open, expanded, finished, pruned),
    multiplicity and chosen. The darker, the higher the score; squares have finished, crosses were pruned, and what
    was chosen is drawn thick. Raises InputError for a graph that is no tree.
    """
    if not len(graph) or not networkx.is_arborescence(graph):
        raise InputError(f"{len(graph)} nodes that are no tree; expected a graph such as Tree.graph() makes")
    places = layout(graph)
    levels = 1 + max(x for x, _ in places.values())
    rows = 1 + max(y for _, y in places.values())
    with style():
        figure = Figure((LEVEL * levels + 2 * MARGIN, ROW * (rows + 1) + MARGIN + FOOT), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.axis("off")
        axes.set_xlim(-0.2, levels - 0.6)
        axes.set_ylim(rows - 0.3, -0.8)
        if title:
            axes.set_title(title)
        _branches(axes, graph, places)
        _nodes(axes, graph, places)
        _legend(figure, graph)
    return figure


def layout(graph: networkx.DiGraph[Any]) -> dict[str, tuple[int, float]]:
    """Level and row of each node: leaves take a row each, in the order of their positions; parents the middle."""
    root = next(node for node, degree in graph.in_degree() if degree == 0)
    places: dict[str, tuple[int, float]] = {}
    depths = networkx.single_source_shortest_path_length(graph, root)
    row = 0
    for node in networkx.dfs_postorder_nodes(graph, root, sort_neighbors=_by_position):
        below = [places[child][1] for child in graph.successors(node)]
        places[node] = depths[node], (min(below) + max(below)) / 2 if below else float(row)
        row += not below
    return places


def _by_position(names: Any) -> list[str]:
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def _branches(axes: Axes, graph: networkx.DiGraph[Any], places: dict[str, tuple[int, float]]) -> None:
    lines, colours, widths, dashes = [], [], [], []
    for parent, child in sorted(graph.edges, key=lambda edge: bool(graph.nodes[edge[1]]["chosen"])):
        (x, y), (right, below) = places[parent], places[child]
        data = graph.nodes[child]
        lines.append([(x, y), (x + TURN, y), (x + TURN, below), (right, below)])
        pruned = data["state"] == "pruned"
        colours.append(CHOSEN if data["chosen"] else GIVEN_UP if pruned else KEPT)
        widths.append(2.2 if data["chosen"] else 0.9)
        dashes.append((0, (3, 2)) if pruned else "-")
        ink = GIVEN_UP if pruned else "#333333"
        place = (x + TURN + 0.04, below)
        for words, dy, size, va in ((_short(data["step"]), 2, 7.5, "bottom"), (_value(data), -2, 6.5, "top")):
            axes.annotate(
                words,
                place,
                (0, dy),
                textcoords="offset points",
                fontsize=size,
                color=ink,
                va=va,
                parse_math=False,
            )
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, linestyles=dashes, zorder=1))


def _nodes(axes: Axes, graph: networkx.DiGraph[Any], places: dict[str, tuple[int, float]]) -> None:
    blues, scale = colormaps["Blues"], Normalize(-0.15, 1.1)
    for node, data in graph.nodes(data=True):
        x, y = places[node]
        if data["state"] == "pruned":
            axes.plot(x, y, "x", color=GIVEN_UP, markersize=5, zorder=3)
            continue
        value = data["value"]
        axes.plot(
            x, y, "s" if data["state"] == "finished" else "o", markersize=8,
            markerfacecolor="white" if value is None else blues(scale(value)),
            markeredgecolor=CHOSEN if data["chosen"] else KEPT, markeredgewidth=1.8 if data["chosen"] else 0.8,
            zorder=3,
        )  # fmt: skip


def _legend(figure: Figure, graph: networkx.DiGraph[Any]) -> None:
    def mark(marker: str, label: str, colour: str = KEPT, **how: Any) -> Line2D:
        how = {
            "markerfacecolor": "#9ECAE1",
            "markeredgecolor": colour,
            "linestyle": "",
            "color": colour,
        } | how
        return Line2D([], [], marker=marker, label=label, markersize=7, **how)

    states = set(networkx.get_node_attributes(graph, "state").values())
    handles = [mark("o", "extended, or open" if "open" in states else "extended")]
    if "finished" in states:
        handles.append(mark("s", "finished"))
    if "pruned" in states:
        handles.append(mark("x", "pruned", GIVEN_UP, linestyle=(0, (3, 2))))
    if any(networkx.get_node_attributes(graph, "chosen").values()):
        handles.append(Line2D([], [], color=CHOSEN, linewidth=2.2, label="chosen"))
    figure.legend(
        handles=handles, loc="outside lower left", ncols=5, fontsize=8, title="the darker, the higher the score",
        title_fontsize=8, alignment="left",
    )  # fmt: skip


def _short(step: str) -> str:
    words = " ".join(step.split()) or ("(end)" if not step else "(blank)")
    return words if len(words) <= LETTERS else words[: LETTERS - 1] + "…"


def _value(data: dict[str, Any]) -> str:
    value = "–" if data["value"] is None else f"{data['value']:.2f}"
    return value if data["multiplicity"] == 1 else f"{value}  ×{data['multiplicity']}"
