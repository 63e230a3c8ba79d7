"""Strategy: a generator that calls generators. Authors write `run`; everything else is here."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import warnings
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from metagen import html, threads
from metagen.border import checked, promises
from metagen.budget import Account, BudgetLike
from metagen.cost import Usage
from metagen.errors import InputError, MetagenError
from metagen.events import Event, Listener, follow
from metagen.generators.base import Generator
from metagen.journal import Journal
from metagen.logs import logger
from metagen.parts import fingerprint
from metagen.scope import Offer, Scope
from metagen.sequence import Message, Prompt, Sequence, Until
from metagen.trace import Trace
from metagen.verifiers.base import Answer, AnswerRule

T = TypeVar("T")
#: Opens what is told of one solve, for as long as the context lasts: of who solves (a part, or a tuple of parts), of
#: what, and under which name.
Observe = Callable[[object, Prompt, str], AbstractContextManager[Listener]]
_LOG = logger(__name__)
#: Seconds that an interrupted call has for its clean end.
GRACE = 10.0
LOOP = "metagen-loop"
#: Answers that a notebook shows with their votes.
SHOWN = 10


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """What `solve` returns. A notebook shows it with its votes or scores, its usage and its spans.

    text: of the chosen sequence. answer: read by the strategy's answer rule, if it has one.
    candidates: what the strategy weighed, with values and classes. votes: what each answer gathered in the vote, by its
    key; None where the strategy counted none. exhausted: a best effort, see `Sequence`.
    oracle: a verifier with the reference answer took part. usage: logical, what limits bind and a replay is charged.
    physical: what was computed and billed, None where that is unknown; most: the same with each of the `lost` attempts,
    those whose end is unknown, at its worst case.
    """

    text: str
    sequence: Sequence
    answer: Answer | None
    candidates: tuple[Offer, ...]
    usage: Usage
    exhausted: bool
    oracle: bool
    trace: Trace
    votes: Mapping[str, float] | None = None

    @property
    def shares(self) -> dict[str, float]:
        """The share of the vote that each answer has, by its key, the largest first.

        Where the strategy did not vote, a candidate counts its value, or 1 if no candidate has a value. Candidates
        that were cut, or that have no readable answer, do not vote. Empty if nobody votes, or if no vote counts
        anything. Values that may be negative are no votes: they raise InputError.
        """
        return shares_of(self.candidates, self.votes)

    @property
    def physical(self) -> Usage:
        return self.trace.physical

    @property
    def most(self) -> Usage:
        return self.trace.most

    @property
    def lost(self) -> int:
        return self.trace.lost

    def __repr__(self) -> str:
        said = f"answer={self.answer.text!r:.40}" if self.answer else f"text={self.text!r:.40}"
        marks = "".join(f", {name}" for name in ("exhausted", "oracle") if getattr(self, name))
        marks += f", {self.lost} lost" if self.lost else ""
        tokens, real = html.amount(self.usage.tokens), html.amount(self.physical.tokens)
        return f"Result({said}, {len(self.candidates)} candidates, {tokens} tokens, {real} physical{marks})"

    def _repr_html_(self) -> str:
        """For notebooks: the answer, the text, votes or scores as bars, usage, and spans to unfold."""
        answer = "" if self.answer is None else f"<b>{html.text(self.answer.text or 'no answer', 200)}</b>"
        marks = {"a best effort": self.exhausted, "chosen by an oracle": self.oracle}
        said = " ".join([answer, *(f"({mark})" for mark, holds in marks.items() if holds)])
        parts = [
            said.strip(),
            html.block(self.text),
            self._bars(),
            html.usage(self.usage, self.physical, self.most, self.lost),
        ]
        parts.append(html.fold(f"{len(self.trace.rows)} spans", html.spans(self.trace)))
        return f"<div>{''.join(parts)}</div>"

    def _bars(self) -> str:
        """Candidates by answer, the heaviest first; one by one where no answers were read."""
        voting = _voting(self.candidates)
        groups = _by_answer(voting or self.candidates, read=bool(voting))
        scored, weights = _scored(groups), _weights(groups)
        order = sorted(weights, key=lambda name: (-weights[name], name))
        top = weights[order[0]] if order else 0.0
        chosen = self.answer.key if voting and self.answer else self.text.strip()
        columns = ["answer" if voting else "text", "samples", *(["best", "Σ score"] if scored else []), ""]
        rows = []
        for name in order[:SHOWN]:
            values = groups[name]
            best = max((value for value in values if value is not None), default=None)
            scores = ["–" if best is None else f"{best:.2f}", f"{weights[name]:.2f}"] if scored else []
            drawn = html.bar(weights[name] / top if top > 0 else 0.0) + (" ✓" if name == chosen else "")
            rows.append([html.text(name, 60), str(len(values)), *scores, drawn])
        left_out = {
            "others": sum(len(groups[name]) for name in order[SHOWN:]),
            "no vote": len(self.candidates) - len(voting) if voting else 0,
        }
        rows += [[what, str(count), *[""] * (len(columns) - 2)] for what, count in left_out.items() if count]
        return html.table(columns, rows) if rows else ""


def shares_of(candidates: Iterable[Offer], votes: Mapping[str, float] | None = None) -> dict[str, float]:
    """The share of the vote of each answer: see `Result.shares`."""
    weights = _weights(_by_answer(_voting(candidates))) if votes is None else dict(votes)
    if any(weight < 0 for weight in weights.values()):
        raise InputError(
            f"shares of a vote need values of 0 or more, and by answer these sum to {weights!r:.200}; "
            "count `candidates` by their `key` in place of it"
        )
    total = math.fsum(weights.values())
    order = sorted(weights, key=lambda name: (-weights[name], name))
    return {name: weights[name] / total for name in order} if total > 0 else {}


def _voting(candidates: Iterable[Offer]) -> list[Offer]:
    """The candidates that ended and have an answer."""
    return [c for c in candidates if c.key is not None and c.sequence.finish in ("eos", "stop")]


def _by_answer(candidates: Iterable[Offer], *, read: bool = True) -> dict[str, list[float | None]]:
    """The candidates' values by answer; by text if answers were not read."""
    groups: dict[str, list[float | None]] = {}
    for one in candidates:
        groups.setdefault((one.key if read else one.sequence.text.strip()) or "", []).append(one.value)
    return groups


def _scored(groups: Mapping[str, list[float | None]]) -> bool:
    return any(value is not None for values in groups.values() for value in values)


def _weights(groups: Mapping[str, list[float | None]]) -> dict[str, float]:
    """The weight of each group: its values, or its number of candidates if nobody has a value."""
    scored = _scored(groups)
    return {
        name: math.fsum(value or 0.0 for value in values) if scored else float(len(values))
        for name, values in groups.items()
    }


@dataclass(frozen=True, slots=True)
class Solved(Event):
    """The end of a solve, of kind `answer`."""

    result: Result | None = None


class _Telling:
    """Tells a caller's functions of events. A function that raises is told nothing more: what is paid for is kept."""

    def __init__(self, on_event: Listener | None, emit: Callable[[Sequence], None] | None) -> None:
        self._on_event, self._emit = on_event, emit
        self._last: Sequence | None = None

    def __call__(self, event: Event) -> None:
        if event.sequence is not None and event.kind in ("commit", "answer") and event.sequence != self._last:
            self._last = event.sequence
            self._emit = self._told("emit", self._emit, event.sequence)
        self._on_event = self._told("on_event", self._on_event, event)

    def _told(self, name: str, function: Callable[[T], None] | None, of: T) -> Callable[[T], None] | None:
        if function is not None:
            try:
                function(of)
            except Exception:  # noqa: BLE001 - what is paid for is not lost by it
                _LOG.warning(f"{name} raised an error, and is told nothing more", exc_info=True)
                return None
        return function


def _extends(result: Sequence, given: Mapping[str, Any]) -> str | None:
    prefix: Sequence = given["prefix"]
    if result.extends(prefix):
        return None
    return f"it does not extend its prefix {prefix.text[-40:]!r}: build on prefix.extend(…), or use rooted(prefix)"


class Strategy(Generator):
    """A meta-generator. `run` makes one sequence; the base class makes that a Generator.

    Sample i runs under the child scope `str(i)`. When the budget ends inside `run`, the best offer
    made so far is returned with `exhausted=True` (the prefix itself, if none was made): every
    strategy is an anytime algorithm. A strategy object holds configuration only, never state.

    What experiments and studies do with a strategy goes by what its own class says of itself: `poolable`, its results
    at any n can be told from one pool of samples; `votes`, by what the first of them say; `chooses`, it draws n
    samples, or up to n, and then chooses; `adaptive`, it ends early or goes on by what it sees; `thinks`, it decides
    how long a sample is; `searches`, it searches in steps or revisions.
    """

    accepts_until = False
    #: Reads answers for voting and for `Result.answer`; None if the strategy does not look at answers.
    answer: AnswerRule | None = None
    #: Whether what is chosen depends on which answers are the same; a part may say so instead.
    groups: bool = True
    #: Fields with a model that judges and writes nothing of the result; None in one stands for `generator`.
    judges: ClassVar[frozenset[str]] = frozenset()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self)

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        """A sentence about fields that do not go together; None if nothing is wrong.

        given: all fields by name. The constructor of a part asks, and so does the reading of an experiment file, where
        the parts among the fields are still names. There it is asked once for each n that the strategy is run with.
        """
        return None

    @abstractmethod
    @promises(_extends)
    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        """One sequence that extends `prefix`."""

    async def generate(
        self, prefix: Sequence, *, n: int = 1, start: int = 0, until: Until = None, scope: Scope
    ) -> list[Sequence]:
        return [one for one, _ in await self.choose_among(prefix, n=n, start=start, until=until, scope=scope)]

    async def choose_among(
        self, prefix: Sequence, *, n: int = 1, start: int = 0, until: Until = None, scope: Scope
    ) -> list[tuple[Sequence, Scope | None]]:
        """`generate`, each sequence with the scope of its choice, which has the candidates and the votes."""
        self.check(prefix, n, start, until)
        if n > 1 and scope.limited:
            return await self._in_turn(prefix, n, start, until, scope)
        children = [scope.child(str(i), speaks=n == 1) for i in range(start, start + n)]
        found = await scope.gather(*(self._anytime(prefix, until, child) for child in children))
        return list(zip(found, children, strict=True))

    async def _in_turn(
        self, prefix: Sequence, n: int, start: int, until: Until, scope: Scope
    ) -> list[tuple[Sequence, Scope | None]]:
        """One after the other, the first that fit: side by side, what each may spend would hang on who is faster."""
        results: list[tuple[Sequence, Scope | None]] = []
        for i in range(start, start + n):
            child = scope.child(str(i))
            result = await self._anytime(prefix, until, child)
            # A run that the limit ended with nothing is no result, unless it is all that there is.
            nothing = result.text == prefix.text and result.finish is None
            if not results or not (nothing and child.exhausted):
                results.append((result, child))
            if child.exhausted:
                break
        return results

    async def _anytime(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        result = await scope.attempt(self.run(prefix, until, scope))
        if result is None:
            result = replace(scope.best_offer() or prefix, exhausted=True)
        if not result.extends(prefix):
            raise MetagenError(
                f"{type(self).__name__} returned a sequence that does not extend its prefix "
                f"{prefix.text[-40:]!r}: {result.text[:40]!r}; re-root refinements on the prefix"
            )
        return replace(result, exhausted=True) if scope.exhausted else result

    def open_call(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        budget: BudgetLike,
        seed: int,
        journal: Journal | None,
        listener: Listener | None = None,
        account: Account | None = None,
        speaks: bool = True,
    ) -> tuple[Sequence, Scope]:
        """The prefix and the root scope of a call on one prompt; in the event loop that will use them.

        speaks: the listener is told the answer as it is written, too.
        """
        prefix = Sequence.of(Prompt.of(prompt))
        root = Scope.root(
            prefix.prompt.problem_id, seed=seed, journal=journal, budget=budget, account=account,
            label=self.fingerprint, listener=listener, speaks=speaks and listener is not None,
        )  # fmt: skip
        return prefix, root

    @checked
    async def asolve(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
        emit: Callable[[Sequence], None] | None = None,
        on_event: Listener | None = None,
    ) -> Result:
        """`solve` for code that runs in an event loop of its own."""
        telling = None if emit is None and on_event is None else _Telling(on_event, emit)
        prefix, scope = self.open_call(prompt, budget, seed, journal, telling)
        child = scope.child("0", speaks=True)
        sequence = await self._anytime(prefix, None, child)
        answer = (await self.answer.read([sequence]))[0] if self.answer is not None else None
        trace = scope.trace
        result = Result(
            sequence.text,
            sequence,
            answer,
            tuple(child.offers),
            trace.usage,
            sequence.exhausted,
            self.oracle,
            trace,
            child.votes,
        )
        if telling is not None:
            key = None if answer is None else answer.text
            text, finish, usage = sequence.text, sequence.finish, trace.usage
            telling(
                Solved(
                    "answer", text=text, key=key, finish=finish, usage=usage, sequence=sequence, result=result
                )
            )
        return result

    async def stream(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> AsyncIterator[Event]:
        """Solve one prompt, and yield events as they happen; the last one is `Solved`, with the result.

        Who leaves the iteration ends the work. Raises what `asolve` raises, behind the events before.
        """

        async def work(on_event: Listener) -> Result:
            return await self.asolve(prompt, budget=budget, seed=seed, journal=journal, on_event=on_event)

        async with aclosing(follow(work)) as events:
            async for event in events:
                if isinstance(event, Event):
                    yield event

    @checked
    def solve(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
        emit: Callable[[Sequence], None] | None = None,
        on_event: Listener | None = None,
    ) -> Result:
        """Solve one prompt and wait for it; works in scripts and in notebooks (a background loop runs it).

        budget: a Budget, a dictionary of its fields, or an integer (generated tokens).
        journal: where to record; a MemoryJournal of this call's own by default.
        emit: called with each prefix that the strategy commits to, and at last with its answer. on_event: called with
        each `Event` as it happens, in the event loop of the solve. A function that raises is told nothing more; the log
        says so.
        """
        return wait(
            self.asolve(prompt, budget=budget, seed=seed, journal=journal, emit=emit, on_event=on_event)
        )


_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_BEGINNING = threading.Lock()


def _background() -> asyncio.AbstractEventLoop:
    """One event loop on a daemon thread, for synchronous callers; a forked child has one of its own."""
    process = os.getpid()
    if process not in _LOOPS:
        with _BEGINNING:
            if process not in _LOOPS:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name=LOOP, daemon=True).start()
                _LOOPS[process] = loop
    return _LOOPS[process]


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop; an interrupt cancels it and waits for its clean end.

    Raises MetagenError when called from code that this loop itself runs: it would wait for itself. Within a plain
    function that metagen runs in a thread it works, and warns that it keeps no limit of the solve around it.
    """
    loop = _background()
    if threading.current_thread().name == LOOP:
        work.close()
        raise MetagenError(
            "a synchronous call (solve, run) was made from inside a strategy, verifier or generator; await "
            "generate(prefix, scope=scope.child(...)) there, which keeps the same limits"
        )
    if threads.within():
        warnings.warn(
            "a synchronous call (solve, run) was made inside a plain function of a strategy, verifier or generator: "
            "what it spends counts toward no limit and no usage of the solve around it; to keep those, await "
            "generate(prefix, scope=scope.child(...)) in a part of your own",
            stacklevel=3,
        )
    ended = threading.Event()

    async def whole() -> T:
        try:
            return await work
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(whole(), loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        ended.wait(timeout=GRACE)
        raise
