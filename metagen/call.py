"""A leaf call: what is asked and answered, and how a call is served from the journal or executed, under all limits.

`Scope.call` is its door. A call looks up the journal, reserves, executes, records, settles, and adds to the trace.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import UserDict, abc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from metagen.attempts import Attempts, Made, physical, recall
from metagen.budget import DIMENSIONS, ZERO, Account, Amounts, Grant, Turn, amounts
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.events import of_row
from metagen.journal import Limit, Row, RowKeys, Status
from metagen.place import Place

T = TypeVar("T")
NOTHING = Usage()
#: Seconds between two looks at what another event loop is computing.
GLANCE = 0.01


@dataclass(frozen=True, slots=True)
class Item:
    """One thing asked of a leaf call: the digest of its prefix or content, and its number."""

    content: bytes
    index: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A leaf call for several items: samples of one prefix, scores of several sequences, …

    by: fingerprint of who answers. most: tokens that one item generates at most; an item may be
    capped below that when a budget ends (None: items cannot be capped). recorded: the answers are on disk already;
    the journal keeps them again only where a limit binds, since whom a limit refuses must not change.
    """

    kind: str
    by: str
    items: tuple[Item, ...]
    most: int | None = None
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `execute` returns for one item. `truncated`: the grant's cap ended it."""

    payload: dict[str, Any]
    usage: Usage
    physical: Usage = field(default_factory=Usage)
    truncated: bool = False


class Ended(UserDict[int, Outcome]):
    """Outcomes by place among the positions asked for, put here by `execute` as they end.

    An outcome is on its way to the disk at once, and stays whatever becomes of the call, or of the process. Another one
    at the same place replaces it. attempts: where to tell of each attempt at them; None where nobody asks. written: is
    told of a place's text so far, in any thread, by engines that know it; None where nobody listens.
    """

    written: Callable[[int, str], None] | None = None

    def __init__(self, keep: Callable[[int, Outcome], object], attempts: Attempts | None = None) -> None:
        super().__init__()
        self._keep, self.attempts = keep, attempts

    def __setitem__(self, place: int, outcome: Outcome) -> None:
        super().__setitem__(place, outcome)
        self._keep(place, outcome)


#: Positions in `Request.items` to run, and the cap in tokens, if any → one outcome each, in order.
Execute = Callable[[abc.Sequence[int], int | None, Ended], Awaitable[abc.Sequence[Outcome]]]
#: Logical worst case of running these positions under this cap; the calls are counted here.
WorstCase = Callable[[abc.Sequence[int], int | None], Usage]
#: Told of rows in the moment in which they are charged, so that the next reservation knows of them.
Remember = Callable[[list[Row]], None]


class LeafCall:
    """One leaf call on its way: what is still pending, and what has been served."""

    def __init__(
        self, place: Place, request: Request, execute: Execute, worst: WorstCase, remember: Remember | None
    ) -> None:
        self.place, self.request, self.remember = place, request, remember
        self.execute, self.worst = execute, worst
        self.account = account = place.account
        #: One for the whole call: what is later waits until all of it is served.
        self.turn: Turn | None = None
        if account is not None and request.items:
            self.turn = Turn(account, (*place.order, request.items[0].index))
        self.journal = place.problem.journal
        self.key = RowKeys(request.by, place.problem.id, place.path)
        #: Whether the answers are read where they are, and the journal is not asked.
        self.read = request.recorded and account is None
        self.keys = [] if self.read else [self.key(item.content, item.index) for item in request.items]
        self.pending: abc.Sequence[int] = range(len(request.items))
        self.served: list[Row] = []
        #: What the caller had seen, and what it is given to see: numbers of deliveries.
        self.after, self.delivered = place.problem.history.now(), list[int]()
        #: What the journal holds of the pending items, and the journal's version when it was asked.
        self.found: dict[int, Row] = {}
        self.version = 0
        path = account.path if account else ()
        self.limits = [limit for account in path for limit in _limits(account)]
        #: Items that the listener was told of when they ended, before all of the call had.
        self._told: set[int] = set()
        #: Seconds after which a limit ended what was under way.
        self.late = 0.0
        self.loop = asyncio.get_running_loop()
        recall(place)

    async def run(self) -> None:
        """Serve all items, in order; raises BudgetExhausted for the rest, when no more of them fit."""
        if self.read:
            await self._read()
            return
        try:
            while self.pending:
                await self.advance()
        finally:
            if self.turn is not None:
                self.turn.leave()

    async def advance(self) -> None:
        """Serve at least one pending item, or wait for something in flight; raises BudgetExhausted."""
        await self._coalesce()
        self._look_up()
        grant = await self._reserve()
        used: Amounts | None = None
        begun: Attempts | None = None
        try:
            granted = self.pending[: grant.count]
            if self.journal.version != self.version:
                self._look_up()
            misses = [i for i in granted if not self._answers(i, grant)]
            if any(self.keys[i] in self.journal.inflight for i in misses):
                return
            late: BudgetExhausted | None = None
            before = dict(self.found)
            try:
                if misses:
                    begun = Attempts(self, misses, grant)
                    late = await self._run(begun)
            finally:
                # Also what had ended when the call failed: it is recorded, so it is paid for.
                ran = {i for i in misses if self.found.get(i) is not before.get(i)}
                kept = [i for i in granted if i in ran or self._answers(i, grant)]
                lost = begun.settle(ran) if begun is not None else ZERO
                if self.account is not None:
                    used = _sum(self._weight(i, grant.cap) for i in kept)
                    used = begun.total(used, lost) if begun is not None and lost is not ZERO else used
                self._deliver(kept)
            if late is not None and self.pending:
                raise late
        finally:
            if self.account is not None:
                self.account.settle(begun.grant if begun is not None else grant, used or ZERO)

    async def _read(self) -> None:
        """Serve all items from where they are recorded; rows without a key, which no journal holds."""
        started, clock = _now(), time.monotonic()
        outcomes = await self.execute(self.pending, None, Ended(lambda *noted: None))
        seconds = (time.monotonic() - clock) / max(1, len(outcomes))
        # Samples that cost the same may share their usage.
        costs = {id(o.usage): o.usage for o in outcomes}
        costs = {key: replace(u, calls=1, seconds=u.seconds or seconds) for key, u in costs.items()}
        rows = [
            Row(b"", *self.record_place(i), o.payload, costs[id(o.usage)], o.physical, started=started)
            for i, o in zip(self.pending, outcomes, strict=True)
        ]
        self.found = dict(enumerate(rows))
        self._deliver(self.pending)

    async def _coalesce(self) -> None:
        """Wait until no pending item is being computed by someone else, before reserving anything."""
        inflight = self.journal.inflight
        while inflight:
            others = [inflight[self.keys[i]] for i in self.pending if self.keys[i] in inflight]
            if not others:
                return
            here = [one for one in others if one.get_loop() is asyncio.get_running_loop()]
            if not here and self._seconds() != 0:
                # Nobody can wait for what another event loop does: it is looked at again.
                await asyncio.sleep(GLANCE)
                continue
            ended, _ = await asyncio.wait(here, timeout=self._seconds()) if here else ((), ())
            if not ended:
                return  # the deadline came first; what is not recorded by now is refused

    def _look_up(self) -> None:
        """Rows for the pending items: those made under a limit in force here first, then complete ones."""
        items, self.version = self.request.items, self.journal.version
        keys = {self.keys[i]: i for i in self.pending}
        for limit in self.limits:
            if limit in self.journal.limits:
                keys |= {self.key(items[i].content, items[i].index, limit): i for i in self.pending}
        # In the order of the keys: the row of a limit takes the place of the complete one.
        found = self.journal.find(list(keys))
        self.found = {i: found[key] for key, i in keys.items() if key in found}
        first = self.found.get(self.pending[0])
        if (
            first is not None
            and first.limit is not None
            and (first.limit.dimension == "seconds" or (first.status == "refused" and first.physical.seconds))
        ):
            # What was under way is cut off in any order: what had ended is served before the refusal.
            self.pending = sorted(self.pending, key=lambda i: not self._complete(i))

    async def _reserve(self) -> Grant:
        ready = self._ready()
        if self.turn is None:
            return Grant(ready, ZERO)
        first = self.found.get(self.pending[0])
        if first is not None and first.status == "refused" and first.limit is not None:
            limit = first.limit
            raise BudgetExhausted(limit.dimension, limit.amount, 0.0, 0.0, limit.owner)
        more = ready < len(self.pending)
        reserve = partial(self.turn.reserve, self._need, ready, self.request.most, more=more)
        return await (self._before_deadline(reserve) if first is None else reserve())

    def _ready(self) -> int:
        """Pending items up to the first of another kind: recorded, refused or new.

        So what is recorded is charged, and remembered, before anything new is reserved.
        """
        rows = [self.found.get(i) for i in self.pending]
        kinds = [None if row is None else row.status == "refused" for row in rows]
        return next((k for k, kind in enumerate(kinds) if kind is not kinds[0]), len(kinds))

    def _need(self, k: int, cap: int | None) -> Amounts:
        """Worst case of the first k pending items: recorded usage for hits, the bound for misses."""
        first = self.pending[:k]
        if cap is None and first[0] in self.found:
            return _sum(self._weight(i) for i in first)
        return self.bound(self.at_worst(first, cap))

    def at_worst(self, positions: abc.Sequence[int], cap: int | None) -> Usage:
        """Logical worst case of these items under this cap, one call each."""
        worst = self.worst(positions, cap)
        return worst.of(len(positions), worst.seconds)

    def _weight(self, i: int, cap: int | None = None) -> Amounts:
        """What a found row weighs on the budget; what its usage does not know, at its worst."""
        usage = self.found[i].usage
        unknown = {limit.dimension for limit in self.limits if getattr(usage, limit.dimension) is None}
        if unknown:
            worst = self.worst([i], cap)
            usage = replace(usage, **{d: getattr(worst, d) for d in unknown})
        return self.bound(usage)

    def bound(self, worst: Usage) -> Amounts:
        """A worst case as amounts; a limit on something that cannot be bounded is an error.

        Raises UnsupportedError for a limit whose worst case the call does not know.
        """
        for limit in self.limits:
            if getattr(worst, limit.dimension) is None:
                raise UnsupportedError(
                    f"a budget of {limit.amount:g} {limit.dimension} cannot be kept: "
                    f"the {_name(self.request)} cannot bound its {limit.dimension}; "
                    "give it a count, a price or a model shape, or limit something else"
                )
        return amounts(worst)

    def _answers(self, i: int, grant: Grant) -> bool:
        """Whether a row may answer under this grant: a capped item is run again, unless it was capped alike."""
        row = self.found.get(i)
        if row is None or row.status == "refused":
            return False
        if grant.cap is None:
            return True
        generated, most = row.usage.generated, self.worst([i], grant.cap).generated
        return generated is not None and generated <= (grant.cap if most is None else most)

    def _complete(self, i: int) -> bool:
        row = self.found.get(i)
        return row is not None and row.status == "complete"

    async def _run(self, begun: Attempts) -> BudgetExhausted | None:
        """Execute, and record durably; identical requests meanwhile wait for the record, and one that came an instant
        later has done nothing.

        What had ended when `execute` was cut off is recorded too. Returns the refusal if a limit did that.
        """
        misses, inflight = begun.misses, self.journal.inflight
        done: asyncio.Future[None] = self.loop.create_future()
        # In one step each: another event loop may begin, or have ended, the same item at this very moment.
        mine = [i for i in misses if inflight.setdefault(self.keys[i], done) is done]
        late: BudgetExhausted | None = None
        try:
            if len(mine) < len(misses) or self.journal.version != self.version:
                return None
            kept = _Kept(self, misses, begun.grant)
            ended = Ended(kept.note, begun)
            execute = partial(self.execute, misses, begun.grant.cap, ended)
            try:
                outcomes = await self._before_deadline(partial(begun.start, execute))
                last = {k: outcome for k, (_, outcome) in enumerate(zip(misses, outcomes, strict=True))}
                kept.end({k: outcome for k, outcome in last.items() if ended.get(k) is not outcome})
            except BudgetExhausted as refusal:
                late, self.late = refusal, begun.seconds
            except InputError as error:
                begun.note_refusal(error)
                raise
            finally:
                try:
                    await kept.durable()
                finally:
                    if (closed := begun.durable()) is not None:
                        await closed
        finally:
            for i in mine:
                inflight.pop(self.keys[i], None)
            done.set_result(None)
        return late

    def _seconds(self) -> float | None:
        """Until the deadline; None without one."""
        deadline = self.account.deadline if self.account else math.inf
        return None if deadline == math.inf else max(0.0, deadline - time.monotonic())

    async def _before_deadline(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which is cancelled, or not even begun, when the deadline has come."""
        seconds = self._seconds()
        if self.account is None or seconds is None:
            return await work()
        if not seconds:
            raise self.account.overdue()
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await work()
        except TimeoutError:
            if not clock.expired():
                raise
            raise self.account.overdue() from None

    def _outcome(self, i: int, outcome: Outcome, grant: Grant, started: float, seconds: float) -> Row:
        """The row of an executed item; one that the grant's cap ended is kept under the limit that binds."""
        limit = None
        if outcome.truncated and grant.account is not None and grant.dimension is not None:
            account = grant.account
            limit = Limit(account.owner, grant.dimension, float(getattr(account.budget, grant.dimension)))
        u = outcome.usage
        # Whoever replays a recorded call knows how long that took.
        usage = u.of(1, u.seconds or seconds)
        status: Status = "truncated" if limit else "complete"
        real = physical(outcome.physical, usage, self.request.recorded)
        return self._row(i, outcome.payload, usage, real, status=status, limit=limit, started=started)

    def _row(
        self,
        i: int,
        payload: dict[str, Any] | None,
        usage: Usage = NOTHING,
        physical: Usage = NOTHING,
        *,
        status: Status,
        limit: Limit | None,
        started: float,
    ) -> Row:
        item = self.request.items[i]
        key = self.key(item.content, item.index, limit) if limit else self.keys[i]
        return Row(key, *self.record_place(i), payload, usage, physical, status, limit, started)

    def record_place(self, i: int) -> Made:
        """Where the record of an item belongs."""
        item, request = self.request.items[i], self.request
        return self.place.problem.id, self.place.path, request.kind, request.by, item.content, item.index

    def _deliver(self, granted: abc.Sequence[int]) -> None:
        if not granted:
            return
        rows = [self.found[i] for i in granted]
        for i, row in zip(granted, rows, strict=True):
            self.tell(i, row, cached=True)
        self.served += rows
        self.delivered.append(self.place.problem.history.deliver(rows, self.after))
        if self.remember is not None:
            self.remember(rows)
        delivered = set(granted)
        self.pending = [i for i in self.pending if i not in delivered]
        for row in rows:
            if row.limit is not None:
                self.place.mark(row.limit.owner)

    def tell(self, i: int, row: Row, *, cached: bool) -> None:
        """Tell the listener of an item that has ended, once."""
        listener = self.place.problem.listener
        if listener is not None and i not in self._told:
            self._told.add(i)
            listener(of_row(row, cached=cached))

    async def refuse(self, refusal: BudgetExhausted) -> None:
        """Record that the pending items were refused, so that a replay takes the same branch."""
        limit = Limit(refusal.owner, refusal.dimension, refusal.limit)
        cut = Usage(seconds=self.late)
        rows = [
            self._row(i, None, physical=cut, status="refused", limit=limit, started=_now())
            for i in self.pending
        ]
        for i, row in zip(self.pending, rows, strict=True):
            self.tell(i, row, cached=False)
        known = self.journal.find([row.key for row in rows])
        self.place.problem.history.deliver([known.get(row.key, row) for row in rows], self.after)
        new = [row for row in rows if row.key not in known]
        if new:
            await self.journal.record(new)


class _Kept:
    """The rows of a call that is under way, handed to the journal as they come.

    The time since the rows before them is shared out among those that come together.
    """

    def __init__(self, call: LeafCall, misses: list[int], grant: Grant) -> None:
        self._call, self._misses, self._grant = call, misses, grant
        self._started, self._clock = _now(), time.monotonic()
        self._records: list[tuple[dict[int, Row], Awaitable[None]]] = []

    def note(self, place: int, outcome: Outcome) -> None:
        """One that has ended before the others, which is recorded meanwhile."""
        rows = self._rows({place: outcome})
        self._records.append((rows, asyncio.ensure_future(self._record(rows))))

    def end(self, outcomes: Mapping[int, Outcome]) -> None:
        """Those that only the end of the call has brought."""
        if outcomes:
            rows = self._rows(outcomes)
            record = self._record(rows)
            # Whoever is cancelled while it waits for the others has handed these over; one alone needs no task.
            self._records.append((rows, asyncio.ensure_future(record) if self._records else record))

    async def durable(self) -> None:
        """Returns when all are on disk, and the call has found them. Raises the first error that kept one from that."""
        errors = []
        cut: asyncio.CancelledError | None = None
        for rows, record in self._records:
            try:
                # Whoever is cancelled again, and again, waits all the same: a record that has not begun would be lost.
                while isinstance(record, asyncio.Future) and not record.done():
                    try:
                        await asyncio.wait({record})
                    except asyncio.CancelledError as again:
                        cut = again
                await record
            except asyncio.CancelledError as again:
                cut = again
            except Exception as error:  # noqa: BLE001 - raised when it is known which others are on disk
                errors.append(error)
            else:
                self._call.found.update(rows)
        if cut is not None:
            raise cut
        if errors:
            raise errors[0]

    def _rows(self, outcomes: Mapping[int, Outcome]) -> dict[int, Row]:
        now = time.monotonic()
        seconds, self._clock = (now - self._clock) / len(outcomes), now
        numbers = {self._misses[k]: outcome for k, outcome in outcomes.items()}
        rows = {
            i: self._call._outcome(i, outcome, self._grant, self._started, seconds)
            for i, outcome in numbers.items()
        }
        for i, row in rows.items():
            self._call.tell(i, row, cached=False)
        return rows

    async def _record(self, rows: dict[int, Row]) -> None:
        await self._call.journal.record(list(rows.values()))


def _now() -> float:
    """Wall clock in seconds, to the millisecond."""
    return round(time.time(), 3)


def _limits(account: Account) -> Iterator[Limit]:
    """The limits that an account sets itself."""
    for dimension in (*DIMENSIONS, "seconds"):
        amount = getattr(account.budget, dimension)
        if amount is not None:
            yield Limit(account.owner, dimension, float(amount))


def _name(request: Request) -> str:
    return f"{request.kind} call of {request.by[:12]!r}"


def _sum(parts: Iterable[Amounts]) -> Amounts:
    return tuple(map(sum, zip(*parts, strict=True))) or ZERO  # type: ignore[return-value]
