"""Budgets: what may be spent, kept as a tree of accounts that are never overshot.

Only leaf calls reserve (their worst case, on every account from root to leaf) and settle (what was
really used, from leaf to root), and nothing holds a reservation while it waits for something else,
so an outstanding reservation always ends. What does not fit waits, in the order of its place in the
problem, for as long as anything under the limit in its way is outstanding; then it is capped to the
remainder, or refused. Hence nothing deadlocks, and nothing starves: a later call never overtakes an
earlier one at a limit that the earlier one waits for.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

from metagen.cost import Usage
from metagen.errors import BudgetExhausted, InputError

#: What reservations bind, in the order of `Amounts`. Seconds are a deadline and are not reserved.
DIMENSIONS = ("generated", "prefilled", "calls", "flops", "money")
Amounts = tuple[float, float, float, float, float]
ZERO: Amounts = (0.0, 0.0, 0.0, 0.0, 0.0)
#: Relative slack for sums of floats (FLOPs, money); counts are exact in float64.
SLACK = 1e-9

#: Worst case of the first k items of a call when each is capped to m tokens (None: not capped).
Worst = Callable[[int, int | None], Amounts]


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent; None is no limit. Zero is a limit.

    generated, prefilled: logical tokens. calls: samples and scores, one each. flops: exact
    accounting. money: in the currency of the engines' prices. seconds: a deadline, from the moment
    at which the budget is opened.
    """

    generated: int | None = None
    prefilled: int | None = None
    calls: int | None = None
    flops: float | None = None
    money: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise InputError(f"budget {f.name}={value!r}: expected a number ≥ 0, or None for no limit")

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) is not None for f in fields(self))

    @classmethod
    def of(cls, value: Budget | int | dict[str, Any] | None) -> Budget | None:
        """A budget from what people type: an integer means generated tokens."""
        if value is None or isinstance(value, Budget):
            return value
        if isinstance(value, dict):
            unknown = sorted(set(value) - {f.name for f in fields(cls)})
            if unknown:
                known = ", ".join(f.name for f in fields(cls))
                raise InputError(f"unknown budget {unknown[0]!r}: expected one of {known}")
            return cls(**value)
        return cls(generated=value)

    @property
    def divisible(self) -> tuple[str, ...]:
        """The limits that are set and that calls use up; a deadline is met by all alike."""
        return tuple(name for name in DIMENSIONS if getattr(self, name) is not None)

    def share(self, parts: int) -> list[Budget]:
        """Equal parts; what does not divide goes to the first of them. A deadline is every part's own."""
        shares = []
        for i in range(parts):
            limits: dict[str, Any] = {"seconds": self.seconds}
            for name in self.divisible:
                value = getattr(self, name)
                whole = isinstance(value, int)
                limits[name] = value // parts + (i < value % parts) if whole else value / parts
            shares.append(Budget(**limits))
        return shares


def amounts(usage: Usage, worst: Amounts = ZERO) -> Amounts:
    """What a usage weighs on a budget; what is unknown is charged at its worst case."""
    given = (usage.generated, usage.prefilled, usage.calls, usage.flops, usage.money)
    return tuple(w if g is None else float(g) for g, w in zip(given, worst, strict=True))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to run the first `count` items of a call, each of at most `cap` tokens (None: uncapped).

    dimension, account: for a capped grant, the limit that binds.
    """

    count: int
    reserved: Amounts
    cap: int | None = None
    dimension: str | None = None
    account: Account | None = None


@dataclass(slots=True, eq=False)
class _Waiter:
    order: tuple[Any, ...]
    account: Account
    worst: Worst
    items: int
    most: int | None
    future: asyncio.Future[Grant]


class Account:
    """A node of the tree of limits. Belongs to one event loop."""

    __slots__ = (
        "_deadline", "_limits", "_outstanding", "_path", "_queue", "_reserved", "_ticket",
        "budget", "owner", "spent",
    )  # fmt: skip

    def __init__(self, budget: Budget, parent: Account | None = None, owner: str = "") -> None:
        self.budget = budget
        #: Names the limit in messages and in the records of what it refused.
        self.owner = owner
        self._path: tuple[Account, ...] = (*parent._path, self) if parent else (self,)
        self._limits = tuple(
            math.inf if v is None else float(v) for v in (getattr(budget, d) for d in DIMENSIONS)
        )
        self.spent: Amounts = ZERO
        self._reserved: Amounts = ZERO
        self._outstanding = 0
        own = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        self._deadline: float = min(own, parent._deadline) if parent else own
        # One queue for the tree, kept at its root, in the order of the callers' places.
        self._queue: list[_Waiter] = parent._queue if parent else []
        self._ticket: Iterator[int] = parent._ticket if parent else count()

    @property
    def path(self) -> tuple[Account, ...]:
        """The accounts from the root to this one."""
        return self._path

    @property
    def deadline(self) -> float:
        """In `time.monotonic()` seconds; infinite without a limit in seconds on the path."""
        return self._deadline

    def overdue(self) -> BudgetExhausted:
        """The error for a call that met the deadline."""
        account = next(a for a in self._path if a._deadline == self._deadline)
        limit = float(account.budget.seconds or 0.0)
        return BudgetExhausted("seconds", limit, 0.0, 0.0, account.owner)

    def left(self) -> Amounts:
        """What is neither spent nor reserved, over the whole path to the root."""
        return tuple(min(a._free(i) for a in self._path) for i in range(len(DIMENSIONS)))  # type: ignore[return-value]

    async def reserve(
        self, order: tuple[Any, ...], worst: Worst, items: int, most: int | None = None
    ) -> Grant:
        """Leave for as many of the first `items` as fit; waits while something outstanding could make room.

        order: the caller's place in the problem; earlier places are served first at a binding limit.
        most: tokens that an item may be capped below (None: items cannot be capped).
        Raises BudgetExhausted if not even one item fits, capped to one token, with nothing outstanding.
        """
        if not self._queue:
            with contextlib.suppress(_Blocked):
                return self._try(worst, items, most)
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        waiter = _Waiter((*order, next(self._ticket)), self, worst, items, most, future)
        bisect.insort(self._queue, waiter, key=lambda w: w.order)
        self._pump()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(future.result())
            elif waiter in self._queue:
                self._queue.remove(waiter)
                self._pump()
            raise

    def settle(self, grant: Grant, used: Amounts) -> None:
        """Return the reservation and charge what was used, from leaf to root."""
        for account in reversed(self._path):
            account._outstanding -= 1
            # Exactly zero when nothing is outstanding: sums of floats leave a residue.
            account._reserved = (
                _add(account._reserved, grant.reserved, -1.0) if account._outstanding else ZERO
            )
            account.spent = _add(account.spent, used)
        self._pump()

    def release(self, grant: Grant) -> None:
        """Return a reservation of which nothing was used."""
        self.settle(grant, ZERO)

    def _free(self, i: int) -> float:
        return self._limits[i] - self.spent[i] - self._reserved[i]

    def _misfit(self, need: Amounts) -> tuple[Account, int] | None:
        """The first limit, root to leaf, that `need` does not fit."""
        for account in self._path:
            i = account._misfits(need)
            if i is not None:
                return account, i
        return None

    def _misfits(self, need: Amounts) -> int | None:
        """The first dimension of this account alone that `need` does not fit."""
        for i, value in enumerate(need):
            if value > self._free(i) and value - self._free(i) > SLACK * value:
                return i
        return None

    def _try(self, worst: Worst, items: int, most: int | None) -> Grant:
        """A grant now; raises BudgetExhausted, or _Blocked with the account to wait for."""
        k = _largest(0, items, lambda k: self._misfit(worst(k, None)) is None)
        if k > 0:
            return self._take(Grant(k, worst(k, None)))
        need = worst(1, None)
        for account in self._path:
            if account._outstanding and account._misfits(need) is not None:
                raise _Blocked(account)
        cap = _largest(0, most - 1, lambda m: self._misfit(worst(1, m)) is None) if most else 0
        # The limit that binds is the one that one token more would not fit.
        misfit = self._misfit(worst(1, cap + 1) if most else need)
        assert misfit is not None
        account, i = misfit
        left = max(0.0, account._free(i))
        if cap:
            return self._take(Grant(1, worst(1, cap), cap, DIMENSIONS[i], account))
        raise BudgetExhausted(DIMENSIONS[i], account._limits[i], need[i], left, account.owner)

    def _take(self, grant: Grant) -> Grant:
        for account in self._path:
            account._outstanding += 1
            account._reserved = _add(account._reserved, grant.reserved)
        return grant

    def _pump(self) -> None:
        """Serve the queue in order; who waits for a limit holds back all later ones under it."""
        blocked: set[int] = set()
        for waiter in list(self._queue):
            if id(self._path[0]) in blocked:
                return
            if waiter.future.done():
                self._queue.remove(waiter)
                continue
            if any(id(a) in blocked for a in waiter.account._path):
                continue
            try:
                grant = waiter.account._try(waiter.worst, waiter.items, waiter.most)
            except _Blocked as wait:
                blocked.add(id(wait.account))
                continue
            except Exception as error:  # noqa: BLE001 - it belongs to the waiter, not to whoever made room
                waiter.future.set_exception(error)
            else:
                waiter.future.set_result(grant)
            self._queue.remove(waiter)


class _Blocked(Exception):
    def __init__(self, account: Account) -> None:
        self.account = account


def _add(a: Amounts, b: Amounts, sign: float = 1.0) -> Amounts:
    return tuple(max(0.0, x + sign * y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest k in [low, high] with fits(k), for a monotone `fits` that holds at `low`."""
    if high > low and fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
