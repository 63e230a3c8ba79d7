"""How surprising the tokens of texts are to a model, and how probable sequences are by their kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from metagen.analysis.distributions import BEFORE, CUT, KEPT, token_name
from metagen.analysis.figures import small_multiples, style
from metagen.errors import InputError


def surprise_lines(
    panels: Mapping[str, Sequence[float]],
    *,
    cuts: Mapping[str, Sequence[float]] | None = None,
    unit: str = "bits",
    rows_of: int = 1,
    title: str = "",
) -> Figure:
    """How surprising each token of a text is to a model; the dashed line is the mean.

    panels: title, such as the decoder's name → surprise of each token. cuts: title → the most that a token was allowed
    to surprise. Raises InputError if there is nothing to draw.
    """
    if not panels or not all(len(each) for each in panels.values()):
        raise InputError("nothing to draw: expected at least one text, and at least one token in each")
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of)
        figure.set_figheight(0.7 + 1.25 * -(-len(panels) // min(len(panels), rows_of)))
        top = max(max(each) for each in panels.values())
        for axes, (name, each) in zip(grid, panels.items(), strict=True):
            mean = float(np.mean(each))
            axes.plot(np.arange(1, len(each) + 1), each, color=KEPT, linewidth=0.9)
            axes.axhline(mean, color="#555555", linewidth=0.9, linestyle=(0, (4, 3)))
            if cuts is not None:
                axes.plot(np.arange(1, len(cuts[name]) + 1), cuts[name], color=CUT, linewidth=1.2)
            axes.set_title(f"{name}: {mean:.2f} {unit} a token", fontsize=9)
            axes.set_ylim(0.0, 1.05 * top or 1.0)
            axes.set_xlim(1, max(2, len(each)))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
        grid[-1].set_xlabel("token")
    return figure


def surprise_bars(
    tokens: Sequence[str], surprises: Sequence[float], entropies: Sequence[float], *, title: str = ""
) -> Figure:
    """Token by token: a bar for its surprise, a dot for what was to be expected, the entropy; both in bits.

    Raises InputError for numbers that are not those of the tokens, and surprises that are not finite.
    """
    if not tokens or not len(tokens) == len(surprises) == len(entropies) or not np.isfinite(surprises).all():
        raise InputError(
            f"{len(tokens)} tokens, {len(surprises)} surprises, {len(entropies)} entropies; expected a finite one of "
            "each for each token, and at least one"
        )
    with style():
        figure, (axes,) = small_multiples(1, title, 1)
        figure.set_size_inches(max(4.0, 0.2 * len(tokens) + 1.2), 2.8)
        places = range(len(tokens))
        axes.bar(places, surprises, color=KEPT, width=0.7, label="surprise")
        axes.plot(places, entropies, "D", color=CUT, markersize=4, label="entropy")
        axes.set_xticks(places, list(map(token_name, tokens)), parse_math=False, family="monospace")
        axes.set_xlim(-0.6, len(tokens) - 0.4)
        axes.set_ylabel("bits")
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def mode_bars(
    panels: Mapping[str, Mapping[str, float]], mode: Mapping[str, str], *, x: str = "", title: str = ""
) -> Figure:
    """The probability of each kind of sequence; the kind that the single most probable sequence is of is hatched.

    panels: title → kind, such as a length → probability, in order. mode: title → kind. x: what kinds are.
    Raises InputError if there is nothing to draw.
    """
    if not panels or not all(panels.values()):
        raise InputError("nothing to draw: expected at least one panel, and at least one kind in each")
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=2)
        for axes, (name, bars) in zip(grid, panels.items(), strict=True):
            here = [kind == mode[name] for kind in bars]
            axes.bar(
                range(len(bars)), list(bars.values()), color=[CUT if one else BEFORE for one in here],
                hatch=["////" if one else "" for one in here], edgecolor="#555555", linewidth=0.6,
            )  # fmt: skip
            axes.set_xticks(range(len(bars)), list(bars))
            axes.set_title(name)
            axes.set_xlabel(x)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            axes.grid(visible=False, axis="x")
        handle = Patch(
            facecolor=CUT, edgecolor="#555555", hatch="////", label="where the most probable sequence is"
        )
        figure.legend(handles=[handle], loc="outside lower center")
    return figure
