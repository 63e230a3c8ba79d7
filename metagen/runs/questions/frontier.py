"""The frontier in the report: what is best for its cost, which size of model, where curves cross, all cells as heat."""

from __future__ import annotations

from itertools import combinations
from math import nan

import numpy as np

from metagen.analysis.figures import Line
from metagen.analysis.frontier import frontier as best_of
from metagen.errors import InputError
from metagen.runs.curves.frontier import (
    PricedCell,
    cells,
    curves_with_cost,
    main_cost,
    membership,
    missing,
    note_unknown_costs,
    optimal_size,
    pareto,
)
from metagen.runs.curves.study import Curve, Floats, StudyResult
from metagen.runs.declare.settings import AS_WRITTEN
from metagen.runs.note import Note
from metagen.runs.questions import equal_compute
from metagen.runs.questions.crossings import common, crossing
from metagen.runs.questions.section import Heat, Plot, Section, Table
from metagen.runs.questions.section import has_band as has_bands
from metagen.runs.words import (
    TIED,
    TIMED,
    axis,
    join_words,
    often,
    share,
    unit,
    with_interval,
    with_unit,
    within,
)

#: Configurations that are on the frontier less often are not worth a row of their own.
LEAST = 0.05
#: More lines than these have no bands: they would hide each other.
BANDS = 5


def section(result: StudyResult) -> Section:
    """Frontiers over every cost that is known, with bands; tables at the main one."""
    cost = main_cost(result)
    if cost is None:
        note = Note("frontier", "no cost is known for most curves: nothing can be compared at equal cost")
        return Section("frontier", "Frontier", notes=(note,))
    pictures: list[Plot] = []
    costs = [cost, *(name for name in _costs(result) if name != cost)]
    for name in costs:
        pictures += [_plot(result, name), _plot(result, name, error=True)]
    pictures = [plot for plot in (*pictures, _curves(result, cost)) if plot.panels]
    tables = [
        _members(result, cost),
        *(found for name in equal_compute.costs(result) for found in _sizes(result, name)),
    ]
    crossed, notes = _crossings(result, cost)
    return Section(
        "frontier",
        "The best for its cost",
        "Each configuration stands at its mean cost of a problem, verifiers included. A configuration is on the "
        f"frontier if it beats every cheaper one on these problems by more than a tie ({TIED}). The share of resamples "
        "that put it there shows how sure this is. Configurations that know the answers never count.",
        pictures=tuple(pictures),
        tables=(*tables, *crossed),
        notes=(
            *missing(result),
            *equal_compute.elsewhere(result),
            *notes,
            *(
                note
                for name in dict.fromkeys((*costs, *equal_compute.costs(result)))
                for note in note_unknown_costs(result, name)
            ),
        ),
    )


def comparison(result: StudyResult) -> Section:
    """Strategies at equal compute, and every accuracy as a heat map of model × n."""
    tables, notes = equal_compute.tables(result)
    if not tables and not notes:
        notes = (Note("equal compute", "no model has two strategies of known cost to compare"),)
    return Section(
        "equal-compute",
        "Strategies at equal compute",
        "Between two points of a curve, a coin decides the n of each problem, so both sides spend the same on average. "
        "Below its cheapest point a strategy has no row. If one of the two was not measured up to the budget, the "
        "table compares them at the largest cost that both can spend.",
        pictures=tuple(heats(result)),
        tables=tables,
        notes=(*equal_compute.unpaid(result), *notes),
    )


def heats(result: StudyResult) -> list[Heat]:
    """Accuracy by model and n, a picture for every strategy that has more than one cell."""
    found = []
    for strategy in dict.fromkeys(c.strategy for c in result.curves):
        curves = [c for c in result.curves if c.strategy == strategy]
        ns = sorted({int(n) for c in curves for n in c.ns})
        values = np.full((len(curves), len(ns)), np.nan)
        for row, curve in enumerate(curves):
            for n, means in zip(curve.ns.tolist(), _means(curve), strict=True):
                values[row, ns.index(n)] = means
        if np.isfinite(values).sum() < 2:
            continue
        caption = f"Accuracy of {strategy} by model and n, over the problems that have it."
        if curves[0].oracle:
            caption += " It knows the answers, so it is an upper bound."
        found.append(
            Heat(
                f"heat-{_file(strategy)}", strategy, caption,
                tuple(c.model for c in curves), tuple(str(n) if n else "–" for n in ns), values,
                axes=("model", "n"),
            )
        )  # fmt: skip
    return found


def _plot(result: StudyResult, cost: str, *, error: bool = False) -> Plot:
    """The frontier of each model as steps."""
    every = cells(result, cost)
    models = list(dict.fromkeys(cell.curve.model for cell in every))
    # The frontier of all is the edge of those of the models.
    best = {m: _best([c for c in every if c.curve.model == m]) for m in models}
    lines = [line for label, mine in best.items() if (line := _line(label, mine, error)) is not None]
    what = "error" if error else "accuracy"
    caption = (
        f"The best {what} of each model for a mean cost, under any strategy. The frontier of all models is the edge of "
        "these lines. Its points were picked on these problems, so they look a little too good."
    )
    if has_bands({"": lines}):
        caption += " Bands are 95% intervals over problems, of each configuration by itself."
    if cost == "seconds":
        caption += f" {TIMED}"
    if error:
        caption += " Configurations without an error are not shown: this axis is logarithmic."
    panels = {"any strategy": lines} if lines else {}
    name = f"frontier-{'error-' if error else ''}{_file(cost)}"
    return Plot(name, f"Frontier: {what}", caption, axis(cost), what, panels, y_log=error, steps=True)


def _line(label: str, mine: list[PricedCell], error: bool = False) -> Line | None:
    """Cells by cost; None if there is nothing to draw."""
    shown = [c for c in mine if not error or c.error > 0.0]
    if not shown:
        return None
    y, low, high = ([getattr(c, f) for c in shown] for f in ("accuracy", "low", "high"))
    if error:
        y, low, high = [1 - v for v in y], [1 - v for v in high], [1 - v for v in low]
    costs = [c.cost for c in shown]
    return Line(label, costs, y) if np.isnan(low).any() else Line(label, costs, y, low, high)


def _best(every: list[PricedCell]) -> list[PricedCell]:
    named = {c.name: c for c in every}
    return [named[p.label] for p in best_of(c.plot_point for c in every)]


def _curves(result: StudyResult, cost: str) -> Plot:
    """Every strategy of every model."""
    panels: dict[str, list[Line]] = {}
    grouped: dict[Curve, list[PricedCell]] = {}
    for cell in cells(result, cost):
        grouped.setdefault(cell.curve, []).append(cell)
    banded = len(dict.fromkeys(c.strategy for c in grouped)) <= BANDS
    for curve, mine in grouped.items():
        line = _line(curve.strategy, sorted(mine, key=lambda c: c.cost))
        if line is not None:
            bare = Line(line.label, line.x, line.y)
            panels.setdefault(curve.model, []).append(line if banded else bare)
    caption = "Accuracy of each strategy against its mean cost."
    if has_bands(panels):
        caption += " Bands are 95% intervals over problems."
    return Plot(f"strategies-{_file(cost)}", "Strategies", caption, axis(cost), "accuracy", panels)


def _members(result: StudyResult, cost: str) -> Table:
    """The frontier, and whatever may well be on it."""
    sure = membership(result, cost)
    best = {cell.name for cell in pareto(result, cost)}
    rows = [
        (
            cell.name, cell.curve.frozen or AS_WRITTEN, with_unit(cell.cost, cost),
            with_interval(cell.accuracy, cell.low, cell.high, cell.stderr), "yes" if cell.name in best else "",
            often(sure.get(cell.name, nan)),
        )
        for cell in sorted(cells(result, cost), key=lambda c: c.cost)
        if cell.name in best or sure.get(cell.name, 0.0) >= LEAST
    ]  # fmt: skip
    least = f"at least {LEAST:.0%} of resamples of the problems"
    caption = (
        f"Configurations on the frontier, and others that are on it in {least}. ± is the clustered standard "
        "error."
    )
    columns = ("configuration", "settings", "cost", "accuracy", "on the frontier", "of resamples")
    return Table("frontier", caption, columns, tuple(rows), frozenset({2, 3, 5}))


def _sizes(result: StudyResult, cost: str) -> list[Table]:
    """The best model by budget, for every strategy that several models have."""
    rows = []
    for strategy in dict.fromkeys(c.strategy for c in curves_with_cost(result, cost)):
        if len({c.model for c in curves_with_cost(result, cost) if c.strategy == strategy}) < 2:
            continue
        given = equal_compute.budgets(result, cost)
        for size in optimal_size(result, cost, given, lambda c, name=strategy: c.strategy == name):  # type: ignore[misc]  # it infers no type of a default
            if size.model is None:
                continue
            alone = f"{size.model}: the only one" if size.alone else ""
            shares = alone or ", ".join(f"{m}: {often(v)}" for m, v in size.share.items())
            means = ", ".join(f"{m}: {share(v)}" for m, v in size.accuracy.items())
            rows.append((strategy, with_unit(size.budget, cost), join_words(list(size.tied)), means, shares))
    caption = (
        f"The best size of model for a budget in {unit(cost)}, and the share of resamples of the problems in which "
        "each model is best. “The only one” means that the budget pays for no other model. Several models in a cell "
        f"tie ({TIED}); the first spends least."
    )
    columns = ("strategy", "budget", "best model", "accuracy", "best in")
    return (
        [
            Table(
                equal_compute.table_name("sizes", result, cost), caption, columns, tuple(rows), frozenset({1})
            )
        ]
        if rows
        else []
    )


def _crossings(result: StudyResult, cost: str) -> tuple[list[Table], list[Note]]:
    """Two models under one strategy; two strategies of one model only where they cross."""
    rows: list[tuple[str, ...]] = []
    notes = []
    for a, b in combinations(curves_with_cost(result, cost), 2):
        if (a.model == b.model) == (a.strategy == b.strategy) or len(a.ns) < 2 or len(b.ns) < 2:
            continue
        try:
            found, where = crossing(a, b, cost), common(a, b, cost)
        except InputError as error:
            notes.append(Note("crossings", str(error)))
            continue
        if where is None or where.least == where.most:
            continue
        ends = f"{with_unit(where.least, cost)} to {with_unit(where.most, cost)}"
        if found is not None:
            sure = within(found.low, found.high, lambda x: with_unit(x, cost))
            at = ", ".join(with_unit(x, cost) for x in found.every)
            rows.append((f"{a.name}, {b.name}", ends, at, sure, f"then {found.after}"))
        elif a.model != b.model:
            rows.append(
                (
                    f"{a.name}, {b.name}",
                    ends,
                    "nowhere",
                    "",
                    where.leader or f"neither by more than a tie ({TIED})",
                )
            )
    caption = (
        "Crossings of the curves of two models under one strategy, and of two strategies of one model. The interval "
        "(95%, over problems) is that of the last crossing."
    )
    columns = ("curves", "compared from … to", "cross at", "interval", "who leads")
    return ([Table("crossings", caption, columns, tuple(rows))] if rows else []), notes


def _costs(result: StudyResult) -> list[str]:
    """Costs that most curves know."""
    names = dict.fromkeys(name for c in result.curves for name in c.costs)
    count = sum(not c.oracle for c in result.curves)
    return [name for name in names if len(curves_with_cost(result, name)) * 2 > count]


def _means(curve: Curve) -> list[float]:
    """Mean of each point over the problems that have it; NaN for none."""
    rows: list[Floats] = [row[np.isfinite(row)] for row in curve.accuracy]
    return [float(row.mean()) if len(row) else np.nan for row in rows]


def _file(name: str) -> str:
    """A name as part of a file's."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
