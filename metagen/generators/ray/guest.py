"""A pool whose replicas belong to another process: that one opens, replaces and ends them, this one asks them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from metagen.generators.ray.crew import Crew, Policy
from metagen.generators.ray.link import GRACE, Link, reason
from metagen.generators.ray.messages import Facts, Report, Roster
from metagen.generators.routing import Router
from metagen.logs import logger

_LOG = logger(__name__)
#: Load by which a replica near by may be busier than others, before one of these is asked.
FAR = 8


class Guest(Crew):
    """Asks the replicas of a roster, each over a link of its own, with a router of its own.

    The router knows what this guest has sent, and by the replicas' news how much others have. Guests that hear late of
    one another would all go where there was room a moment ago; so each prefers its share.
    """

    def __init__(self, roster: Roster, policy: Policy, router: Router) -> None:
        super().__init__(policy, router)
        self.facts, self._roster = roster.facts, roster
        self._leaving: dict[str, asyncio.Event] = {}
        self._stays: set[asyncio.Task[None]] = set()
        #: Replicas of the roster that were given up, and why.
        self._lost: dict[str, str] = {}
        self._others = Counter[str]()

    @property
    def over(self) -> str | None:
        return self._roster.over

    async def open(self, replicas: int) -> Facts:
        """The facts of the engine. replicas: how many there are is the owner's affair."""
        await self.follow(self._roster)
        return self._roster.facts

    async def follow(self, roster: Roster) -> Report:
        """Ask those that have come, and let go those that are to leave; what there is to tell the owner."""
        self._roster, actors = roster, roster.actors
        self._lost = {name: why for name, why in self._lost.items() if name in actors}
        for name in actors:
            self._router.handicap(name, self._handicap(name))
            if name not in self._leaving and name not in self._lost:
                self._leaving[name] = asyncio.Event()
                stay = asyncio.create_task(self._stay(name, actors[name]))
                self._stays.add(stay)
                stay.add_done_callback(self._stays.discard)
        for name in set(self._leaving) - set(actors):
            self._router.leave(name)
            self._leaving[name].set()
        self._announce()
        loads = {name: self._router.load(name) if name in self._router else 0 for name in self._leaving}
        return Report(loads, self._waiting, self._lost, self.waste.attempts)

    async def close(self) -> None:
        """Leave all replicas. Requests without an answer get an EngineError."""
        self._closed = True
        stays = tuple(self._stays)
        for stay in stays:
            stay.cancel()
        await asyncio.gather(*stays, return_exceptions=True)

    async def _stay(self, name: str, actor: Any) -> None:
        """With a replica, until it leaves or is lost."""
        client = self._roster.client

        def told(others: int) -> None:
            self._others[name] = others
            self._router.handicap(name, self._handicap(name))

        link = Link(name, actor, deadline=self._policy.deadline, client=client, told=told)
        try:
            await self.visit(link, self._leaving[name])
        except Exception as error:  # noqa: BLE001 - told to the owner, who ends it
            self._lost[name] = reason(error)
            _LOG.warning("replica lost", extra={"replica": name, "reason": reason(error)})
        finally:
            del self._leaving[name], self._others[name]
            self._announce()
            if name not in self._lost:
                await asyncio.wait({link.part(client)}, timeout=GRACE)

    def _handicap(self, name: str) -> int:
        return self._others[name] + (0 if name in self._roster.near else FAR)
