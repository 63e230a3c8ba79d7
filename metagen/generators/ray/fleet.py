"""The replicas of a pool: opened, routed to, given up, replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from metagen.attempts import UNTOLD
from metagen.errors import EngineError, InputError, MetagenError, PluginError
from metagen.generators.engine import Engine, EngineStats, Generated, GenerateRequest
from metagen.generators.ray.cluster import find_dead_part
from metagen.generators.ray.link import Link, Lost, NotOpened, reason
from metagen.generators.ray.messages import Answer, Facts, Fault, Request
from metagen.generators.ray.placement import Placement
from metagen.generators.ray.replica import Replica
from metagen.generators.ray.scaling import Scaler, Scaling
from metagen.generators.routing import Router
from metagen.logs import logger

_LOG = logger(__name__)
#: Seconds that an engine has to close before its process is ended.
CLOSING = 10.0
#: Seconds between two looks at whether a replica can open at all.
LOOK = 2.0
#: Seconds between two looks at whether there are enough replicas, and until another one is tried where one failed.
PULSE, PAUSE = 1.0, 30.0
#: Losses after which a request may be what kills: no two of these are at one replica.
SUSPECT = 2
#: What a request hears that a closing pool cuts off.
CLOSED = "the pool was closed while a request was running; make a new pool"


@dataclass(frozen=True, slots=True)
class Policy:
    """When a replica is given up, and what follows.

    deadline: seconds without any progress. opening: seconds until a replica must have opened its engine. attempts: of
    one request, before its caller hears of it. replacements: new replicas for lost ones, of the whole pool. Raises
    InputError for a number that is too small.
    """

    deadline: float = 600.0
    opening: float = 900.0
    attempts: int = 3
    replacements: int = 8

    def __post_init__(self) -> None:
        for name, least in (("deadline", 0), ("opening", 0), ("attempts", 1), ("replacements", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise InputError(f"{name}={value!r}: expected a number ≥ {least}")


@dataclass(slots=True)
class Waste:
    """What was paid for in vain: requests that had to be repeated, of unknown cost, and replicas that were replaced."""

    attempts: int = 0
    replaced: int = 0


@dataclass(eq=False, slots=True)
class _Slot:
    """A place for one replica after another. settled: there is one, or there will be none.

    extra: the load asked for it; if its first replica is lost before it has opened, no other one follows.
    """

    settled: asyncio.Future[None]
    extra: bool = False
    link: Link | None = None
    task: asyncio.Task[None] | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)


class Fleet:
    """Lives in one event loop. What a lost replica was asked goes to another one, with the same seeds.

    facts: of the engine; those of the first replica, which all others must equal.
    """

    def __init__(
        self,
        ray: Any,
        make: Callable[..., Engine],
        options: Mapping[str, Any],
        placement: Placement,
        policy: Policy,
        router: Router,
        scaling: Scaling | None = None,
    ) -> None:
        self._ray, self._make, self._options = ray, make, options
        self._scaling = scaling
        self._scales: asyncio.Task[None] | None = None
        #: Load of requests that wait for the first replica.
        self._waiting = 0
        #: Replicas that were lost, and that no other one may replace.
        self._given_up = 0
        self._placement, self._policy, self._router = placement, policy, router
        self.facts: Facts | None = None
        self.waste = Waste()
        self.deaths: list[str] = []
        self.links: dict[str, Link] = {}
        self._slots: set[_Slot] = set()
        self._names = count()
        self._refusal: MetagenError | None = None
        self._closed = False
        self._past = EngineStats()
        self._changed = asyncio.Event()
        #: Replicas at which a suspect is, and who of the others looks for a place: the first that asked.
        self._suspected: set[str] = set()
        self._turn = asyncio.Lock()

    # -- replicas --------------------------------------------------------------------------------

    async def open(self, replicas: int) -> Facts:
        """Returns when each of the first replicas has opened or was given up, with the facts of the engine.

        Raises what an engine raised when it was opened, and EngineError if no replica is left.
        """
        slots = [self.add() for _ in range(replicas)]
        await asyncio.wait({slot.settled for slot in slots})
        if self._refusal is not None:
            raise self._refusal
        if not self.links or self.facts is None:
            raise self._nobody()
        if self._scaling is not None:
            self._scales = asyncio.create_task(self._scale(Scaler(self._scaling, replicas)))
        return self.facts

    async def _scale(self, scaler: Scaler) -> None:
        """Add replicas and let them go, by the load."""
        clock, again = asyncio.get_running_loop().time, 0.0
        added: list[_Slot] = []
        while True:
            await asyncio.sleep(PULSE)
            # Where one could not open, the next would not either.
            if any(slot.settled.done() and slot.link is None for slot in added):
                again = clock() + PAUSE
            added = [slot for slot in added if not slot.settled.done()]
            there = tuple(self._router)
            staying = sum(not slot.leaving.is_set() for slot in self._slots)
            load = self._waiting + sum(map(self._router.load, there))
            change = scaler.change(clock(), load, len(there), staying - len(there))
            if change < 0 and added:
                self._take_back(added.pop())
            elif change < 0 and len(there) > 1:
                self.remove(min(there, key=self._router.load))
            elif change > 0 and clock() >= again:
                # Replicas that leave are there until they have finished; none takes the place of one given up.
                room = min(change, scaler.most - len(self._slots)) - self._given_up
                added += [self.add(extra=True) for _ in range(room)]

    def _take_back(self, slot: _Slot) -> None:
        """Let a replica go that has not opened yet."""
        slot.leaving.set()
        assert slot.task is not None
        slot.task.cancel()

    def add(self, *, extra: bool = False) -> _Slot:
        """A place for one more replica, which joins when its engine is open."""
        slot = _Slot(asyncio.get_running_loop().create_future(), extra)
        self._slots.add(slot)
        slot.task = asyncio.create_task(self._fill(slot))
        return slot

    def remove(self, name: str) -> None:
        """Let a replica go: it finishes what it was asked, and is asked no more.

        InputError if it is not there, or is the only one that stays.
        """
        staying = tuple(self._router)
        if name not in staying:
            raise InputError(f"replica {name!r} is not there; expected one of {', '.join(staying)}")
        if len(staying) == 1:
            raise InputError(f"replica {name!r} is the only one; add another one first, or close the pool")
        self._router.leave(name)
        for slot in self._slots:
            if slot.link is not None and slot.link.name == name:
                slot.leaving.set()

    async def close(self) -> None:
        """Close all engines and end all replicas. Who waits for an answer gets an EngineError."""
        self._closed = True
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        tasks += [] if self._scales is None else [self._scales]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def stats(self) -> EngineStats:
        """Of all replicas that there were, as far as they told."""
        total = _sum([self._past, *(link.stats for link in tuple(self.links.values()))])
        total.extra |= {"failed_attempts": self.waste.attempts, "replaced": self.waste.replaced}
        return total

    async def _fill(self, slot: _Slot) -> None:
        """One replica after the other, until one is let go or no other may follow."""
        try:
            while True:
                name = f"replica-{next(self._names)}"
                try:
                    return await self._life(name, slot)
                except Exception as error:  # noqa: BLE001 - told to who asks, and another replica may do better
                    self.deaths.append(f"{name} {reason(error)}")
                    _LOG.warning("replica lost", extra={"replica": name, "reason": reason(error)})
                    never = slot.extra and not slot.settled.done()
                    if never or isinstance(error, NotOpened) or slot.leaving.is_set() or self._closed:
                        return None
                    if self.waste.replaced >= self._policy.replacements:
                        self._given_up += 1
                        return None
                self.waste.replaced += 1
        finally:
            self._slots.discard(slot)
            if not slot.settled.done():
                slot.settled.set_result(None)
            self._announce()

    async def _life(self, name: str, slot: _Slot) -> None:
        """A replica from its start until it is let go. Raises Lost if it is lost before."""
        with self._actor() as actor:
            link = Link(name, actor, deadline=self._policy.deadline)
            polite, told = False, Lost("was closed")
            try:
                await self._open(link)
                slot.link = self.links[name] = link
                self._router.join(name)
                self._announce()
                if not slot.settled.done():
                    slot.settled.set_result(None)
                _LOG.info("replica joined", extra={"replica": name, "replicas": len(self.links)})
                polite = True
                await self._serve(link, slot.leaving)
                _LOG.info("replica left", extra={"replica": name, "replicas": len(self.links) - 1})
            except Exception as error:
                polite, told = False, Lost(reason(error))
                raise
            finally:
                self._forget(link)
                link.fail(told)
                if polite:
                    await link.close(CLOSING)

    @contextmanager
    def _actor(self) -> Iterator[Any]:
        """An actor in its place; whatever happens, it is ended and its place is given back."""
        group = self._placement.reserve()
        try:
            actor = self._ray.remote(Replica).options(**self._placement.options(group)).remote()
            try:
                yield actor
            finally:
                self._ray.kill(actor, no_restart=True)
        finally:
            self._placement.release(group)

    async def _open(self, link: Link) -> None:
        try:
            facts = await self._wait_until_open(link)
        except NotOpened as late:
            free = {name: left for name, left in self._ray.available_resources().items() if ":" not in name}
            raise NotOpened(f"{late}; it needs {self._placement}, and the cluster has {free} left") from None
        if isinstance(facts, Fault):
            if self.facts is None:
                self._refusal = facts.error()
            raise NotOpened(str(facts))
        if self.facts is None:
            self.facts = facts
        elif facts.fingerprint != self.facts.fingerprint:
            raise NotOpened(
                f"has an engine of fingerprint {facts.fingerprint!r}, the others of {self.facts.fingerprint!r}; "
                "give all nodes the same files and the same number format"
            )

    async def _wait_until_open(self, link: Link) -> Facts | Fault:
        """Raises NotOpened as soon as nothing can open any more, which Ray itself does not tell."""
        opening = asyncio.create_task(link.open(self._make, self._options, self._policy.opening))
        try:
            while not opening.done():
                look = asyncio.create_task(asyncio.to_thread(find_dead_part, self._ray))
                await asyncio.wait(
                    {opening, look}, timeout=self._policy.opening, return_when=asyncio.FIRST_COMPLETED
                )
                if (
                    look.done()
                    and look.exception() is None
                    and (gone := look.result())
                    and not opening.done()
                ):
                    raise NotOpened(f"cannot open: {gone}")
                await asyncio.wait({opening}, timeout=LOOK)
            return opening.result()
        finally:
            opening.cancel()

    async def _serve(self, link: Link, leaving: asyncio.Event) -> None:
        """Serve until the replica is to leave and has nothing left to do."""
        serving = asyncio.create_task(link.serve())
        going = asyncio.create_task(self._let_go(link, leaving))
        try:
            await asyncio.wait({serving, going}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            going.cancel()

    async def _let_go(self, link: Link, leaving: asyncio.Event) -> None:
        await leaving.wait()
        await link.drain()

    def _forget(self, link: Link) -> None:
        self._router.leave(link.name)
        if self.links.pop(link.name, None) is not None:
            self._past = _sum([self._past, link.stats])

    def _announce(self) -> None:
        """Wake those who wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    # -- requests --------------------------------------------------------------------------------

    async def ask(self, request: Request, ids: tuple[int, ...] | None, load: int) -> Answer:
        """The answer of some replica. Raises what the engine raises of this request alone.

        EngineError if `attempts` replicas were lost with it, or none is left; BudgetExhausted if the limits leave no
        room for another one.
        """
        lost: list[str] = []
        while len(lost) < self._policy.attempts:
            suspect = len(lost) >= SUSPECT
            attempt = UNTOLD
            # Engines that do not tell of their attempts have one here at each replica.
            if isinstance(request, GenerateRequest) and not (self.facts and self.facts.tells_attempts):
                attempt = await request.attempt(range(len(request.seeds)))
            # Nothing is awaited between choosing a replica and asking it, which may be lost meanwhile.
            try:
                link = await (self._apart() if suspect else self._choose(ids, load))
            except BaseException:
                attempt.free()
                raise
            self._router.began(link.name, ids, load)
            try:
                answer = await link.ask(request)
            except InputError as error:
                if not isinstance(error, PluginError):
                    attempt.free()
                raise
            except Lost as error:
                if self._closed:
                    raise self._nobody() from None
                lost.append(f"{link.name} {error}")
                self.waste.attempts += 1
            else:
                self._remember(link.name, ids, answer)
                return answer
            finally:
                self._router.release(link.name, load)
                if suspect:
                    self._suspected.discard(link.name)
                    self._announce()
        raise EngineError(
            f"{len(lost)} replicas were lost while they worked on one request: {_last_few(lost)}; find out what in it "
            "they cannot bear, such as its length"
        )

    async def _choose(self, ids: tuple[int, ...] | None, load: int) -> Link:
        """The replica for a request; waits while one is being opened."""
        self._waiting += load
        try:
            while not len(self._router):
                await self._change()
        finally:
            self._waiting -= load
        return self.links[self._router.choose(ids)]

    async def _apart(self) -> Link:
        """The least loaded replica that has no suspect; waits for one. The next suspect is the caller's."""
        async with self._turn:
            while not (free := [name for name in self._router if name not in self._suspected]):
                await self._change()
            name = min(free, key=self._router.load)
            self._suspected.add(name)
            return self.links[name]

    async def _change(self) -> None:
        """Returns when a replica has come, has gone, or has no suspect any more."""
        if self._closed or not self._slots:
            raise self._nobody()
        await self._changed.wait()

    def _remember(self, name: str, ids: tuple[int, ...] | None, answer: Answer) -> None:
        """What may be gone on with is in the replica's cache."""
        if ids is None or not isinstance(answer, Generated):
            return
        for sample in answer.samples:
            if sample.finish is None and sample.ids:
                self._router.holds(name, ids + sample.ids)

    def _nobody(self) -> EngineError:
        if self._closed:
            return EngineError(CLOSED)
        what = _last_few(self.deaths) if self.deaths else "all were let go"
        return EngineError(
            f"no replica is left, {self.waste.replaced} of at most {self._policy.replacements} were replaced: {what}; "
            "mend the cause and run again, or allow more replacements; what is recorded stays, and `metagen resume "
            "DIRECTORY` goes on"
        )


def _last_few(reasons: list[str]) -> str:
    """The last few."""
    return "; ".join(([f"{len(reasons) - 5} more"] if len(reasons) > 5 else []) + reasons[-5:])


def _sum(parts: list[EngineStats]) -> EngineStats:
    total = EngineStats()
    for part in parts:
        for one in fields(EngineStats):
            if one.name != "extra":
                setattr(total, one.name, getattr(total, one.name) + getattr(part, one.name))
        for name, value in part.extra.items():
            total.extra[name] = total.extra.get(name, 0.0) + value
    return total
