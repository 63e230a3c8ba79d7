"""The replicas of a pool: opened, routed to, given up, replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from metagen.errors import InputError, MetagenError
from metagen.generators.engine import Engine, EngineStats
from metagen.generators.ray.cluster import find_dead_part, list_free
from metagen.generators.ray.crew import Crew, Policy, last_few
from metagen.generators.ray.link import Link, NoCluster, NotOpened, reason
from metagen.generators.ray.messages import Facts, Fault, Report, Roster
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


class Fleet(Crew):
    """The replicas of this process: it opens, replaces and ends them. Guests, in other processes, may ask them too.

    facts: those of the first replica, which all others must equal.
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
        super().__init__(policy, router)
        self._ray, self._make, self._options, self._placement = ray, make, options, placement
        self._scaling = scaling
        self._scales: asyncio.Task[None] | None = None
        #: Replicas that were lost, and that no other one may replace.
        self._given_up = 0
        self.deaths: list[str] = []
        self._slots: set[_Slot] = set()
        self._names = count()
        self._refusal: MetagenError | None = None
        #: The newest report of each guest; among its loads is every replica that it may ask.
        self._guests: dict[str, Report] = {}

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
            waiting = self._waiting + sum(report.waiting for report in self._guests.values())
            load = waiting + sum(map(self._load, there))
            change = scaler.change(clock(), load, len(there), staying - len(there))
            if change < 0 and added:
                self._take_back(added.pop())
            elif change < 0 and len(there) > 1:
                self.remove(min(there, key=self._load))
            elif change > 0 and clock() >= again:
                # Replicas that leave are there until they have finished; none takes the place of one given up.
                room = min(change, scaler.most - len(self._slots)) - self._given_up
                added += [self.add(extra=True) for _ in range(room)]

    def _load(self, name: str) -> int:
        """What is outstanding at a replica, of guests too."""
        return self._router.load(name) + sum(r.loads.get(name, 0) for r in self._guests.values())

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
        """Close all engines and end all replicas. Requests without an answer get an EngineError."""
        self._closed = True
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        tasks += [] if self._scales is None else [self._scales]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
                    late = isinstance(error, NotOpened)
                    never = (slot.extra or late) and not slot.settled.done()
                    if never or isinstance(error, NoCluster) or slot.leaving.is_set() or self._closed:
                        return None
                    if self.waste.replaced >= self._policy.replacements:
                        self._given_up += 1
                        return None
                self.waste.replaced += 1
                if late:
                    await asyncio.sleep(PAUSE)
        finally:
            self._slots.discard(slot)
            if not slot.settled.done():
                slot.settled.set_result(None)
            self._announce()

    async def _life(self, name: str, slot: _Slot) -> None:
        """A replica from its start until it is let go. Raises Lost if it is lost before."""
        with self._actor() as actor:
            link = Link(name, actor, deadline=self._policy.deadline)
            polite = False
            try:
                await self._open(link)
                slot.link = link
                if not slot.settled.done():
                    slot.settled.set_result(None)
                polite = True
                await self.visit(link, slot.leaving)
            except Exception:
                polite = False
                raise
            finally:
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
            free = list_free(self._ray)
            raise type(late)(f"{late}; it needs {self._placement}, and the cluster has {free} left") from None
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
        """Raises NoCluster as soon as nothing can open any more, which Ray itself does not tell."""
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
                    raise NoCluster(f"cannot open: {gone}")
                await asyncio.wait({opening}, timeout=LOOK)
            return opening.result()
        finally:
            opening.cancel()

    @property
    def over(self) -> str | None:
        if self._slots:
            return None
        what = last_few(self.deaths) if self.deaths else "all were let go"
        return (
            f"no replica is left, {self.waste.replaced} of at most {self._policy.replacements} were replaced: {what}; "
            "mend the cause and run again, or allow more replacements; what is recorded stays, and `metagen resume "
            "DIRECTORY` goes on"
        )

    # -- guests ----------------------------------------------------------------------------------

    async def share(self, client: str, report: Report | None) -> Roster:
        """Hear a guest, and tell it whom it may ask. report: None where it has told nothing new."""
        for name, why in (report.lost if report else {}).items():
            if (link := self.links.get(name)) is not None:
                link.give_up(why)
        report = report or self._guests.get(client, Report({}))
        assert self.facts is not None
        actors = {name: self.links[name].actor for name in self._router}
        self._guests[client] = replace(report, loads={**dict.fromkeys(actors, 0), **report.loads})
        self._announce()
        place, many = list(self._guests).index(client), len(self._guests)
        near = {name for i, name in enumerate(actors) if i % many == place % len(actors)}
        return Roster(client, self.facts, actors, frozenset(near), self.over)

    async def dismiss(self, client: str) -> None:
        """A guest is gone: what it asked ends."""
        self.waste.attempts += self._guests.pop(client, Report({})).attempts
        for link in self.links.values():
            link.part(client)
        self._announce()

    async def _let_go(self, link: Link, leaving: asyncio.Event) -> None:
        await super()._let_go(link, leaving)
        while any(link.name in report.loads for report in self._guests.values()):
            await self._changed.wait()

    @property
    def stats(self) -> EngineStats:
        """Of all replicas that there were, as far as they told; failed attempts are those of guests too."""
        total = super().stats
        total.extra["failed_attempts"] += sum(report.attempts for report in tuple(self._guests.values()))
        return total
