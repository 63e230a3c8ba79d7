"""A text as a strip of its tokens, each with what became of it: drafted, forced, read, cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import FuncFormatter

from metagen.analysis.distributions import token_name
from metagen.analysis.figures import STYLES, style
from metagen.errors import InputError

#: Colour, hatch, line style and width of the frame, in the order in which kinds are named; seen without colours, too.
LOOKS: Final[tuple[tuple[str, str, Any, float], ...]] = (
    ("#F2F2F2", "", "-", 0.5),
    ("#BFE3D6", "", "-", 0.5),
    ("#F4C7AB", "//", (0, (2, 1.5)), 0.7),
    ("#B9D6EA", "", "-", 1.8),
    ("#F0D3E2", "xx", "-", 0.7),
)
#: Inches of a letter, of a line, and letters of a line.
LETTER, LINE, LETTERS = 0.095, 0.36, 84
#: Letters that the frame of a token takes.
FRAME = 1.0


def token_strips(
    lines: Mapping[str, Sequence[tuple[str, str]]], kinds: Mapping[str, str], *, title: str = ""
) -> Figure:
    """Lines of tokens; each is a box with its text.

    lines: name of the line → (text of the token, its kind). Long lines go on in the next. kinds: kind → what
    the legend says of it, five at most. Raises InputError if there is nothing to draw, or for kinds that are not named.
    """
    if not lines or not any(lines.values()) or len(kinds) > len(LOOKS):
        raise InputError(
            f"{len(lines)} lines and {len(kinds)} kinds; expected a token, and at most {len(LOOKS)} kinds"
        )
    if other := {kind for line in lines.values() for _, kind in line} - set(kinds):
        raise InputError(f"kinds {sorted(other)!r} are not among {sorted(kinds)!r}; name them")
    rows = [row for name, line in lines.items() for row in _rows(name, line)]
    margin = max(map(len, lines))
    with style():
        figure = Figure((LETTER * (LETTERS + margin) + 0.4, LINE * len(rows) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.axis("off")
        axes.set_xlim(-margin - 1, LETTERS)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        if title:
            axes.set_title(title)
        order = list(kinds)
        for y, (name, row) in enumerate(rows):
            axes.text(-1.0, y, name, ha="right", va="center", fontsize=8, parse_math=False)
            _row(axes, y, row, order)
        handles = [_patch(LOOKS[i], words) for i, words in enumerate(kinds.values()) if words]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
    return figure


def mask_bars(tokens: Sequence[str], allowed: Sequence[int], vocabulary: int, *, title: str = "") -> Figure:
    """How many tokens a grammar leaves at each place of a document; where it leaves one, that one is forced.

    Raises InputError for numbers that are not those of the tokens.
    """
    if not tokens or len(tokens) != len(allowed) or min(allowed) < 1:
        raise InputError(
            f"{len(tokens)} tokens and {len(allowed)} numbers; expected one number ≥ 1 for each token"
        )
    with style():
        figure = Figure((max(4.0, 0.22 * len(tokens) + 1.2), 2.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        forced = [count == 1 for count in allowed]
        # A bar for 1 would have no height on a logarithmic axis that begins there.
        axes.bar(
            range(len(tokens)), allowed, bottom=0.0, color=[LOOKS[2][0] if one else STYLES[0][0] for one in forced],
            hatch=[LOOKS[2][1] if one else "" for one in forced], edgecolor="#777777", linewidth=0.5,
        )  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylim(0.6, 1.3 * vocabulary)
        axes.axhline(vocabulary, color="#555555", linewidth=0.9, linestyle=(0, (4, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.set_xticks(
            range(len(tokens)), list(map(token_name, tokens)), parse_math=False, family="monospace"
        )
        axes.set_xlim(-0.6, len(tokens) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("tokens allowed")
        if title:
            axes.set_title(title)
        handles = [
            Patch(color=STYLES[0][0], label="drawn from those allowed"),
            _patch(LOOKS[2], "forced: only one is allowed"),
            Line2D([], [], color="#555555", linewidth=0.9, linestyle=(0, (4, 3)), label="the vocabulary"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _rows(name: str, line: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The line in pieces that fit."""
    rows: list[tuple[str, list[tuple[str, str]]]] = [(name, [])]
    width = 0.0
    for text, kind in line:
        shown = token_name(text)
        if width + len(shown) + FRAME > LETTERS and rows[-1][1]:
            rows.append(("", []))
            width = 0.0
        rows[-1][1].append((shown, kind))
        width += len(shown) + FRAME
    return rows


def _row(axes: Axes, y: float, row: Sequence[tuple[str, str]], order: Sequence[str]) -> None:
    x = 0.0
    for text, kind in row:
        colour, hatch, dash, width = LOOKS[order.index(kind)]
        box = FancyBboxPatch(
            (x, y - 0.33), len(text) + 0.6 * FRAME, 0.66, boxstyle="round,pad=0,rounding_size=0.15",
            facecolor=colour, edgecolor="#777777", linewidth=width, linestyle=dash, hatch=hatch, mutation_aspect=0.4,
        )  # fmt: skip
        axes.add_patch(box)
        axes.text(
            x + len(text) / 2 + 0.3 * FRAME, y, text, ha="center", va="center_baseline", fontsize=8,
            family="DejaVu Sans Mono", parse_math=False, color=STYLES[-1][0],
        )  # fmt: skip
        x += len(text) + FRAME


def _patch(look: tuple[str, str, Any, float], label: str) -> Patch:
    colour, hatch, dash, width = look
    return Patch(
        facecolor=colour, hatch=hatch, edgecolor="#777777", linestyle=dash, linewidth=width, label=label
    )
