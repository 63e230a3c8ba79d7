"""Attempts: what was begun, and what is charged for it when nobody knows how it ended.

`execute` begins one attempt at the items of a call. An engine that tells of its attempts begins each by itself: what it
never sent is free then, and trying again costs anew. An attempt is lost when it has begun and an item of it has not
ended: by an error, a cancellation, a deadline, a lost replica, a kill. Its worst case stays charged to the accounts
above, and it stands in the trace with a physical usage that is unknown. Attempts at what somebody bills are on disk
before they begin.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter, abc
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from metagen.budget import ZERO, Account, Amounts, Grant, amounts
from metagen.cost import Usage
from metagen.errors import EngineError, InputError, PluginError
from metagen.journal import ATTEMPT, Journal, Row, RowKeys
from metagen.place import Place

#: What is known only where the tokens are.
_TOKENS = ("prefilled", "cached", "generated", "flops", "flops_2n", "forced")
UNKNOWN = Usage(None, None, None, 0, None, None, None, 0, None)
T = TypeVar("T")
#: Problem, path, kind, maker, content and number of a record.
Made = tuple[str, str, str, str, bytes, int]
State = Literal["open", "free", "answered"]


@dataclass(frozen=True, slots=True)
class Lost(Row):
    """A lost attempt, as a leaf of the trace. Its logical usage is zero, since a replay is not charged for it.

    physical: None where it may have cost something; calls are the items that were begun. worst: what it cost at most.
    """

    worst: Usage = field(default_factory=Usage)


class Attempt:
    """One try at some items of a call. Unless it is said to be free or answered, what has not ended of it is lost."""

    __slots__ = ("_close",)

    def __init__(self, close: Callable[[State], object]) -> None:
        """close: told what became of it, in whatever event loop."""
        self._close = close

    def free(self) -> None:
        """It is known to have cost nothing, such as a connection that was refused."""
        self._close("free")

    def mark_answered(self) -> None:
        """All that it cost stands with the items that ended; the others cost nothing."""
        self._close("answered")


class Keeper(Protocol):
    """Who keeps the account of an execution, as engines that read know it: `Attempts`, or what stands for these in
    another process.
    """

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where both of these are awaited."""

    async def reading(self) -> Attempt:
        """As `Attempts.reading`."""

    async def again(self, share: float) -> None:
        """As `Attempts.again`."""


#: Of the execution that is under way here; for engines, whose threads inherit it with what they are asked.
CURRENT: ContextVar[Keeper | None] = ContextVar("attempts", default=None)
#: Where nobody keeps an account of attempts.
UNTOLD = Attempt(lambda state: None)


async def elsewhere(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Await work that belongs to an event loop, in that one or another."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


@dataclass(eq=False, slots=True)
class _Try:
    """An attempt at places of a call. charge: what limits are charged if it is lost; row: where it is on disk."""

    places: tuple[int, ...]
    worst: Usage
    charge: Amounts
    state: State = "open"
    row: Row | None = None


class Call(Protocol):
    """A leaf call, as its attempts know it."""

    place: Place
    account: Account | None
    #: The caller's.
    loop: asyncio.AbstractEventLoop

    def record_place(self, i: int) -> Made:
        """Where the record of an item belongs."""

    def at_worst(self, positions: abc.Sequence[int], cap: int | None) -> Usage:
        """Logical worst case of these items under this cap, one call each."""

    def bound(self, worst: Usage) -> Amounts:
        """A worst case as amounts; UnsupportedError where a limit binds what it does not know."""


class Attempts:
    """The attempts of one execution of a call. Lives in the caller's event loop.

    grant: leave for one attempt at each item, and for those that followed.
    """

    __slots__ = (
        "_apart", "_call", "_clock", "_current", "_first", "_free", "_over", "_paid", "_tries", "_writes", "grant",
        "misses",
    )  # fmt: skip

    def __init__(self, call: Call, misses: list[int], grant: Grant) -> None:
        self._call, self.misses, self.grant = call, misses, grant
        self._tries: list[_Try] | tuple[()] = ()
        #: Attempts that the grant has room for, by place, beyond the first.
        self._paid: dict[int, int] = {}
        self._first: tuple[int, ...] = ()
        self._apart = self._free = self._over = False
        self._clock = 0.0
        self._current: Token[Keeper | None] | None = None
        self._writes: tuple[Awaitable[None], ...] = ()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The caller's."""
        return self._call.loop

    @property
    def seconds(self) -> float:
        """Since `execute` began; 0 before."""
        return time.monotonic() - self._clock if self._current is not None else 0.0

    def start(self, execute: Callable[[], T]) -> T:
        """Begin the execution, from where engines find these attempts."""
        self._clock, self._current = time.monotonic(), CURRENT.set(self)
        return execute()

    def note_refusal(self, error: InputError) -> None:
        """What the user can mend is found before anything is computed; what a plug-in did, nobody knows."""
        self._free = not isinstance(error, PluginError)

    def apart(self) -> None:
        """Each attempt is told by `begin`; without that, one at all items has begun with `execute`."""
        self._apart = True

    async def begin(self, places: abc.Sequence[int], worst: Usage, *, durable: bool = False) -> Attempt:
        """An attempt at these places begins. Another one at the same place needs room under all limits, at once.

        worst: what it may cost physically. durable: somebody bills for it; it is on disk when this returns.
        Raises BudgetExhausted if there is no room for trying again.
        """
        self._check()
        call, account, charge = self._call, self._call.account, Usage()
        open_ = Counter(p for one in self._tries if one.state != "free" for p in one.places)
        if any(open_[p] > self._paid.get(p, 0) for p in places):
            charge = worst
            if account is not None:
                self.grant = account.extend(self.grant, call.bound(worst))
            self._paid |= {p: self._paid.get(p, 0) + 1 for p in places}
        elif account is not None or durable:
            new = tuple(self.misses[p] for p in places if self.misses[p] not in self._first)
            before = self._worst(self._first) if self._first else Usage()
            self._first += new
            charge = self._worst(self._first).less(before)
        one = _Try(tuple(places), worst, amounts(charge) if account is not None else ZERO)
        self._tries = [*self._tries, one]
        if durable:
            await self._write(one, charge)
        return Attempt(partial(self._close, one))

    async def reading(self) -> Attempt:
        """The attempt of an engine that bills for reading all items. Later readings of the same execution are told by
        `again` alone.
        """
        if self._tries:
            return UNTOLD
        return await self.begin(range(len(self.misses)), self._worst(self.misses), durable=True)

    async def again(self, share: float) -> None:
        """A part of a reading, as a share of it all, was lost and is read once more. Raises as `begin` does."""
        self._check()
        worst = replace(self._worst(self.misses), calls=0).share(share)
        charge = self._call.bound(worst) if self._call.account is not None else ZERO
        if self._call.account is not None:
            self.grant = self._call.account.extend(self.grant, charge)
        one = _Try((), worst, charge)
        self._tries = [*self._tries, one]
        await self._write(one, worst)

    def _check(self) -> None:
        if self._over:
            raise EngineError("an attempt begins at a call that has ended; await attempts before you return")

    async def _write(self, one: _Try, charge: Usage) -> None:
        """Put an attempt on disk, before it begins."""
        items = [self._call.record_place(self.misses[p]) for p in one.places]
        who = self._call.place.problem.began_by
        told: dict[str, Any] = {} if who is None else {"label": who}
        if len(items) != 1:
            told["items"] = [(content.hex(), n) for *_, content, n in items]
        made = items[0] if items else self._call.record_place(self.misses[0])
        key, began = uuid.uuid4().bytes, time.time()
        one.row = Row(
            key, *made, told or None, charge, one.worst, status="open", limit=ATTEMPT, started=began
        )
        try:
            await self._call.place.problem.journal.record([one.row])
        except BaseException:
            self._close(one, "free")
            raise

    def _close(self, one: _Try, state: State) -> None:
        """What became of an attempt; noted on disk where it stands there."""
        loop = self._call.loop
        if asyncio.get_running_loop() is not loop:
            with suppress(RuntimeError):  # that loop is closed: nobody asks any more
                loop.call_soon_threadsafe(self._note, one, state)
        else:
            self._note(one, state)

    def _note(self, one: _Try, state: State) -> None:
        one.state = state
        if one.row is not None:
            write = self._call.place.problem.journal.record([replace(one.row, status=state)])
            self._writes = (*self._writes, asyncio.ensure_future(write))

    def durable(self) -> Awaitable[object] | None:
        """Ends when what became of attempts is on disk. An error there leaves them open, which is the worst case."""
        return asyncio.gather(*self._writes, return_exceptions=True) if self._writes else None

    def settle(self, ran: set[int]) -> Amounts:
        """What was lost, given which items ended: put into the trace; what it is charged on top of what ended."""
        self._over = True
        told = self._apart or self._tries
        if self._current is None:
            return ZERO
        CURRENT.reset(self._current)
        if not told and (self._free or len(ran) == len(self.misses)):
            return ZERO
        left = {p for p, i in enumerate(self.misses) if i not in ran}
        if not told:
            try:
                worst = self._worst([self.misses[p] for p in sorted(left)])
            except (
                InputError
            ):  # without a limit nobody has asked for it before: the first error is the one to be seen
                worst = replace(UNKNOWN, calls=len(left))
            charge = self._call.bound(worst) if self._call.account is not None else ZERO
            self._tries = [_Try(tuple(sorted(left)), worst, charge)]
        total: Amounts = ZERO
        for one in reversed(self._tries):
            if one.state == "free":
                continue
            lost = [p for p in one.places if p in left]
            left.update(one.places)  # the last attempt is the one that has answered
            if (lost or not one.places) and one.state == "open":
                total = _plus(total, one.charge, len(lost) / len(one.places) if lost else 1.0)
                made = self._call.record_place(self.misses[lost[0] if lost else 0])
                row = _to_lost(one.row.key if one.row else b"", made, one.worst, len(lost), time.time())
                self._call.place.problem.history.rows.append(row)
        return total

    def total(self, used: Amounts, lost: Amounts) -> Amounts:
        """What ended and what was lost, which is no more than the reservation."""
        pairs = zip(used, lost, self.grant.reserved, strict=True)
        return tuple(max(u, min(u + one, most)) for u, one, most in pairs)  # type: ignore[return-value]

    def _worst(self, positions: abc.Sequence[int]) -> Usage:
        return self._call.at_worst(positions, self.grant.cap)


def rereading(share: float) -> Callable[[], Awaitable[Attempt]]:
    """What a request for a share of a reading tells before each attempt: where the one before may have been billed, it
    asks for leave.
    """
    lost = False

    def close(state: State) -> None:
        nonlocal lost
        lost = False

    async def begin() -> Attempt:
        nonlocal lost
        if lost and (attempts := CURRENT.get()) is not None:
            await elsewhere(attempts.again(share), attempts.loop)
        lost = True
        return Attempt(close)

    return begin


def recall(place: Place) -> None:
    """Charge what earlier processes have lost of this problem, once to each account, and show it in the trace.

    Limits within the problem, and the trace, are those of one configuration: what another one began is charged only to
    limits that both have.
    """
    problem, account = place.problem, place.account
    journal = problem.journal
    if not journal.limits or ATTEMPT not in journal.limits:
        return
    if problem.history.rows and (account is None or problem.id in account.recalled):
        return
    found = list(_open(journal.attempts(problem.id), journal.of_problem(problem.id), journal.inflight))
    # Journals of earlier versions, and calls in Python, do not tell who began it.
    mine = [problem.began_by is None or label in (None, problem.began_by) for *_, label in found]
    if not problem.history.rows:
        problem.history.rows += [one for (one, *_), own in zip(found, mine, strict=True) if own]
    at: Place | None = place
    while at is not None:
        for one in at.own_accounts:
            if problem.id not in one.recalled:
                one.recalled.add(problem.id)
                below = f"{at.path}/" if at.path else ""
                for (gone, charge, _), own in zip(found, mine, strict=True):
                    if (own or one in problem.shared) and f"{gone.path}/".startswith(below):
                        one.charge(charge)
        at = at.above


def lost_attempts(journal: Journal, problem: str) -> list[Lost]:
    """The attempts at a problem that stand in a journal without their items."""
    if ATTEMPT not in journal.limits:
        return []
    return [
        one for one, *_ in _open(journal.attempts(problem), journal.of_problem(problem), journal.inflight)
    ]


def _open(
    attempts: Iterable[Row], rows: Iterable[Row], inflight: Iterable[bytes]
) -> Iterator[tuple[Lost, Amounts, str | None]]:
    """Attempts that nobody is at any more and whose items did not end, with what limits are charged for them, and the
    label of the configuration that began them, where that is known.
    """
    # What came from a cache ended elsewhere, and says nothing of attempts here.
    made_here = (r for r in rows if r.payload is not None and not r.cached)
    ended = Counter((r.path, r.kind, r.by, r.content, r.index) for r in made_here)
    for row in reversed(list(attempts)):
        if row.status == "free":
            continue
        told = row.payload or {}
        several = told.get("items")
        items = [(row.content, row.index)] if several is None else [(bytes.fromhex(c), n) for c, n in several]
        key = RowKeys(row.by, row.problem, row.path)
        if any(key(content, number) in inflight for content, number in items):
            continue
        missing = 0
        for item in items:
            name = (row.path, row.kind, row.by, *item)
            missing += not ended[name]
            ended[name] -= bool(ended[name])
        if (missing or not items) and row.status == "open":
            made = (row.problem, row.path, row.kind, row.by, row.content, row.index)
            charge = _plus(ZERO, amounts(row.usage), missing / len(items) if items else 1.0)
            yield _to_lost(row.key, made, row.physical, missing, row.started), charge, told.get("label")


def _to_lost(key: bytes, made: Made, worst: Usage, items: int, started: float) -> Lost:
    """The attempt as a `Lost`, with every amount that may be more than nothing."""
    tokens = None if any(getattr(worst, name) != 0 for name in _TOKENS) else 0
    known: dict[str, Any] = dict.fromkeys(_TOKENS, tokens)
    known |= {"money": 0 if worst.money == 0 else None, "calls": items}
    real = Usage(**known)
    return Lost(key, *made, None, physical=real, status="lost", started=started, worst=worst)


def physical(given: Usage, usage: Usage, recorded: bool) -> Usage:
    """What a new record took, where its maker told it; what it did not tell is unknown, unless nobody asks for it.

    recorded: it was made elsewhere, and is told in full.
    """
    if recorded:
        return given
    if not given.calls:
        told: dict[str, Any] = {n: 0 if getattr(usage, n) == 0 else None for n in (*_TOKENS, "money")}
        return Usage(**told, calls=1)
    flops, two, money = given.flops, given.flops_2n, given.money
    if given.prefilled != 0 or given.cached != 0 or given.generated != 0:
        flops = None if flops == 0 != usage.flops else flops
        two = None if two == 0 != usage.flops_2n else two
        money = None if money == 0 != usage.money else money
        if (flops, two, money) != (given.flops, given.flops_2n, given.money):
            tokens = given.prefilled, given.cached, given.generated
            return Usage(*tokens, given.calls, flops, two, money, given.seconds, given.forced)
    return given


def _plus(a: Amounts, b: Amounts, share: float) -> Amounts:
    return tuple(x + share * y for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
