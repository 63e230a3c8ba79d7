"""The first sentences of a report: what to run at the middle budget, and what it adds to one sample."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan, sqrt

import numpy as np

from metagen.analysis.comparison import Picked
from metagen.errors import InputError
from metagen.runs import words
from metagen.runs.curves import checks, frontier
from metagen.runs.curves.study import StudyResult
from metagen.runs.page.measured import Row, rows
from metagen.runs.questions import equal_compute
from metagen.runs.questions.recommend import Recommendation, recommend


def headline(result: StudyResult) -> list[str]:
    """Sentences with their uncertainty; where nothing can be recommended, why."""
    reason = "every configuration knows the answers, or its costs are unknown"
    main = frontier.main_cost(result)
    middle = iter([(main, budget) for budget in middle_budget(result)] if main else [])
    for given, said in ((_budgets(result), []), (middle, _unpaid(result))):
        for cost, budget in given:
            try:
                found = recommend(result, {cost: budget})
            except InputError as error:
                reason = str(error)
                continue
            return [*said, *_sentences(result, found, cost, budget)]
    return [f"{result.name}: nothing can be recommended.", f"{reason[:1].upper()}{reason[1:].rstrip('.')}."]


def _budgets(result: StudyResult) -> Iterator[tuple[str, float]]:
    """The study's middle budget, then the greater ones: of the main cost first."""
    main = frontier.main_cost(result)
    for cost in sorted(result.budgets, key=lambda name: name != main):
        given = sorted(result.budgets[cost])
        yield from ((cost, budget) for budget in given[(len(given) - 1) // 2 :])


def middle_budget(result: StudyResult) -> list[float]:
    """The middle of what is spent at the main cost, where no budget of the study helps; empty if that is unknown."""
    main = frontier.main_cost(result)
    known = [row.costs.get(main, 0.0) for row in rows(result) if not row.curve.oracle] if main else []
    spent = [value for value in known if isfinite(value) and value > 0]
    return [sqrt(min(spent) * max(spent))] if spent else []


def _unpaid(result: StudyResult) -> list[str]:
    """What is said before a budget that nobody gave: why none of the study's was taken; nothing without any."""
    said = []
    for cost, given in result.budgets.items():
        if (least := equal_compute.cheapest(result, cost)) is None:
            said.append(f"no curve knows {words.unit(cost)}{checks.remedy(cost)}")
        elif least[1] > max(given):
            said.append(f"the cheapest, {least[0]}, takes {words.with_unit(least[1], cost)} a problem")
    return [f"None of the study's budgets pays for anything: {'; '.join(said)}."] if said else []


def _sentences(result: StudyResult, found: Recommendation, cost: str, budget: float) -> Iterator[str]:
    bounds = words.bounds(found.low, found.high)
    interval = f", 95% interval {bounds[1:-1].replace(', ', '–')}%" if bounds else ""
    naive = ""
    if isnan(found.low):
        naive = f", as measured on the {found.problems:,} problems that it was picked on"
    yield (
        f"For {words.with_unit(budget, cost)} a problem, run {found.full_name}: expect {words.share(found.accuracy)} "
        f"to be right{interval}{naive}."
    )
    single = _single(result, found.curve.model)
    if single is None or _itself(single, found):
        return
    one = single.curve.accuracy[single.point]
    gain = found.gain(one)
    if gain is not None:
        both = np.isfinite(found.options).all(axis=0) & np.isfinite(one)
        before, after = single.curve.frozen, found.curve.frozen
        other = "" if before == after else f" ({before or 'as written'})"
        yield (
            f"One sample of the same model{other} is right on {words.share(float(one[both].mean()))} of the same "
            f"{both.sum():,} problems: expect {_difference(gain)}."
        )
    base, spent = single.costs.get(cost, 0.0), found.costs.get(cost, 0.0)
    if base > 0 and spent > 0:
        times = f"{spent / base:.3g}"
        compared = "as much as" if times == "1" else f"{times} times what"
        yield f"It spends {words.with_unit(spent, cost)} a problem, {compared} one sample does."


def _itself(single: Row, found: Recommendation) -> bool:
    """Whether what is recommended is one sample, by this name or another."""
    same = single.curve.configuration(single.point) == found.configuration
    point = found.curve.ns.tolist().index(found.n)
    measured = np.array_equal(
        single.curve.accuracy[single.point], found.curve.accuracy[point], equal_nan=True
    )
    return same or (measured and found.n <= 1)


def _difference(gain: Picked) -> str:
    """A difference in points."""
    chance = "" if gain.low > 0 or gain.high < 0 else ", not shown to differ from 0"
    return f"a difference of {words.difference(gain.estimate, gain.low, gain.high)} points{chance}"


def _single(result: StudyResult, model: str) -> Row | None:
    """One sample of this model: a strategy that draws one, or the average over a pool."""
    ours = [row for row in rows(result) if row.curve.model == model and not row.curve.oracle]
    drawn = [row for row in ours if row.curve.kind == "sample"]
    pooled = [r for r in ours if r.curve.source == "pool" and r.n == 1 and r.curve.verifier is None]
    return next(iter([*drawn, *pooled]), None)
