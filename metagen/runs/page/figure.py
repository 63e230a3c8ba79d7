"""The figures of a run: accuracy against samples, costs and levels, as panels by generator or strategy."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import isfinite, isnan
from typing import Literal

from markupsafe import Markup

from metagen.analysis import figures
from metagen.analysis.figures import Line
from metagen.runs.curves.measured import LevelMeasured, Measured, Results, comparable
from metagen.runs.page.draw import Drawn, describe
from metagen.runs.questions.section import Plot, Table
from metagen.runs.words import between, percent
from metagen.runs.words import cost_amount as amount

LEVEL = "level of difficulty"
Cost = Literal["generated", "flops"]


def accuracies_by_size(
    measured: Iterable[Measured],
) -> list[tuple[str, float, list[tuple[str, dict[int, Measured]]]]]:
    """Each generator with its highest accuracy (`comparable`), and its strategies by n; without an n stands at 1."""
    found = []
    for generator, group in groupby(measured, key=lambda m: m.cell.generator):
        ours = list(group)
        top = max((m.accuracy for m in comparable(ours)), default=-1.0)
        found.append(
            (generator, top, [(s, {m.cell.n or 1: m for m in cells}) for s, cells in _by_strategy(ours)])
        )
    return found


def _by_strategy(measured: Iterable[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    """By label of the strategy, in order of first appearance."""
    found: dict[str, list[Measured]] = {}
    for m in measured:
        found.setdefault(strategy_label(m), []).append(m)
    yield from found.items()


def strategy_label(m: Measured | LevelMeasured) -> str:
    """The strategy's name; what knows the answers says so."""
    return f"{m.cell.strategy} (oracle)" if m.cell.oracle else m.cell.strategy


def panels(
    measured: Iterable[Measured], panel: Literal["generator", "strategy"], cost: Cost | None = None
) -> dict[str, list[Line]]:
    """A panel for each generator with its strategies as lines, or the other way round."""
    found: dict[str, dict[str, list[Measured]]] = {}
    for m in measured:
        names = (m.cell.generator, strategy_label(m))
        outer, inner = names if panel == "generator" else names[::-1]
        found.setdefault(outer, {}).setdefault(inner, []).append(m)
    if panel == "generator" and cost is None:
        return {
            title: [_by_size(name, ms, lines) for name, ms in lines.items()] for title, lines in found.items()
        }
    curves = {
        title: [
            _line(name, [getattr(m, cost) if cost else m.cell.n or 1 for m in ms], ms)
            for name, ms in lines.items()
        ]
        for title, lines in found.items()
    }
    # A panel of single points shows little: their costs are where the curves of the others begin.
    return {
        title: lines for title, lines in curves.items() if max(len(line.x) for line in lines) > 1
    } or curves


def _by_size(name: str, ours: abc.Sequence[Measured], panel: Mapping[str, abc.Sequence[Measured]]) -> Line:
    """Accuracy by n; what has no n is a level line across the panel, to compare with."""
    if len(ours) == 1 and ours[0].cell.n is None:
        sizes = [m.cell.n or 1 for ms in panel.values() for m in ms]
        return _line(name, [min(sizes), max(sizes)], [ours[0], ours[0]])
    return _line(name, [m.cell.n or 1 for m in ours], ours)


def level_panels(levels: Iterable[LevelMeasured]) -> dict[str, list[Line]]:
    """For each generator, each strategy at its largest n."""
    found: dict[str, dict[str, list[LevelMeasured]]] = {}
    for level in levels:
        found.setdefault(level.cell.generator, {}).setdefault(strategy_label(level), []).append(level)
    panels: dict[str, list[Line]] = {}
    for generator, lines in found.items():
        for name, rows in lines.items():
            largest = max(row.cell.n or 1 for row in rows)
            ours = [row for row in rows if (row.cell.n or 1) == largest]
            panels.setdefault(generator, []).append(_line(name, [row.level for row in ours], ours))
    return panels


def _line(name: str, x: abc.Sequence[float], rows: abc.Sequence[Measured | LevelMeasured]) -> Line:
    order = sorted(range(len(x)), key=lambda i: x[i])
    rows = [rows[i] for i in order]
    low, high = [r.low for r in rows], [r.high for r in rows]
    known = not all(map(isnan, (*low, *high)))
    return Line(
        name,
        [x[i] for i in order],
        [r.accuracy for r in rows],
        low if known else None,
        high if known else None,
    )


def plots(results: Results) -> list[Plot]:
    """Accuracy against samples, tokens, FLOPs and by level; nothing of costs that are unknown."""
    measured = results.configurations
    if not measured:
        return []
    subsets = (
        "One panel for each generator. Each point is the mean over random subsets of a problem’s samples."
    )
    found = [_plot("samples", "Accuracy against samples", subsets, panels(measured, "generator"))]
    if all(m.generated for m in measured):
        caption = "Mean number of tokens that the generator wrote for a problem."
        lines = panels(measured, "generator", "generated")
        found.append(_plot("tokens", "Accuracy against tokens", caption, lines))
    if all(m.flops for m in measured):
        caption = (
            "All floating-point operations of a problem, the verifier’s included. Each strategy has a panel, which "
            "compares models of different sizes at equal compute."
        )
        found.append(_plot("flops", "Accuracy against FLOPs", caption, panels(measured, "strategy", "flops")))
    if results.levels:
        largest = max(level.cell.n or 1 for level in results.levels)
        caption = f"Each strategy at its largest n (at most {largest}). Bars are 95% intervals."
        found.append(_plot("levels", "Accuracy by level", caption, level_panels(results.levels), LEVEL))
    return found


def _plot(
    name: str, title: str, caption: str, lines: Mapping[str, abc.Sequence[Line]], x: str | None = None
) -> Plot:
    return Plot(name, title, caption, x or name, "accuracy", lines)


def draw_figure(plot: Plot) -> Drawn:
    """The figure of a run's page: one legend, panels side by side, and all numbers as a table."""
    labels = list(dict.fromkeys(line.label for ours in plot.panels.values() for line in ours))
    seen = [v for ours in plot.panels.values() for line in ours for v in _accuracies(line)]
    span = (min(seen), max(seen))
    places = [x for ours in plot.panels.values() for line in ours for x in line.x]
    xs = (min(places), max(places))
    svgs = {
        panel: Markup(
            figures.inline(
                figures.panel(ours, labels, span, x=plot.x, xs=xs),
                f"{plot.name}-{i}",
                f"{plot.title}, {panel}: {describe(ours, percent)}",
            )
        )
        for i, (panel, ours) in enumerate(plot.panels.items())
    }
    rows = [row for panel, ours in plot.panels.items() for line in ours for row in _rows(panel, line, plot.x)]
    columns = ("panel", "line", plot.x, "accuracy", "95% interval")
    table = Table(plot.name, plot.title, columns, tuple(rows), frozenset({2, 3, 4}))
    return Drawn(plot.name, plot.title, plot.caption, svgs, {}, table, plot.x)


def _accuracies(line: Line) -> Iterable[float]:
    return (v for column in (line.y, line.low or (), line.high or ()) for v in column if isfinite(v))


def _rows(panel: str, line: Line, x: str) -> Iterable[tuple[str, str, str, str, str]]:
    for i, value in enumerate(line.x):
        place = (
            f"{value:g}"
            if x in ("samples", LEVEL)
            else amount(value, "generated" if x == "tokens" else "flops")
        )
        known = line.low is not None and line.high is not None
        bounds = between(line.low[i], line.high[i]) if known and line.low and line.high else "–"
        yield panel, line.label, place, percent(line.y[i]), bounds
