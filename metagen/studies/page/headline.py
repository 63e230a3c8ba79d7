"""The first sentences of a report: what to run at the middle budget, and what it adds to one sample."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan, sqrt

import numpy as np

from metagen.analysis.bootstrap import paired_difference
from metagen.errors import InputError
from metagen.studies import frontier, words
from metagen.studies.page.measured import Row, rows
from metagen.studies.recommend import Recommendation, recommend
from metagen.studies.result import StudyResult


def headline(result: StudyResult) -> list[str]:
    """Sentences with their uncertainty; where nothing can be recommended, why."""
    reason = "every configuration knows the answers, or its costs are unknown"
    for cost, budget in _budgets(result):
        try:
            found = recommend(result, {cost: budget})
        except InputError as error:
            reason = str(error)
            continue
        return list(_sentences(result, found, cost, budget))
    return [f"{result.name}: nothing can be recommended.", f"{reason[:1].upper()}{reason[1:].rstrip('.')}."]


def _budgets(result: StudyResult) -> Iterator[tuple[str, float]]:
    """The middle budget, then the greater ones: of the main cost first. At last the middle of what is spent."""
    main = frontier.main_cost(result)
    for cost in sorted(result.budgets, key=lambda name: name != main):
        given = sorted(result.budgets[cost])
        yield from ((cost, budget) for budget in given[(len(given) - 1) // 2 :])
    known = [row.costs.get(main, 0.0) for row in rows(result) if not row.curve.oracle] if main else []
    spent = [value for value in known if isfinite(value) and value > 0]
    if main and spent:
        yield main, sqrt(min(spent) * max(spent))


def _sentences(result: StudyResult, found: Recommendation, cost: str, budget: float) -> Iterator[str]:
    bounds = words.bounds(found.low, found.high)
    interval = f", 95% interval {bounds[1:-1].replace(', ', '–')}%" if bounds else ""
    yield (
        f"For {words.spent(budget, cost)} a problem, run {found.configuration}: expect {words.share(found.accuracy)} "
        f"to be right{interval}."
    )
    single = _single(result, found.curve.model)
    if single is None or single.curve.configuration(single.point) == found.configuration:
        return
    point = int(np.flatnonzero(found.curve.ns == found.n)[0])
    many, one = found.curve.accuracy[point], single.curve.accuracy[single.point]
    both = np.isfinite(many) & np.isfinite(one)
    if both.any():
        gain = paired_difference(many[both], one[both])
        sure = "" if gain.low > 0 or isnan(gain.low) else ", which may be chance"
        yield (
            f"One sample of the same model is right on {words.share(float(one[both].mean()))} of the same "
            f"{both.sum():,} problems: a difference of {words.difference(gain.estimate, gain.low, gain.high)} points"
            f"{sure}."
        )
    before, after = single.costs.get(cost, 0.0), found.costs.get(cost, 0.0)
    if before > 0 and after > 0:
        yield f"It spends {words.spent(after, cost)} a problem, {after / before:.3g} times what one sample does."


def _single(result: StudyResult, model: str) -> Row | None:
    """One sample of this model: a strategy that draws one, or the average over a pool."""
    ours = [row for row in rows(result) if row.curve.model == model and not row.curve.oracle]
    drawn = [row for row in ours if row.curve.kind == "sample"]
    pooled = [r for r in ours if r.curve.source == "pool" and r.n == 1 and r.curve.verifier is None]
    return next(iter([*drawn, *pooled]), None)
