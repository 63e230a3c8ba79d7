"""The router that runs, in a simulation of clusters that nobody has here: what it costs, and what caches make of it.

A discrete-event simulation. Problems are searched level by level, a few of them far deeper than the others; replicas
work on some requests at a time, have a prefix cache, and die now and then. Times are those of a model of some 7B
parameters on one accelerator. Beside it, the same with requests spread by load alone.
"""

from __future__ import annotations

import random
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from time import process_time
from typing import Any

from benchmarks.row import Row
from metagen.generators.routing import Router

#: Seconds to read a token of a prefix, and to write one.
READ, WRITE = 1 / 20_000, 1 / 60
#: Requests that a replica works on at a time, and problems in work for each replica.
SLOTS, WINDOW = 32, 16
#: Tokens of the instructions that all problems share, of a question, and of a step.
SHARED, QUESTION, STEP = 512, 96, 64
#: Children of a level, and how many of them are gone on with.
WIDTH, KEPT = 4, 2
#: Seconds that a replica lives on average, and until another one has taken its place.
LIFE, REPAIR = 3600.0, 120.0
#: Blocks that a replica remembers: 64k tokens.
BLOCKS = 4096
#: Calls of the router that are timed.
TIMED = 40_000


@dataclass(slots=True, eq=False)
class Problem:
    """depth: levels to come. out: requests under way. ended: prefixes of this level's children."""

    depth: int
    out: int = 0
    ended: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Request:
    problem: Problem
    ids: tuple[int, ...]
    asked: float
    started: bool = False


@dataclass(slots=True, eq=False)
class Replica:
    name: str
    queue: deque[Request] = field(default_factory=deque)
    running: set[Request] = field(default_factory=set)


class Simulation:
    """`problems` on `replicas`; affine: prefixes count in routing."""

    def __init__(self, replicas: int, problems: int, *, affine: bool = True, seed: int = 0) -> None:
        self.random, self.affine = random.Random(seed), affine
        self.router = Router(blocks=BLOCKS * replicas)
        self.caches = Router(blocks=BLOCKS * replicas)
        self.replicas: dict[str, Replica] = {}
        self.events: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self.order, self.names, self.tokens = count(), count(), count(SHARED)
        self.shared = tuple(range(SHARED))
        self.now, self.waiting = 0.0, problems
        self.sent = self.again = self.read = self.known = self.lost = 0
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.latencies: list[float] = []
        for _ in range(replicas):
            self.join()
        for _ in range(WINDOW * replicas):
            self.begin()

    def run(self) -> None:
        """Until no problem waits to begin: behind that, there is less and less to do."""
        while self.waiting:
            self.now, _, act, what = heappop(self.events)
            act(*what)

    def after(self, seconds: float, act: Any, *what: Any) -> None:
        heappush(self.events, (self.now + seconds, next(self.order), act, what))

    def note(self, call: str, *given: Any) -> None:
        """A call of the router; the first ones are made once more to be timed, without the simulation between them."""
        if len(self.calls) < TIMED:
            self.calls.append((call, given))

    @property
    def cost(self) -> float:
        """Processor seconds of the router for each request."""
        router, before = Router(blocks=self.router.blocks), process_time()
        for call, given in self.calls:
            getattr(router, call)(*given)
        return (process_time() - before) / max(1, sum(call == "choose" for call, _ in self.calls))

    # -- replicas --------------------------------------------------------------------------------

    def join(self) -> None:
        replica = Replica(f"replica-{next(self.names)}")
        self.replicas[replica.name] = replica
        self.router.join(replica.name)
        self.note("join", replica.name)
        self.caches.join(replica.name)
        self.after(self.random.expovariate(1 / LIFE), self.die, replica)

    def die(self, replica: Replica) -> None:
        if len(self.replicas) == 1:
            return
        del self.replicas[replica.name]
        self.router.leave(replica.name)
        self.note("leave", replica.name)
        self.caches.leave(replica.name)
        self.lost += 1
        self.after(REPAIR, self.join)
        for request in sorted((*replica.running, *replica.queue), key=lambda one: one.asked):
            request.started = False
            self.again += 1
            self.send(request)
        replica.running.clear()

    # -- requests --------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.waiting:
            self.waiting -= 1
            depth = min(64, int(4 * self.random.paretovariate(1.5)))
            question = self.shared + (next(self.tokens),) * QUESTION
            self.level(Problem(depth), [question])

    def level(self, problem: Problem, parents: list[tuple[int, ...]]) -> None:
        problem.out, problem.ended = WIDTH, []
        for child in range(WIDTH):
            self.send(Request(problem, parents[child % len(parents)], self.now))

    def send(self, request: Request) -> None:
        ids = request.ids if self.affine else None
        name = self.router.choose(ids)
        self.router.began(name, ids)
        self.note("choose", ids)
        self.note("began", name, ids)
        self.sent += 1
        replica = self.replicas[name]
        replica.queue.append(request)
        self.start(replica)

    def start(self, replica: Replica) -> None:
        while replica.queue and len(replica.running) < SLOTS:
            request = replica.queue.popleft()
            request.started = True
            replica.running.add(request)
            known = self.caches.matched(replica.name, request.ids)
            self.caches.holds(replica.name, request.ids)
            self.read += len(request.ids)
            self.known += known
            seconds = (len(request.ids) - known) * READ + STEP * self.random.uniform(0.3, 1.7) * WRITE
            self.after(seconds, self.answer, replica, request)

    def answer(self, replica: Replica, request: Request) -> None:
        if request not in replica.running:
            return  # the replica had died
        replica.running.discard(request)
        longer = request.ids + (next(self.tokens),) * STEP
        self.router.ended(replica.name)
        self.note("ended", replica.name)
        if self.affine:
            self.router.holds(replica.name, longer)
            self.note("holds", replica.name, longer)
        self.caches.holds(replica.name, longer)
        self.latencies.append(self.now - request.asked)
        self.start(replica)
        self.went_on(request.problem, longer)

    def went_on(self, problem: Problem, longer: tuple[int, ...]) -> None:
        problem.out -= 1
        problem.ended.append(longer)
        if problem.out:
            return
        problem.depth -= 1
        if problem.depth:
            self.level(problem, self.random.sample(problem.ended, KEPT))
        else:
            self.begin()


def rows(each: int = 40) -> Iterator[Row]:
    """each: problems for every replica."""
    for replicas in (8, 64, 1024):
        for affine in (True, False):
            simulation = Simulation(replicas, each * replicas, affine=affine)
            simulation.run()
            how = f"{each * replicas:,} problems, {simulation.sent:,} requests, {simulation.lost} failures, simulated"
            name = f"{replicas} replicas, " + ("by prefix" if affine else "by load alone")
            tail = statistics.quantiles(simulation.latencies, n=100)
            yield Row(
                f"{name}: prefix tokens from a cache", 100 * simulation.known / simulation.read, "%", how
            )
            yield Row(f"{name}: requests a second", len(simulation.latencies) / simulation.now, "1/s", how)
            yield Row(f"{name}: latency, median", tail[49], "s", how)
            yield Row(f"{name}: latency, 99 of 100", tail[98], "s", how)
            if affine:
                yield Row(f"{name}: router", simulation.cost * 1e6, "µs a request", how, "≤ 250")
