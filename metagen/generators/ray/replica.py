"""The far end: an actor with one engine in it."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from metagen.border import watch
from metagen.errors import EngineError, InputError
from metagen.generators.engine import Engine, EngineStats, GenerateRequest, Sample
from metagen.generators.ray.messages import Answer, Call, Facts, Fault, News, Reply, Request


class Replica:
    """Holds an engine; takes calls in groups, and gives their replies in groups, as they come.

    One answer costs no round trip of its own: what came since the driver last asked goes back together. Messages
    are pickled here, once for a group, and travel as bytes.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._replies: list[Reply] = []
        self._ended: deque[tuple[int, int, Sample, int | None]] = deque()
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
        """Begin calls, and cancel others by their numbers."""
        calls, dropped = pickle.loads(message)
        for call in calls:
            self._running[call.number] = asyncio.create_task(self._run(call))
        for number in dropped:
            if (task := self._running.get(number)) is not None:
                task.cancel()

    async def collect(self, seconds: float) -> bytes:
        """The replies that are there; if there are none, what came within so many seconds."""
        if not (self._replies or self._ended):
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), seconds)
            except TimeoutError:
                pass  # the driver hears that this replica lives, and how far its engine is
            else:
                await asyncio.sleep(0)  # others that end in this moment come along
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        replies, self._replies = self._replies, []
        stats = self._engine.stats if self._engine is not None else EngineStats()
        return pickle.dumps(News(replies, stats, ended), pickle.HIGHEST_PROTOCOL)

    async def close(self) -> None:
        """Close the engine, so that it frees what it holds outside of this process."""
        for task in self._running.values():
            task.cancel()
        if self._engine is not None:
            self._engine.__exit__(None, None, None)

    async def _run(self, call: Call) -> None:
        engine, ended = self._engine, dict[int, Sample]()
        try:
            if engine is None:
                raise InputError("a replica was sent a call before its engine was opened")
            request = _read(call)
            if isinstance(request, GenerateRequest):
                request = replace(request, heard=self._hearing(call.number))
                ended = request.ended
                answer: Answer = await engine.generate(request)
            else:
                answer = await engine.evaluate(request)
        except asyncio.CancelledError as error:
            # An engine that cancels by itself has failed.
            asked = (task := asyncio.current_task()) is not None and task.cancelling() > 0
            reply = Reply(call.number, fault=Fault.of(error, asked=asked), ended=dict(ended))
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            # Behind every replica of an engine that bills is the same server.
            asked = isinstance(error, EngineError) and getattr(engine, "bills", False)
            reply = Reply(call.number, fault=Fault.of(error, asked=asked), ended=dict(ended))
        else:
            reply = Reply(call.number, answer)
        del self._running[call.number]
        self._replies.append(reply)
        self._news.set()

    def _hearing(self, number: int) -> Callable[[int, Sample, int | None], None]:
        """Tells the driver of samples of a call that have ended before it."""
        loop = asyncio.get_running_loop()

        def heard(i: int, sample: Sample, tokens: int | None) -> None:
            self._ended.append((number, i, sample, tokens))
            loop.call_soon_threadsafe(self._news.set)

        return heard


def _read(call: Call) -> Request:
    try:
        request: Request = pickle.loads(call.request)
    except Exception as error:
        raise InputError(
            f"a replica cannot read a request ({type(error).__name__}: {error}); install what it refers to on all nodes"
        ) from error
    return request
