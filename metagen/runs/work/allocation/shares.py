"""What each problem may spend where one budget is given for all of them.

Each share is a limit of the problem's own, and together they are at most the total: it is never overshot, whatever runs
at a time. Shares follow from the total, the problems' places, the held-out run and each problem's first samples, never
from who is faster: a run that was interrupted decides as before.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from metagen.budget import Budget, least
from metagen.runs.declare.specs import Experiment
from metagen.runs.work.allocation.allocate import Difficulty, Plan, expected_costs
from metagen.runs.work.attempts import Unrecorded


@dataclass(frozen=True, slots=True)
class Look:
    """The first samples of a problem. spent: of the total's limit, with all that was done to them.

    costs: of each sample. classes, weights: as those of `Difficulty`. All arrays are [first].
    """

    spent: float
    costs: NDArray[np.float64]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


class Shares:
    """What a problem may spend, by configuration and place: its own budget, and not more than its share of a total.

    difficulties: by configuration whose shares are not equal; they are to be decided, once the first samples are seen.
    """

    def __init__(
        self,
        experiment: Experiment,
        problems: int,
        difficulties: Mapping[str, Difficulty] = MappingProxyType({}),
    ) -> None:
        self.each = experiment.budget
        total = experiment.allocation and experiment.allocation.total
        self.equal = total.share(problems) if total else None
        self.difficulties = difficulties
        self._decided: dict[str, list[Budget]] = {}

    @property
    def limit(self) -> str:
        """What a total limits where shares go by difficulty: one dimension."""
        return self.equal[0].divisible[0] if self.equal else ""

    @property
    def largest(self) -> Budget | None:
        """Of equal shares; None where nothing is limited."""
        return self.first(0)

    def first(self, place: int) -> Budget | None:
        """The equal share of the problem at this place of the task, by which its first samples are bound."""
        return least(self.each, self.equal[place] if self.equal else None)

    def decide(self, configuration: str, looks: abc.Sequence[Look | None], most: int) -> None:
        """Give the shares of a configuration out anew, once; arguments as of `by_difficulty`."""
        self._decided[configuration] = by_difficulty(
            self.equal or (), looks, self.difficulties[configuration], most
        )

    def of(self, configuration: str, place: int) -> Budget | None:
        """The limit for the problem at this place of the task; None for no limit. Raises Unrecorded if undecided."""
        if configuration not in self.difficulties:
            return self.first(place)
        if configuration not in self._decided:
            raise Unrecorded("what this part may spend is not decided yet; resume the run")
        return least(self.each, self._decided[configuration][place])


def by_difficulty(
    equal: abc.Sequence[Budget], looks: abc.Sequence[Look | None], difficulty: Difficulty, most: int
) -> list[Budget]:
    """Equal shares, given out anew by marginal gain per unit of what they limit; their sum does not grow.

    equal: limited in one dimension. looks: by place, each within its equal share; a problem without one (its first
    samples did not fit, or failed) keeps its share. most: samples of a problem. What a problem is given beyond its
    first samples is what so many more are expected to cost. Where nothing is gained any more, nothing is given.
    """
    (limit,) = equal[0].divisible
    there = [(i, look) for i, look in enumerate(looks) if look is not None]
    shares = list(equal)
    if not there:
        return shares
    whole = all(isinstance(getattr(equal[i], limit), int) for i, _ in there)
    classes, weights, costs = (
        np.stack([getattr(look, name) for _, look in there]) for name in ("classes", "weights", "costs")
    )
    budget = sum(getattr(equal[i], limit) for i, _ in there)
    drawn = np.full(len(there), difficulty.first)
    wanted = Plan(budget, (difficulty,), ceiling=most).next(drawn, classes, costs, weights)
    extras = (wanted - drawn) * expected_costs(costs)
    left = budget - sum(look.spent for _, look in there)
    for (i, look), extra in zip(there, extras.tolist(), strict=True):
        more = max(0.0, min(extra, left))
        given = look.spent + more
        shares[i] = replace(equal[i], **{limit: int(given) if whole else given})
        left -= more
    return shares
