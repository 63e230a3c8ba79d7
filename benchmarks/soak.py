"""Mixed work in one process for ten minutes: what it leaves behind. `MINUTES=1` in the environment makes it shorter.

Each round solves under budgets, on several event loops at a time, over a server, a torch model, functions and
sandboxed programs, with journals opened and closed; and cancels, misses deadlines and raises errors on the way.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.kills.parts import TOKENS, Digits, table, verifier
from benchmarks.row import Row
from metagen.budget import DIMENSIONS, Account, Budget
from metagen.errors import MetagenError
from metagen.generators.base import Generator
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai import OpenAIEngine
from metagen.generators.torch import TorchEngine
from metagen.journal import Journal, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.base import LOOP, Strategy
from metagen.strategies.parallel import MajorityVote, WeightedVote
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.rebase import Rebase
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.sandbox import Sandbox

MINUTES = float(os.environ.get("MINUTES", "10"))
#: Of the time, the part after which nothing should grow; event loops that work at a time; rounds between two engines.
WARM, LOOPS, FRESH = 0.2, 2, 10
#: Bytes of keys and values of the torch model.
MEMORY = 2 << 20
ROOT = Path(__file__).parents[1]
TASK = Digits(count=4)
PROBLEMS = list(TASK.problems())


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds between two rounds."""

    seconds: float
    tasks: int
    threads: int
    files: int
    sockets: int
    children: int
    objects: int
    memory: float


@dataclass
class Left:
    """Counts of what was done, and of what was left behind within rounds."""

    done: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    inflight: int = 0
    reserved: int = 0


class Work:
    """The parts of a soak, which all rounds share."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder, self.ledger = folder, folder / "ledger"
        url = stack.enter_context(served(self.ledger))
        enter = stack.enter_context
        self.served = enter(OpenAIEngine("billed", base_url=url, api="completions", seed_bits=63)).generator(
            max_tokens=60
        )
        streamed = OpenAIEngine("billed", base_url=url, api="completions", seed_bits=63, stream=True)
        self.streamed = enter(streamed).generator(max_tokens=60)
        # Its cache of prefixes is full before the process is warm.
        torch = TorchEngine("tiny-0.1m", threads=1, max_batch=16, kv_memory_bytes=MEMORY)
        self.torch = enter(torch).generator(max_tokens=40)
        self.renew()
        self.verifier = verifier(ledger=os.devnull, slow=1.0)
        self.left, self.lock = Left(), threading.Lock()
        self.sandbox: Sandbox | None = None
        with suppress(IsolationError):
            self.sandbox = Sandbox()

    def renew(self) -> None:
        """The exact engines, which forget no prefix, and hold nothing that must be closed."""
        slow = EnumerableEngine(TOKENS, table, name="slow", delay=0.01).__enter__()
        self.exact = EnumerableEngine(TOKENS, table, name="soak").__enter__().generator(max_tokens=60)
        self.slow = slow.generator(max_tokens=60)

    def strategies(self, generator: Generator) -> list[Strategy]:
        answer = TASK.answer
        return [
            MajorityVote(generator, n=4, answer=answer),
            WeightedVote(generator, n=4, verifier=self.verifier, answer=answer),
            Refinement(generator, verifier=self.verifier, rounds=1),
        ]

    def round(self, number: int, lane: int) -> None:
        """On an event loop, and a journal, of its own."""
        path = self.folder / f"{number % 4}-{lane}.sqlite"
        for file in self.folder.glob(path.name + "*"):
            file.unlink()
        for _ in range(2):  # the second time from the journal
            with SQLiteJournal(path, seed=0) as journal:
                asyncio.run(self.mixed(journal, number, lane))
                with self.lock:
                    self.left.inflight += len(journal.inflight)
        with SQLiteJournal(path, read_only=True) as journal:
            journal.counts()

    async def mixed(self, journal: Journal, number: int, lane: int) -> None:
        draw = random.Random(f"{number} {lane}")
        work = [self.solve(strategy, journal, draw, "solved") for strategy in self.strategies(self.served)]
        work += [self.solve(strategy, journal, draw, "solved") for strategy in self.strategies(self.streamed)]
        for search in (
            Rebase(self.exact, n=4, verifier=self.verifier, answer=TASK.answer),
            MCTS(self.exact, n=2, width=2, verifier=self.verifier, answer=TASK.answer),
        ):
            work.append(self.solve(search, journal, draw, "solved"))
            work.append(
                self.solve(search, journal, draw, "limited", Budget(generated=draw.randrange(20, 200)))
            )
        work += [
            self.solve(MajorityVote(self.torch, n=4, answer=TASK.answer), journal, draw, "solved"),
            self.solve(
                MajorityVote(self.slow, n=4, answer=TASK.answer), journal, draw, "late", Budget(seconds=0.05)
            ),
            self.cancelled(MajorityVote(self.slow, n=4, answer=TASK.answer), journal, draw),
            self.cancelled(MajorityVote(self.served, n=8, answer=TASK.answer), journal, draw),
            self.cancelled(MajorityVote(self.torch, n=8, answer=TASK.answer), journal, draw),
            self.solve(
                MajorityVote(FunctionGenerator(fail), n=3, answer=TASK.answer), journal, draw, "solved"
            ),
            self.shared(journal, draw),
        ]
        if self.sandbox is not None and lane == 0:
            work.append(self.program(draw))
        await asyncio.gather(*work)
        await asyncio.sleep(0)
        with self.lock:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                self.left.tasks[getattr(task.get_coro(), "__qualname__", repr(task))] += 1

    async def solve(
        self,
        strategy: Strategy,
        journal: Journal,
        draw: random.Random,
        what: str,
        budget: Budget | None = None,
        account: Account | None = None,
    ) -> None:
        problem = draw.choice(PROBLEMS).prompt
        name = f"{problem.problem_id}-{draw.random()}"
        scope = Scope.root(name, seed=0, journal=journal, budget=budget, account=account)
        try:
            await strategy.generate(Sequence(problem), scope=scope)
        except MetagenError:
            what = "raised"
        with self.lock:
            self.left.done[what] += 1

    async def cancelled(
        self, strategy: Strategy, journal: Journal, draw: random.Random, account: Account | None = None
    ) -> None:
        task = asyncio.create_task(self.solve(strategy, journal, draw, "solved", account=account))
        await asyncio.sleep(draw.uniform(0, 0.08))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
            return
        with self.lock:
            self.left.done["cancelled"] += 1

    async def shared(self, journal: Journal, draw: random.Random) -> None:
        """Solves under one limit, some of which are cancelled: none keeps what it had reserved."""
        limit = Budget(calls=30, generated=700)
        account = Account(limit, None, "the soak")
        vote = MajorityVote(self.slow, n=4, answer=TASK.answer)
        work: list[Awaitable[None]] = []
        for _ in range(6):
            if draw.random() < 0.3:
                work.append(self.cancelled(vote, journal, draw, account))
            else:
                work.append(self.solve(vote, journal, draw, "limited", account=account))
        await asyncio.gather(*work)
        for name, left, spent in zip(DIMENSIONS, account.left(), account.spent, strict=True):
            amount = getattr(limit, name)
            with self.lock:
                self.left.reserved += amount is not None and left + spent != amount

    async def program(self, draw: random.Random) -> None:
        assert self.sandbox is not None
        await self.sandbox.evaluate("def f(x): return x * x", [f"f({draw.randrange(9)})"])
        with self.lock:
            self.left.done["executed"] += 1

    def together(self, number: int) -> None:
        """Several loops at a time, the background one among them."""
        with ThreadPoolExecutor(LOOPS) as threads:
            lanes = [threads.submit(self.round, number, lane) for lane in range(LOOPS)]
            for strategy in self.strategies(self.exact):
                strategy.solve(PROBLEMS[0].prompt, seed=number, budget=Budget(generated=400))
                self.left.done["solved"] += 1
            for lane in lanes:
                lane.result()
        if number % FRESH == 0:
            self.renew()
            with TorchEngine("tiny-0.1m", threads=1) as engine:
                MajorityVote(engine.generator(max_tokens=8), n=2, answer=TASK.answer).solve("1? 0\n")
        if self.ledger.exists():
            self.ledger.unlink()


def fail(prefix: Sequence, seed: int, index: int) -> str:
    raise ValueError("as functions do")


@contextmanager
def served(ledger: Path) -> Iterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kills.serving", str(ledger)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()


def one_heap() -> None:
    """Let all threads share one heap: those that glibc keeps for each grow in turn, which is no leak."""
    arena_max = -8
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(arena_max, 1)


def held(began: float) -> Held:
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    own = Path("/proc/self")
    files = []
    for file in (own / "fd").iterdir():
        with suppress(OSError):
            files.append(str(file.readlink()))
    children = (path.read_text() for path in own.glob("task/*/children"))
    background = [t for t in threading.enumerate() if t.name == LOOP]
    resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Held(
        time.monotonic() - began,
        background_tasks() if background else 0,
        len(list((own / "task").iterdir())),
        len(files),
        sum(file.startswith("socket:") for file in files),
        sum(len(text.split()) for text in children),
        len(gc.get_objects()),
        resident,
    )


def background_tasks() -> int:
    """Of the loop that serves `solve`."""
    from metagen.strategies.base import wait

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return wait(count())


def soak(minutes: float) -> tuple[list[Held], Left]:
    """Rounds for so many minutes; what was held after each, from when it was warm."""
    one_heap()
    began, seen, number = time.monotonic(), [], 0
    told = began
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Work(stack, Path(folder))
        while (passed := time.monotonic() - began) < 60 * minutes or len(seen) < 10:
            work.together(number)
            number += 1
            if passed >= WARM * 60 * minutes:
                seen.append(held(began))
            if os.environ.get("TRACE") and len(seen) == 1 and not tracemalloc.is_tracing():
                tracemalloc.start(12)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"  {passed / 60:.1f} of {minutes:g} minutes: {held(began)}, {work.left}", flush=True)
    if tracemalloc.is_tracing():
        for line in tracemalloc.take_snapshot().statistics("traceback")[:8]:
            print(line, *line.traceback.format(), sep="\n  ")
    return seen, work.left


def growth(seen: list[Held], name: str) -> float:
    """The least of the last third of the rounds over the most of the first: what comes and goes is no leak."""
    third = len(seen) // 3
    return min(getattr(h, name) for h in seen[-third:]) - max(getattr(h, name) for h in seen[:third])


def trend(seen: list[Held], name: str) -> float:
    """A minute, by least squares."""
    slope, _ = np.polyfit([h.seconds / 60 for h in seen], [getattr(h, name) for h in seen], 1)
    return float(slope)


def rows() -> Iterator[Row]:
    seen, left = soak(MINUTES)
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(left.done.items()))
    how = f"{MINUTES:g} minutes in one process: {done}; {LOOPS + 1} event loops at a time, a journal for each"
    yield Row("soak: pieces of work", left.done.total(), "", how)
    for name in ("tasks", "threads", "files", "sockets", "children"):
        what = {"files": "file descriptors", "children": "child processes"}.get(name, name)
        note = f"least of the last third of the rounds over the most of the first, {getattr(seen[-1], name)} at the end"
        yield Row(f"soak: {what} leaked", max(0, growth(seen, name)), "", note, "≤ 0")
    rest = ", ".join(f"{count} {name}" for name, count in left.tasks.items())
    yield Row("soak: tasks left in loops that end", left.tasks.total(), "", rest or how, "≤ 0")
    yield Row("soak: entries of journals left in flight", left.inflight, "", how, "≤ 0")
    yield Row("soak: reservations not returned", left.reserved, "", how, "≤ 0")
    last = f"by least squares over {len(seen)} rounds, the first {WARM:.0%} of the time left out"
    per = MINUTES / left.done.total()
    yield Row("soak: objects more for each piece of work", trend(seen, "objects") * per, "", last, "≤ 0.5")
    ends = f"{last}; {seen[0].memory:.0f} MiB at first, {seen[-1].memory:.0f} MiB at the end"
    yield Row("soak: memory a minute", trend(seen, "memory"), "MiB", ends, "≤ 1")
