"""Figures of a study: any quantity against any cost, with bands, steps, marks and limits.

Looks are those of `figures`: a colour, a marker and a dash for each line, the same in all panels. Texts are drawn as
they are written: nothing in a name is taken for mathematics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf, isfinite, log2, log10
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from metagen.analysis import figures
from metagen.analysis.figures import BANDS, Line, end_bar, legend, looks, name_ends, power, small_multiples
from metagen.errors import InputError
from metagen.html import amount

Scale = Literal["log", "log2", "linear"]
#: Words in the label of an axis that holds shares, which are written in percent.
SHARES = ("accuracy", "error", "coverage", "share", "probability", "win rate", "solved", "occupancy")
#: Markers of a line at most; more of them would hide it.
MARKERS = 16
#: Lines of a panel from which on a legend is of no use.
NAMED = 7
#: Ticks of an axis at most.
TICKS = 7


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes that panels share. x, y: labels. y_log: for errors. steps: lines hold until their next point.

    marks: x → words, as vertical lines.
    """

    x: str
    y: str
    x_scale: Scale = "log"
    y_log: bool = False
    steps: bool = False
    marks: Mapping[float, str] = field(default_factory=dict)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point has a place on these axes; an infinite x has one, at the end."""
        return (
            isfinite(y)
            and (isfinite(x) or x == inf)
            and (x > 0 or self.x_scale == "linear")
            and (y > 0 or not self.y_log)
        )


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines, and points by label (such as limits), which are drawn hollow."""

    lines: Sequence[Line]
    points: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def within(self, frame: Frame) -> tuple[Panel, int]:
        """The part that has a place on the axes, and the number of points that have none."""
        lines, left_out = [], 0
        for line in self.lines:
            kept = [i for i in range(len(line.x)) if frame.holds(line.x[i], line.y[i])]
            left_out += len(line.x) - len(kept)
            if kept:
                x, y, low, high = (
                    None if column is None else [column[i] for i in kept]
                    for column in (line.x, line.y, line.low, line.high)
                )
                lines.append(Line(line.label, x or (), y or (), low, high))
        points = {label: at for label, at in self.points.items() if frame.holds(*at)}
        return Panel(lines, points), left_out + len(self.points) - len(points)

    @property
    def labels(self) -> list[str]:
        return [*(line.label for line in self.lines), *self.points]


@dataclass(frozen=True, slots=True)
class _Span:
    """The least and the greatest x and y of all panels, bounds included. whole: every x is a whole number."""

    x: tuple[float, float]
    y: tuple[float, float]
    whole: bool


def panels_figure(panels: Mapping[str, Panel], frame: Frame, *, title: str = "") -> Figure:
    """All panels in one figure with one legend, for papers.

    Raises InputError if there is nothing to draw.
    """
    seen = _keep(panels, frame)
    span = _span(seen.values(), frame)
    styles = looks(label for panel in panels.values() for label in panel.labels)
    with style():
        figure, grid = small_multiples(len(seen), title, rows_of=3)
        for axes, (name, panel) in zip(grid, seen.items(), strict=True):
            axes.set_title(name)
            _draw(axes, panel, frame, span, styles)
            axes.set_xlabel(frame.x)
            place = axes.get_subplotspec()
            if place is None or place.is_first_col():
                axes.set_ylabel(frame.y)
        legend(figure, styles)
    return figure


def panel_figures(panels: Mapping[str, Panel], frame: Frame) -> Iterator[tuple[str, Figure]]:
    """Each panel of `panels_figure` by itself, with its name, without title and legend, for a page that has them.

    Groups named `line-I`, `band-I` and `name-I` are what belongs to the I-th label of all panels. Lines bear
    their names, where there are several. All have the same axes, which are made once, and once laid out for the same
    names: write a figure before you take the next.
    """
    seen = _keep(panels, frame)
    styles, span = (
        looks(label for panel in panels.values() for label in panel.labels),
        _span(seen.values(), frame),
    )
    with style():
        figure = Figure()
        FigureCanvasAgg(figure)
        whole = figure.add_gridspec()[0, 0]
        axes = figure.add_subplot(whole)
        axes.set(xlabel=frame.x, ylabel=frame.y)
    places: dict[tuple[int, frozenset[str]], Bbox] = {}
    for name, panel in seen.items():
        with style():
            for artist in (*axes.lines, *axes.collections, *axes.texts):
                artist.remove()
            count = len(panel.lines)
            size = (
                (5.2, max(3.2, 0.17 * count)) if is_named(panel) else (4.2, 2.8) if count > 1 else (3.7, 2.8)
            )
            figure.set_size_inches(size)
            alike = count, frozenset(panel.labels)
            figure.set_layout_engine(None if alike in places else "constrained")
            axes.set_in_layout(True)
            axes.set_subplotspec(whole)  # where it is before it is laid out
            _draw(axes, panel, frame, span, styles)
            if count > 1:
                _name_lines(axes, panel, frame, styles)
            if alike in places:
                axes.set_position(places[alike])
        yield name, figure
        places[alike] = axes.get_position()


def is_named(panel: Panel) -> bool:
    """Whether a panel has so many lines that only their names tell them apart, and none finds them in a legend."""
    return len(panel.lines) >= NAMED


def _name_lines(axes: Axes, panel: Panel, frame: Frame, styles: Mapping[str, tuple[str, str, Any]]) -> None:
    """Write the name of each line at the right, as high as its end is."""
    number = {label: i for i, label in enumerate(styles)}
    right = axes.get_xlim()[1]
    ends = []
    for line in panel.lines:
        x = right if frame.steps else min(line.x[-1], right)
        ends.append((x, line.y[-1], line.label, styles[line.label][0], f"name-{number[line.label]}"))
    name_ends(axes, ends)


def drawable(panels: Mapping[str, Panel], frame: Frame) -> tuple[dict[str, Panel], int]:
    """The panels with a place on the axes, and the number of points that have none."""
    within = {name: panel.within(frame) for name, panel in panels.items()}
    kept = {name: panel for name, (panel, _) in within.items() if panel.lines}
    return kept, sum(out for _, out in within.values())


def is_share(label: str, least: float, most: float) -> bool:
    """Whether an axis of this label and span holds shares, which are written in percent."""
    return any(word in label.lower() for word in SHARES) and least >= 0.0 and most <= 1.0


def save(figure: Figure, stem: str | Path) -> tuple[Path, Path, Path]:
    """`stem`.png, .svg and .pdf; equal figures give equal bytes."""
    with style():
        figures.lay_out(figure)
        svg = figures.save_svg(figure, stem)
    png, pdf = save_printed(figure, stem)
    return png, svg, pdf


def as_svg(figure: Figure) -> str:
    """What `stem`.svg holds, in a third of the time that all three formats take."""
    with style():
        figures.lay_out(figure)
        return figures.as_svg(figure)


def save_printed(figure: Figure, stem: str | Path) -> tuple[Path, Path]:
    """`stem`.png and .pdf, as papers need them."""
    png, pdf = Path(f"{stem}.png"), Path(f"{stem}.pdf")
    with style():
        figures.lay_out(figure)
        figure.savefig(png, dpi=figures.DPI, metadata={"Software": None})
        figure.savefig(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return png, pdf


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures, with texts as they are written."""
    with figures.style(), matplotlib.rc_context({"text.parse_math": False, "pdf.fonttype": 42}):
        yield


def lean(svg: str) -> str:
    """An SVG element for a page with places cut to a hundredth of a point, and only the ids that something names."""
    named = set(re.findall(r"#([\w.-]+)", svg))

    def keep(match: re.Match[str]) -> str:
        return match[0] if match[1] in named or re.search(r"-(line|band|point|name)-\d+$", match[1]) else ""

    svg = re.sub(r' id="([^"]*)"', keep, svg)
    svg = re.sub(r"\s*\n\s*", " ", svg.replace("font-family: 'DejaVu Sans'; ", ""))
    svg = re.sub(r' transform="rotate\(-0 [\d. ]+\)"', "", svg)
    # Scales are below 1, and stay as they are.
    return re.sub(r"\b([1-9]\d*\.\d\d)\d+", r"\1", svg).replace("> <", "><")


# ------------------------------------------------------------------------------------------------ drawing


def _keep(panels: Mapping[str, Panel], frame: Frame) -> dict[str, Panel]:
    kept, _ = drawable(panels, frame)
    if not kept:
        raise InputError(
            f"nothing to draw of {frame.y} against {frame.x}: no point has a place on the axes; expected finite values"
            f"{', positive ones on a logarithmic axis' if frame.y_log or frame.x_scale != 'linear' else ''}"
        )
    return kept


def _span(panels: Iterable[Panel], frame: Frame) -> _Span:
    xs: list[float] = []
    ys: list[float] = []
    for panel in panels:
        for line in panel.lines:
            xs += line.x
            ys += [v for c in (line.y, line.low or (), line.high or ()) for v in c if isfinite(v)]
        xs += [x for x, _ in panel.points.values()]
        ys += [y for _, y in panel.points.values()]
    xs = [x for x in xs if isfinite(x)] or [1.0]
    if frame.y_log:
        # A bound at 0 has no place; the band then goes to the edge.
        ys = [y for y in ys if y > 0]
    return _Span((min(xs), max(xs)), (min(ys), max(ys)), all(float(x).is_integer() for x in xs))


def _draw(
    axes: Axes, panel: Panel, frame: Frame, span: _Span, styles: Mapping[str, tuple[str, str, Any]]
) -> None:
    left, right = _x_axis(axes, frame.x_scale, span)
    bottom = _y_axis(axes, frame, span.y)
    number = {label: i for i, label in enumerate(styles)}
    step: Literal["post"] | None = "post" if frame.steps else None
    for line in panel.lines:
        colour, marker, dash = styles[line.label]
        x = [min(v, right) for v in line.x]
        y, low, high = list(line.y), line.low, line.high
        if frame.steps and x[-1] < right:  # the last one holds on
            x, y = [*x, right], [*y, y[-1]]
            low, high = (None if c is None else [*c, c[-1]] for c in (low, high))
        marked = range(0, len(line.x), ceil(len(line.x) / MARKERS))
        axes.plot(
            x, y, color=colour, linestyle=dash, linewidth=1.6, marker=marker, markersize=5, markeredgecolor="white",
            markeredgewidth=0.6, zorder=3, drawstyle="steps-post" if frame.steps else "default",
            markevery=marked, clip_on=False, gid=f"line-{number[line.label]}",
        )  # fmt: skip
        if len(panel.lines) > BANDS:
            lows = line.low
            if lows is not None and frame.y_log:
                lows = [max(v, bottom) for v in lows]
            ends = replace(line, x=[min(v, right) for v in line.x], low=lows)
            aside = 3.0 * (panel.lines.index(line) - (len(panel.lines) - 1) / 2)
            end_bar(axes, ends, colour, aside, gid=f"band-{number[line.label]}")
        elif low is not None and high is not None:
            floor_of = [max(v, bottom) for v in low] if frame.y_log else low
            axes.fill_between(
                x, floor_of, high, color=colour, alpha=0.13, linewidth=0, zorder=1, step=step,
                gid=f"band-{number[line.label]}",
            )  # fmt: skip
    for label, (x_at, y_at) in panel.points.items():
        colour, marker, _ = styles[label]
        axes.plot(
            [min(x_at, right)], [y_at], linestyle="none", marker=marker, markersize=7, markerfacecolor="white",
            markeredgecolor=colour, markeredgewidth=1.4, zorder=4, clip_on=False, gid=f"point-{number[label]}",
        )  # fmt: skip
    for at, words in frame.marks.items():
        if left <= at <= right:
            axes.axvline(at, color="#555555", linewidth=0.8, linestyle=(0, (4, 3)), zorder=2)
            axes.annotate(
                words, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(-3, -3), textcoords="offset points",
                rotation=90, ha="right", va="top", fontsize=7, color="#555555",
            )  # fmt: skip


def _x_axis(axes: Axes, scale: Scale, span: _Span) -> tuple[float, float]:
    least, most = span.x
    if scale == "linear":
        margin = 0.04 * ((most - least) or abs(most) or 1.0)
        bounds = (least - margin, most + margin)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS, steps=[1, 2, 5, 10], integer=span.whole))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    elif scale == "log2":
        axes.set_xscale("log", base=2)
        octaves = range(floor(log2(least)), ceil(log2(most)) + 1)
        axes.xaxis.set_major_locator(FixedLocator([2.0**i for i in octaves[:: ceil(len(octaves) / TICKS)]]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        bounds = (least / 2**0.25, most * 2**0.25)
    else:
        axes.set_xscale("log")
        margin = max(1.6, (most / least) ** 0.06)  # wide enough to hold one of 1, 2, 5 times a power of 10
        bounds = (least / margin, most * margin)
        axes.xaxis.set_major_locator(FixedLocator(_decades(*bounds)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: amount(v)))
    if scale != "linear":
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(*bounds)
    return bounds


def _y_axis(axes: Axes, frame: Frame, span: tuple[float, float]) -> float:
    """Round numbers, in percent for shares; returns the lower end."""
    least, most = span
    share = any(word in frame.y.lower() for word in SHARES) and least >= 0.0 and most <= 1.0
    if frame.y_log:
        axes.set_yscale("log")
        bottom, top = least / 1.25, most * 1.25
        if share:
            top = min(top, 1.0) if most < 1.0 else 1.02
        axes.yaxis.set_major_locator(FixedLocator(_decades(bottom, top)))
        axes.yaxis.set_minor_locator(NullLocator())
    elif share:
        tick = 0.05 if most - least <= 0.3 else 0.1
        bottom = max(0.0, tick * floor(least / tick - 0.2))
        top = max(min(1.0, tick * ceil(most / tick + 0.2)), bottom + tick)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=TICKS, steps=[1, 2, 5, 10]))
    else:
        margin = 0.06 * ((most - least) or abs(most) or 1.0)
        bottom, top = least - margin, most + margin
        if 0.0 <= least < 0.4 * most:
            bottom = 0.0
        axes.yaxis.set_major_locator(MaxNLocator(nbins=TICKS, steps=[1, 2, 5, 10]))
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_formatter(
        FuncFormatter((lambda v, _: f"{100 * v:g}%") if share else (lambda v, _: _number(v)))
    )
    return bottom


def _decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: powers of 10; with 2 and 5 times them, or even steps, where there are few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [10.0**p for p in powers if low <= 10.0**p <= high]
    if len(ticks) < 3:
        ticks = [f * 10.0**p for p in powers for f in (1.0, 2.0, 5.0) if low <= f * 10.0**p <= high]
    if len(ticks) < 2:
        even = MaxNLocator(nbins=4, steps=[1, 2, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in even if low <= tick <= high]
    return ticks[:: ceil(len(ticks) / TICKS)] if ticks else [low, high]


def _number(value: float) -> str:
    """Of either sign."""
    if value == 0:
        return "0"
    return f"−{_number(-value)}" if value < 0 else (f"{value:g}" if 0.001 <= value < 1e5 else power(value))
