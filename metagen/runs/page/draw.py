"""The pictures of a section: panels as SVG for the page with their numbers as a table, whole figures as files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, isnan

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from metagen import html
from metagen.analysis import figures, study_figures
from metagen.analysis.figures import Axis, Line
from metagen.analysis.frontier import Point
from metagen.analysis.matrix import matrix_diagram
from metagen.analysis.study_figures import Frame, Panel
from metagen.runs.curves import frontier
from metagen.runs.curves.study import StudyResult
from metagen.runs.page.workers import Workers
from metagen.runs.questions.section import Heat, Plot, Table, has_band

#: Axes of the figure of winners, by what studies are compared at.
MAIN: Mapping[str, Axis] = {
    "flops": "flops", "flops_2n": "flops", "tokens": "tokens", "generated": "tokens", "samples": "samples",
}  # fmt: skip
#: Bounds of a cell's shade, from the least to the greatest value.
SHADES = (0.05, 0.5)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot as the page shows it.

    panels: title → SVG. legend: label → SVG. table: its numbers. choice: what tells it from its neighbours. named:
    whether lines bear their names in the panels.
    """

    name: str
    title: str
    caption: str
    panels: Mapping[str, Markup]
    legend: Mapping[str, Markup]
    table: Table
    choice: str
    named: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """words: of a value; shade: 0 to 1, how dark."""

    words: str
    shade: float


@dataclass(frozen=True, slots=True)
class Shaded:
    """A matrix as the page shows it: a table with shaded cells."""

    name: str
    title: str
    caption: str
    axes: tuple[str, str]
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True, slots=True)
class Group:
    """Plots of one quantity, of which a reader may choose by what it is plotted against; or one picture."""

    pictures: tuple[Drawn | Shaded, ...]
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """What each budget of a cost buys."""

    points: Sequence[Point]
    axis: Axis
    title: str


class Drawing:
    """Pictures that are drawn as soon as they are known, by workers: whole for files, and for the page if there is one.

    A picture that nobody began is begun where it is asked for.
    """

    def __init__(self, workers: Workers, *, page: bool = True) -> None:
        self._workers, self._page = workers, page
        # By identity, since plots have no hash; each is held, so that no other takes its place.
        self._whole: dict[int, tuple[Plot | Heat | Best, Future[str]]] = {}
        self._shown: dict[int, tuple[Plot | Heat, Future[Drawn | Shaded]]] = {}

    def begin(self, pictures: Iterable[Plot | Heat | Best]) -> None:
        """Pictures of which nothing can be drawn are left out."""
        for one in pictures:
            if id(one) in self._whole or not (isinstance(one, Best) or drawable(one)):
                continue
            if self._page and not isinstance(one, Best):
                self._shown[id(one)] = one, self._workers.begin(_draw, one)
            self._whole[id(one)] = one, self._workers.begin(_whole, one)

    def whole(self, picture: Plot | Heat | Best) -> str:
        """All of it as the text of an SVG file."""
        self.begin([picture])
        return self._whole[id(picture)][1].result()

    def shown(self, picture: Plot | Heat) -> Drawn | Shaded:
        """As the page shows it."""
        self.begin([picture])
        return self._shown[id(picture)][1].result()


def groups(pictures: Iterable[Plot | Heat], drawing: Drawing) -> list[Group]:
    """The pictures of a section for the page. A group stands at the place of its first; empty ones are left out."""
    return [
        Group(tuple(map(drawing.shown, same)), "against" if len(same) > 1 else "")
        for same in _groups(pictures)
    ]


def _groups(pictures: Iterable[Plot | Heat]) -> list[list[Plot | Heat]]:
    found: dict[object, list[Plot | Heat]] = {}
    for i, picture in enumerate(pictures):
        if not drawable(picture):
            continue
        if isinstance(picture, Heat):
            found[i] = [picture]
        else:
            key = (picture.title, picture.y, picture.y_log, picture.steps)
            # One picture for each axis.
            found.setdefault(i if picture.x in _axes(found.get(key, ())) else key, []).append(picture)
    return list(found.values())


def _draw(picture: Plot | Heat) -> Drawn | Shaded:
    return draw_plot(picture) if isinstance(picture, Plot) else shade_cells(picture)


def _whole(picture: Plot | Heat | Best) -> str:
    return study_figures.as_svg(whole(picture))


def _axes(pictures: Iterable[Plot | Heat]) -> set[str]:
    return {picture.x for picture in pictures if isinstance(picture, Plot)}


def draw_plot(plot: Plot) -> Drawn:
    """Raises InputError if there is nothing to draw."""
    panels, left_out = _panels(plot)
    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel.labels))
    anchor, form = file_name(plot.name), partial(_value, share=is_share(plot))
    svgs = {}
    for i, (name, figure) in enumerate(study_figures.panel_figures(panels, frame(plot))):
        title = _panel_title(plot.whole_title, name)
        said = f"{title}: {describe(panels[name].lines, form)}"
        svg = study_figures.lean(figures.inline(figure, f"{anchor}-{i}", said))
        svgs[name] = Markup(_add_title(svg, title))  # by matplotlib, which escapes texts
    swatches = {
        label: Markup(study_figures.lean(figures.swatch(label, labels, f"{anchor}-key-{i}")))
        for i, label in enumerate(labels)
    }
    named = any(map(study_figures.is_named, panels.values()))
    caption = _caption(plot, left_out)
    return Drawn(plot.name, plot.title, caption, svgs, swatches, numbers(plot), plot.x, named)


def shade_cells(heat: Heat) -> Shaded:
    """The greater a value, the darker its cell."""
    values = np.asarray(heat.values, dtype=np.float64)
    known = values[np.isfinite(values)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    span = (most - least) or 1.0

    def cell(value: float) -> Cell:
        if not isfinite(value):
            return Cell("", 0.0)
        low, high = SHADES
        return Cell(heat.form.format(value), low + (high - low) * (value - least) / span)

    rows = [(name, [cell(float(v)) for v in row]) for name, row in zip(heat.rows, values, strict=True)]
    return Shaded(heat.name, heat.title, heat.caption, heat.axes, heat.columns, rows)


def numbers(picture: Plot | Heat) -> Table:
    """Everything that a picture shows, as a table."""
    if isinstance(picture, Heat):
        first = " / ".join(part for part in picture.axes[::-1] if part) or picture.title
        rows = [(name, *(cell.words for cell in cells)) for name, cells in shade_cells(picture).rows]
        numeric = frozenset(range(1, len(picture.columns) + 1))
        return Table(picture.name, picture.caption, (first, *picture.columns), tuple(rows), numeric)
    share = is_share(picture)
    bounded = has_band(picture.panels)
    columns = ("panel", "line", picture.x, picture.y, *(("95% interval",) if bounded else ()))
    rows = []
    for name, lines in picture.panels.items():
        for line in lines:
            for i, x in enumerate(line.x):
                known = line.low is not None and line.high is not None
                bounds = (
                    _between(line.low[i], line.high[i], share) if known and line.low and line.high else "–"
                )
                rows.append(
                    (name, line.label, _place(x), _value(line.y[i], share), *((bounds,) if bounded else ()))
                )
        rows += [
            (name, f"{label} (hollow)", _place(x), _value(y, share), *(("–",) if bounded else ()))
            for label, (x, y) in picture.points.get(name, {}).items()
        ]
    return Table(picture.name, picture.caption, columns, tuple(rows), frozenset(range(2, len(columns))))


def whole(picture: Plot | Heat | Best) -> Figure:
    """All of a picture in one figure. Raises InputError if nothing of it has a place."""
    if isinstance(picture, Best):
        with study_figures.style():
            return figures.best_under_budget(picture.points, x=picture.axis, title=picture.title)
    if isinstance(picture, Plot):
        panels, _ = _panels(picture)
        return study_figures.panels_figure(panels, frame(picture), title=picture.title)
    with study_figures.style():
        return matrix_diagram(
            np.where(np.isfinite(picture.values), picture.values, np.nan),
            picture.rows,
            picture.columns,
            words=picture.form.format,
            labels=picture.axes[::-1],
            title=picture.title,
            blanks=True,
        )


def best(result: StudyResult) -> Best | None:
    """What each budget of the main cost buys, with winners named as in tables; None where no cost is known."""
    cost = frontier.main_cost(result)
    axis = MAIN.get(cost or "")
    cells = frontier.cells(result, cost) if cost and axis else []
    if not cells or axis is None:
        return None
    points = [replace(cell.plot_point, label=cell.curve.full_name(cell.point)) for cell in cells]
    return Best(points, axis, f"{result.name}: the best that a budget buys")


def drawable(picture: Plot | Heat) -> bool:
    """Whether anything of it has a place."""
    return bool(_panels(picture)[0]) if isinstance(picture, Plot) else bool(np.isfinite(picture.values).any())


def frame(plot: Plot) -> Frame:
    """What its panels share."""
    return Frame(plot.x, plot.y, plot.x_scale, plot.y_log, plot.steps, plot.marks)


def file_name(name: str) -> str:
    """A name as part of a file's name, and of an anchor."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "picture"


def is_share(plot: Plot) -> bool:
    """Whether its values are shares, which are said in percent."""
    values = [v for lines in plot.panels.values() for line in lines for v in line.y if isfinite(v)]
    return study_figures.is_share(plot.y, min(values, default=0.0), max(values, default=0.0))


def _panels(plot: Plot) -> tuple[dict[str, Panel], int]:
    panels = {name: Panel(lines, plot.points.get(name, {})) for name, lines in plot.panels.items()}
    return study_figures.drawable(panels, frame(plot))


def _caption(plot: Plot, left_out: int) -> str:
    if not left_out:
        return plot.caption
    points = "1 point lies" if left_out == 1 else f"{left_out} points lie"
    return f"{plot.caption} {points} outside these axes; the table has all points.".strip()


def _panel_title(title: str, panel: str) -> str:
    return f"{title}, {panel}" if panel else title


def _add_title(svg: str, title: str) -> str:
    """Put a title into the picture, as its first element."""
    end = svg.index(">") + 1
    return f"{svg[:end]}<title>{html.text(title)}</title>{svg[end:]}"


def describe(lines: Iterable[Line], form: Callable[[float], str]) -> str:
    """From where to where each line goes, in words."""

    def describe_line(line: Line) -> str:
        first, last = form(line.y[0]), form(line.y[-1])
        return f"{line.label} {first}" if len(line.y) == 1 else f"{line.label} from {first} to {last}"

    return "; ".join(map(describe_line, lines))


def _value(value: float, share: bool) -> str:
    if isnan(value):
        return "–"
    return f"{100 * value:.1f}%" if share else f"{value:.4g}"


def _between(low: float, high: float, share: bool) -> str:
    if isnan(low) or isnan(high):
        return "–"
    return f"{100 * low:.1f}–{100 * high:.1f}" if share else f"{low:.4g} to {high:.4g}"


def _place(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:g}" if abs(value) < 1000 else html.amount(value)
