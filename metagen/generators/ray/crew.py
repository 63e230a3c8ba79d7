"""Replicas that answer requests: routed to, asked, and given up."""

from __future__ import annotations

import asyncio
from collections import abc
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from metagen.attempts import CURRENT, UNTOLD, Attempt, elsewhere
from metagen.errors import EngineError, InputError, PluginError
from metagen.generators.engine import EngineStats, Generated, GenerateRequest, Sample
from metagen.generators.ray.link import BEAT, Link, Lost, reason
from metagen.generators.ray.messages import Answer, Facts, Request
from metagen.generators.routing import Router
from metagen.logs import logger

_LOG = logger(__name__)
#: Losses after which a request may be what kills: no two of these are at one replica.
SUSPECT = 2
#: The error of a request that a closing pool cuts off.
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


class _Rest:
    """Of a request whose replica was lost, the samples that this one has not told of: the others need not be paid for
    again.
    """

    def __init__(self, whole: GenerateRequest) -> None:
        self._whole = whole
        self._numbers = numbers = [i for i in range(len(whole.seeds)) if i not in whole.ended]
        seeds = tuple(whole.seeds[i] for i in numbers)
        own: dict[str, Any] = {
            "ended": {},
            "shares": {},
            "told": [],
            "heard": self._hear,
            "begin": self._begin,
        }
        self.asked = replace(whole, seeds=seeds, **own)

    def _hear(self, number: int, sample: Sample, tokens: int | None) -> None:
        self._whole.note(self._numbers[number], sample, tokens, share=self.asked.shares.get(number))

    async def _begin(self, numbers: abc.Sequence[int]) -> Attempt:
        return await self._whole.attempt([self._numbers[n] for n in numbers])

    def keep(self) -> None:
        """Note in the request what is known of its rest."""
        self._whole.ended.update({self._numbers[n]: sample for n, sample in self.asked.ended.items()})
        self._whole.shares.update({self._numbers[n]: share for n, share in self.asked.shares.items()})
        self._whole.told[:] = self.asked.told or self._whole.told

    def join(self, answer: Generated) -> Generated:
        """The answer to the request, given that to its rest."""
        samples = self._whole.ended | dict(zip(self._numbers, answer.samples, strict=True))
        return replace(answer, samples=tuple(samples[i] for i in range(len(self._whole.seeds))))


class Crew:
    """Lives in one event loop. Requests of a lost replica go to another one, with the same seeds; where engines bill,
    without the samples that had ended.

    facts: of the engine. A subclass says which replicas there are (`visit`), and when none will come (`over`).
    """

    def __init__(self, policy: Policy, router: Router) -> None:
        self._policy, self._router = policy, router
        self.facts: Facts | None = None
        self.waste = Waste()
        self.links: dict[str, Link] = {}
        #: Load of requests that wait for the first replica.
        self._waiting = 0
        self._closed = False
        self._past = EngineStats()
        self._changed = asyncio.Event()
        #: Replicas at which a suspect of ours is, and who of the others looks for a place: the first that asked.
        self._suspected: set[str] = set()
        self._turn = asyncio.Lock()

    @property
    def over(self) -> str | None:
        """Why no replica is left, and none will come."""
        raise NotImplementedError

    async def visit(self, link: Link, leaving: asyncio.Event) -> None:
        """Ask a replica until it is to leave and has nothing left to do. Raises Lost if it is lost before."""
        told, name = Lost("was closed"), link.name
        self.links[name] = link
        self._router.join(name, self._handicap(name))
        self._announce()
        _LOG.info("replica joined", extra={"replica": name, "replicas": len(self.links)})
        try:
            await self._serve(link, leaving)
            _LOG.info("replica left", extra={"replica": name, "replicas": len(self.links) - 1})
        except Exception as error:
            told = Lost(reason(error))
            raise
        finally:
            self._forget(link)
            link.fail(told)
            self._announce()

    def _handicap(self, name: str) -> int:
        """What to count beside our own load at a replica."""
        return 0

    def _forget(self, link: Link) -> None:
        self._router.leave(link.name)
        if self.links.pop(link.name, None) is not None:
            self._past = _sum([self._past, link.stats])

    @property
    def stats(self) -> EngineStats:
        """Of all replicas that there were, as far as they told."""
        total = _sum([self._past, *(link.stats for link in tuple(self.links.values()))])
        total.extra |= {"failed_attempts": self.waste.attempts, "replaced": self.waste.replaced}
        return total

    async def _serve(self, link: Link, leaving: asyncio.Event) -> None:
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

    def _announce(self) -> None:
        """Wake those who wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def ask(self, request: Request, ids: tuple[int, ...] | None, load: int) -> Answer:
        """The answer of some replica. Raises what the engine raises of this request alone.

        EngineError if `attempts` replicas were lost with it, or none is left; BudgetExhausted if the limits leave no
        room for another one.
        """
        lost: list[str] = []
        while len(lost) < self._policy.attempts:
            suspect = len(lost) >= SUSPECT
            attempt, asked, rest = UNTOLD, request, None
            if isinstance(asked, list):
                if lost:
                    await _read_again()
            else:
                # What a search finds, it finds as a whole.
                if lost and self.facts and self.facts.bills and not asked.params.search:
                    rest = _Rest(asked)
                    asked = rest.asked
                # Engines that do not tell of their attempts have one here at each replica.
                if not (self.facts and self.facts.tells_attempts):
                    attempt = await asked.attempt(range(len(asked.seeds)))
            # Nothing is awaited between choosing a replica and asking it, which may be lost meanwhile.
            try:
                link = await (self._apart() if suspect else self._choose(ids, load))
            except BaseException:
                attempt.free()
                raise
            self._router.began(link.name, ids, load)
            try:
                answer = await link.ask(asked)
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
                return rest.join(answer) if rest and isinstance(answer, Generated) else answer
            finally:
                if rest:
                    rest.keep()
                self._router.release(link.name, load)
                if suspect:
                    self._suspected.discard(link.name)
                    link.clear()
                    self._announce()
        raise EngineError(
            f"{len(lost)} replicas were lost while they worked on one request: {last_few(lost)}; find out what in it "
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
            while True:
                for name in sorted(self._free(), key=self._router.load):
                    link = self.links.get(name)
                    if link is None or not await link.admit():
                        continue
                    if name in self._router:
                        self._suspected.add(name)
                        return link
                    link.clear()
                # Those of others who ask leave without a word.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change(), BEAT)

    def _free(self) -> list[str]:
        return [name for name in self._router if name not in self._suspected]

    async def _change(self) -> None:
        """Returns when a replica has come, has gone, or has no suspect any more."""
        if self._closed or self.over is not None:
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
        return EngineError(CLOSED if self._closed else self.over or "all were let go")


async def _read_again() -> None:
    """Leave to repeat a reading that a replica was lost with. BudgetExhausted if the limits leave no room for it."""
    if (attempts := CURRENT.get()) is not None:
        await elsewhere(attempts.reading(), attempts.loop)
        await elsewhere(attempts.again(1.0), attempts.loop)


def last_few(reasons: list[str]) -> str:
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
