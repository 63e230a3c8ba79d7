"""Rows and panels that the terminal, the page and the figures show alike: by generator, strategy and n."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import isnan
from typing import Literal

from metagen.analysis import figures
from metagen.runs.curves.measured import LevelMeasured, Measured

Cost = Literal["generated", "flops"]


def accuracies_by_size(
    measured: Iterable[Measured],
) -> list[tuple[str, float, list[tuple[str, dict[int, Measured]]]]]:
    """Each generator with its highest accuracy, oracles aside, and its strategies by n; without an n stands at 1."""
    found = []
    for generator, group in groupby(measured, key=lambda m: m.generator):
        ours = list(group)
        top = max((m.accuracy for m in ours if not m.oracle), default=-1.0)
        found.append((generator, top, [(s, {m.n or 1: m for m in cells}) for s, cells in _by_strategy(ours)]))
    return found


def _by_strategy(measured: Iterable[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    """By label of the strategy, in order of first appearance."""
    found: dict[str, list[Measured]] = {}
    for m in measured:
        found.setdefault(strategy_label(m), []).append(m)
    yield from found.items()


def strategy_label(m: Measured | LevelMeasured) -> str:
    """The strategy's name; what knows the answers says so."""
    return f"{m.strategy} (oracle)" if m.oracle else m.strategy


def panels(
    measured: Iterable[Measured], panel: Literal["generator", "strategy"], cost: Cost | None = None
) -> dict[str, list[figures.Line]]:
    """A panel for each generator with its strategies as lines, or the other way round."""
    found: dict[str, dict[str, list[Measured]]] = {}
    for m in measured:
        names = (m.generator, strategy_label(m))
        outer, inner = names if panel == "generator" else names[::-1]
        found.setdefault(outer, {}).setdefault(inner, []).append(m)
    if panel == "generator" and cost is None:
        return {
            title: [_by_size(name, ms, lines) for name, ms in lines.items()] for title, lines in found.items()
        }
    curves = {
        title: [_line(name, [getattr(m, cost or "n") for m in ms], ms) for name, ms in lines.items()]
        for title, lines in found.items()
    }
    # A panel of single points shows little: their costs are where the curves of the others begin.
    return {
        title: lines for title, lines in curves.items() if max(len(line.x) for line in lines) > 1
    } or curves


def _by_size(
    name: str, ours: abc.Sequence[Measured], panel: Mapping[str, abc.Sequence[Measured]]
) -> figures.Line:
    """Accuracy by n; what has no n is a level line across the panel, to compare with."""
    if len(ours) == 1 and ours[0].n is None:
        sizes = [m.n or 1 for ms in panel.values() for m in ms]
        return _line(name, [min(sizes), max(sizes)], [ours[0], ours[0]])
    return _line(name, [m.n or 1 for m in ours], ours)


def level_panels(levels: Iterable[LevelMeasured]) -> dict[str, list[figures.Line]]:
    """For each generator, each strategy at its largest n."""
    found: dict[str, dict[str, list[LevelMeasured]]] = {}
    for level in levels:
        found.setdefault(level.generator, {}).setdefault(strategy_label(level), []).append(level)
    panels: dict[str, list[figures.Line]] = {}
    for generator, lines in found.items():
        for name, rows in lines.items():
            largest = max(row.n or 1 for row in rows)
            ours = [row for row in rows if (row.n or 1) == largest]
            panels.setdefault(generator, []).append(_line(name, [row.level for row in ours], ours))
    return panels


def _line(name: str, x: abc.Sequence[float], rows: abc.Sequence[Measured | LevelMeasured]) -> figures.Line:
    order = sorted(range(len(x)), key=lambda i: x[i])
    rows = [rows[i] for i in order]
    low, high = [r.low for r in rows], [r.high for r in rows]
    known = not all(map(isnan, (*low, *high)))
    return figures.Line(
        name,
        [x[i] for i in order],
        [r.accuracy for r in rows],
        low if known else None,
        high if known else None,
    )
