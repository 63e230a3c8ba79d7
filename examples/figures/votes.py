"""A choice as a picture: the answers of one problem as bars, by several ways of counting, or draw by draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.errors import InputError

#: Answers that are drawn; the others are one bar.
MOST = 8
RIGHT, WRONG, OTHERS, INK = STYLES[2][0], "#9A9A9A", "#D5D5D5", "#111111"
#: What is right is seen without colours, too.
HATCH, EDGE = "////", 1.6
#: Behind words that stand on a line.
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


def vote_bars(
    counts: Mapping[str, Mapping[str, float]],
    *,
    right: Sequence[str] = (),
    chosen: Mapping[str, str] | None = None,
    title: str = "",
) -> Figure:
    """What each answer has gathered; the winner has an edge.

    counts: title of the panel, such as a strategy → answer → votes or weight. right: the answers that are right, in
    another colour, and hatched. chosen: the winner by title of the panel, where it is not the heaviest. Answers stand
    in the order of the first panel, the heaviest first; beyond `MOST` they are one bar.
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
            winner = (chosen or {}).get(heading) or max(panel, key=lambda a: (panel[a], a in right))
            bars = {answer: panel.get(answer, 0.0) for answer in shown}
            if len(order) > MOST:
                bars[f"{len(order) - MOST} others"] = sum(panel.get(answer, 0.0) for answer in order[MOST:])
            looks = [RIGHT if a in right else WRONG if a in shown else OTHERS for a in bars]
            _bars(axes, list(bars.values()), looks, [answer == winner for answer in bars])
            axes.set_yticks(range(len(bars)), list(bars))
            axes.set_title(heading)
            axes.set_xlim(left=min(0.0, *bars.values()))
        _legend(figure, right=bool({*right} & {*shown}))
    return figure


def draw_bars(
    panels: Mapping[str, Sequence[tuple[str, float, bool]]],
    threshold: float,
    *,
    chosen: Mapping[str, int],
    title: str = "",
) -> Figure:
    """Candidates in the order in which they were drawn, each with its answer and its score; the line is what accepts.

    panels: title of the panel → (answer, score in [0, 1], whether it is right) of each draw. chosen: by title of the
    panel, the place from 0 of what was returned. Raises InputError if there is nothing to draw.
    """
    if not panels or not all(panels.values()):
        raise InputError("nothing to draw: expected at least one panel, and at least one draw in each")
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        for axes, (heading, drawn) in zip(grid, panels.items(), strict=True):
            looks = [RIGHT if right else WRONG for *_, right in drawn]
            edges = [i == chosen[heading] for i in range(len(drawn))]
            _bars(axes, [score for _, score, _ in drawn], looks, edges)
            axes.axvline(threshold, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
            for i, (answer, score, _) in enumerate(drawn):
                axes.text(score + 0.03, i, answer, va="center", fontsize=8, parse_math=False, bbox=_PAPER)
            axes.set_title(heading)
            axes.set_xlim(0.0, 1.2)
            axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0])
            axes.set_xlabel("score")
        longest = max(map(len, panels.values()))
        grid[0].set_yticks(range(longest), [str(i + 1) for i in range(longest)])
        grid[0].set_ylabel("draw")
        _legend(figure, right=any(right for drawn in panels.values() for *_, right in drawn))
    return figure


def _bars(axes: Axes, widths: Sequence[float], looks: Sequence[str], chosen: Sequence[bool]) -> None:
    axes.barh(
        range(len(widths)), widths, color=looks, height=0.72, edgecolor=INK,
        linewidth=[EDGE if one else 0.0 for one in chosen],
        hatch=[HATCH if look == RIGHT else "" for look in looks],
    )  # fmt: skip
    if not axes.yaxis_inverted():  # the panels share it
        axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _legend(figure: Figure, *, right: bool) -> None:
    handles = (
        [Patch(facecolor=RIGHT, edgecolor=INK, linewidth=0.0, hatch=HATCH, label="right")] if right else []
    )
    handles.append(Patch(facecolor="none", edgecolor=INK, linewidth=EDGE, label="chosen"))
    figure.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=8)
