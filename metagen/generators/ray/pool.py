"""RayPool: one Engine in front of many."""

from __future__ import annotations

from collections import abc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from metagen.border import checked
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
from metagen.generators.loop import Loop
from metagen.generators.primitive import EngineGenerator
from metagen.generators.ray.cluster import connect
from metagen.generators.ray.codec import local_codec
from metagen.generators.ray.crew import Policy
from metagen.generators.ray.fleet import Fleet
from metagen.generators.ray.guest import Guest
from metagen.generators.ray.link import GRACE
from metagen.generators.ray.messages import Codec, Facts, Report, Roster
from metagen.generators.ray.placement import Placement
from metagen.generators.ray.scaling import Scaling
from metagen.generators.routing import Router
from metagen.logs import logger
from metagen.sequence import Sequence

_LOG = logger(__name__)
T = TypeVar("T")


@checked
class RayPool:
    """Engines of one kind on the machines of a Ray cluster, each in an actor of its own, behind one Engine.

    make: makes an engine from `options`, in the actor's process: a class such as TorchEngine, or a function.
    replicas: how many there are at first; `add` and `remove` change it while the pool is open.
    address: of a cluster; by default RAY_ADDRESS, else one is started on this machine (see `connect`).
    codec: the tokenizer in this process (`Codec`); by default that of the engine's directory.
    placement: what a replica needs of the cluster. policy: when it is given up, and what follows.
    router: by default Router(). scaling: how many replicas there may be, by the load; None: as many as at first.
    lent: only other processes ask, which have the tokenizer. roster: of the process whose replicas these are; they
    come and go as that one tells (`follow`).

    A request goes to the replica that holds its longest prefix, unless that one is overloaded. If the replica is lost,
    the request goes to another one with the same seeds: where the engine is exact, the result is the same. Opening
    raises what an engine raises when it is made. Raises InputError for fewer than 1 replica.
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
        scaling: Scaling | None = None,
        lent: bool = False,
        roster: Roster | None = None,
    ) -> None:
        if replicas < 1:
            raise InputError(f"replicas={replicas!r}: expected an integer ≥ 1")
        if scaling is not None and scaling.most < replicas:
            raise InputError(f"most={scaling.most!r}: expected an integer ≥ replicas, which is {replicas}")
        self._scaling, self._lent, self._roster = scaling, lent, roster
        self._make, self._options, self._replicas = make, dict(options or {}), replicas
        self._address, self._codec = address, codec
        self._placement, self._policy = placement or Placement(), policy or Policy()
        self._router = Router() if router is None else router  # one without replicas is empty, and false
        self._facts: Facts | None = None
        self._fleet: Fleet | Guest | None = None
        self._ray: Any = None
        self._stack = ExitStack()
        self._loop = Loop(self._live, shown=repr(self), what="pool", patience=2 * GRACE)

    def __repr__(self) -> str:
        what = self._facts.name if self._facts else getattr(self._make, "__name__", repr(self._make))
        return f"RayPool({what}, replicas={self._replicas!r})"

    # -- what the engine is ----------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """What the replicas' engines have in common. EngineError before the pool was opened."""
        if self._facts is None:
            raise EngineError(f"{self!r} is not open (it is {self._loop.state}); use it inside `with pool:`")
        return self._facts

    @property
    def silence(self) -> float:
        """Seconds until a replica that hangs is given up and another one has opened: then there is news."""
        return self._policy.deadline + self._policy.opening

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

    def check(self, params: SamplingParams) -> None:
        """Raises what the engines would of these parameters, where their class says so (`declares`)."""
        if (declares := getattr(self._make, "declares", None)) is not None:
            ids = self.facts.tokenizer_fingerprint is not None
            tokenizer = getattr(self._local, "tokenizer", None) if ids else None
            declares(tokenizer, **self._options).check(params)

    @property
    def chat(self) -> str | None:
        return self.facts.chat

    @property
    def takes_tools(self) -> bool:
        """Whether prompts may tell of tools."""
        return self.facts.takes_tools

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids that end a completion; empty if the engines do not tell."""
        return self.facts.ends

    @property
    def vocabulary(self) -> int | None:
        """Tokens that the model has logits of; None if the engines do not tell."""
        return self.facts.vocabulary

    @property
    def reads_labels(self) -> bool:
        return self.facts.reads_labels

    @property
    def reads_apart(self) -> bool:
        return self.facts.reads_apart

    #: Requests of a lost replica are asked anew.
    tells_attempts = True

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
    def decode(self) -> Callable[[abc.Sequence[int]], str]:
        """Text of ids, as the engines write it. There is no such attribute where they, or the codec, write none."""
        decode = getattr(self._local, "decode", None) if self.facts.decodes else None
        if decode is None:
            raise AttributeError(f"{self!r} does not write ids as text")
        return cast(Callable[[abc.Sequence[int]], str], decode)

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
        self._change(lambda fleet: [fleet.add() for _ in range(count)])

    def remove(self, replica: str) -> None:
        """Let a replica go: it finishes what it was asked, and is asked no more.

        InputError if it is not there, or is the only one that stays.
        """
        self._change(lambda fleet: fleet.remove(replica))

    def _change(self, how: Callable[[Fleet], object]) -> None:
        """Change the fleet, in the pool's loop. Raises what `how` raises."""

        async def change() -> None:
            if not isinstance(self._fleet, Fleet):
                raise InputError(f"{self!r} has the replicas of another process; change them there")
            how(self._fleet)

        self._loop.wait(change())

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

    async def share(self, client: str, report: Report | None = None) -> Roster:
        """The replicas, for a pool of another process. client: its name. report: what it told last, if it has."""
        return await self._across(lambda fleet: fleet.share(client, report))

    async def dismiss(self, client: str) -> None:
        """A pool of another process is gone: end what it asked."""
        await self._across(lambda fleet: fleet.dismiss(client))

    async def follow(self, roster: Roster) -> Report:
        """Take replicas as another process has them now; what there is to tell it."""
        return await self._across(lambda fleet: fleet.follow(roster))

    async def _across(self, ask: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Run in the pool's loop. A cancelled wait cancels the work, and lasts until that has ended."""

        async def ask_fleet() -> T:
            assert self._fleet is not None
            return await ask(self._fleet)

        return await self._loop.run(ask_fleet())

    # -- lifecycle -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        new = self._loop.state == "new"
        try:
            if new:
                self._ray = self._stack.enter_context(connect(self._address))
            self._facts = self._loop.open()
            if self._facts.tokenizer_fingerprint is not None and not self._lent:
                self._codec = self._local
        except BaseException:
            if new:
                self.close()
            raise
        facts = {"engine": self._facts.name, "fingerprint": self._facts.fingerprint}
        _LOG.info("pool opened", extra={**facts, "replicas": len(self.replicas), **asdict(self._policy)})
        return self

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[Facts]:
        """What lives in the pool's thread."""
        fleet: Fleet | Guest
        if self._roster is not None:
            fleet = Guest(self._roster, self._policy, self._router)
        else:
            what = self._ray, self._make, self._options, self._placement
            fleet = Fleet(*what, self._policy, self._router, self._scaling)
        self._fleet = fleet
        try:
            yield await fleet.open(self._replicas)
        finally:
            await fleet.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all engines, and the cluster if this pool started it. Whoever waits gets an EngineError.

        Closing twice is allowed, and so is closing a pool that another thread is opening.
        """
        try:
            closed = self._loop.close()
        finally:
            self._stack.close()
        if closed:
            _LOG.info("pool closed", extra={"pool": repr(self)})
