"""Strategies at equal compute: each against the plain vote of its model, at the budgets of the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metagen.analysis.comparison import Contrast
from metagen.studies.frontier import AtCost, at_cost, known, ladder, main_cost, shared
from metagen.studies.question import compared
from metagen.studies.result import Bools, Curve, StudyResult
from metagen.studies.section import Table
from metagen.studies.words import difference, share, spent

#: What the others are compared with: the first of these kinds that a model has.
REFERENCES = ("majority", "weighted", "best_of_n", "sample")
#: Budgets where the study names none.
BUDGETS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """A strategy of a model at a budget, beside the reference at what it spends. contrast: None of too few problems."""

    curve: Curve
    reference: Curve
    budget: float
    at: AtCost
    beside: AtCost
    contrast: Contrast | None


def budgets(result: StudyResult, cost: str) -> tuple[float, ...]:
    """Those of the study, ascending; without any, some over the costs of its curves, evenly in the logarithm."""
    if result.budgets.get(cost):
        return tuple(sorted(result.budgets[cost]))
    curves = known(result, cost)
    if not curves:
        return ()
    over = shared(curves)
    ends = [ladder(curve, cost, over)[1] for curve in curves]
    least, most = min(costs[0] for costs in ends), max(costs[-1] for costs in ends)
    return tuple(np.geomspace(least, most, BUDGETS).tolist()) if most > least else (float(least),)


def middle(values: Sequence[float]) -> float:
    """The median budget; of two in the middle the smaller."""
    return sorted(values)[(len(values) - 1) // 2]


def rivals(result: StudyResult, cost: str) -> list[Rival]:
    """Every strategy of every model at every budget that pays for it and for the reference; one family of tests.

    A curve that ends below the budget is compared at what it spends there, not at what it might.
    """
    found: list[tuple[Curve, Curve, float, AtCost, AtCost]] = []
    for model in dict.fromkeys(curve.model for curve in result.curves):
        curves = [c for c in known(result, cost) if c.model == model]
        reference = _reference(curves)
        if reference is None:
            continue
        for curve in curves:
            over = _both(curve, reference)
            # A sample is a vote of one.
            if curve is reference or curve.kind == "sample" or over is None:
                continue
            before = 0.0
            for budget in budgets(result, cost):
                at = at_cost(curve, cost, budget, over)
                beside = None if at is None else at_cost(reference, cost, at.spends, over)
                # Beyond its last point a curve is what it is: said once.
                if at is None or beside is None or at.spends <= before:
                    continue
                before = at.spends
                found.append((curve, reference, budget, at, beside))
    tested = compared({str(i): (beside.accuracy, at.accuracy) for i, (*_, at, beside) in enumerate(found)})
    return [Rival(*one, tested.get(str(i))) for i, one in enumerate(found)]


def table(result: StudyResult) -> Table | None:
    """Paired differences at equal cost; None where nothing can be compared."""
    cost = main_cost(result)
    every = rivals(result, cost) if cost else []
    if cost is None or not every:
        return None
    rows = tuple(_row(rival, cost) for rival in every)
    said = ("accuracy", "against", "its accuracy", "difference", "p", "detectable")
    columns = ("budget", "configuration", "n", "spends", *said)
    caption = (
        "Accuracy at equal cost: differences in points with 95% intervals, paired by problem; p corrected by Holm for "
        f"{sum(r.contrast is not None for r in every)} comparisons. Detectable: the least difference that would have "
        "been shown with probability 0.8. n: the points that the budget lies between."
    )
    return Table("equal-compute", caption, columns, rows, frozenset({0, 3, 4, 6, 7, 8, 9}))


def _row(rival: Rival, cost: str) -> tuple[str, ...]:
    c = rival.contrast
    return (
        spent(rival.budget, cost), rival.curve.name, between(rival.at), spent(rival.at.spends, cost),
        share(rival.at.mean), f"{rival.reference.strategy}, n = {between(rival.beside)}", share(rival.beside.mean),
        "–" if c is None else difference(c.difference.estimate, c.difference.low, c.difference.high),
        "–" if c is None else p_value(c.p_value), "–" if c is None else points(c.difference.detectable),
    )  # fmt: skip


def between(at: AtCost) -> str:
    """The n that are mixed: 4–8, or 4 alone."""
    low, high = at.between
    return str(low) if at.share == 0.0 or low == high else f"{low}–{high}"


def p_value(p: float) -> str:
    """To three places; a dash for no test."""
    return "–" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def points(value: float) -> str:
    """An unsigned difference in points."""
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def _reference(curves: list[Curve]) -> Curve | None:
    for kind in REFERENCES:
        for curve in curves:
            if curve.kind == kind:
                return curve
    return None


def _both(a: Curve, b: Curve) -> Bools | None:
    """The problems that both measured; None for none."""
    over = np.ones(a.accuracy.shape[1], dtype=bool)
    for curve in (a, b):
        over &= np.isfinite(curve.accuracy[_points(curve)]).all(axis=0)
    return over if over.any() else None


def _points(curve: Curve) -> Bools:
    return np.asarray(np.isfinite(curve.accuracy).any(axis=1))
