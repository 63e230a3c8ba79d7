"""More samples, a larger model or a deeper search: a table by difficulty, learned on held-out problems.

Every option was run on the same held-out problems, whose first samples tell how hard they are. Of all tables that keep
to a mean cost, the one with the highest mean accuracy is found exactly (a multiple-choice knapsack, by branch and
bound). `metagen.strategies.adaptive.by_difficulty` acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """What an option achieved on the held-out problems, [problems] each; cost in one unit for all options."""

    accuracy: ArrayLike
    cost: ArrayLike


@dataclass(frozen=True)
class Table:
    """Which option for which difficulty. accuracy, cost: [groups, options], means over the held-out problems.

    edges: [groups − 1], ascending. rows: held-out problems of each group. chosen: an index into `options` for each
    group, hardest first.
    """

    edges: Floats
    options: tuple[str, ...]
    accuracy: Floats
    cost: Floats
    rows: Ints
    chosen: tuple[int, ...]

    @classmethod
    def learn(
        cls, values: ArrayLike, options: Mapping[str, Measured], *, budget: float, edges: Ordered[float]
    ) -> Table:
        """values: [problems], of the predictor, larger for easier. budget: mean cost of a problem, at most.

        Raises InputError where no table keeps to the budget, a group is empty, or shapes differ.
        """
        predicted, bounds = np.asarray(values, dtype=np.float64), np.asarray(edges, dtype=np.float64)
        group = np.searchsorted(bounds, predicted, side="right")
        rows = np.bincount(group, minlength=len(bounds) + 1)
        if predicted.ndim != 1 or not options or not rows.all() or (np.diff(bounds) <= 0).any():
            raise InputError(
                f"{len(options)} options and {rows.tolist()} held-out problems in the groups between "
                f"edges={list(edges)!r}: expected at least one of each, and ascending edges"
            )
        accuracy, cost = (
            np.stack([_means(getattr(o, what), group, rows) for o in options.values()], axis=1)
            for what in ("accuracy", "cost")
        )
        chosen = _best(accuracy, cost, rows / rows.sum(), budget)
        return cls(bounds, tuple(options), accuracy, cost, rows, chosen)

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


def _means(values: ArrayLike, group: Ints, rows: Ints) -> Floats:
    given = np.asarray(values, dtype=np.float64)
    if given.shape != group.shape or not np.isfinite(given).all():
        raise InputError(
            f"an option's values have the shape {given.shape}: expected {group.shape}, all finite: the same problems"
        )
    return np.bincount(group, given, len(rows)) / rows


def _best(accuracy: Floats, cost: Floats, share: Floats, budget: float) -> tuple[int, ...]:
    """One option for each group: the highest mean accuracy within the mean cost."""
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
    if found.x is None:
        cheapest = float(share @ cost.min(axis=1))
        raise InputError(
            f"no table keeps to a mean cost of {budget:g}; the cheapest has {cheapest:g}: raise the budget, "
            "or add a cheaper option"
        )
    return tuple(int(i) for i in np.asarray(found.x).reshape(groups, options).argmax(axis=1))
