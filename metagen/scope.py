"""The scope: the handle under which a call runs — its budget, its seed, its journal, its place in the trace.

All leaf work (generation, scoring, tools, sandboxes) crosses one method, `Scope.call`: look up the
journal, reserve, execute, record, settle, add a span. So no strategy mentions seeds, budgets,
caching, resume or tracing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from metagen import batch
from metagen.batch import Batch, Pace, Stage
from metagen.border import checked, explained
from metagen.budget import Account, Budget, BudgetLike
from metagen.call import Execute, Item, LeafCall, Remember, Request, WorstCase
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, ScopeError
from metagen.events import Event, Listener
from metagen.history import History
from metagen.journal import Journal, MemoryJournal, Row
from metagen.parts import PASSING
from metagen.place import Place, Problem, Watch
from metagen.prefixes import Prefixes
from metagen.sequence import Sequence, digest
from metagen.trace import Trace

Of = TypeVar("Of")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offer:
    """A candidate that a strategy has published: the best one is returned when the budget ends.

    value: how good the strategy holds it, on its own scale. key: its answer class, where known.
    """

    sequence: Sequence
    value: float | None = None
    key: str | None = None


class Scope:
    """What a call may touch. Made by `Scope.root` for a problem, and by `child` below it."""

    __slots__ = ("_place", "offers", "votes")

    def __init__(self, place: Place) -> None:
        self._place = place
        self.offers: list[Offer] = []
        #: Votes by answer key, of the vote that chose among the offers; None where there was none.
        self.votes: Mapping[str, float] | None = None

    @classmethod
    @checked
    def root(
        cls,
        problem: str = "problem",
        *,
        seed: int = 0,
        journal: Journal | None = None,
        budget: BudgetLike = None,
        account: Account | None = None,
        label: str = "",
        order: int = 0,
        listener: Listener | None = None,
        speaks: bool = False,
        watch: Watch | None = None,
        began_by: str | None = None,
    ) -> Scope:
        """The scope of a problem. Must be made inside the event loop that will use it.

        account: a parent to nest the budget under (a limit shared by several problems).
        label: names the owner of the budget in messages, and keeps apart what different
        configurations record under their own limits. order: the problem's place among those
        that share a limit. listener: is told of events. speaks: it is told what the answer is made of, as it is
        written, where the strategy knows which call writes it. watch: is told of what no record holds (`tell`), for
        viewers of a run. began_by: the configuration, by a name that it has in every process, where several use the
        journal: what another one lost is not charged to limits of this one alone.

        Raises JournalMismatch for a journal that was begun with another seed.
        """
        shared = account.path if account else ()
        if limit := Budget.of(budget):
            account = Account(limit, account, label or "the problem")
        journal = MemoryJournal() if journal is None else journal
        journal.keep_to(seed)
        made = Problem(problem, seed, journal, label, order, listener, watch, shared, began_by)
        return cls(Place(made, "", account, None, speaks))

    # -- place -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        return self._place.problem.id

    @property
    def path(self) -> str:
        """Roles and positions from the problem down to here, such as `0/sample`."""
        return self._place.path

    @explained
    def child(self, role: str, *, budget: Budget | None = None, speaks: bool = False) -> Scope:
        """A scope of its own for a nested call; `role` names its role and position, once.

        budget: a limit of its own, nested under those above. speaks: what one sample there writes is what this scope
        was asked for, so that it can be streamed. Raises ScopeError for a role that is none, or that has a child
        already.
        """
        if not role or role != role.strip("/") or "#" in role:
            raise ScopeError(f"{role!r} cannot name a scope: expected a role such as 'sample' or 'revise/2'")
        place, problem = self._place, self._place.problem
        path = f"{place.path}/{role}" if place.path else role
        if path in problem.paths:
            raise ScopeError(
                f"the scope {place.path or 'of the problem'!r} already has a child {role!r}: "
                "two calls would share seeds and records; add a position, such as 'revise/2'"
            )
        problem.paths.add(path)
        account = place.account
        if budget:
            owner = account.owner if account else problem.label
            account = Account(budget, account, f"{owner}:{path}")
        return Scope(Place(problem, path, account, place, speaks and place.speaks))

    def seed(self, item: Item) -> int:
        """The seed of one item: 64 bits from run seed, problem, path, content and number."""
        problem = self._place.problem
        name = digest(str(problem.seed), problem.id, self._place.path, item.content, str(item.index))
        return int.from_bytes(name[:8], "little")

    def prefixes(self, model: str) -> Prefixes:
        """The logical prefix cache of one model for this problem."""
        return self._place.problem.prefixes.setdefault(model, Prefixes())

    # -- results ---------------------------------------------------------------------------------

    def offer(self, sequence: Sequence, value: float | None = None, key: str | None = None) -> None:
        """Publish a candidate. If the budget ends, the one with the highest value is returned."""
        self.offers.append(Offer(sequence, value, key))
        if (listener := self._place.problem.listener) is not None:
            place, text, finish = len(self.offers) - 1, sequence.text, sequence.finish
            listener(Event("offer", self.path, place, text, value, key, finish, sequence=sequence))

    def best_offer(self) -> Sequence | None:
        """The highest value; among equals the first; values before none; None if nothing was offered."""
        best = max(self.offers, key=lambda o: (o.value is not None, o.value or 0.0), default=None)
        return best.sequence if best else None

    def emit(self, prefix: Sequence) -> None:
        """Stream a prefix that the strategy has committed to."""
        if (listener := self._place.problem.listener) is not None:
            listener(Event("commit", self.path, text=prefix.text, finish=prefix.finish, sequence=prefix))

    @property
    def voice(self) -> Listener | None:
        """Who is to be told what is written here, as it is written; None where nobody is."""
        return self._place.problem.listener if self._place.speaks else None

    def tell(self, what: object, content: bytes = b"") -> None:
        """Tell whoever watches the problem of a prefix that is asked for by this content, or of a tree that grows."""
        if self._place.problem.watch is not None:
            self._place.problem.watch(self._place.path, what, content)

    @property
    def exhausted(self) -> bool:
        """Whether a limit at or above this scope cut short or refused something here or below."""
        return self._place.limited

    @property
    def usage(self) -> Usage:
        """Logical usage of the whole problem so far."""
        return Usage.sum(row.usage for row in self._place.problem.history.rows)

    @property
    def trace(self) -> Trace:
        return Trace.of(self._place.problem.id, self.history.rows, self.history.deliveries)

    @property
    def history(self) -> History:
        """What each call of the problem had waited for."""
        return self._place.problem.history

    @property
    def limited(self) -> bool:
        """Whether a limit binds here that calls use up; a deadline is none."""
        return bool(self.left().divisible)

    def left(self) -> Budget:
        """What remains, over all limits that bind here."""
        return self._place.left()

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run side by side; results in the order given.

        A budget that ends in one lets the others finish (each meets the limit by itself), and is
        raised afterwards. Any other error cancels the others.
        """
        return await self._place.problem.history.gather(*work)

    async def attempt(self, work: Awaitable[T]) -> T | None:
        """What the work returns; None where a limit refused it."""
        try:
            return await work
        except BudgetExhausted:
            return None

    async def batch(
        self, items: Iterable[Of], *stages: Stage[Of, T] | Callable[[Of], Awaitable[T]], whole: bool = False
    ) -> Batch[T]:
        """Take each item through the stages, one or several calls each; never raises BudgetExhausted.

        Side by side where no limit binds that calls use up, or there is room for a whole stage at its worst; else
        stage by stage, and one item after the other. Where one is refused, later ones may still fit. A function in
        the place of a stage may generate, and nobody can bound what it spends.

        whole: the results are of no use unless all are there: once one is refused, no other begins.
        """
        given = [stage if isinstance(stage, Stage) else Stage(stage) for stage in stages]
        return await batch.run(self._place, list(items), given, whole)

    def parts(self, *roles: str, later: int = 0, reads: bool = False) -> list[Scope]:
        """Children for what is done one after the other, each with an equal part of what is left here.

        later: how many parts more to keep for what comes after them. reads: all but the first only read, and leave it
        the generated tokens. One alone has no limit of its own.
        """
        count = len(roles) + later
        budgets: list[Any] = list(self.left().share(count)) if count > 1 else [None]
        if reads and count > 1:
            budgets = [replace(own, generated=None) for own in budgets]
        return [self.child(role, budget=own) for role, own in zip(roles, budgets, strict=False)]

    def pace(self, *, generates: bool = False) -> Pace:
        """How fast to begin candidates that are to be scored from what is left here now.

        generates: scoring them may generate tokens.
        """
        return Pace(self._place, generates)

    # -- the one crossing ------------------------------------------------------------------------

    async def call(
        self, request: Request, execute: Execute, worst: WorstCase, remember: Remember | None = None
    ) -> list[Row]:
        """Answer the items of a leaf call, from the journal or by `execute`, under all limits.

        Returns the rows of the first items, in order: all, or as many as the budget allowed.
        Raises BudgetExhausted when there is not even one.
        """
        if request.by in PASSING and not isinstance(self._place.problem.journal, MemoryJournal):
            warnings.warn(
                "another process will not find what is recorded of a function without a name, and pays for it again: "
                f"nothing names the {PASSING[request.by]} that it holds; give name=..., and change that when the "
                "function does",
                stacklevel=2,
            )
        call = LeafCall(self._place, request, execute, worst, remember)
        began = time.time()
        try:
            await call.run()
        except BudgetExhausted as refusal:
            await call.refuse(refusal)
            self._place.mark(refusal.owner)
            if not call.served:
                raise
        except Exception as error:
            self._tell_error(request, began, error)
            raise
        finally:
            if call.delivered:
                self._place.problem.history.go_on(tuple(call.delivered))
        return call.served

    def _tell_error(self, request: Request, began: float, error: Exception) -> None:
        if (listener := self._place.problem.listener) is not None:
            index = request.items[0].index if request.items else 0
            kind, ended = type(error).__name__, time.time()
            listener(Event("error", self.path, index, started=began, ended=ended, by=request.by, error=kind))
