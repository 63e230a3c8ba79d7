"""Pieces of work under the limits of one scope: which of them run, and in what order.

What fits never hangs on who is faster. Where limits bind that calls use up, the pieces of a stage run side by side if
there is room for all of them at their worst, and one after the other if not, or if nobody can say: else the first calls
of many would leave nothing for the last call of any.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from metagen.cost import Usage
from metagen.errors import BudgetExhausted
from metagen.place import Place

Of = TypeVar("Of")
T = TypeVar("T")
#: Limits that bind generating and scoring alike, also where a scorer generates nothing.
SHARED = ("prefilled", "calls", "flops", "money")


def unknown(item: Any) -> Usage | None:
    """The worst case of what nobody can bound."""
    return None


@dataclass(frozen=True, slots=True)
class Stage(Generic[Of, T]):
    """What is done with each item of a batch, once the stage before has ended.

    worst: logical worst case for an item, all its calls together; None where nobody can say. generates: whether it may
    generate tokens; a limit of those binds no other stage.
    """

    work: Callable[[Of], Awaitable[T]]
    worst: Callable[[Of], Usage | None] = unknown
    generates: bool = True


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What has become of a batch: what the last stage returned, in the order of the items; None for what was refused.

    refused: by place, those that a limit kept from the end of their stages, in order.
    """

    results: list[T | None]
    refused: dict[int, BudgetExhausted]

    def whole(self) -> list[T]:
        """All results; raises the first refusal, if there is any."""
        for refusal in self.refused.values():
            raise refusal
        return self.results  # type: ignore[return-value]

    def some(self) -> list[T | None]:
        """The results; raises the first refusal, if nothing else is left."""
        return self.whole() if len(self.refused) == len(self.results) else self.results  # type: ignore[return-value]


async def run(
    place: Place, items: abc.Sequence[Of], stages: abc.Sequence[Stage[Of, T]], whole: bool
) -> Batch[T]:
    """See `Scope.batch`."""
    results: list[T | None] = [None] * len(items)
    refusals: dict[int, BudgetExhausted] = {}

    async def through(k: int, stages: abc.Sequence[Stage[Of, T]]) -> None:
        try:
            for stage in stages:
                results[k] = await stage.work(items[k])
        except BudgetExhausted as refusal:
            results[k], refusals[k] = None, refusal

    for i, stage in enumerate(stages):
        going = [k for k in range(len(items)) if k not in refusals]
        at_once = not _is_limited(place, stage) or _fit(place, (stage.worst(items[k]) for k in going))
        if at_once and not any(_is_limited(place, later) for later in stages[i + 1 :]):
            await _together(place, [through(k, stages[i:]) for k in going])
            break
        if at_once:
            await _together(place, [through(k, [stage]) for k in going])
            continue
        for k in going:
            if not (whole and refusals):
                await through(k, [stage])
    return Batch(results, {k: refusals[k] for k in sorted(refusals)})


async def _together(place: Place, work: list[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]
    else:
        await place.problem.history.gather(*work)


def _is_limited(place: Place, stage: Stage[Any, Any]) -> bool:
    """Whether there is a limit that the stage uses up."""
    return any(limit != "generated" or stage.generates for limit in place.left().divisible)


def _fit(place: Place, worst: Iterable[Usage | None]) -> bool:
    """Whether there is room for all of them at once, so that none waits for what another leaves."""
    known = []
    for usage in worst:
        if usage is None:
            return False
        known.append(usage)
    total, left = Usage.sum(known), place.left()
    needs = {name: getattr(total, name) for name in left.divisible}
    return all(need is not None and need <= getattr(left, name) for name, need in needs.items())


class Pace:
    """How many candidates to begin before those that there are have been scored.

    A limit that binds generating and scoring alike then never ends with a pool that nobody judged. generates: scoring
    generates tokens too.
    """

    def __init__(self, place: Place, generates: bool) -> None:
        self._place, self._before = place, place.left()
        self._shared = (*SHARED, "generated") if generates else SHARED

    def wave(self, done: int, n: int) -> int:
        """Half of what the rest affords, going by the mean cost of those done; n where no such limit binds."""
        left = self._place.left()
        limits = [d for d in self._shared if getattr(left, d) is not None]
        timed = left.seconds is not None
        if not limits and not timed:
            return n
        if not done:
            return 1
        spent = {d: (getattr(self._before, d) - getattr(left, d)) / done for d in limits}
        more = min((getattr(left, d) / spent[d] for d in limits if spent[d] > 0), default=n)
        half = max(1, int(more / 2))
        return min(half, done) if timed else half
