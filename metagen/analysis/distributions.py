"""Next-token distributions as pictures: before and after each adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.errors import InputError

KEPT, BEFORE, CUT = STYLES[0][0], "#C9C9C9", STYLES[1][0]
#: Letters of a token's name.
LETTERS = 12


def stage_bars(
    stages: Mapping[str, ArrayLike],
    tokens: Sequence[str],
    *,
    against_first: bool = False,
    apart: bool = False,
    title: str = "",
    rows_of: int = 4,
) -> Figure:
    """A panel for each stage of a pipeline, and a bar for each token; behind it, in grey, the bar of the stage before.

    A token that a stage cuts off has a cross.

    stages: name → probabilities [K], the first the model's own; a stage without a name is the model.
    against_first: they do not follow one on another; each is compared with the first. apart: with none.
    tokens: the texts of the K tokens. Raises InputError for no stages, or probabilities of other shapes.
    """
    found = {name: np.asarray(p, np.float64) for name, p in stages.items()}
    if not found or not tokens or any(p.shape != (len(tokens),) for p in found.values()):
        raise InputError(
            f"{len(found)} stages of {len(tokens)} tokens; expected at least one of each, and one probability for each "
            "token in each stage"
        )
    names = [token_name(token) for token in tokens]
    with style():
        figure, grid = small_multiples(len(found), title, rows_of)
        figure.set_figheight(0.9 + -(-len(found) // min(len(found), rows_of)) * (0.75 + 0.2 * len(tokens)))
        before: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
        widest, crossed = max(float(p.max()) for p in found.values()), False
        for axes, (name, p) in zip(grid, found.items(), strict=True):
            places = np.arange(len(p))
            if before is not None and not apart:
                axes.barh(places, before, color=BEFORE, height=0.84, zorder=1)
                gone = places[(p == 0) & (before > 0)]
                crossed |= len(gone) > 0
                axes.plot(np.full(len(gone), 0.015 * widest), gone, "x", color=CUT, markersize=5, zorder=3)
            axes.barh(places, p, color=KEPT, height=0.5, zorder=2)
            axes.set_title(name or "model", fontsize=9)
            axes.set_xlim(0.0, 1.06 * widest)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            axes.grid(visible=False, axis="y")
            before = p if before is None or not against_first else before
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        grid[0].set_yticks(range(len(names)), names, parse_math=False, family="monospace")
        if len(found) > 1 and not apart:
            reference = next(iter(found)) or "model" if against_first else "before"
            handles: list[Patch | Line2D] = [
                Patch(color=KEPT, label="probability" if against_first else "after"),
                Patch(color=BEFORE, label=reference),
            ]
            if crossed:
                handles.append(
                    Line2D([], [], marker="x", linestyle="", color=CUT, markersize=5, label="cut off")
                )
            figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def token_name(token: str) -> str:
    """A token's text as it can be seen: white space as marks, control characters escaped, the long cut."""
    words = token.replace("\n", "⏎").replace(" ", "␣").replace("\t", "⇥")
    words = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words) or "∅"
    return words if len(words) <= LETTERS else words[: LETTERS - 1] + "…"
