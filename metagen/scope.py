"""The scope: the handle under which a call runs — its budget, its seed, its journal, its place in the trace.

All leaf work (generation, scoring, tools, sandboxes) crosses one method, `Scope.call`: look up the
journal, reserve, execute, record, settle, add a span. So no strategy mentions seeds, budgets,
caching, resume or tracing.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from metagen.budget import DIMENSIONS, ZERO, Account, Amounts, Budget, Grant, amounts
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, ScopeError, UnsupportedError
from metagen.journal import Journal, Limit, MemoryJournal, Row, Status, row_key
from metagen.prefixes import Prefixes
from metagen.sequence import Sequence, digest
from metagen.trace import Trace

T = TypeVar("T")
NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Item:
    """One thing asked of a leaf call: the digest of its prefix or content, and its number."""

    content: bytes
    index: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A leaf call for several items: samples of one prefix, scores of several sequences, …

    by: fingerprint of who answers. most: tokens that one item generates at most; an item may be
    capped below that when a budget ends (None: items cannot be capped).
    """

    kind: str
    by: str
    items: tuple[Item, ...]
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `execute` returns for one item. `truncated`: the grant's cap ended it."""

    payload: dict[str, Any]
    usage: Usage
    physical: Usage = field(default_factory=Usage)
    truncated: bool = False


#: Positions in `Request.items` to run, and the cap in tokens, if any → one outcome each, in order.
Execute = Callable[[Ordered[int], int | None], Awaitable[Ordered[Outcome]]]
#: Logical worst case of running these positions under this cap; the calls are counted here.
WorstCase = Callable[[Ordered[int], int | None], Usage]
#: Told of rows in the moment in which they are charged, so that the next reservation knows of them.
Remember = Callable[[list[Row]], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """A candidate that a strategy has published: the best one is returned when the budget ends.

    value: how good the strategy holds it, on its own scale. key: its answer class, where known.
    """

    sequence: Sequence
    value: float | None = None
    key: str | None = None


class _Problem:
    """What the scopes of one problem share."""

    __slots__ = ("emit", "id", "journal", "label", "order", "paths", "prefixes", "rows", "seed")

    def __init__(
        self,
        id: str,
        seed: int,
        journal: Journal,
        label: str,
        order: int,
        emit: Callable[[Sequence], None] | None,
    ) -> None:
        self.id, self.seed, self.journal, self.label = id, seed, journal, label
        self.order, self.emit = order, emit
        self.prefixes: dict[str, Prefixes] = {}
        self.rows: list[Row] = []
        self.paths: set[str] = set()


class Scope:
    """What a call may touch. Made by `Scope.root` for a problem, and by `child` below it."""

    __slots__ = ("_account", "_limited", "_order", "_parent", "_path", "_problem", "offers")

    def __init__(self, problem: _Problem, path: str, account: Account | None, parent: Scope | None) -> None:
        self._problem, self._path, self._account, self._parent = problem, path, account, parent
        self._limited = False
        self._order: tuple[Any, ...] | None = None
        self.offers: list[Offer] = []

    @classmethod
    def root(
        cls,
        problem: str = "problem",
        *,
        seed: int = 0,
        journal: Journal | None = None,
        budget: Budget | None = None,
        account: Account | None = None,
        label: str = "",
        order: int = 0,
        emit: Callable[[Sequence], None] | None = None,
    ) -> Scope:
        """The scope of a problem. Must be made inside the event loop that will use it.

        account: a parent to nest the budget under (a limit shared by several problems).
        label: names the owner of the budget in messages, and keeps apart what different
        configurations record under their own limits. order: the problem's place among those
        that share a limit.
        """
        if budget:
            account = Account(budget, account, label or "the problem")
        shared = _Problem(problem, seed, journal or MemoryJournal(), label, order, emit)
        return cls(shared, "", account, None)

    # -- place -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        return self._problem.id

    @property
    def path(self) -> str:
        """Roles and positions from the problem down to here, such as `0/sample`."""
        return self._path

    def child(self, role: str, *, budget: Budget | None = None) -> Scope:
        """A scope of its own for a nested call; `role` names its role and position, once.

        budget: a limit of its own, nested under those above.
        """
        if not role or role != role.strip("/") or "#" in role:
            raise ScopeError(f"{role!r} cannot name a scope: expected a role such as 'sample' or 'revise/2'")
        path = f"{self._path}/{role}" if self._path else role
        if path in self._problem.paths:
            raise ScopeError(
                f"the scope {self._path or 'of the problem'!r} already has a child {role!r}: "
                "two calls would share seeds and records; add a position, such as 'revise/2'"
            )
        self._problem.paths.add(path)
        account = self._account
        if budget:
            owner = account.owner if account else self._problem.label
            account = Account(budget, account, f"{owner}:{path}")
        return Scope(self._problem, path, account, self)

    def seed(self, item: Item) -> int:
        """The seed of one item: 64 bits from run seed, problem, path, content and number."""
        problem = self._problem
        name = digest(str(problem.seed), problem.id, self._path, item.content, str(item.index))
        return int.from_bytes(name[:8], "little")

    def prefixes(self, model: str) -> Prefixes:
        """The logical prefix cache of one model for this problem."""
        return self._problem.prefixes.setdefault(model, Prefixes())

    # -- results ---------------------------------------------------------------------------------

    def offer(self, sequence: Sequence, value: float | None = None, key: str | None = None) -> None:
        """Publish a candidate. If the budget ends, the one with the highest value is returned."""
        self.offers.append(Offer(sequence, value, key))

    def best_offer(self) -> Sequence | None:
        """The highest value; among equals the first; values before none; None if nothing was offered."""
        best = max(self.offers, key=lambda o: (o.value is not None, o.value or 0.0), default=None)
        return best.sequence if best else None

    def emit(self, prefix: Sequence) -> None:
        """Stream a prefix that the strategy has committed to."""
        if self._problem.emit is not None:
            self._problem.emit(prefix)

    @property
    def exhausted(self) -> bool:
        """Whether a limit at or above this scope cut short or refused something here or below."""
        return self._limited

    @property
    def usage(self) -> Usage:
        """Logical usage of the whole problem so far."""
        return Usage.sum(row.usage for row in self._problem.rows)

    @property
    def trace(self) -> Trace:
        return Trace.of(self._problem.id, self._problem.rows)

    def left(self) -> Budget:
        """What remains, over all limits that bind here."""
        if self._account is None:
            return Budget()
        known = {
            d: None if v == math.inf else max(0.0, v)
            for d, v in zip(
                ("generated", "prefilled", "calls", "flops", "money"), self._account.left(), strict=True
            )
        }
        deadline = self._account.deadline
        seconds = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        return Budget(
            generated=_whole(known["generated"]), prefilled=_whole(known["prefilled"]), calls=_whole(known["calls"]),
            flops=known["flops"], money=known["money"], seconds=seconds,
        )  # fmt: skip

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run side by side; results in the order given.

        A budget that ends in one lets the others finish (each meets the limit by itself), and is
        raised afterwards. Any other error cancels the others.
        """

        async def guarded(one: Coroutine[Any, Any, T]) -> T | BudgetExhausted:
            try:
                return await one
            except BudgetExhausted as refusal:
                return refusal

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(guarded(one)) for one in work]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        results: list[T] = []
        for task in tasks:
            result = task.result()
            if isinstance(result, BudgetExhausted):
                raise result
            results.append(result)
        return results

    # -- the one crossing ------------------------------------------------------------------------

    async def call(
        self, request: Request, execute: Execute, worst: WorstCase, remember: Remember | None = None
    ) -> list[Row]:
        """Answer the items of a leaf call, from the journal or by `execute`, under all limits.

        Returns the rows of the first items, in order: all, or as many as the budget allowed.
        Raises BudgetExhausted when there is not even one.
        """
        call = _Call(self, request, execute, worst, remember)
        try:
            while call.pending:
                await call.advance()
        except BudgetExhausted as refusal:
            await call.refuse(refusal)
            self._mark(refusal.owner)
            if not call.served:
                raise
        return call.served

    def _mark(self, owner: str) -> None:
        """Note that a limit bound, on all scopes up to the one that owns the limit."""
        scope: Scope | None = self
        while scope is not None:
            scope._limited = True
            if scope._account is not None and scope._account.owner == owner:
                above = scope._parent._account if scope._parent else None
                if above is not scope._account:
                    return
            scope = scope._parent

    def _place(self) -> tuple[Any, ...]:
        """The natural order of paths: numbers by value, after the problem's own place."""
        if self._order is None:
            parts = re.split(r"[/.]", self._path)
            keys = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)
            self._order = (self._problem.order, keys)
        return self._order


class _Call:
    """One leaf call on its way: what is still pending, and what has been served."""

    def __init__(
        self, scope: Scope, request: Request, execute: Execute, worst: WorstCase, remember: Remember | None
    ) -> None:
        self.scope, self.request, self.execute, self.worst, self.remember = (
            scope,
            request,
            execute,
            worst,
            remember,
        )
        self.account = scope._account
        self.journal = scope._problem.journal
        self.keys = [self._key(item) for item in request.items]
        self.pending: Ordered[int] = range(len(self.keys))
        self.served: list[Row] = []
        self.found: dict[int, Row] = {}
        path = self.account.path if self.account else ()
        self.limits = [limit for account in path for limit in _limits(account)]

    def _key(self, item: Item, limit: Limit | None = None) -> bytes:
        scope = self.scope
        return row_key(self.request.by, scope._problem.id, scope._path, item.content, item.index, limit)

    async def advance(self) -> None:
        """Serve at least one pending item, or wait for something in flight; raises BudgetExhausted."""
        await self._coalesce()
        self._look_up()
        version = self.journal.version
        grant = await self._reserve()
        used: Amounts | None = None
        try:
            granted = self.pending[: grant.count]
            if self.journal.version != version:
                self._look_up()
            misses = [i for i in granted if not self._answers(self.found.get(i), grant)]
            if any(self.keys[i] in self.journal.inflight for i in misses):
                return
            if misses:
                await self._run(misses, grant)
            if self.account is not None:
                used = _sum(self._weight(i, grant.cap) for i in granted)
            self._deliver([self.found[i] for i in granted], grant)
        finally:
            if self.account is not None:
                self.account.settle(grant, used or ZERO)

    async def _coalesce(self) -> None:
        """Wait until no pending item is being computed by someone else, before reserving anything."""
        inflight = self.journal.inflight
        while inflight:
            others = [inflight[self.keys[i]] for i in self.pending if self.keys[i] in inflight]
            if not others:
                return
            ended, _ = await asyncio.wait(others, timeout=self._seconds())
            if not ended:
                return  # the deadline came first; what is not recorded by now is refused

    def _look_up(self) -> None:
        """Rows for the pending items: those made under a limit in force here first, then complete ones."""
        items = self.request.items
        keys = {self.keys[i]: i for i in self.pending}
        keys |= {self._key(items[i], limit): i for limit in self.limits for i in self.pending}
        # In the order of the keys: the row of a limit takes the place of the complete one.
        found = self.journal.find(list(keys))
        self.found = {i: found[key] for key, i in keys.items() if key in found}

    async def _reserve(self) -> Grant:
        items, ready = self.request.items, self._ready()
        if self.account is None:
            return Grant(ready, ZERO)
        first = self.found.get(self.pending[0])
        if first is not None and first.status == "refused" and first.limit is not None:
            limit = first.limit
            raise BudgetExhausted(limit.dimension, limit.amount, 0.0, 0.0, limit.owner)
        place = (*self.scope._place(), items[self.pending[0]].index)
        reserve = partial(self.account.reserve, place, self._need, ready, self.request.most)
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
        return self._bound(self._worst(first, cap))

    def _worst(self, positions: Ordered[int], cap: int | None) -> Usage:
        return replace(self.worst(positions, cap), calls=len(positions))

    def _weight(self, i: int, cap: int | None = None) -> Amounts:
        """What a found row weighs on the budget; what its usage does not know, at its worst."""
        usage = self.found[i].usage
        unknown = {limit.dimension for limit in self.limits if getattr(usage, limit.dimension) is None}
        if unknown:
            worst = self.worst([i], cap)
            usage = replace(usage, **{d: getattr(worst, d) for d in unknown})
        return self._bound(usage)

    def _bound(self, worst: Usage) -> Amounts:
        """A worst case as amounts; a limit on something that cannot be bounded is an error."""
        for limit in self.limits:
            if getattr(worst, limit.dimension) is None:
                raise UnsupportedError(
                    f"a budget of {limit.amount:g} {limit.dimension} cannot be kept: "
                    f"the {_name(self.request)} cannot bound its {limit.dimension}; "
                    "give it a count, a price or a model shape, or limit something else"
                )
        return amounts(worst)

    def _answers(self, row: Row | None, grant: Grant) -> bool:
        """Whether a row may answer under this grant: a capped item is run again, unless it was capped alike."""
        if row is None or row.status == "refused":
            return False
        generated = row.usage.generated
        return grant.cap is None or (generated is not None and generated <= grant.cap)

    async def _run(self, misses: list[int], grant: Grant) -> None:
        """Execute, and record durably; identical requests meanwhile wait for the record."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        for i in misses:
            self.journal.inflight[self.keys[i]] = done
        started, clock = _now(), time.monotonic()
        try:
            outcomes = await self._before_deadline(lambda: self.execute(misses, grant.cap))
            seconds = (time.monotonic() - clock) / max(1, len(misses))
            rows = [
                self._outcome(i, o, grant, started, seconds) for i, o in zip(misses, outcomes, strict=True)
            ]
            await self.journal.record(rows)
            self.found.update(zip(misses, rows, strict=True))
        finally:
            for i in misses:
                self.journal.inflight.pop(self.keys[i], None)
            done.set_result(None)

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
        usage = replace(outcome.usage, calls=1, seconds=seconds)
        status: Status = "truncated" if limit else "complete"
        return self._row(
            i, outcome.payload, usage, outcome.physical, status=status, limit=limit, started=started
        )

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
        item, request, scope = self.request.items[i], self.request, self.scope
        key = self._key(item, limit) if limit else self.keys[i]
        made = (scope._problem.id, scope._path, request.kind, request.by, item.content, item.index)
        return Row(key, *made, payload, usage, physical, status, limit, started)

    def _deliver(self, rows: list[Row], grant: Grant) -> None:
        self.served += rows
        self.scope._problem.rows += rows
        if self.remember is not None:
            self.remember(rows)
        self.pending = self.pending[grant.count :]
        for row in rows:
            if row.limit is not None:
                self.scope._mark(row.limit.owner)

    async def refuse(self, refusal: BudgetExhausted) -> None:
        """Record that the pending items were refused, so that a replay takes the same branch."""
        limit = Limit(refusal.owner, refusal.dimension, refusal.limit)
        rows = [self._row(i, None, status="refused", limit=limit, started=_now()) for i in self.pending]
        known = self.journal.find([row.key for row in rows])
        self.scope._problem.rows += [known.get(row.key, row) for row in rows]
        new = [row for row in rows if row.key not in known]
        if new:
            await self.journal.record(new)


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


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
