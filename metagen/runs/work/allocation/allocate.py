"""One budget over a data set: more samples where they are expected to gain more for their tokens.

What n samples gain on a problem is not known; it is estimated from what its first samples say, with curves learned on
held-out problems (`Difficulty`). Then samples go, one problem after the other, to the largest marginal gain per token
(`allocate`), in rounds: the first few to every problem, the rest as the estimates say, which are renewed wherever more
samples are in (`Plan`). After Damani et al. (2024), who learn the gains from hidden states, and Snell et al. (2024).

All of it is pure functions of arrays, [problems, samples] as in `metagen.analysis.estimators`; the journal answers for
the samples of earlier rounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.strategies.adaptive.by_difficulty import PREDICTORS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Relative slack for sums of costs.
SLACK = 1e-9


@dataclass(frozen=True)
class Difficulty:
    """How accurate the vote over n samples is expected to be, given what the first few say.

    first: samples that the predictor looks at. edges: [groups − 1], ascending: the value of the predictor at which each
    group but the first begins.
    curves: [groups, most + 1], the accuracy at n = 0 … most. rows: problems × orders in each group.
    """

    first: int
    predictor: str
    edges: Floats
    curves: Floats
    rows: Ints

    @classmethod
    def learn(
        cls,
        classes: ArrayLike,
        correct: ArrayLike,
        *,
        first: int,
        weights: ArrayLike | None = None,
        predictor: str = "agreement",
        groups: int = 6,
        orders: int = 20,
        monotone: bool = False,
        seed: int = 0,
    ) -> Difficulty:
        """From a recorded pool of held-out problems: never those that the curves are used on.

        Each problem counts in `orders` random orders of its samples; the first of an order tell its group, and the
        vote over its first n the accuracy. Groups are quantiles of the predictor, fewer where its values coincide.
        monotone: an easier group is at least as accurate at every n (isotonic regression across the groups). That
        steadies curves of few problems; where a model is often wrong in unison it is false, and misleads.
        weights: of the votes, NaN for none; 1 each by default. Raises InputError for numbers below 1, more first
        samples than there are, or an unknown predictor.
        """
        classes, correct = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=np.float64)
        heavy = np.ones(classes.shape) if weights is None else np.asarray(weights, dtype=np.float64)
        size = classes.shape[-1]
        whole = is_count(first, 1) and is_count(groups, 1) and is_count(orders, 1)
        if not whole or first > size or predictor not in PREDICTORS:
            raise InputError(
                f"first={first!r}, groups={groups!r}, orders={orders!r}, predictor={predictor!r}: expected 1 … {size}, "
                f"≥ 1, ≥ 1 and one of {', '.join(PREDICTORS)}"
            )
        rng = np.random.default_rng(seed)
        order = rng.permuted(np.broadcast_to(np.arange(size), (orders, *classes.shape)), axis=-1)
        order = order.reshape(-1, size)
        pools = (np.tile(array, (orders, 1)) for array in (classes, correct, heavy))
        classes, correct, heavy = (np.take_along_axis(pool, order, axis=1) for pool in pools)
        from metagen.analysis.stopping import running_vote  # it needs scipy, which every run would wait for

        accuracy = np.pad(running_vote(classes, correct, heavy), ((0, 0), (1, 0)))
        values = PREDICTORS[predictor](classes[:, :first], heavy[:, :first])
        edges = quantiles(values, groups)
        group = np.searchsorted(edges, values, side="right")
        rows = np.bincount(group, minlength=len(edges) + 1)
        curves = np.stack([accuracy[group == g].mean(axis=0) for g in range(len(rows))])
        if monotone:
            from scipy.optimize import isotonic_regression  # which every run would wait for

            columns = [isotonic_regression(curve, weights=rows).x for curve in curves.T]
            curves = np.stack(columns, axis=1)
        return cls(first, predictor, edges, curves, rows)

    def groups(self, classes: ArrayLike, weights: ArrayLike | None = None) -> Ints:
        """[problems]: the group of each, by its first samples; [problems, first or more] each."""
        classes = np.asarray(classes, dtype=np.int64)[:, : self.first]
        heavy = np.ones(classes.shape) if weights is None else np.asarray(weights, dtype=np.float64)
        values = PREDICTORS[self.predictor](classes, heavy[:, : self.first])
        return np.asarray(np.searchsorted(self.edges, values, side="right"))

    def expected_accuracy(self, classes: ArrayLike, weights: ArrayLike | None = None) -> Floats:
        """[problems, most + 1]: the curve of each problem's group."""
        return self.curves[self.groups(classes, weights)]


def quantiles(values: ArrayLike, groups: int) -> Floats:
    """Where groups of about equal size begin, but for the first: values of the pool, and not the least of them.

    values: [problems]. The result is [groups − 1], or shorter: no group is empty, and there are fewer where quantiles
    coincide.
    """
    pool = np.asarray(values, dtype=np.float64)
    edges = np.unique(np.quantile(pool, np.arange(1, groups) / groups, method="higher"))
    return np.asarray(edges[edges > pool.min()])


def allocate(
    curves: ArrayLike,
    budget: float,
    *,
    cost: ArrayLike = 1.0,
    floor: ArrayLike = 0,
    ceiling: ArrayLike | None = None,
) -> Ints:
    """[problems]: samples for each, by marginal gain per token; their cost is at most `budget`.

    curves: [problems, most + 1], what n = 0 … most samples are expected to gain. cost: of one sample, [problems] or
    one number. floor, ceiling: the fewest and most samples of each. Where nothing is gained any more, nothing is spent.

    Where curves are concave and costs equal, no allocation gains more. Where a curve is not concave (a vote of two is
    no better than one sample), the steps of its least concave majorant are taken whole; what is then lost is at most
    one step. Ties: the earlier problem. Raises InputError for floors that the budget does not pay.
    """
    gains = np.asarray(curves, dtype=np.float64)
    if gains.ndim != 2 or not gains.size or not np.isfinite(gains).all():
        raise InputError(f"curves of shape {gains.shape}: expected finite numbers, [problems, most + 1]")
    problems, most = gains.shape[0], gains.shape[1] - 1
    price = np.broadcast_to(np.asarray(cost, dtype=np.float64), problems)
    given = np.broadcast_to(np.asarray(floor, dtype=np.int64), problems).copy()
    top = np.broadcast_to(np.asarray(most if ceiling is None else ceiling, dtype=np.int64), problems)
    if not ((price > 0).all() and np.isfinite(price).all()):
        raise InputError(f"cost={cost!r:.60}: expected finite numbers > 0")
    if (given < 0).any() or (given > top).any() or (top > most).any():
        raise InputError(
            f"floor={floor!r:.40}, ceiling={ceiling!r:.40}: expected 0 ≤ floor ≤ ceiling ≤ {most}"
        )
    left = float(budget) - float((given * price).sum())
    if left < -SLACK * abs(budget):
        raise InputError(
            f"a budget of {budget:g} does not pay for the floors, {float((given * price).sum()):g}; "
            "raise it, or lower them"
        )
    steps = [majorant(row[a : b + 1]) for row, a, b in zip(gains, given, top, strict=True)]
    queue = [(-steps[i][0][0] / price[i], i, 0) for i in range(problems) if steps[i]]
    heapq.heapify(queue)
    while queue:
        _, i, step = heapq.heappop(queue)
        length = steps[i][step][1]
        fits = min(length, int((left + SLACK * abs(budget)) / price[i]))
        if fits < length:  # the best that can be reached of this step, which may be nothing
            reach = gains[i, given[i] : given[i] + fits + 1]
            fits = int(reach.argmax())
        elif step + 1 < len(steps[i]):
            heapq.heappush(queue, (-steps[i][step + 1][0] / price[i], i, step + 1))
        given[i] += fits
        left -= fits * float(price[i])
    return given


def majorant(curve: Floats) -> list[tuple[float, int]]:
    """The rising steps of the least concave majorant of a curve, as slopes and lengths, steepest first.

    curve: a value for each number of samples, from one on, [numbers].
    """
    values: list[float] = curve.tolist()  # Python's own numbers: reading an array one by one is slow
    corners, slopes = [0], [inf]
    for n in range(1, len(values)):
        while (slope := (values[n] - values[corners[-1]]) / (n - corners[-1])) >= slopes[-1]:
            corners.pop()
            slopes.pop()
        corners.append(n)
        slopes.append(slope)
    steps = [(slope, b - a) for slope, (a, b) in zip(slopes[1:], pairwise(corners), strict=True)]
    return [step for step in steps if step[0] > 0.0]


@dataclass(frozen=True)
class Plan:
    """Rounds of one budget, in tokens, over a data set.

    Everyone gets the first samples of the first difficulty. Whoever has as many as a difficulty looks at is estimated
    by it; the rest of the budget is allocated by these estimates, but nobody gets past the next difficulty's first
    samples before all are estimated again. ceiling: the most samples of a problem; all that curves know by default.
    Raises InputError for difficulties that do not ascend, and for a ceiling out of range.
    """

    budget: float
    difficulties: tuple[Difficulty, ...]
    ceiling: int | None = None

    def __post_init__(self) -> None:
        looks = [d.first for d in self.difficulties]
        if not looks or looks != sorted(set(looks)):
            raise InputError(f"difficulties that look at {looks} samples: expected at least one, ascending")
        if self.ceiling is not None and not looks[-1] <= self.ceiling <= self.most:
            raise InputError(f"ceiling={self.ceiling!r}: expected {looks[-1]} … {self.most} samples")

    @property
    def most(self) -> int:
        """Samples that all curves know."""
        return min(int(d.curves.shape[1]) - 1 for d in self.difficulties)

    def next(
        self, drawn: ArrayLike, classes: ArrayLike, tokens: ArrayLike, weights: ArrayLike | None = None
    ) -> Ints:
        """[problems]: how many samples each is to have after the next round; `drawn` itself when all is done.

        drawn: [problems], how many it has. classes, tokens, weights: [problems, samples], of which the first `drawn`
        of a problem are looked at, and tell what its next ones are expected to cost (`expected_costs`). Rounds are
        planned on expectations, and the first on none: what must not be overshot by a token is kept by a `Budget`.
        """
        drawn = np.asarray(drawn, dtype=np.int64)
        if (drawn < self.difficulties[0].first).any():
            return np.asarray(np.maximum(drawn, self.difficulties[0].first))
        classes, spent = np.asarray(classes, dtype=np.int64), np.asarray(tokens, dtype=np.float64)
        spent = np.where(np.arange(spent.shape[1]) < drawn[:, None], spent, np.nan)
        left = self.budget - float(np.nansum(spent))
        if left <= 0.0:
            return drawn
        cost = expected_costs(spent)
        most = min(self.most, self.ceiling or self.most)
        curves, limit = np.zeros((len(drawn), most + 1)), np.full(len(drawn), most)
        for difficulty in self.difficulties:
            here = drawn >= difficulty.first
            heavy = None if weights is None else np.asarray(weights)[here]
            curves[here] = difficulty.expected_accuracy(classes[here], heavy)[:, : most + 1]
            limit[~here] = np.minimum(limit[~here], difficulty.first)
        budget = left + float((drawn * cost).sum())
        wanted = allocate(curves, budget, cost=cost, floor=drawn, ceiling=np.maximum(drawn, most))
        return np.asarray(np.minimum(wanted, np.maximum(drawn, limit)))

    def replay(self, classes: ArrayLike, tokens: ArrayLike, weights: ArrayLike | None = None) -> Ints:
        """[problems]: what all rounds give over a recorded pool, in the order of the record."""
        drawn = np.zeros(len(np.asarray(classes)), dtype=np.int64)
        while ((wanted := self.next(drawn, classes, tokens, weights)) > drawn).any():
            drawn = wanted
        return drawn


def expected_costs(tokens: ArrayLike) -> Floats:
    """[problems]: what one more sample of each is expected to cost, from [problems, samples] so far; NaN is not drawn.

    The mean of its samples, drawn towards the mean of all problems as far as few samples tell little (one-way random
    effects). Without that, allocation prefers the problems that were short by chance, and spends more than it plans.
    """
    paid = np.asarray(tokens, dtype=np.float64)
    n = (~np.isnan(paid)).sum(axis=1)
    means = np.nansum(paid, axis=1) / np.maximum(n, 1)
    inside = float(np.nansum((paid - means[:, None]) ** 2)) / max(float((n - 1).clip(0).sum()), 1.0)
    noise = inside / np.maximum(n, 1)
    middle = float(means[n > 0].mean()) if (n > 0).any() else 0.0
    between = (
        max(float(means[n > 0].var(ddof=1)) - float(noise[n > 0].mean()), 0.0) if (n > 0).sum() > 1 else 0.0
    )
    trust = np.where(n > 0, between / np.maximum(between + noise, 1e-300), 0.0)
    if inside == 0.0:
        trust = (n > 0).astype(np.float64)
    return np.asarray(np.maximum(middle + trust * (means - middle), 1e-9))


def uniform(problems: int, budget: float, cost: float) -> Floats:
    """[problems]: as many samples for each as the budget pays; a fraction is a share of problems with one more."""
    return np.full(problems, budget / (problems * cost))


def accuracy_at(curves: ArrayLike, samples: Iterable[float] | ArrayLike) -> Floats:
    """[problems]: accuracy at a number of samples for each, between whole numbers in proportion.

    curves: [problems, most + 1], accuracy at n = 0 … most, such as `running_vote` behind a column of zeros. Raises
    InputError for numbers of samples beyond the curves.
    """
    rows, given = np.asarray(curves, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    if (given < 0).any() or (given > rows.shape[1] - 1).any():
        raise InputError(f"samples from {given.min():g} to {given.max():g}: expected 0 … {rows.shape[1] - 1}")
    low = np.minimum(given.astype(np.int64), rows.shape[1] - 2)
    share = given - low
    at = np.arange(len(rows))
    return np.asarray((1.0 - share) * rows[at, low] + share * rows[at, low + 1])
