"""What each leaf call of a problem had waited for: a logical clock (Lamport 1978), and the calls behind it.

A delivery is the rows that a leaf call brings its caller. It stands one step after the latest delivery that its caller
had seen when it asked, whether the rows were made or read from a journal: a replay has the history of the run. What
runs side by side, by `Scope.gather` or `Scope.batch`, has seen what there was before it; who goes on behind it has seen
all of it. Tasks that somebody starts in another way have seen what there was when they began, and who waits for them
without `go_on` is taken not to have.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from metagen.errors import BudgetExhausted
from metagen.journal import Row

T = TypeVar("T")

#: Numbers of the latest deliveries that a line of work has seen; those behind them are implied.
Seen = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows that came together, `rows[first : first + count]` of a history. after: what their caller had seen.

    clock: one more than that of the latest of these; 1 for what waited for nothing.
    """

    first: int
    count: int
    after: Seen
    clock: int


def behind(seen: Seen, fork: Seen, ends: Iterable[Seen]) -> Seen:
    """What has been seen by a line that had seen this, once it has also seen the ends of lines that began at `fork`."""
    moved = dict.fromkeys(number for end in ends if end != fork for number in end)
    if not moved:
        return seen
    implied = {*fork, *moved}
    return (*(number for number in seen if number not in implied), *moved)


class History:
    """The deliveries of one problem, in order, with all their rows."""

    __slots__ = ("__weakref__", "deliveries", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.deliveries: list[Delivery] = []

    def now(self) -> Seen:
        """All that the asking line of work has seen so far."""
        for known, seen in _SEEN.get():
            if known() is self:
                return seen
        return ()

    def go_on(self, seen: Seen) -> None:
        """The line of work that calls has seen this, and what is behind it."""
        mine = (weakref.ref(self), seen)
        # Lines of other problems may be open around this one; what nobody holds any more is dropped.
        others = [one for one in _SEEN.get() if one[0]() not in (self, None)]
        _SEEN.set((mine, *others))

    def join(self, fork: Seen, ends: Iterable[Seen]) -> None:
        """Go on behind several lines too that began at `fork`, of which these are the ends."""
        self.go_on(behind(self.now(), fork, ends))

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run lines of work side by side, and go on behind all of them: see `Scope.gather`."""
        fork = self.now()

        async def guard(one: Coroutine[Any, Any, T]) -> tuple[T | BudgetExhausted, Seen]:
            try:
                result: T | BudgetExhausted = await one
            except BudgetExhausted as refusal:
                result = refusal
            return result, self.now()

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(guard(one)) for one in work]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        self.join(fork, (task.result()[1] for task in tasks))
        results: list[T] = []
        for task in tasks:
            result, _ = task.result()
            if isinstance(result, BudgetExhausted):
                raise result
            results.append(result)
        return results

    def deliver(self, rows: Iterable[Row], after: Seen) -> int:
        """Add rows; returns the number of their delivery."""
        first = len(self.rows)
        self.rows += rows
        clock = 1 + max((self.deliveries[number].clock for number in after), default=0)
        self.deliveries.append(Delivery(first, len(self.rows) - first, after, clock))
        return len(self.deliveries) - 1


_SEEN: ContextVar[tuple[tuple[weakref.ref[History], Seen], ...]] = ContextVar("metagen_seen", default=())
