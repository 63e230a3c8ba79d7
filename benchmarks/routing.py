"""The router and the budgets that run, in a simulation of clusters that nobody has here.

A discrete-event simulation of trees that are searched level by level, a few of them far deeper than the others.
Replicas work on some samples at a time, have a prefix cache, and die with the node that they are on; their times are
those of a real engine, measured here. One driver sends all requests, each of which takes it some time, or several
drivers do, each with problems and a router of its own; they share the replicas, or have their own. Beside it, the same
with requests spread by load alone.

PROBLEMS=1000000 in the environment sets the problems of the largest cluster; the smaller ones have fewer in proportion.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
from array import array
from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from time import thread_time
from typing import Any, TypeVar

import numpy as np

from benchmarks.rivals.serve_router import ServeRouter
from benchmarks.row import Row, seconds
from metagen.budget import Account, Amounts, Budget, Grant, Turn
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.ray.guest import FAR
from metagen.generators.ray.link import BEAT
from metagen.generators.routing import Router
from metagen.generators.torch import TorchEngine
from metagen.runs.work.garbage import rarely
from metagen.sequence import Sequence

T = TypeVar("T")
#: Problems of the largest cluster.
PROBLEMS = int(os.environ.get("PROBLEMS", "60000"))
#: Replicas of the clusters, of which the last is the largest.
SIZES = (8, 64, 1024)
#: The engine whose times are taken, on one core.
MODEL = "tiny-2m"
#: Samples that a replica works on at a time, and problems in work for each replica.
SLOTS, WINDOW = 32, 16
#: Tokens of the instructions that all problems share, of a question, and of a step.
SHARED, QUESTION, STEP = 512, 96, 64
#: Nodes of a level that are gone on with, and children of each.
KEPT, CHILDREN = 2, 2
#: Replicas of a node, the seconds that it lives on average, and until another one has taken its place.
NODE, LIFE, REPAIR = 4, 600.0, 60.0
#: Tokens that the cache of a replica holds.
CACHE = 1 << 16
#: Replicas, drivers that share them, and problems in work for each replica.
SHARED_BY = (8, 4, 2), (32, 8, 2), (32, 8, 6)
#: Seconds of a driver's core for a request, by benchmarks/replicas.py: generator, records, messages.
DRIVER = 790e-6
#: One request of so many is timed.
TIMED = 16
#: Replicas where metagen's router is beside that of Ray Serve, turns, and thresholds of its queues, of which the
#: first is its default.
RIVALS, TURNS, THRESHOLDS = 32, 3, (float("inf"), 64.0, 16.0, 4.0)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of an engine: for a token of a prefix, for a step of all samples, and what each sample adds to it."""

    read: float
    step: float
    sample: float

    @classmethod
    def measured(cls) -> Times:
        """Of the torch engine, on one core."""
        with TorchEngine(MODEL, threads=1) as engine:
            numbers = count()

            def ask(letters: int, samples: int, tokens: int) -> float:
                def once() -> None:
                    prefix = Sequence.of(f"{next(numbers):06}" + "7" * letters)
                    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
                    seeds = tuple(range(samples))
                    asyncio.run(engine.generate(GenerateRequest(prefix, seeds, params, tokens)))

                return seconds(once, 3)

            empty = ask(8, 1, 1)
            read = max(0.0, ask(1024, 1, 1) - empty) / 1024
            few, many = (max(0.0, ask(8, n, STEP) - empty) / STEP for n in (4, SLOTS))
        sample = max(0.0, many - few) / (SLOTS - 4)
        return cls(read, max(0.0, many - SLOTS * sample), sample)


@dataclass(slots=True, eq=False)
class Node:
    """A step of a tree: its tokens, and those before it."""

    ids: tuple[int, ...]
    path: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Problem:
    """depth: levels to come. driver: whose it is. out: requests under way. ended: this level's children."""

    depth: int
    account: Account
    driver: int = 0
    out: int = 0
    ended: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Request:
    problem: Problem
    node: Node
    samples: int
    asked: float
    timed: bool
    grant: Grant


@dataclass(slots=True, eq=False)
class Replica:
    """held: what its cache holds, as numbers of steps, the latest used last; each is of STEP tokens and more."""

    name: str
    queue: deque[Request] = field(default_factory=deque)
    running: set[Request] = field(default_factory=set)
    free: int = SLOTS
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def known(self, path: tuple[int, ...]) -> int:
        """Steps from the root that the cache holds."""
        found = 0
        for step in path:
            if step not in self.held:
                break
            found += 1
        return found

    def holds(self, path: tuple[int, ...]) -> None:
        for step in reversed(path):
            self.held[step] = None
            self.held.move_to_end(step)
        while len(self.held) > CACHE // STEP:
            self.held.popitem(last=False)


class Simulation:
    """`problems` on `replicas`. affine: prefixes count. driver: its seconds for a request; 0 is without limits.

    router: another one than metagen's. drivers: how many share the replicas, each with a router of its own. told: the
    routers hear of others' load, with the answers and every `BEAT`, and prefer their share, as in metagen.
    """

    def __init__(
        self,
        times: Times,
        replicas: int,
        problems: int,
        *,
        affine: bool = True,
        driver: float = 0.0,
        seed: int = 0,
        router: Any = None,
        drivers: int = 1,
        told: bool = True,
    ) -> None:
        self.times, self.random, self.affine, self.driver = times, random.Random(seed), affine, driver
        self.routers = [Router() for _ in range(drivers)] if router is None else [router]
        self.account = Account(Budget(generated=1 << 60, calls=1 << 60), None, "run")
        self.replicas: dict[str, Replica] = {}
        self.stranded: list[Request] = []
        self.events: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self.order, self.names, self.steps = count(), count(), count(1)
        self.shared = tuple(range(SHARED))
        self.now, self.busy, self.waiting = 0.0, [0.0] * len(self.routers), problems
        self.sent = self.again = self.read = self.known = self.nodes = 0
        self.timed = {"router": 0.0, "budgets": 0.0}
        self.latencies = array("d")
        self.told = told and drivers > 1
        self.size = min(NODE, replicas)
        for _ in range(0, replicas, self.size):
            self.join()
        if self.told:
            self.tell_all()
        for _ in range(WINDOW * replicas):
            self.begin()

    async def run(self) -> None:
        """Until no problem waits to begin: behind that, there is less and less to do. In a loop, as budgets are."""
        while self.waiting:
            self.now, _, act, what = heappop(self.events)
            act(*what)

    def after(self, seconds: float, act: Any, *what: Any) -> None:
        heappush(self.events, (self.now + seconds, next(self.order), act, what))

    def cost(self, part: str) -> float:
        """Seconds of a core for each request, of `router` or of `budgets`."""
        return self.timed[part] * TIMED / self.sent

    def call(self, part: str, timed: bool, function: Any, *given: Any) -> Any:
        if not timed:
            return function(*given)
        before = thread_time()
        result = function(*given)
        self.timed[part] += thread_time() - before
        return result

    # -- nodes -----------------------------------------------------------------------------------

    def join(self) -> None:
        node = [Replica(f"replica-{next(self.names)}") for _ in range(self.size)]
        for replica in node:
            self.replicas[replica.name] = replica
            for router in self.routers:
                router.join(replica.name)
        self.after(self.random.expovariate(1 / LIFE), self.die, node)
        waiting, self.stranded = self.stranded, []
        for request in waiting:
            self.send(request)

    def die(self, node: list[Replica]) -> None:
        self.nodes += 1
        for replica in node:
            del self.replicas[replica.name]
            for router in self.routers:
                router.leave(replica.name)
        self.after(REPAIR, self.join)
        for replica in node:
            lost = sorted((*replica.running, *replica.queue), key=lambda one: one.asked)
            replica.running.clear()
            self.again += len(lost)
            for request in lost:
                self.send(request)

    def tell_all(self) -> None:
        for replica in self.replicas.values():
            for driver in range(len(self.routers)):
                self.tell(driver, replica)
        self.after(BEAT, self.tell_all)

    def tell(self, driver: int, replica: Replica) -> None:
        """Tell a driver of a replica's load."""
        router = self.routers[driver]
        load = sum(one.samples for one in (*replica.queue, *replica.running)) - router.load(replica.name)
        near = int(replica.name.removeprefix("replica-")) % len(self.routers) == driver
        router.handicap(replica.name, load + (0 if near else FAR))

    # -- requests --------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.waiting:
            self.waiting -= 1
            depth = min(64, int(2 * self.random.paretovariate(1.5)))
            question = next(self.steps)
            ids = self.shared + (question,) * QUESTION
            root = Node(ids, (0, question))
            limit = Budget(generated=2 * depth * KEPT * CHILDREN * STEP)
            driver = self.waiting % len(self.routers)
            self.level(Problem(depth, Account(limit, self.account, "problem"), driver), [root])

    def level(self, problem: Problem, parents: list[Node]) -> None:
        problem.out, problem.ended = len(parents), []
        for parent in parents:
            samples, timed = KEPT * CHILDREN // len(parents), next(self.order) % TIMED == 0
            grant = self.call("budgets", timed, reserved, problem.account, samples)
            self.sent += 1
            self.send(Request(problem, parent, samples, self.now, timed, grant))

    def send(self, request: Request) -> None:
        """A driver sends one request after the other."""
        who = request.problem.driver
        self.busy[who] = max(self.busy[who], self.now) + self.driver
        if self.busy[who] > self.now:
            self.after(self.busy[who] - self.now, self.route, request)
        else:
            self.route(request)

    def route(self, request: Request) -> None:
        if not self.replicas:
            self.stranded.append(request)
            return
        ids = request.node.ids if self.affine else None
        router = self.routers[request.problem.driver]
        name = self.call("router", request.timed, router.choose, ids)
        self.call("router", request.timed, router.began, name, ids, request.samples)
        replica = self.replicas[name]
        replica.queue.append(request)
        self.start(replica)

    def start(self, replica: Replica) -> None:
        while replica.queue and replica.free >= replica.queue[0].samples:
            request = replica.queue.popleft()
            replica.running.add(request)
            replica.free -= request.samples
            tokens, path = len(request.node.ids), request.node.path
            found = replica.known(path)
            known = min(tokens, (found > 0) * SHARED + (found > 1) * QUESTION + max(0, found - 2) * STEP)
            replica.holds(path)
            self.read += tokens
            self.known += known
            longest = STEP * max(self.random.uniform(0.3, 1.7) for _ in range(request.samples))
            times, samples = self.times, SLOTS - replica.free
            taken = (tokens - known) * times.read + longest * (times.step + times.sample * samples)
            self.after(taken, self.answer, replica, request)

    def answer(self, replica: Replica, request: Request) -> None:
        if request not in replica.running:
            return  # the replica had died
        replica.running.discard(request)
        replica.free += request.samples
        problem, parent, timed = request.problem, request.node, request.timed
        router = self.routers[problem.driver]
        self.call("router", timed, router.release, replica.name, request.samples)
        if self.told:
            self.tell(problem.driver, replica)
        for _ in range(request.samples):
            step = next(self.steps)
            child = Node(parent.ids + (step,) * STEP, (*parent.path, step))
            if self.affine:
                self.call("router", timed, router.holds, replica.name, child.ids)
            replica.holds(child.path)
            problem.ended.append(child)
        used = (request.samples * STEP, 0.0, request.samples, 0.0, 0.0)
        self.call("budgets", timed, problem.account.settle, request.grant, used)
        self.latencies.append(self.now - request.asked)
        self.start(replica)
        problem.out -= 1
        if not problem.out:
            problem.depth -= 1
            if problem.depth:
                self.level(problem, self.random.sample(problem.ended, KEPT))
            else:
                self.begin()


def reserved(account: Account, samples: int) -> Grant:
    def worst(items: int, tokens: int | None) -> Amounts:
        return items * float(STEP if tokens is None else min(tokens, STEP)), 0.0, float(items), 0.0, 0.0

    return at_once(Turn(account, ()).reserve(worst, samples))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("a budget that was to fit has to wait")


def simulated(times: Times, replicas: int, problems: int, **options: Any) -> Simulation:
    """A simulation that has run."""

    async def run() -> Simulation:
        simulation = Simulation(times, replicas, problems, **options)
        await simulation.run()
        return simulation

    with rarely():
        return asyncio.run(run())


def rows(largest: int = PROBLEMS) -> Iterator[Row]:
    """largest: problems of the largest cluster."""
    times = Times.measured()
    how = f"torch engine, {MODEL}, one core"
    yield Row("simulation, prefix tokens that a replica reads", 1 / times.read, "1/s", how)
    step = times.step + SLOTS * times.sample
    yield Row(
        "simulation, tokens that a replica writes", SLOTS / step, "1/s", f"{how}, {SLOTS} samples at a time"
    )
    rate = 0.0
    for replicas in SIZES:
        problems = max(largest * replicas // SIZES[-1], 4 * WINDOW * replicas)
        for affine in (True, False):
            many = problems if affine else min(problems, 4 * WINDOW * replicas)
            began = thread_time()
            one = simulated(times, replicas, many, affine=affine)
            yield from figures(one, replicas, affine, many, thread_time() - began)
            rate = len(one.latencies) / one.now / replicas if affine else rate
    yield from beside_serve(times)
    yield Row(
        "replicas that one driver keeps busy", 1 / (DRIVER * rate), "replicas",
        f"a driver takes {DRIVER * 1e6:g} µs of its core for a request, and a replica of {SIZES[-1]} answered "
        f"{rate:.1f} requests a second; simulated",
    )  # fmt: skip
    yield from sharing(times)
    for drivers in (1, 8, 32):
        replicas = SIZES[-1] // drivers
        problems = 4 * WINDOW * replicas
        limited, free = (simulated(times, replicas, problems, driver=each) for each in (DRIVER, 0.0))
        yield Row(
            f"{SIZES[-1]} replicas, drivers: {drivers}, requests over those of drivers without limits",
            (len(limited.latencies) / limited.now) / (len(free.latencies) / free.now),
            "×",
            f"{DRIVER * 1e6:g} µs a request; {replicas} replicas and {problems:,} problems for each driver, one "
            "of them simulated",
        )


def sharing(times: Times) -> Iterator[Row]:
    """Drivers with replicas of their own, and drivers that share them, by turns; beside one driver without limits."""
    global WINDOW
    usual = WINDOW
    for replicas, drivers, WINDOW in SHARED_BY:
        problems, seeds = max(192, 8 * WINDOW * replicas), range(TURNS)
        each = times, replicas // drivers, problems // drivers
        found = {
            "one driver": [[simulated(times, replicas, problems, seed=seed)] for seed in seeds],
            "shared": [[simulated(times, replicas, problems, seed=seed, drivers=drivers)] for seed in seeds],
            "shared, of which no driver is told": [
                [simulated(times, replicas, problems, seed=seed, drivers=drivers, told=False)]
                for seed in seeds
            ],
            "own": [[simulated(*each, seed=1000 * seed + d) for d in range(drivers)] for seed in seeds],
        }
        for who, turns in found.items():
            rates = [sum(len(one.latencies) / one.now for one in turn) for turn in turns]
            cached = [sum(one.known for one in turn) / sum(one.read for one in turn) for turn in turns]
            tail = [np.percentile(np.concatenate([one.latencies for one in turn]), 99) for turn in turns]
            yield Row(
                f"{replicas} replicas, drivers: {drivers}, problems at once: {WINDOW * replicas}, replicas: {who}; "
                "requests a second", float(np.median(rates)), "1/s",
                f"{TURNS} seeds, {min(rates):.0f} to {max(rates):.0f}; {100 * float(np.median(cached)):.1f}% of prefix "
                f"tokens from a cache; latency, 99 of 100: {float(np.median(tail)):.2f} s",
            )  # fmt: skip
    WINDOW = usual


def beside_serve(times: Times, replicas: int = RIVALS) -> Iterator[Row]:
    """Metagen's router and that of Ray Serve, by turns over the same problems; its best threshold was swept for."""
    if any(importlib.util.find_spec(name) is None for name in ("grpc", "grpc_reflection")):
        print("Ray Serve's router is left out: pip install grpcio grpcio-reflection, which it imports")
        return
    problems = 4 * WINDOW * replicas

    def rates(seed: int, router: Any = None) -> tuple[float, float, float]:
        one = simulated(times, replicas, problems, seed=seed, router=router)
        return len(one.latencies) / one.now, one.known / one.read, one.cost("router")

    sweep = {threshold: rates(0, ServeRouter(threshold))[0] for threshold in THRESHOLDS}
    best = max(sweep, key=sweep.__getitem__)
    told = ", ".join(f"{threshold:g}: {rate:.1f}/s" for threshold, rate in sweep.items())
    ours, theirs = zip(
        *((rates(seed), rates(seed, ServeRouter(best))) for seed in range(1, 1 + TURNS)), strict=True
    )
    how = f"{replicas} replicas, {problems:,} problems, {TURNS} seeds; thresholds of its queues: {told}"
    ratios = [a[0] / b[0] for a, b in zip(ours, theirs, strict=True)]
    spread = f"{how}; {min(ratios):.2f} to {max(ratios):.2f}"
    yield Row(
        "requests a second, over Ray Serve's prefix router", float(np.median(ratios)), "×", spread, "≥ 1"
    )
    for who, side in (("metagen's router", ours), ("Ray Serve's prefix router", theirs)):
        cached, cost = (float(np.median([one[i] for one in side])) for i in (1, 2))
        yield Row(f"prefix tokens from a cache, {who}", 100 * cached, "%", how)
        yield Row(f"{who}, a request", cost * 1e6, "µs", how)


def figures(one: Simulation, replicas: int, affine: bool, problems: int, taken: float) -> Iterator[Row]:
    how = (
        f"{problems:,} problems, {one.sent:,} requests, {one.nodes} failures of nodes, {one.again:,} requests sent "
        f"again, simulated in {taken:.0f} s of a core"
    )
    name = f"{replicas} replicas, " + ("by prefix" if affine else "by load alone")
    median, tail, far = np.percentile(np.frombuffer(one.latencies), (50, 99, 99.9))
    yield Row(f"{name}: prefix tokens from a cache", 100 * one.known / one.read, "%", how)
    yield Row(f"{name}: requests a second", len(one.latencies) / one.now, "1/s", how)
    yield Row(f"{name}: latency, median", float(median), "s", how)
    yield Row(f"{name}: latency, 99 of 100", float(tail), "s", how)
    yield Row(f"{name}: latency, 999 of 1,000", float(far), "s", how)
    if affine:
        yield Row(f"{name}: router", one.cost("router") * 1e6, "µs a request", how, "≤ 250")
        yield Row(f"{name}: budgets", one.cost("budgets") * 1e6, "µs a request", how)
