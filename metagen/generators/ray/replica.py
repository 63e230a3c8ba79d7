"""The far end: an actor with one engine in it."""

from __future__ import annotations

import asyncio
import pickle
from collections import abc, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from metagen.attempts import CURRENT, Attempt, State, elsewhere
from metagen.border import watch
from metagen.errors import BudgetExhausted, EngineError, InputError
from metagen.generators.engine import Engine, EngineStats, GenerateRequest, Sample, Share
from metagen.generators.ray.messages import Answer, Begun, Call, Ended, Facts, Fault, News, Reply, Request


@dataclass(eq=False, slots=True)
class _Client:
    """One of those that ask: what runs for it, how much that is, and what it has not been told."""

    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    load: int = 0
    replies: list[Reply] = field(default_factory=list)
    events: deque[Ended | Begun] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Replica:
    """Holds an engine; takes calls in groups, and gives their replies in groups, as they come.

    One answer costs no round trip of its own: what came since a client last asked goes back together. Messages
    are pickled here, once for a group, and travel as bytes.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._clients: defaultdict[str, _Client] = defaultdict(_Client)
        self._gone: set[str] = set()
        #: Whose request is here that may kill.
        self._suspect: str | None = None
        self._names = count()
        self._leaves: dict[int, asyncio.Future[None]] = {}

    async def open(self, make: Callable[..., Engine], options: Mapping[str, Any]) -> Facts | Fault:
        """Make the engine and open it. What goes wrong is told and not raised, since Ray would wrap it."""
        try:
            self._engine = make(**options).__enter__()
            watch(type(self._engine), Engine)
            return Facts.of(self._engine)
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            return Fault.of(error)

    async def take(self, client: str, message: bytes) -> None:
        """Begin calls, cancel others by their numbers, and let attempts begin."""
        if client in self._gone:
            return
        calls, dropped, leaves = pickle.loads(message)
        ours = self._clients[client]
        for leave in leaves:
            waiting = self._leaves.pop(leave.name, None)
            if waiting is not None and not waiting.done():
                if leave.refusal is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(BudgetExhausted(*leave.refusal))
        for call in calls:
            ours.load += call.load
            ours.running[call.number] = asyncio.create_task(self._run(call, ours))
        for number in dropped:
            if (task := ours.running.get(number)) is not None:
                task.cancel()

    async def collect(self, client: str, seconds: float) -> bytes:
        """The replies that are there for a client; if there are none, what came within so many seconds."""
        ours = self._clients[client]
        if not (ours.replies or ours.events):
            ours.news.clear()
            try:
                await asyncio.wait_for(ours.news.wait(), seconds)
            except TimeoutError:
                pass  # the driver hears that this replica lives, and how far its engine is
            else:
                await asyncio.sleep(0)  # others that end in this moment come along
        replies, ours.replies = ours.replies, []
        events = [ours.events.popleft() for _ in range(len(ours.events))]
        stats = self._engine.stats if self._engine is not None else EngineStats()
        others = sum(one.load for one in self._clients.values()) - ours.load
        return pickle.dumps(News(replies, stats, events, others), pickle.HIGHEST_PROTOCOL)

    async def admit(self, client: str) -> bool:
        """Take in a request that may kill, unless one is here."""
        admitted = self._suspect is None and client not in self._gone
        self._suspect = client if admitted else self._suspect
        return admitted

    async def clear(self, client: str) -> None:
        """The request of a client that may kill is over."""
        if self._suspect == client:
            self._suspect = None

    async def part(self, client: str) -> None:
        """A client is gone: end what it asked."""
        self._gone.add(client)
        await self.clear(client)
        for task in self._clients.pop(client, _Client()).running.values():
            task.cancel()

    async def close(self) -> None:
        """Close the engine, so that it frees what it holds outside of this process."""
        for client in self._clients.values():
            for task in client.running.values():
                task.cancel()
        if self._engine is not None:
            self._engine.__exit__(None, None, None)

    async def _run(self, call: Call, client: _Client) -> None:
        engine, ended, shares, told = self._engine, dict[int, Sample](), dict[int, Share](), list[int]()
        try:
            if engine is None:
                raise InputError("a replica was sent a call before its engine was opened")
            request = _read(call)
            if isinstance(request, GenerateRequest):
                request = self._with_reports(call.number, request, client)
                ended, shares, told = request.ended, request.shares, request.told
                answer: Answer = await engine.generate(request)
            else:
                CURRENT.set(_Reading(partial(self._ask_leave, call.number, client)))
                answer = await engine.evaluate(request)
        except asyncio.CancelledError as error:
            # An engine that cancels by itself has failed.
            asked = (task := asyncio.current_task()) is not None and task.cancelling() > 0
            reply = Reply(call.number, None, Fault.of(error, asked=asked), dict(ended), dict(shares), [*told])
        except Exception as error:  # noqa: BLE001 - told to the driver, whatever it is
            # Behind every replica of an engine that bills is the same server.
            asked = isinstance(error, EngineError) and getattr(engine, "bills", False)
            asked = asked or isinstance(error, BudgetExhausted)
            reply = Reply(call.number, None, Fault.of(error, asked=asked), dict(ended), dict(shares), [*told])
        else:
            reply = Reply(call.number, answer, shares=shares)
        del client.running[call.number]
        client.load -= call.load
        client.replies.append(reply)
        client.news.set()

    def _with_reports(self, number: int, request: GenerateRequest, client: _Client) -> GenerateRequest:
        """The request, of whose samples and attempts its client is told."""
        loop = asyncio.get_running_loop()

        def heard(i: int, sample: Sample, tokens: int | None) -> None:
            client.events.append(Ended(number, i, sample, tokens, request.shares.get(i)))
            loop.call_soon_threadsafe(client.news.set)

        async def begin(samples: abc.Sequence[int]) -> Attempt:
            return await elsewhere(self._ask_leave(number, client, tuple(samples)), loop)

        return replace(request, heard=heard, begin=begin)

    async def _ask_leave(
        self, number: int, client: _Client, samples: tuple[int, ...] = (), share: float | None = None
    ) -> Attempt:
        """An attempt of a call, once its client lets it begin. In this actor's loop."""
        loop = asyncio.get_running_loop()

        def tell(state: State | None) -> None:
            client.events.append(Begun(number, name, samples, state, share))
            loop.call_soon_threadsafe(client.news.set)

        name = next(self._names)
        self._leaves[name] = waiting = loop.create_future()
        tell(None)
        try:
            await waiting
        except asyncio.CancelledError:
            tell("free")
            raise
        return Attempt(tell)


class _Reading:
    """Stands for the attempts of the reading that a client asked for. ask: its leave, with what is read again."""

    def __init__(self, ask: Callable[..., Awaitable[Attempt]]) -> None:
        self.loop, self._ask = asyncio.get_running_loop(), ask

    async def reading(self) -> Attempt:
        return await self._ask()

    async def again(self, share: float) -> None:
        await self._ask(share=share)


def _read(call: Call) -> Request:
    try:
        request: Request = pickle.loads(call.request)
    except Exception as error:
        raise InputError(
            f"a replica cannot read a request ({type(error).__name__}: {error}); install what it refers to on all nodes"
        ) from error
    return request
