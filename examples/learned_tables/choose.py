"""More samples, a larger model or a deeper search: a table by difficulty, learned on held-out problems.

Every option was run on the same held-out problems, whose first samples tell how hard they are. Of all tables that keep
to a mean cost, the one with the highest mean accuracy is found exactly (a multiple-choice knapsack, by branch and
bound). Two things guard it from noise: what an option gains in one group more than in all is shrunk as far as the group
is small, and the number of groups is the one that did best on problems that were not learned from; with one group, the
best option for all. `metagen.strategies.adaptive.by_difficulty` acts on the table.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.runs.work.allocation.allocate import quantiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Parts of the held-out problems, each of which is predicted from the others.
FOLDS = 10


@dataclass(frozen=True)
class Measured:
    """What an option achieved on the held-out problems; cost in one unit for all options.

    [problems], or [orders, problems] where it depends on the samples that come first.
    """

    accuracy: ArrayLike
    cost: ArrayLike


@dataclass(frozen=True)
class Table:
    """Which option for which difficulty. accuracy, cost: [groups, options], accuracy after shrinkage.

    edges: [groups − 1], ascending. rows: held-out problems of each group, fractions where some of a problem's orders
    belong to it. chosen: an index into `options` for each group, hardest first.
    validated: (accuracy, cost) of tables with 1, 2, … groups on held-out problems that they were not learned from,
    where their number was to be found.
    """

    edges: Floats
    options: tuple[str, ...]
    accuracy: Floats
    cost: Floats
    rows: Floats
    chosen: tuple[int, ...]
    validated: tuple[tuple[float, float], ...] = ()

    @classmethod
    def learn(
        cls,
        values: ArrayLike,
        options: Mapping[str, Measured],
        *,
        budget: float,
        edges: abc.Sequence[float] | None = None,
        groups: int = 5,
    ) -> Table:
        """values: [problems] or [orders, problems], of the predictor, larger for easier.

        budget: mean cost of a problem, at most. edges: where groups begin; by default at quantiles of the values, and
        of 1 to `groups` groups as many as are most accurate in cross-validation, of equals the fewest.
        Raises InputError where no table keeps to the budget, a group is empty, or shapes differ.
        """
        held_out = _HeldOut.of(values, options)
        if edges is not None:
            return _learned(tuple(options), held_out.by(np.asarray(edges, dtype=np.float64)), budget)
        if not is_count(groups, 1):
            raise InputError(f"groups={groups!r}: expected the most groups, an integer ≥ 1")
        found = [quantiles(held_out.values, g) for g in range(1, groups + 1)]
        tried = [held_out.by(e) for e in {len(e): e for e in found}.values()]
        parts = held_out.folds(FOLDS)
        validated = tuple(_validated(grouped, parts, budget) for grouped in tried)
        best = max(range(len(tried)), key=lambda i: (round(validated[i][0], 9), -i))
        return replace(_learned(tuple(options), tried[best], budget), validated=validated)

    @property
    def names(self) -> tuple[str, ...]:
        """The option of each group, hardest first."""
        return tuple(self.options[i] for i in self.chosen)

    def expected(self) -> tuple[float, float]:
        """Mean accuracy and cost on the held-out problems: optimistic, for the table was chosen on them."""
        share, at = self.rows / self.rows.sum(), (np.arange(len(self.rows)), list(self.chosen))
        return float(share @ self.accuracy[at]), float(share @ self.cost[at])

    def choose(self, values: ArrayLike) -> Ints:
        """[problems]: the index of the option for each, by its value of the predictor."""
        return np.asarray(self.chosen)[np.searchsorted(self.edges, np.asarray(values), side="right")]


@dataclass(frozen=True)
class _Grouped:
    """Sums over the orders that put a problem into a group, as shares of all its orders.

    edges: of the groups. member: [groups, problems]. accuracy, cost: [groups, options, problems].
    """

    edges: Floats
    member: Floats
    accuracy: Floats
    cost: Floats

    def only(self, problems: NDArray[np.bool_]) -> _Grouped:
        return _Grouped(
            self.edges, self.member[:, problems], self.accuracy[..., problems], self.cost[..., problems]
        )

    @property
    def rows(self) -> Floats:
        """[groups]: problems."""
        return np.asarray(self.member.sum(axis=1))

    def means(self) -> tuple[Floats, Floats]:
        """[groups, options]: accuracy, shrunk, and cost."""
        rows = self.rows[:, None]
        return _shrunk(self.accuracy, self.member), np.asarray(self.cost.sum(axis=2) / rows)


@dataclass(frozen=True)
class _HeldOut:
    """values: [orders, problems]. accuracy, cost: [options, orders, problems]."""

    values: Floats
    accuracy: Floats
    cost: Floats

    @classmethod
    def of(cls, values: ArrayLike, options: Mapping[str, Measured]) -> _HeldOut:
        predicted = np.asarray(values, dtype=np.float64)
        if (
            predicted.ndim not in (1, 2)
            or not predicted.size
            or not np.isfinite(predicted).all()
            or not options
        ):
            raise InputError(
                f"{len(options)} options, and values of shape {predicted.shape}: expected at least one option, and "
                "finite values, [problems] or [orders, problems]"
            )
        shape = np.atleast_2d(predicted).shape
        return cls(
            np.atleast_2d(predicted),
            *(
                np.stack([_like(getattr(o, what), shape) for o in options.values()])
                for what in ("accuracy", "cost")
            ),
        )

    def by(self, edges: Floats) -> _Grouped:
        group = np.searchsorted(edges, self.values, side="right")
        here = (group == np.arange(len(edges) + 1)[:, None, None]) / len(group)
        if (np.diff(edges) <= 0).any() or not here.any(axis=(1, 2)).all():
            raise InputError(
                f"{here.sum(axis=(1, 2)).round(2).tolist()} held-out problems in the groups between "
                f"edges={edges.tolist()}: expected some in each, and ascending edges"
            )
        sums = (np.einsum("gkp,okp->gop", here, what) for what in (self.accuracy, self.cost))
        return _Grouped(edges, here.sum(axis=1), *sums)

    def folds(self, most: int) -> Ints:
        """[problems]: a part for each, alike in difficulty, and the same in whatever order the problems are given."""
        means = [what.mean(axis=-2) for what in (self.values, *self.accuracy, *self.cost)]
        order = np.lexsort(means[::-1])
        part = np.empty(len(order), dtype=np.int64)
        part[order] = np.arange(len(order)) % min(most, len(order))
        return part


def _like(values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    given = np.asarray(values, dtype=np.float64)
    if given.shape not in (shape, shape[1:]) or not np.isfinite(given).all():
        raise InputError(
            f"an option's values have the shape {given.shape}: expected {shape[1:]} or {shape}, all finite: "
            "the same problems"
        )
    return np.asarray(np.broadcast_to(given, shape))


def _learned(options: tuple[str, ...], grouped: _Grouped, budget: float) -> Table:
    accuracy, cost = grouped.means()
    share = grouped.rows / grouped.rows.sum()
    if (cheapest := float(share @ cost.min(axis=1))) > budget:
        raise InputError(
            f"no table keeps to a mean cost of {budget:g}; the cheapest has {cheapest:g}: raise the budget, "
            "or add a cheaper option"
        )
    return Table(grouped.edges, options, accuracy, cost, grouped.rows, _best(accuracy, cost, share, budget))


def _validated(grouped: _Grouped, parts: Ints, budget: float) -> tuple[float, float]:
    """Mean accuracy and cost over problems, each under a table that was learned without it."""
    reached = np.zeros(2)
    for part in range(parts.max() + 1):
        others, ours = grouped.only(parts != part), grouped.only(parts == part)
        if not others.rows.all():
            return 0.0, float("inf")  # too few problems for so many groups
        accuracy, cost = others.means()
        share = others.rows / others.rows.sum()
        chosen = _best(accuracy, cost, share, max(budget, float(share @ cost.min(axis=1))))
        at = np.arange(len(chosen)), list(chosen)
        reached += ours.accuracy[at].sum(), ours.cost[at].sum()
    return float(reached[0]) / len(parts), float(reached[1]) / len(parts)


def _shrunk(accuracy: Floats, member: Floats) -> Floats:
    """[groups, options]: mean accuracy, without what chance is expected to add to an option in a group.

    An option's lead over the mean of all options is drawn towards its lead over all groups, as far as the lead's
    variance between groups, τ², is small beside that of the group's mean: by τ² / (τ² + σ² / rows), as in a one-way
    layout with random effects. Where groups differ by chance alone, every group ranks the options alike.
    """
    rows = member.sum(axis=1)
    share = rows / rows.sum()
    level = accuracy.mean(axis=1, keepdims=True)
    lead = accuracy - level
    mean = lead.sum(axis=2) / rows[:, None]
    rest = lead - member[:, None, :] * mean[..., None]
    weight = (member**2).sum(axis=1)
    # One σ² for each option, so that a group of two that happen to be alike is not certain.
    inside = (rest**2).sum(axis=(0, 2)) / max(float(weight.sum()) - len(rows), 1.0)
    noise = inside * (weight / rows**2)[:, None]
    overall = share @ mean
    between = share @ (mean - overall) ** 2 - (share * (1.0 - share)) @ noise
    # The mean is made of the groups: its part in the spread is taken back. One group has none.
    between = np.maximum(between, 0.0) / max(1.0 - float(share @ share), 1e-9)
    total = between + noise
    trust = np.where(noise > 0.0, between / np.where(total > 0.0, total, 1.0), 1.0)
    found = level.sum(axis=2) / rows[:, None] + overall + trust * (mean - overall)
    return np.asarray(np.clip(found, 0.0, 1.0))


def _best(accuracy: Floats, cost: Floats, share: Floats, budget: float) -> tuple[int, ...]:
    """One option for each group: the highest mean accuracy within a mean cost that the cheapest table keeps to."""
    groups, options = accuracy.shape
    spends = (share[:, None] * cost).ravel()
    scale = max(float(np.abs(spends).max()), 1e-300)  # the solver's tolerance is absolute
    one_each = np.kron(np.eye(groups), np.ones(options))
    found = milp(
        -(share[:, None] * accuracy).ravel(),
        integrality=np.ones(groups * options),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(spends[None] / scale, -np.inf, budget / scale),
        ],
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:  # the budget is that of the cheapest table, to the last bit
        return tuple(int(i) for i in cost.argmin(axis=1))
    return tuple(int(i) for i in np.asarray(found.x).reshape(groups, options).argmax(axis=1))
