"""RayPool: one Engine in front of many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from metagen.cost import FREE, ModelShape, Price
from metagen.errors import EngineError, InputError
from metagen.generators.engine import (
    Engine,
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    SamplingParams,
)
from metagen.generators.primitive import EngineGenerator
from metagen.generators.ray.cluster import connected
from metagen.generators.ray.codec import local_codec
from metagen.generators.ray.fleet import Fleet, Policy
from metagen.generators.ray.link import GRACE
from metagen.generators.ray.messages import Codec, Facts
from metagen.generators.ray.placement import Placement
from metagen.generators.routing import Router
from metagen.logs import logger
from metagen.sequence import Sequence

_LOG = logger(__name__)
T = TypeVar("T")


class RayPool:
    """Engines of one kind on the machines of a Ray cluster, each in an actor of its own, behind one Engine.

    make: makes an engine from `options`, in the actor's process: a class such as TorchEngine, or a function.
    replicas: how many there are at first; `add` and `remove` change it while the pool is open.
    address: of a cluster; by default RAY_ADDRESS, else one is started on this machine (see `connected`).
    codec: what renders prefixes and encodes texts in this process; by default the tokenizer of the engine's directory.
    placement: what a replica needs of the cluster. policy: when it is given up, and what follows.
    router: by default Router().

    A request goes to the replica that holds its longest prefix, unless that one is overloaded. If the replica is lost,
    the request goes to another one with the same seeds: where the engine is exact, the result is the same. Opening
    raises what an engine raises when it is made.
    """

    def __init__(
        self,
        make: Callable[..., Engine],
        options: Mapping[str, Any] | None = None,
        *,
        replicas: int = 1,
        address: str | None = None,
        codec: Codec | None = None,
        placement: Placement | None = None,
        policy: Policy | None = None,
        router: Router | None = None,
    ) -> None:
        if replicas < 1:
            raise InputError(f"replicas={replicas!r}: expected an integer ≥ 1")
        self._make, self._options, self._replicas = make, dict(options or {}), replicas
        self._address, self._codec = address, codec
        self._placement, self._policy = placement or Placement(), policy or Policy()
        self._router = router or Router()
        self._state = "new"
        self._facts: Facts | None = None
        self._fleet: Fleet | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._stack = ExitStack()
        #: What is begun before the pool closes is told that it closes.
        self._gate = threading.Lock()

    def __repr__(self) -> str:
        what = self._facts.name if self._facts else getattr(self._make, "__name__", repr(self._make))
        return f"RayPool({what}, replicas={self._replicas!r})"

    # -- what the engine is ----------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """What the replicas' engines have in common. EngineError before the pool was opened."""
        if self._facts is None:
            raise EngineError(f"{self!r} is not open (it is {self._state}); use it inside `with pool:`")
        return self._facts

    @property
    def fingerprint(self) -> str:
        return self.facts.fingerprint

    @property
    def tokenizer_fingerprint(self) -> str | None:
        return self.facts.tokenizer_fingerprint

    @property
    def shape(self) -> ModelShape | None:
        return self.facts.shape

    @property
    def directory(self) -> Path | None:
        """Where the model lies on this machine too, under the same path."""
        directory = self.facts.directory
        return directory if directory is not None and directory.is_dir() else None

    @property
    def max_context(self) -> int | None:
        return self.facts.max_context

    @property
    def supports(self) -> frozenset[str]:
        return self.facts.supports

    @property
    def bills(self) -> bool:
        """Whether the engine costs money, at `price`; an unknown one is None."""
        return self.facts.bills

    @property
    def price(self) -> Price | None:
        return self.facts.price

    @property
    def stats(self) -> EngineStats:
        """Of all replicas, as they told last. extra: `failed_attempts`, requests that were repeated because a replica
        was lost, whose cost is unknown; `replaced`, replicas.
        """
        return self._fleet.stats if self._fleet is not None else EngineStats()

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this pool under these SamplingParams, at its engines' price."""
        return EngineGenerator(self, SamplingParams(**params), price=self.price if self.bills else FREE)

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        return None if self.facts.tokenizer_fingerprint is None else self._local.render(prefix)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._local.encode(text)

    @property
    def _local(self) -> Codec:
        if self._codec is None:
            self._codec = local_codec(self.facts)
        return self._codec

    # -- replicas --------------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of those that answer requests now."""
        return tuple(self._fleet.links) if self._fleet is not None else ()

    def add(self, count: int = 1) -> None:
        """Start more replicas. Each joins when its engine is open; this returns before."""
        fleet, loop = self._running()
        for _ in range(count):
            loop.call_soon_threadsafe(fleet.add)

    def remove(self, replica: str) -> None:
        """Let a replica go: it finishes what it was asked, and is asked no more.

        InputError if it is not there, or is the only one.
        """
        fleet, loop = self._running()
        names = self.replicas
        if replica not in names:
            raise InputError(f"replica {replica!r} is not there; expected one of {', '.join(names)}")
        if len(names) == 1:
            raise InputError(f"replica {replica!r} is the only one; add another one first, or close the pool")
        loop.call_soon_threadsafe(fleet.remove, replica)

    # -- requests --------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> Generated:
        """Raises what the engine raises of this request, and EngineError if too many replicas are lost."""
        ids = self.render(request.prefix)
        answer = await self._across(lambda fleet: fleet.ask(request, ids, len(request.seeds)))
        assert isinstance(answer, Generated)
        return answer

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """All requests of one call go to one replica. Raises as `generate` does."""
        if not requests:
            return []
        answer = await self._across(lambda fleet: fleet.ask(requests, requests[0].ids, len(requests)))
        assert isinstance(answer, list)
        return answer

    async def _across(self, ask: Callable[[Fleet], Coroutine[Any, Any, T]]) -> T:
        """Run in the pool's loop. A cancelled wait cancels the work, and lasts until that has ended."""
        here = asyncio.get_running_loop()
        ended = here.create_future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(loop.create_task(ask(fleet)))
            tasks[0].add_done_callback(report)

        def report(task: asyncio.Task[T]) -> None:
            try:
                here.call_soon_threadsafe(_settle, ended)
            except RuntimeError:  # the loop is closed: nobody waits any more
                task.cancelled() or task.exception()

        with self._gate:
            fleet, loop = self._running()
            loop.call_soon_threadsafe(start)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            await asyncio.wait({ended}, timeout=2 * GRACE)
            raise
        return tasks[0].result()

    # -- lifecycle -------------------------------------------------------------------------------

    def _running(self) -> tuple[Fleet, asyncio.AbstractEventLoop]:
        if self._state != "open" or self._fleet is None or self._loop is None:
            hint = "use it inside `with pool:`" if self._state == "new" else "make a new pool"
            raise EngineError(f"{self!r} is not open (it is {self._state}); {hint}")
        return self._fleet, self._loop

    def __enter__(self) -> Self:
        if self._state != "new":
            raise EngineError(f"{self!r} was opened before (it is {self._state}); make a new pool")
        self._state = "opening"
        opened: Future[Facts] = Future()
        try:
            ray = self._stack.enter_context(connected(self._address))
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._live(ray, opened)), name=f"pool {self!r}", daemon=True
            )
            self._thread.start()
            self._facts = opened.result()
            if self._facts.tokenizer_fingerprint is not None:
                self._codec = self._local
        except BaseException:
            self.close()
            raise
        self._state = "open"
        facts = {"engine": self._facts.name, "fingerprint": self._facts.fingerprint}
        _LOG.info("pool opened", extra={**facts, "replicas": len(self.replicas), **asdict(self._policy)})
        return self

    async def _live(self, ray: Any, opened: Future[Facts]) -> None:
        """The pool's thread."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._fleet = fleet = Fleet(
            ray, self._make, self._options, self._placement, self._policy, self._router
        )
        closing = asyncio.create_task(self._closing.wait())
        opening = asyncio.create_task(fleet.open(self._replicas))
        try:
            await asyncio.wait({opening, closing}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done() and (error := opening.exception()) is not None:
                opened.set_exception(error)
            elif opening.done():
                opened.set_result(opening.result())
                await closing
        finally:
            opening.cancel()
            await fleet.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all engines, and the cluster if this pool started it. Whoever waits gets an EngineError.

        Closing twice is allowed.
        """
        with self._gate:
            before, self._state = self._state, "closed"
        if before in ("new", "closed"):
            return
        if self._loop is not None and self._closing is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)
        if self._thread is not None:
            self._thread.join()
        self._stack.close()
        _LOG.info("pool closed", extra={"pool": repr(self)})


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
