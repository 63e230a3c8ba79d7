"""Budgets: what may be spent, kept as a tree of accounts that are never overshot.

Only leaf calls reserve (their worst case, on every account from root to leaf) and settle (what was
really used, from leaf to root), and nothing holds a reservation while it waits for something else,
so an outstanding reservation always ends. What does not fit waits, in the order of its place in the
problem, for as long as anything under the limit in its way is outstanding; then it is capped to the
remainder, or refused. A call that has been granted a part of what it asked for keeps its place until
it has all. Hence nothing deadlocks, and nothing starves: a later call never overtakes an earlier one
at a limit that the earlier one waits for, or will once more.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
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
    at which the budget is opened. Raises InputError for a limit below 0.
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
                raise InputError(
                    f"budget {f.name}={value!r}: expected an int or float ≥ 0, or None for no limit"
                )

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) is not None for f in fields(self))

    @classmethod
    def of(cls, value: BudgetLike) -> Budget | None:
        """A budget from what people type: an integer means generated tokens. Raises InputError for an unknown limit."""
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


def least(one: Budget | None, other: Budget | None) -> Budget | None:
    """Both limits at once: the tighter one in each dimension."""
    if one is None or other is None:
        return one or other
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(Budget)}
    return Budget(
        **{name: min((v for v in pair if v is not None), default=None) for name, pair in pairs.items()}
    )


#: What people type for a budget: see `Budget.of`.
BudgetLike = Budget | int | dict[str, Any] | None


def amounts(usage: Usage, worst: Amounts = ZERO) -> Amounts:
    """What a usage weighs on a budget; what is unknown is charged at its worst case."""
    u, w = usage, worst
    return (
        w[0] if u.generated is None else float(u.generated),
        w[1] if u.prefilled is None else float(u.prefilled),
        float(u.calls),
        w[3] if u.flops is None else float(u.flops),
        w[4] if u.money is None else float(u.money),
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to run the first `count` items of a call, each of at most `cap` tokens (None: uncapped).

    dimension, account: the limit that binds, for a grant that is capped, or of fewer items than were asked for.
    """

    count: int
    reserved: Amounts
    cap: int | None = None
    dimension: str | None = None
    account: Account | None = None


class Account:
    """A node of the tree of limits. Belongs to one event loop."""

    __slots__ = (
        "_binding", "_deadline", "_limits", "_outstanding", "_path", "_queue", "_reserved", "_ticket",
        "budget", "owner", "recalled", "spent",
    )  # fmt: skip

    def __init__(self, budget: Budget, parent: Account | None = None, owner: str = "") -> None:
        self.budget = budget
        #: Names the limit in messages and in the records of what it refused.
        self.owner = owner
        self._path: tuple[Account, ...] = (*parent._path, self) if parent else (self,)
        self._limits = tuple(
            math.inf if v is None else float(v) for v in (getattr(budget, d) for d in DIMENSIONS)
        )
        #: Dimensions that are limited; most are not.
        self._binding = tuple(i for i, limit in enumerate(self._limits) if limit != math.inf)
        self.spent: Amounts = ZERO
        #: Problems whose lost attempts of earlier processes are charged.
        self.recalled: set[str] = set()
        self._reserved: Amounts = ZERO
        self._outstanding = 0
        own = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        self._deadline: float = min(own, parent._deadline) if parent else own
        # One queue for the tree, kept at its root, in the order of the calls' places.
        self._queue: list[Turn] = parent._queue if parent else []
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

    def settle(self, grant: Grant, used: Amounts) -> None:
        """Return the reservation and charge what was used, from leaf to root."""
        for account in reversed(self._path):
            account._outstanding -= 1
            # Exactly zero when nothing is outstanding: sums of floats leave a residue.
            account._reserved = _less(account._reserved, grant.reserved) if account._outstanding else ZERO
            account.spent = _add(account.spent, used)
        self._pump()

    def extend(self, grant: Grant, need: Amounts) -> Grant:
        """The grant with room for more, at once or never: who holds a reservation must not wait for another one.

        Raises BudgetExhausted if there is no room.
        """
        if (misfit := self._misfit(need)) is not None:
            account, i = misfit
            left = max(0.0, account._free(i))
            raise BudgetExhausted(DIMENSIONS[i], account._limits[i], need[i], left, account.owner)
        for account in self._path:
            account._reserved = _add(account._reserved, need)
        return replace(grant, reserved=_add(grant.reserved, need))

    def charge(self, used: Amounts) -> None:
        """Charge this account alone for what is spent already; of a limit no more than is left of it."""
        self.spent = _add(self.spent, tuple(max(0.0, min(u, self._free(i))) for i, u in enumerate(used)))  # type: ignore[arg-type]

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
        for i in self._binding:
            value = need[i]
            if value and value > (free := self._free(i)) and value - free > SLACK * value:
                return i
        return None

    def _try(self, worst: Worst, items: int, most: int | None) -> Grant:
        """A grant now; raises BudgetExhausted, or _Blocked with the account to wait for."""
        need = worst(items, None)
        if self._misfit(need) is None:
            return self._take(Grant(items, need))
        k = _largest(0, items - 1, lambda k: self._misfit(worst(k, None)) is None)
        if k > 0:
            account, i = self._first_limit(worst(k + 1, None))
            return self._take(Grant(k, worst(k, None), None, DIMENSIONS[i], account))
        need = worst(1, None)
        for account in self._path:
            if account._outstanding and account._misfits(need) is not None:
                raise _Blocked(account)
        cap = _largest(0, most - 1, lambda m: self._misfit(worst(1, m)) is None) if most else 0
        # The limit that binds is the one that one token more would not fit.
        account, i = self._first_limit(worst(1, cap + 1) if most else need)
        left = max(0.0, account._free(i))
        if cap:
            return self._take(Grant(1, worst(1, cap), cap, DIMENSIONS[i], account))
        raise BudgetExhausted(DIMENSIONS[i], account._limits[i], need[i], left, account.owner)

    def _first_limit(self, need: Amounts) -> tuple[Account, int]:
        """The first limit that `need`, which does not fit, does not fit."""
        misfit = self._misfit(need)
        assert misfit is not None
        return misfit

    def _take(self, grant: Grant) -> Grant:
        for account in self._path:
            account._outstanding += 1
            account._reserved = _add(account._reserved, grant.reserved)
        return grant

    def _pump(self) -> None:
        """Serve the queue in order; who waits for a limit holds back all later ones under it."""
        blocked: set[Account] = set()
        for turn in list(self._queue):
            if self._path[0] in blocked:
                return
            # Who rests holds its limit also where somebody earlier is before it at another.
            held = turn._serve() if blocked.isdisjoint(turn.account._path) else turn._holder
            if held is not None:
                blocked.add(held)


class Turn:
    """A call's place in the queue: from its first reservation until all that it asks for is granted, or it leaves.

    order: the call's place in the problem; earlier places are served first at a binding limit.
    """

    __slots__ = ("_ask", "_future", "_order", "_rest", "account")

    def __init__(self, account: Account, order: tuple[Any, ...]) -> None:
        self.account = account
        self._order = (*order, next(account._ticket))
        self._ask: tuple[Worst, int, int | None, bool]
        #: None between two grants; what is later waits at `_rest` then.
        self._future: asyncio.Future[Grant] | None = None
        self._rest: Account | None = None

    async def reserve(
        self, worst: Worst, items: int, most: int | None = None, *, more: bool = False
    ) -> Grant:
        """Leave for as many of the first `items` as fit; waits while something outstanding could make room.

        most: tokens that an item may be capped below (None: items cannot be capped). more: the call will ask for
        others, even if it is granted all of these.
        Raises BudgetExhausted if not even one item fits, capped to one token, with nothing outstanding.
        """
        self._ask = worst, items, most, more
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._future = future
        if self not in self._queue:
            bisect.insort(self._queue, self, key=lambda turn: turn._order)
        self.account._pump()
        try:
            return await future
        except asyncio.CancelledError:
            self.leave()
            if future.done() and not future.cancelled() and future.exception() is None:
                self.account.release(future.result())
            raise

    def leave(self) -> None:
        """Ask for nothing more. What was granted is settled all the same."""
        if self in self._queue:
            self._queue.remove(self)
            self.account._pump()

    @property
    def _queue(self) -> list[Turn]:
        return self.account._queue

    @property
    def _holder(self) -> Account | None:
        """The account at which a call that rests between two grants holds back later ones."""
        return self._rest if self._future is None else None

    def _serve(self) -> Account | None:
        """Grant or refuse what is asked for, if it is time; the account at which what is later is held back."""
        future = self._future
        if future is None:
            return self._rest
        if not future.done():
            worst, items, most, more = self._ask
            try:
                grant = self.account._try(worst, items, most)
            except _Blocked as wait:
                return wait.account
            except Exception as error:  # noqa: BLE001 - it belongs to the caller, not to whoever made room
                future.set_exception(error)
            else:
                future.set_result(grant)
                if more or grant.count < items:
                    # Where nothing can be used up, as under a deadline alone, nobody is held back.
                    binding = (account for account in self.account.path if account.budget.divisible)
                    self._future, self._rest = None, grant.account or next(binding, None)
                    return self._rest
        self._queue.remove(self)
        return None


class _Blocked(Exception):
    def __init__(self, account: Account) -> None:
        self.account = account


def _add(a: Amounts, b: Amounts) -> Amounts:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]


def _less(a: Amounts, b: Amounts) -> Amounts:
    return tuple(max(0.0, x - y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest k in [low, high] with fits(k), for a monotone `fits` that holds at `low`."""
    if high > low and fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
