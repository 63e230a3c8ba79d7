"""Figures: accuracy against samples and compute, by level of difficulty, and under a budget.

Readable in colour, by colour-blind readers and in black and white: a configuration has a colour, a
marker and a line style of its own, the same in all panels. Figures are built without pyplot, so
that nothing global changes, and saved without dates, so that equal data give equal files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from io import StringIO
from math import ceil, floor, inf, isfinite, log2
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from metagen.analysis.frontier import Point, frontier
from metagen.errors import InputError
from metagen.html import amount

Axis = Literal["samples", "tokens", "flops", "seconds"]

#: Okabe and Ito's palette without yellow (too pale for a line), each with a marker and a line style.
STYLES: tuple[tuple[str, str, Any], ...] = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", (0, (5, 1.5))),
    ("#009E73", "^", (0, (1.2, 1.2))),
    ("#CC79A7", "D", (0, (5, 1.5, 1.2, 1.5))),
    ("#56B4E9", "v", (0, (3, 1, 1, 1, 1, 1))),
    ("#E69F00", "<", (0, (8, 2))),
    ("#000000", "X", (0, (2, 2))),
)
#: Colours that follow the page where a figure is part of one.
VARIABLES = {
    **{style[0]: f"--series-{i}" for i, style in enumerate(STYLES)},
    "#E4E4E4": "--grid",
    "#555555": "--ink-soft",
    "#333333": "--ink",
    "#ffffff": "--paper",
}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LABELS: dict[Axis, str] = {
    "samples": "samples n",
    "tokens": "tokens generated per problem",
    "flops": "FLOPs per problem",
    "seconds": "seconds per problem",
}
_RC: Any = {  # newer matplotlib types its keys as literals, older ones as str
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # nothing above the axes: no place for the title need be found
    "axes.labelsize": 9.0,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "figure.facecolor": "white",
    "svg.hashsalt": "metagen",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One configuration: accuracies y in [0, 1] at the places x, with bounds (None: no band).

    Raises InputError if lengths differ, or there are no points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    def __post_init__(self) -> None:
        lengths = {len(v) for v in (self.x, self.y, self.low, self.high) if v is not None}
        if len(lengths) != 1 or 0 in lengths or (self.low is None) != (self.high is None):
            raise InputError(f"line {self.label!r}: x, y, low and high need one length ≥ 1 (low with high)")


def curves(panels: Mapping[str, Sequence[Line]], *, x: Axis = "samples", title: str = "") -> Figure:
    """Accuracy against samples (log2 axis) or a cost (log axis): a panel each, such as one per model.

    panels: title of the panel → its lines; equal labels look alike in all panels. Bands are drawn
    where lines have bounds. Raises InputError if there is nothing to draw, or an x is not positive.
    """
    something(panels)
    styles = looks(line.label for lines in panels.values() for line in lines)
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        for axes, (name, lines) in zip(grid, panels.items(), strict=True):
            axes.set_title(name)
            _draw_all(axes, lines, styles)
            cost_axis(axes, x, [v for ours in panels.values() for line in ours for v in line.x])
        accuracy_axes(grid, [line for lines in panels.values() for line in lines])
        _outer_labels(grid, LABELS[x])
        legend(figure, styles)
    return figure


def accuracy_by_level(
    panels: Mapping[str, Sequence[Line]], *, level: str = "level of difficulty", title: str = ""
) -> Figure:
    """Accuracy by level of difficulty: x of each line holds the levels, with error bars for bounds.

    Levels are evenly spaced, and lines set apart a little, so that bars don't hide each other.
    Raises InputError if there is nothing to draw.
    """
    something(panels)
    styles = looks(line.label for lines in panels.values() for line in lines)
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        for axes, (name, lines) in zip(grid, panels.items(), strict=True):
            axes.set_title(name)
            _by_level(axes, lines, styles)
        accuracy_axes(grid, [line for lines in panels.values() for line in lines])
        _outer_labels(grid, level)
        legend(figure, styles)
    return figure


def best_under_budget(points: Sequence[Point], *, x: Axis = "flops", title: str = "") -> Figure:
    """The best accuracy that each budget buys, as steps; the winners are numbered and named beside.

    All other points stand behind in grey. The winners are the best as measured: they are picked for these
    problems, and will look somewhat worse on others. Raises InputError if there is no point, or
    a cost is not positive.
    """
    something(points)
    winners = frontier(points)
    with style():
        key = _key_width(winners)
        figure = _figure(5.1 + key, max(3.4, 1.1 + 0.24 * len(winners)), title)
        axes, names = figure.subplots(1, 2, width_ratios=(4.4, key))
        others = [p for p in points if p not in winners]
        axes.plot(
            [p.cost for p in others], [p.accuracy for p in others],
            "o", color="#BBBBBB", markersize=3.5, markeredgewidth=0, zorder=2,
        )  # fmt: skip
        cost_axis(axes, x, [p.cost for p in points])
        end = axes.get_xlim()[1]
        costs = [*(p.cost for p in winners), end]
        steps = {"step": "post", "color": "#0072B2", "linewidth": 0}
        low, high = ([*b, b[-1]] for b in ([p.low for p in winners], [p.high for p in winners]))
        axes.fill_between(costs, low, high, alpha=0.15, **steps)
        accuracy = [p.accuracy for p in winners]
        axes.step(costs, [*accuracy, accuracy[-1]], where="post", color="#0072B2", linewidth=1.6, zorder=3)
        for number, p in enumerate(winners, 1):
            axes.plot(
                p.cost, p.accuracy, "o", color="white", markeredgecolor="#0072B2", markersize=11, zorder=4
            )
            axes.annotate(
                str(number), (p.cost, p.accuracy),
                ha="center", va="center_baseline", fontsize=7, color="#0072B2", weight="bold", zorder=5,
            )  # fmt: skip
        accuracy_axes([axes], [Line(p.label, [p.cost], [p.accuracy], [p.low], [p.high]) for p in points])
        _outer_labels([axes], "budget: " + LABELS[x])
        _name_winners(names, winners, x)
    return figure


#: Dots per inch of PNG files.
DPI = 200
#: Where the prefix of ids stands in a swatch that is kept.
_PREFIX = "{prefix}"


def save(figure: Figure, stem: str | Path) -> tuple[Path, Path]:
    """Write `stem`.png (200 dpi) and `stem`.svg; equal figures give equal bytes. Returns both paths.

    Places in the SVG are cut to a hundredth of a point.
    """
    png = Path(f"{stem}.png")
    with style():
        figure.savefig(png, dpi=DPI, metadata={"Software": None})
    return png, save_svg(figure, stem)


def save_svg(figure: Figure, stem: str | Path) -> Path:
    """`stem`.svg alone; see `save`."""
    svg = Path(f"{stem}.svg")
    svg.write_text(as_svg(figure), encoding="utf-8", newline="\n")
    return svg


def as_svg(figure: Figure) -> str:
    """What `stem`.svg holds; see `save`."""
    written = StringIO()
    with style():
        figure.savefig(written, format="svg", metadata={"Date": None})
    # Scales are below 1, and stay as they are.
    return re.sub(r"\b([1-9]\d*\.\d\d)\d+", r"\1", re.sub(r" *\n *", "\n", written.getvalue()))


def lay_out(figure: Figure) -> None:
    """Lay a figure out once for all: whatever is written of it later would do so anew, twice each time."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def inline(figure: Figure, name: str, title: str) -> str:
    """A figure as an SVG element for a page: text stays text, in the fonts and colours of the page.

    name: prefix of its ids, unique in the page. title: the text for a screen reader; without one it says
    nothing. Colours become the CSS variables `--series-0`, … of the palette, and `--ink`, `--grid` and `--paper`
    of what is drawn around the lines.
    """
    written = StringIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        # By the metrics of SVG, in points.
        FigureCanvasSVG(figure)
        figure.set_dpi(72.0)
        lay_out(figure)
        figure.savefig(written, format="svg", metadata={"Date": None}, transparent=True)
    svg = written.getvalue()
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = re.sub(rf"{colour}\b", f"var({variable}, {colour})", svg, flags=re.IGNORECASE)
    # Characters without a colour are black by themselves.
    svg = re.sub(r"(<text style=\")(?![^\"]*fill)", r"\1fill: var(--ink, #333333); ", svg)
    opening = f'<svg role="img" aria-label="{escape(title)}"' if title else '<svg aria-hidden="true"'
    return re.sub(r' (?:width|height)="[\d.]+pt"', "", svg.replace("<svg", opening, 1), count=2).strip()


def swatch(label: str, labels: Sequence[str], name: str) -> str:
    """The look of one of `labels` in the figures that show them all, for a legend that stands in a page; see `inline`.

    name: prefix of its ids, unique in the page.
    """
    return _swatch(*looks(labels)[label]).replace(_PREFIX, name)


@lru_cache(maxsize=256)
def _swatch(colour: str, marker: str, dash: Any) -> str:
    """Pages show the same looks again and again."""
    with style():
        figure = Figure(figsize=(0.6, 0.2))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        line = Line("", [0.0, 0.5, 1.0], [0.0, 0.0, 0.0])
        _draw(axes, line, colour, "None", dash, band=False)
        _draw(axes, replace(line, x=[0.5], y=[0.0]), colour, marker, dash, band=False)
        axes.set_xlim(0.0, 1.0)
    return inline(figure, _PREFIX, "")


def panel(
    lines: Sequence[Line],
    labels: Sequence[str],
    span: tuple[float, float],
    *,
    x: Axis | str,
    xs: Sequence[float],
    title: str = "",
) -> Figure:
    """One panel by itself, for a page that sets panels side by side, or one below the other. Lines bear their names.

    labels: of all lines in all panels, so that equal ones look alike. span, xs: the least and the greatest accuracy in
    all of them, and their places, so that panels can be compared. x: a cost; any other text names levels of difficulty.
    """
    something({title: lines})
    styles = looks(labels)
    with style():
        figure = _figure(3.9, 2.7, "")
        axes = figure.subplots()
        axes.set_title(title)
        if x in LABELS:
            _draw_all(axes, lines, styles)
            cost_axis(axes, x, xs, ticks=5)
            _outer_labels([axes], LABELS[x])
            ends = [(line.x[-1], line) for line in lines]
        else:
            levels = _by_level(axes, lines, styles)
            _outer_labels([axes], x)
            ends = [(float(levels.index(line.x[-1])), line) for line in lines]
        accuracy_axes([axes], [*lines, Line("", [1.0, 1.0], span)])
        name_ends(axes, [(at, line.y[-1], line.label, styles[line.label][0], None) for at, line in ends])
    return figure


#: Letters of a name beside its line at most, and the gap between two names in points.
LETTERS, GAP = 24, 11.0


def name_ends(
    axes: Axes, ends: Sequence[tuple[float, float, str, str, str | None]], size: float = 8.0
) -> None:
    """Write names of lines at the right, as high as their ends are; names that would meet move apart.

    ends: x, y, name, colour and the id in the page, if it has one, of each.
    """
    place = axes.transData + axes.transAxes.inverted()
    found = sorted(
        ((*place.transform((x, y)), *rest) for x, y, *rest in ends if isfinite(y)), key=lambda end: end[1]
    )
    height = axes.get_window_extent().height * 72.0 / axes.figure.dpi
    heights = spread_places([y for _, y, *_ in found], gap=GAP / height)
    for (x, y, label, colour, gid), at in zip(found, heights, strict=True):
        short = label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"
        axes.text(
            1.04, at, short, transform=axes.transAxes, ha="left", va="center", fontsize=size, color=colour, gid=gid
        )  # fmt: skip
        axes.plot(
            [x, 1.03], [y, at], transform=axes.transAxes, color=colour, linewidth=0.4, clip_on=False, zorder=2
        )


def spread_places(places: Sequence[float], gap: float = 0.058) -> list[float]:
    """Places from 0 to 1 in ascending order, moved as little apart as keeps a gap between them; less, for too many."""
    gap = min(gap, 1.0 / max(1, len(places) - 1))
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap) if found else max(0.0, place))
    most = 1.0
    for i in range(len(found) - 1, -1, -1):
        found[i] = most = min(found[i], most)
        most -= gap
    return found


def style() -> AbstractContextManager[None]:
    """The style of all figures; to be held while one is made or written."""
    return matplotlib.rc_context(_RC)


def something(given: Mapping[str, Sequence[Line]] | Sequence[Point]) -> None:
    """Raise InputError if there is nothing to draw."""
    if not given or (isinstance(given, Mapping) and not all(given.values())):
        raise InputError("nothing to draw: expected at least one point, and at least one line in each panel")


def looks(labels: Iterable[str]) -> dict[str, tuple[str, str, Any]]:
    """A look for each label, in order of first appearance; beyond the palette, looks mix anew."""
    names = list(dict.fromkeys(labels))
    size = len(STYLES)
    return {
        name: (
            STYLES[i % size][0],
            STYLES[(i + i // size) % size][1],
            STYLES[(i + 2 * (i // size)) % size][2],
        )
        for i, name in enumerate(names)
    }


def _figure(width: float, height: float, title: str) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    canvas(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold")
    return figure


def canvas(figure: Figure) -> None:
    """Give a figure what it is drawn on, without pyplot."""
    FigureCanvasAgg(figure)


def small_multiples(count: int, title: str, rows_of: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of one scale, at most `rows_of` in a row."""
    columns = min(count, rows_of)
    rows = ceil(count / columns)
    width = 5.6 if columns == 1 else 3.1 * columns + 0.5
    figure = _figure(width, 0.6 + rows * (3.2 if columns == 1 else 2.7), title)
    cells = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
    for empty in cells[count:]:
        empty.remove()
    return figure, cells[:count]


#: Lines of a panel that may have bands: more of them lie upon each other, and are grey.
BANDS = 2


def _draw_all(axes: Axes, lines: Sequence[Line], styles: Mapping[str, tuple[str, str, Any]]) -> None:
    """Lines with their bounds: bands of few lines, else a bar at the end of each."""
    for i, line in enumerate(lines):
        _draw(axes, line, *styles[line.label], band=True if len(lines) <= BANDS else None)
        if len(lines) > BANDS:
            end_bar(axes, line, styles[line.label][0], 3.0 * (i - (len(lines) - 1) / 2))


def end_bar(axes: Axes, line: Line, colour: str, aside: float, gid: str | None = None) -> None:
    """The bounds of a line's last point as a bar, so many points aside of it."""
    if line.low is None or line.high is None or not isfinite(line.low[-1]) or not isfinite(line.high[-1]):
        return
    move = ScaledTranslation(aside / 72.0, 0.0, axes.figure.dpi_scale_trans)
    axes.plot(
        [line.x[-1]] * 2, [line.low[-1], line.high[-1]], transform=axes.transData + move, color=colour,
        linewidth=1.1, alpha=0.7, zorder=2, clip_on=False, gid=gid,
    )  # fmt: skip


def _draw(axes: Axes, line: Line, colour: str, marker: str, dash: Any, *, band: bool | None) -> None:
    """band: or a bar at each point; None: neither."""
    axes.plot(
        line.x, line.y, color=colour, linestyle=dash, linewidth=1.6, marker=marker, markersize=5,
        markeredgecolor="white", markeredgewidth=0.6, zorder=3, clip_on=False,
    )  # fmt: skip
    if line.low is None or line.high is None or band is None:
        return
    if band:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.13, linewidth=0, zorder=1)
    else:
        axes.vlines(line.x, line.low, line.high, color=colour, linewidth=1.1, alpha=0.7, zorder=2)


def _by_level(axes: Axes, lines: Sequence[Line], styles: Mapping[str, tuple[str, str, Any]]) -> list[float]:
    """Draw lines by level, evenly spaced, and return the levels."""
    levels = sorted({v for line in lines for v in line.x})
    for i, line in enumerate(lines):
        shift = 0.09 * (i - (len(lines) - 1) / 2)
        places = [levels.index(v) + shift for v in line.x]
        _draw(axes, replace(line, x=places), *styles[line.label], band=False)
    axes.set_xticks(range(len(levels)), [f"{v:g}" for v in levels])
    axes.set_xlim(-0.5, len(levels) - 0.5)
    axes.grid(visible=False, axis="x")
    return levels


def cost_axis(axes: Axes, x: Axis, values: Sequence[float], ticks: int = 7) -> None:
    """A logarithmic axis that holds these values, with round numbers in few characters: 100M, 1G.

    Raises InputError for costs that are not positive and finite.
    """
    least, most = min(values), max(values)
    if not 0 < least <= most < inf:
        raise InputError(f"{x} from {least!r} to {most!r}: a logarithmic axis needs positive, finite values")
    if x == "samples":
        axes.set_xscale("log", base=2)
        octaves = range(floor(log2(least)), ceil(log2(most)) + 1)
        axes.xaxis.set_major_locator(FixedLocator([2.0**i for i in octaves[:: ceil(len(octaves) / 8)]]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        margin = 2**0.25
    else:
        axes.set_xscale("log")
        margin = max(1.6, (most / least) ** 0.06)  # wide enough to hold one of 1, 2, 5 times a power of 10
        near = most / least < 30
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if near else LogLocator(numticks=ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: amount(v)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(least / margin, most * margin)


def accuracy_axes(grid: Sequence[Axes], lines: Sequence[Line]) -> None:
    """One scale for all panels: the span of the data and their bounds, on round numbers, within 0–100%.

    Raises InputError where all accuracies are NaN.
    """
    seen = [
        v
        for s in lines
        for column in (s.y, s.low, s.high)
        if column is not None
        for v in column
        if isfinite(v)
    ]
    if not seen:
        raise InputError("nothing to draw: all accuracies are NaN")
    tick = 0.05 if max(seen) - min(seen) <= 0.3 else 0.1
    bottom = max(0.0, tick * floor(min(seen) / tick - 0.2))
    top = min(1.0, tick * ceil(max(seen) / tick + 0.2))
    for axes in grid:
        axes.set_ylim(bottom, max(top, bottom + tick))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))


def _outer_labels(grid: Sequence[Axes], label: str) -> None:
    for axes in grid:
        axes.set_xlabel(label)
        place = axes.get_subplotspec()
        if place is None or place.is_first_col():
            axes.set_ylabel("accuracy")


def legend(figure: Figure, styles: Mapping[str, tuple[str, str, Any]]) -> None:
    """One legend below all panels; none for a single line without a name."""
    names = [name for name in styles if name]
    if not names:
        return
    handles = [
        matplotlib.lines.Line2D(
            [], [], color=styles[n][0], marker=styles[n][1], linestyle=styles[n][2],
            linewidth=1.6, markersize=5.5, markeredgecolor="white", markeredgewidth=0.6,
        )
        for n in names
    ]  # fmt: skip
    columns = _legend_columns(names, characters=int(figure.get_figwidth() * 12.5))
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, handlelength=3.2, columnspacing=1.6
    )


def _legend_columns(names: Sequence[str], characters: int) -> int:
    """As few rows as fit the width, evenly filled; a handle takes the room of 8 characters."""
    for rows in range(1, len(names)):
        columns = ceil(len(names) / rows)
        if sum(8 + max(map(len, names[i : i + rows])) for i in range(0, len(names), rows)) <= characters:
            return columns
    return 1


def _name_winners(axes: Axes, winners: Sequence[Point], x: Axis) -> None:
    """The key of the numbers, as a table without lines: number, name, cost, accuracy."""
    axes.set_axis_off()
    inches = _key_width(winners)
    columns = ((0.0, "left"), (0.28 / inches, "left"), (1.0 - 0.72 / inches, "right"), (1.0, "right"))
    header = ("", "configuration", LABELS[x].split()[0], "accuracy")
    height = 1.0 / (len(winners) + 1)
    for i, row in enumerate([None, *winners]):
        texts = header
        if row is not None:
            texts = (str(i), row.label, short(row.cost), f"{100 * row.accuracy:.1f}%")
        for text, (left, align) in zip(texts, columns, strict=True):
            axes.text(
                left, 1.0 - height * (i + 0.5), text, transform=axes.transAxes, ha=align, va="center",
                fontsize=8, color="#0072B2" if left == 0.0 else "#333333",
                weight="bold" if i == 0 or left == 0.0 else "normal",
            )  # fmt: skip


def _key_width(winners: Sequence[Point]) -> float:
    """Inches that the key of `best_under_budget` needs."""
    return 0.28 + 0.064 * max(13, *(len(p.label) for p in winners)) + 0.75 + 0.72


def short(value: float) -> str:
    """A quantity with two digits or all before the point: 0.25, 8,500, 1.2×10⁶."""
    if 0.01 <= value < 1e5:
        return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def power(value: float) -> str:
    """`short` for the ticks of an axis: 10⁸ and 2×10⁸, without digits that say nothing."""
    return re.sub(r"^1×", "", short(value).replace(".0×", "×"))
