"""The near end: what the driver has of one replica."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from metagen.attempts import CURRENT, UNTOLD, Attempt, Keeper, State, elsewhere
from metagen.errors import BudgetExhausted, InputError, MetagenError
from metagen.generators.engine import Engine, EngineStats, Generated, GenerateRequest
from metagen.generators.ray.messages import (
    Answer,
    Begun,
    Call,
    Ended,
    Facts,
    Fault,
    Leave,
    News,
    Reply,
    Request,
)

#: Seconds after which a replica that has nothing to say says so.
BEAT = 1.0
#: Seconds that a cancelled request waits for what had ended of it.
GRACE = 5.0


class Lost(MetagenError):
    """A replica is gone, or is given up. Never leaves the pool: the call goes to another replica."""


class NotOpened(Lost):
    """A replica is given up before it was there."""


class NoCluster(NotOpened):
    """No other one can be there either."""


class Link:
    """Sends calls to one replica and hands out its replies. Lives in one event loop.

    client: what the replica calls this end, where there are several. told: hears the load of the others.
    A replica is lost when Ray says so, when its engine fails, and when it has work and for `deadline` seconds
    nothing was answered and no counter of its engine moved.
    """

    def __init__(
        self,
        name: str,
        actor: Any,
        *,
        deadline: float,
        client: str = "",
        told: Callable[[int], None] = lambda others: None,
    ) -> None:
        from ray.exceptions import RayError  # not at the top: without Ray, a pool says what to install

        self.name, self.actor, self.deadline, self.client = name, actor, deadline, client
        self._died = RayError
        self.stats = EngineStats()
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        #: Requests, each with the account of the execution that it belongs to.
        self._asked: dict[int, tuple[Request, Keeper | None]] = {}
        self._outbox: list[Call] = []
        self._dropped: list[int] = []
        #: Attempts of engines in the replica, by the number of their call and their name; leaves that are on their way;
        #: and what the limits refused, by the number of the call.
        self._attempts: dict[int, dict[int, asyncio.Task[Attempt]]] = {}
        self._leaves: list[Leave] = []
        self._refused: dict[int, MetagenError] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._moved = time.monotonic()
        self._given_up: str | None = None
        self._told = told

    async def open(
        self, make: Callable[..., Engine], options: Mapping[str, Any], seconds: float
    ) -> Facts | Fault:
        """Raises Lost if the replica does not open in time, or dies meanwhile."""
        opening = _future(self.actor.open.remote(make, options))
        await asyncio.wait({opening}, timeout=seconds)
        if not opening.done():
            raise NotOpened(f"did not open within {seconds:g} s")
        try:
            facts: Facts | Fault = opening.result()
        except self._died as error:
            raise Lost(reason(error)) from error
        return facts

    async def ask(self, request: Request) -> Answer:
        """The answer. Raises what the engine raises of this request alone, InputError if the request cannot be
        pickled, and Lost if the replica is lost.

        A cancelled request is cancelled in the engine, and what had ended of it is noted in it.
        """
        try:
            packed = pickle.dumps(_bare(request), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise InputError(
                f"a request cannot be sent to another process ({reason(error)}); keep to plain values in what goes "
                "with a prompt"
            ) from error
        number = next(self._numbers)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._moved = time.monotonic()
        self._waiting[number], self._asked[number] = reply, (request, CURRENT.get())
        self._idle.clear()
        load = len(request.seeds) if isinstance(request, GenerateRequest) else len(request)
        call = Call(number, packed, load)
        self._outbox.append(call)
        self._work.set()
        try:
            await asyncio.wait({reply})
        except asyncio.CancelledError:
            if call in self._outbox:  # it was never sent
                self._outbox.remove(call)
                raise
            self._dropped.append(number)
            self._work.set()
            await asyncio.wait({reply}, timeout=GRACE)
            if reply.done() and reply.exception() is None:
                _keep(request, reply.result())
            raise
        finally:
            del self._waiting[number], self._asked[number]
            self._attempts.pop(number, None)
            refused = self._refused.pop(number, None)
            if not self._waiting:
                self._idle.set()
        if refused is not None and reply.result().fault is not None:
            _keep(request, reply.result())
            raise refused
        return self._read(request, reply.result())

    def _read(self, request: Request, reply: Reply) -> Answer:
        if reply.fault is not None:
            _keep(request, reply)
            raise reply.fault.error()
        assert reply.answer is not None
        if isinstance(request, GenerateRequest):
            request.shares.update(reply.shares)
        return reply.answer

    async def drain(self) -> None:
        """Returns when nothing is outstanding."""
        await self._idle.wait()

    async def serve(self) -> None:
        """Send and receive until the replica is lost: raises Lost, with the reason."""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._send())
                both.create_task(self._receive())
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            raise (Lost(reason(first)) if isinstance(first, self._died) else first) from None

    def fail(self, lost: Lost) -> None:
        """Tell all who wait."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(Lost(str(lost)))

    def give_up(self, why: str) -> None:
        """Whoever else asks this replica has lost it: so has this end, soon."""
        self._given_up = why

    async def admit(self) -> bool:
        """Whether the replica takes in a request that may kill: it has no other such one. `clear` ends that."""
        asked, admitted = _future(self.actor.admit.remote(self.client)), False
        try:
            await asyncio.wait({asked}, timeout=BEAT)
            admitted = asked.done() and asked.exception() is None and asked.result()
        finally:
            if not admitted:
                self.clear()
        return admitted

    def clear(self) -> None:
        """The request that may kill is over."""
        _future(self.actor.clear.remote(self.client))

    def part(self, client: str) -> asyncio.Future[None]:
        """Tell the replica that an end is gone; ends when it has heard so."""
        return _future(self.actor.part.remote(client))

    async def close(self, seconds: float) -> None:
        """Let the engine free what it holds, if the replica still answers."""
        await asyncio.wait({_future(self.actor.close.remote())}, timeout=seconds)

    # -- inside ----------------------------------------------------------------------------------

    async def _send(self) -> None:
        """One group of calls after the other: what queues while one is on its way makes up the next."""
        while True:
            await self._work.wait()
            self._work.clear()
            calls, self._outbox = self._outbox, []
            dropped, self._dropped = self._dropped, []
            leaves, self._leaves = self._leaves, []
            message = pickle.dumps((calls, dropped, leaves), pickle.HIGHEST_PROTOCOL)
            await _future(self.actor.take.remote(self.client, message))

    async def _receive(self) -> None:
        while True:
            heard = _future(self.actor.collect.remote(self.client, BEAT))
            while not heard.done():
                await asyncio.wait({heard}, timeout=BEAT)
                self._check_moves()
            news: News = pickle.loads(heard.result())
            if news.replies or news.events or news.stats != self.stats:
                self._moved = time.monotonic()
            self.stats = news.stats
            self._told(news.others)
            for event in news.events:
                self._hear(event)
            for reply in news.replies:
                self._deliver(reply)
            self._check_moves()

    def _hear(self, event: Ended | Begun) -> None:
        request, keeper = self._asked.get(event.number, (None, None))
        if request is None:
            return
        if isinstance(event, Ended):
            if isinstance(request, GenerateRequest):
                request.note(event.sample, event.made, event.tokens, share=event.share)
            return
        ours = self._attempts.setdefault(event.number, {})
        if event.state is None:
            ours[event.name] = asyncio.create_task(self._let(event, request, keeper))
        elif (begun := ours.get(event.name)) is not None and not begun.done():
            begun.add_done_callback(lambda done: _close(done.result(), event.state))
        elif begun is not None:
            _close(begun.result(), event.state)

    async def _let(self, event: Begun, request: Request, keeper: Keeper | None) -> Attempt:
        """Tell the replica whether an attempt may begin."""
        refusal, attempt = None, UNTOLD
        try:
            if isinstance(request, GenerateRequest):
                attempt = await request.attempt(event.samples)
            elif keeper is not None and event.share is None:
                attempt = await elsewhere(keeper.reading(), keeper.loop)
            elif keeper is not None and event.share is not None:
                await elsewhere(keeper.again(event.share), keeper.loop)
        except MetagenError as error:  # a limit's, or the journal's: the caller gets it as it is
            self._refused[event.number] = error
            refusal = ("attempts", 0.0, 0.0, 0.0, "")
            if isinstance(error, BudgetExhausted):
                refusal = error.dimension, error.limit, error.needed, error.left, error.owner
        self._leaves.append(Leave(event.name, refusal))
        self._work.set()
        return attempt

    def _deliver(self, reply: Reply) -> None:
        if reply.fault is not None and not reply.fault.asked:
            raise Lost(str(reply.fault))
        waiting = self._waiting.get(reply.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _check_moves(self) -> None:
        if self._given_up is not None:
            raise Lost(self._given_up)
        silent = time.monotonic() - self._moved
        if self._waiting and silent > self.deadline:
            raise Lost(f"hangs: of {len(self._waiting)} requests none moved within {self.deadline:g} s")


def _bare(request: Request) -> Request:
    """A request as it is sent: who hears of its samples and attempts stays here."""
    return (
        replace(request, ended={}, shares={}, told=[], heard=None, begin=None, written=None)
        if isinstance(request, GenerateRequest)
        else request
    )


def _keep(request: Request, reply: Reply) -> None:
    if isinstance(request, GenerateRequest):
        request.ended.update(reply.ended)
        request.shares.update(reply.shares)
        request.told[:] = reply.told or request.told
        if isinstance(answer := reply.answer, Generated):  # it came when it was too late
            request.ended.update(enumerate(answer.samples))
            if answer.prefix_tokens is not None and answer.prefix_ids is None:
                request.told[:] = [answer.prefix_tokens]


def _close(attempt: Attempt, state: State | None) -> None:
    if state == "free":
        attempt.free()
    elif state == "answered":
        attempt.mark_answered()


def _future(ref: Any) -> asyncio.Future[Any]:
    """Of an object of Ray. An error that nobody asks for is nobody's: the reader of replies hears of it too."""
    future = asyncio.wrap_future(ref.future())
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def reason(error: BaseException) -> str:
    """Why a replica is lost: in its own words, or in the first ones of whose error it is."""
    if isinstance(error, Lost):
        return str(error)
    cause = getattr(error, "cause", None)  # of an error of Ray, which begins with where it was raised
    if isinstance(cause, Exception) and cause is not error:
        return reason(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.300}" if lines else type(error).__name__
