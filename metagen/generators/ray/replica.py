"""The far end: an actor with one engine in it."""

from __future__ import annotations

import asyncio
import pickle
from collections import abc, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from metagen.attempts import Attempt, elsewhere
from metagen.border import watch
from metagen.errors import BudgetExhausted, EngineError, InputError
from metagen.generators.engine import Engine, EngineStats, GenerateRequest, Sample, Share
from metagen.generators.ray.messages import Answer, Begun, Call, Ended, Facts, Fault, News, Reply, Request


class Replica:
    """Holds an engine; takes calls in groups, and gives their replies in groups, as they come.

    One answer costs no round trip of its own: what came since the driver last asked goes back together. Messages
    are pickled here, once for a group, and travel as bytes.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._replies: list[Reply] = []
        self._events: deque[Ended | Begun] = deque()
        self._names = count()
        self._leaves: dict[int, asyncio.Future[None]] = {}
        self._news = asyncio.Event()

    async def open(self, make: Callable[..., Engine], options: Mapping[str, Any]) -> Facts | Fault:
        """Make the engine and open it. What goes wrong is told and not raised, since Ray would wrap it."""
        try:
            self._engine = make(**options).__enter__()
            watch(type(self._engine), Engine)
            return Facts.of(self._engine)
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            return Fault.of(error)

    async def take(self, message: bytes) -> None:
        """Begin calls, cancel others by their numbers, and let attempts begin."""
        calls, dropped, leaves = pickle.loads(message)
        for leave in leaves:
            waiting = self._leaves.pop(leave.name, None)
            if waiting is not None and not waiting.done():
                if leave.refusal is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(BudgetExhausted(*leave.refusal))
        for call in calls:
            self._running[call.number] = asyncio.create_task(self._run(call))
        for number in dropped:
            if (task := self._running.get(number)) is not None:
                task.cancel()

    async def collect(self, seconds: float) -> bytes:
        """The replies that are there; if there are none, what came within so many seconds."""
        if not (self._replies or self._events):
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), seconds)
            except TimeoutError:
                pass  # the driver hears that this replica lives, and how far its engine is
            else:
                await asyncio.sleep(0)  # others that end in this moment come along
        replies, self._replies = self._replies, []
        events = [self._events.popleft() for _ in range(len(self._events))]
        stats = self._engine.stats if self._engine is not None else EngineStats()
        return pickle.dumps(News(replies, stats, events), pickle.HIGHEST_PROTOCOL)

    async def close(self) -> None:
        """Close the engine, so that it frees what it holds outside of this process."""
        for task in self._running.values():
            task.cancel()
        if self._engine is not None:
            self._engine.__exit__(None, None, None)

    async def _run(self, call: Call) -> None:
        engine, ended, shares = self._engine, dict[int, Sample](), dict[int, Share]()
        try:
            if engine is None:
                raise InputError("a replica was sent a call before its engine was opened")
            request = _read(call)
            if isinstance(request, GenerateRequest):
                request = self._with_reports(call.number, request)
                ended, shares = request.ended, request.shares
                answer: Answer = await engine.generate(request)
            else:
                answer = await engine.evaluate(request)
        except asyncio.CancelledError as error:
            # An engine that cancels by itself has failed.
            asked = (task := asyncio.current_task()) is not None and task.cancelling() > 0
            reply = Reply(call.number, fault=Fault.of(error, asked=asked), ended=dict(ended), shares=shares)
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            # Behind every replica of an engine that bills is the same server.
            asked = isinstance(error, EngineError) and getattr(engine, "bills", False)
            asked = asked or isinstance(error, BudgetExhausted)
            reply = Reply(call.number, fault=Fault.of(error, asked=asked), ended=dict(ended), shares=shares)
        else:
            reply = Reply(call.number, answer, shares=shares)
        del self._running[call.number]
        self._replies.append(reply)
        self._news.set()

    def _with_reports(self, number: int, request: GenerateRequest) -> GenerateRequest:
        """The request, of whose samples and attempts the driver is told."""
        loop = asyncio.get_running_loop()

        def tell(event: Ended | Begun) -> None:
            self._events.append(event)
            loop.call_soon_threadsafe(self._news.set)

        def heard(i: int, sample: Sample, tokens: int | None) -> None:
            tell(Ended(number, i, sample, tokens, request.shares.get(i)))

        async def leave(samples: tuple[int, ...]) -> Attempt:
            name = next(self._names)
            self._leaves[name] = waiting = loop.create_future()
            tell(Begun(number, name, samples))
            try:
                await waiting
            except asyncio.CancelledError:
                tell(Begun(number, name, state="free"))
                raise
            return Attempt(lambda state: tell(Begun(number, name, state=state)))

        async def begin(samples: abc.Sequence[int]) -> Attempt:
            return await elsewhere(leave(tuple(samples)), loop)

        return replace(request, heard=heard, begin=begin)


def _read(call: Call) -> Request:
    try:
        request: Request = pickle.loads(call.request)
    except Exception as error:
        raise InputError(
            f"a replica cannot read a request ({type(error).__name__}: {error}); install what it refers to on all nodes"
        ) from error
    return request
