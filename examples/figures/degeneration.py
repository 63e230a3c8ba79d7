"""How texts degenerate: repetition and diversity, and diversity against how probable a text is.

As Holtzman et al. 2020 (arXiv:1904.09751) and Welleck et al. 2020 (arXiv:1908.04319) measure them. A text is a sequence
of units, such as words or token ids.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.errors import InputError

Text = Sequence[Hashable]


def repetition(text: Text, n: int = 4) -> float:
    """seq-rep-n: 1 − (different n-grams)/(n-grams) of one text; 0 where it is shorter than n."""
    found = _ngrams(text, n)
    return 1.0 - len(set(found)) / len(found) if found else 0.0


def distinct(texts: Sequence[Text], n: int = 2) -> float:
    """distinct-n (Li et al. 2016): different n-grams of all texts together, as a share of their number.

    Raises InputError if all are shorter than n.
    """
    found = [gram for text in texts for gram in _ngrams(text, n)]
    if not found:
        raise InputError(f"n={n!r}: all of the {len(texts)} texts are shorter; choose a smaller n")
    return len(set(found)) / len(found)


def _ngrams(text: Text, n: int) -> list[tuple[Hashable, ...]]:
    if n < 1:
        raise InputError(f"n={n!r}: expected an integer ≥ 1")
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


@dataclass(frozen=True, slots=True)
class Written:
    """What one way of decoding wrote. label: its setting, such as 0.7; surprise: the mean of its tokens, in bits.

    y: what is looked at, such as distinct-n or a share of right answers.
    """

    label: str
    surprise: float
    y: float


def quality_lines(
    panels: Mapping[str, Mapping[str, Sequence[Written]]],
    *,
    reference: Written | None = None,
    x: str = "surprise, bits a token",
    title: str = "",
) -> Figure:
    """Settings of several ways of decoding: how surprising what they write is, and what else is measured.

    panels: what y is → way of decoding → its settings in order, joined by a line of which the ends are named.
    reference: a text that was not decoded, drawn as a star in the first panel. Raises InputError for nothing to draw.
    """
    if not panels or not all(panel and all(panel.values()) for panel in panels.values()):
        raise InputError(
            "nothing to draw: expected at least one way of decoding with one setting in each panel"
        )
    ways = list(dict.fromkeys(way for panel in panels.values() for way in panel))
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=2)
        figure.set_size_inches(5.9 if len(panels) == 1 else 9.1, 4.2 * -(-len(panels) // 2))
        for i, (axes, (name, panel)) in enumerate(zip(grid, panels.items(), strict=True)):
            for way, points in panel.items():
                colour, marker, dash = STYLES[ways.index(way) % len(STYLES)]
                places = [p.surprise for p in points], [p.y for p in points]
                axes.plot(
                    *places, color=colour, marker=marker, linestyle=dash, linewidth=1.4, markersize=5,
                    markeredgecolor="white", markeredgewidth=0.6, label=way,
                )  # fmt: skip
                for point in dict.fromkeys((points[0], points[-1])):  # more would hide each other
                    axes.annotate(
                        point.label, (point.surprise, point.y), (4, -8), textcoords="offset points",
                        fontsize=7, color=colour, parse_math=False,
                    )  # fmt: skip
            if reference is not None and i == 0:
                axes.plot(
                    reference.surprise,
                    reference.y,
                    "*",
                    color="#333333",
                    markersize=12,
                    label=reference.label,
                )
            axes.set_title(name)
            axes.set_xlabel(x)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
        handles = {line.get_label(): line for axes in grid for line in axes.get_lines()}
        # A handle takes the room of 8 letters, of which an inch holds about 12.
        columns = int(12.5 * figure.get_figwidth()) // (8 + max(map(len, map(str, handles))))
        figure.legend(
            handles.values(), map(str, handles), loc="outside lower center", ncols=max(1, min(4, columns))
        )
    return figure
