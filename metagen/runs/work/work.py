"""The work of a run: every problem, every configuration, over one journal.

*Pools*. Without a budget, all configurations that only sample and aggregate share one pool of their
generator: as many samples as the largest of them wants, scored by every verifier that one of them needs.
The pool lies under the paths that the strategies use, so a strategy that runs later finds it in the journal.
*Direct*. With a budget, and for every other strategy, each configuration runs by itself; what the largest of each
strategy drew is read back from its records, to be looked at. Where shares of a total go by difficulty, the first
samples of all problems are drawn before anything else.

Problems never wait for each other, and only a window of them is in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any

from metagen.border import traceback_of
from metagen.budget import Budget
from metagen.errors import InputError, JournalError, MetagenError
from metagen.events import Listener
from metagen.generators.base import Generator
from metagen.generators.replay import ReplayGenerator
from metagen.journal import Journal, Row
from metagen.logs import logger
from metagen.place import Watch
from metagen.runs.declare import registry
from metagen.runs.directory import Cell, Failure, RunDirectory, State, Status
from metagen.runs.table import costs
from metagen.runs.table.tables import ProblemRows, TableWriter
from metagen.runs.work import attempts
from metagen.runs.work.allocation.look import looks
from metagen.runs.work.allocation.shares import Shares
from metagen.runs.work.attempts import Recorded, Unrecorded
from metagen.runs.work.progress import Meter
from metagen.runs.work.together import together
from metagen.runs.work.window import shuffle
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.base import Observe
from metagen.strategies.candidates import Candidate
from metagen.tasks.base import Problem
from metagen.verifiers.base import UNSCORED

if TYPE_CHECKING:
    from metagen.runs.directory import Cell
    from metagen.runs.work.build import Setup
    from metagen.runs.work.calls import Calls
    from metagen.trace import Trace

_LOG = logger(__name__)


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates that configurations of one generator share: how many, for which n, scored by whom."""

    name: str
    generator: Generator
    sizes: tuple[int, ...]
    verifiers: tuple[str, ...]

    def size(self, problem: Problem) -> int:
        """Samples of a problem: as many as the largest configuration wants, or as a recorded pool has of it."""
        if isinstance(self.generator, ReplayGenerator):
            return min(self.sizes[-1], self.generator.size(problem.id))
        return self.sizes[-1]


class Work:
    """All problems and configurations of an experiment, over one journal, once.

    delivered: samples and direct solutions that are there. failures: parts that ended in an error; a part that is
    `Unrecorded` is neither. only: of a place and its problem, whether that is worked on; all are by default. calls:
    makes the table of calls; None: there is none. observe: opens what is told of each part of each problem.
    """

    def __init__(
        self,
        setup: Setup,
        directory: RunDirectory,
        journal: Journal,
        meter: Meter,
        *,
        only: Callable[[int, Problem], bool] | None = None,
        calls: Calls | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.calls, self.observe = calls, observe
        self.setup, self.directory, self.journal, self.meter = setup, directory, journal, meter
        self.experiment, self.task = setup.experiment, setup.task
        self.shares = Shares(self.experiment, setup.problems, setup.difficulties)
        self.only = only
        self.problems = setup.problems if only is None else sum(1 for _ in self._problems_to_solve())
        self.pools = list(self._pools())
        self.direct = [c for c in setup.configurations if not self._is_pooled(c)]
        largest = {(c.generator, c.strategy): c for c in sorted(self.direct, key=lambda c: c.n or 1)}
        self.looked_at = {c.name for c in largest.values()}
        self.delivered = 0
        self.failures: list[Failure] = []
        self.began = time.time()
        self._shared = False

    # -- what is to be done ------------------------------------------------------------------------

    def _is_pooled(self, configuration: Cell) -> bool:
        generator = self.setup.generators[configuration.generator]
        plain = self.experiment.strategies[configuration.strategy].plain
        verifier = configuration.verifier
        relative = verifier is not None and self.setup.verifiers[verifier].relative
        shared = plain and not relative and generator.independent
        return not self.shares.largest and registry.says(configuration.kind, "poolable") and shared

    def _pools(self) -> Iterator[Pool]:
        for name, generator in self.setup.generators.items():
            shared = [c for c in self.setup.configurations if c.generator == name and self._is_pooled(c)]
            if shared:
                sizes = tuple(sorted({c.n or 1 for c in shared}))
                wanted = {c.verifier for c in shared}
                yield Pool(name, generator, sizes, tuple(v for v in self.setup.verifiers if v in wanted))

    def _lines(self) -> Iterator[Cell]:
        for c in self.setup.configurations:
            oracle = self.setup.strategy(c).oracle
            yield Cell(c.name, c.generator, c.strategy, c.kind, c.n, c.verifier, oracle, self._is_pooled(c))

    def state(self, status: Status) -> State:
        meter = self.meter
        return State(
            self.experiment.name, status, self.problems, self.delivered, meter.fresh, round(meter.elapsed, 3),
            self.experiment.seed, tuple(self._lines()), tuple(self.failures), self.setup.notes, self.setup.journaled,
            meter.cached,
        )  # fmt: skip

    @property
    def plan(self) -> dict[str, Any]:
        """For the log: what the work is."""
        return {"experiment": self.experiment.name, "problems": self.problems}

    @property
    def facts(self) -> dict[str, Any]:
        """For the log: the plan, and how far it has come; `samples` delivered, `fresh` made now."""
        return self.plan | {
            "samples": self.delivered, "fresh": self.meter.fresh, "failures": len(self.failures),
            "seconds": round(self.meter.elapsed, 3),
        }  # fmt: skip

    # -- the work ----------------------------------------------------------------------------------

    async def all(self) -> None:
        """All problems, a bounded number at a time; tables appear when all is done."""
        each = sum(pool.sizes[-1] for pool in self.pools) + len(self.direct)
        self.meter.begin(each * self.problems, self.problems)
        await self._share()
        # In random order, so that what is done at any moment is like what is left: the estimate of time is honest.
        waiting = shuffle(self._problems_to_solve())
        pooled = [v for v in self.setup.verifiers if any(v in pool.verifiers for pool in self.pools)]
        tried = [v for v in self.setup.verifiers if any(v == c.verifier for c in self.direct)]
        with TableWriter(self.directory.root, pooled, tried, calls=self.calls is not None) as tables:
            await together(self._worker(waiting, tables) for _ in range(self._workers))

    def _problems_to_solve(self) -> Iterator[tuple[int, Problem]]:
        """The problems that are worked on, with their places in the task."""
        only = self.only
        return (one for one in enumerate(self.task.problems()) if only is None or only(*one))

    @property
    def _workers(self) -> int:
        return min(self.experiment.executor.concurrency, self.problems)

    async def _share(self) -> None:
        """Decide what each problem may spend where that goes by difficulty."""
        self._shared = True
        sizes = {c.name: c.n or 1 for c in self.setup.configurations}
        try:
            seen = await looks(self.setup, self.shares, self.journal, workers=self._workers)
        except Unrecorded:
            return  # what waits for the decision is `Unrecorded` too
        for name, problems in seen.items():
            self.shares.decide(name, problems, sizes[name])

    async def _worker(self, waiting: Iterator[tuple[int, Problem]], tables: TableWriter) -> None:
        for place, problem in waiting:
            with self.setup.asked.now(problem):
                await self._problem(ProblemRows(tables, place, problem))
            self.meter.problems += 1

    async def _problem(self, out: ProblemRows) -> None:
        out.question()
        pools = (
            self._guard(out.problem, p.name, size, self._makers(p), partial(self._pool, p, out))
            for p in self.pools
            if (size := p.size(out.problem))
        )
        direct = (
            self._guard(out.problem, c.name, 1, self.setup.strategy(c), partial(self._direct, c, out))
            for c in self.direct
        )
        await together((*pools, *direct))

    async def _guard(
        self,
        problem: Problem,
        part: str,
        samples: int,
        who: object,
        work: Callable[[Listener | None], Coroutine[Any, Any, int]],
    ) -> None:
        """Count the work; an error of this problem alone is noted, and the rest goes on."""
        try:
            with self._observed(who, problem, part) as listener:
                fresh = await work(listener)
        except JournalError:
            raise
        except Unrecorded:
            fresh = 0
        except MetagenError as error:
            mendable = isinstance(error, InputError)
            kind = type(error).__name__
            self.failures.append(Failure(problem.id, part, kind, str(error), mendable, traceback_of(error)))
            _LOG.warning(
                "problem failed",
                extra={
                    "problem": problem.id,
                    "part": part,
                    "error": kind,
                    "reason": str(error),
                },
            )
            self.meter.failures += 1
            fresh = 0
        else:
            self.delivered += samples
            _LOG.debug(
                "problem done",
                extra={"problem": problem.id, "part": part, "samples": samples, "reused": samples - fresh},
            )
        self.meter.advance(samples, fresh)

    def _makers(self, pool: Pool) -> tuple[object, ...]:
        """Who draws and scores a pool."""
        return pool.generator, *(self.setup.verifiers[name] for name in pool.verifiers)

    def _observed(self, who: object, problem: Problem, part: str) -> AbstractContextManager[Listener | None]:
        return nullcontext() if self.observe is None else self.observe(who, problem.prompt, part)

    async def _pool(self, pool: Pool, out: ProblemRows, listener: Listener | None) -> int:
        """Sample, read, grade, score; returns how many samples were made now."""
        size = pool.size(out.problem)
        root = self._root(out.problem, pool.name, listener=listener)
        sampling = root.child(costs.POOL).child(costs.SAMPLING)
        sequences = await pool.generator.generate(Sequence.of(out.problem.prompt), n=size, scope=sampling)
        drawn = root.trace
        rows = drawn.rows
        #: Equal samples of a recorded pool are one object: what is said of it holds for all of them.
        distinct = {id(s): s for s in sequences}
        once = list(distinct.values())
        read = zip(once, await self.task.answer.read(once), strict=True)
        candidates = dict(zip(distinct, starmap(Candidate, read), strict=True))
        graded = dict(zip(distinct, await self.task.grade(out.problem, once), strict=True))
        judged, grades = [candidates[id(s)] for s in sequences], [graded[id(s)] for s in sequences]
        usages = costs.by_sample(rows, sampling.path, size)
        parts = [costs.generation(usages, pool.generator)]
        scores: dict[str, list[Score]] = {}
        judging_traces: dict[str, Trace] = {}
        for name in pool.verifiers:
            # Accounted for as if it were the only one: what another of the same engine paid for is no gift.
            verifier, alone = (
                self.setup.verifiers[name],
                self._root(out.problem, pool.name, listener=listener),
            )
            judging = alone.child(costs.POOL).child(costs.SCORING)
            scores[name] = await verifier.score(sequences, scope=judging)
            judging_traces[name] = trace = alone.trace
            parts.append(costs.scoring(name, trace.rows, sequences, verifier))
        recorded = pool.generator if isinstance(pool.generator, ReplayGenerator) else None
        places = recorded.places(Sequence.of(out.problem.prompt), size, sampling) if recorded else None
        out.candidates(pool.name, judged, grades, usages, scores, places)
        out.costs(pool.name, parts, [n for n in pool.sizes if n <= size])
        if self.calls is not None:
            out.calls(self.calls.pool(out.problem, pool.name, sequences, drawn, judging_traces))
        return sum(self._is_fresh(row) for row in rows if row.path == sampling.path)

    async def _direct(self, configuration: Cell, out: ProblemRows, listener: Listener | None) -> int:
        """Run the strategy by itself; returns 1 if any of it was made now."""
        strategy = self.setup.strategy(configuration)
        budget = self.shares.of(configuration.name, out.place)
        root = self._root(out.problem, configuration.name, budget, listener)
        (sequence,) = await strategy.generate(Sequence.of(out.problem.prompt), scope=root)
        (answer,) = await self.task.answer.read([sequence])
        (grade,) = await self.task.grade(out.problem, [sequence])
        trace = root.trace
        rows = trace.rows
        if configuration.name in self.looked_at:
            await self._attempts(configuration, out, rows, root.exhausted)
        out.outcome(configuration.name, Candidate(sequence, answer), grade, trace)
        if self.calls is not None:
            out.calls(self.calls.direct(configuration, root.trace))
        return int(any(self._is_fresh(row) for row in rows))

    async def _attempts(
        self, configuration: Cell, out: ProblemRows, rows: Iterable[Row], exhausted: bool
    ) -> None:
        """The candidates of a configuration that ran by itself, with the scores that it paid for.

        exhausted: a limit may have left out scores.
        """
        found = attempts.read_samples(out.problem, rows)
        if not found:
            return
        sequences, usages = [s for s, _ in found], [u for _, u in found]
        answers = await self.task.answer.read(sequences)
        grades = await self.task.grade(out.problem, sequences)
        scores = {}
        if (name := configuration.verifier) is not None:
            recorded = partial(self._replay_scope, out.problem, configuration.name)
            scores[name] = await attempts.read_scores(
                self.setup.verifiers[name],
                sequences,
                recorded,
                missing=UNSCORED if exhausted else attempts.NOT_ASKED,
            )
        judged = [Candidate(s, a) for s, a in zip(sequences, answers, strict=True)]
        out.attempts(configuration.generator, configuration.name, judged, grades, usages, scores)

    async def replay(
        self, configuration: Cell, place: int, problem: Problem, watch: Watch | None = None
    ) -> tuple[Sequence | None, Trace]:
        """Run a configuration on one problem again, over a journal that only answers (`attempts.Recorded`).

        Returns the sequence and the trace; None and the trace so far where a part is not recorded yet. watch: see
        `Scope.root`.
        """
        if self.shares.difficulties and not self._shared:
            await self._share()
        root = self._root(problem, configuration.name, self.shares.of(configuration.name, place), watch=watch)
        with self.setup.asked.now(problem):
            try:
                strategy = self.setup.strategy(configuration)
                (sequence,) = await strategy.generate(Sequence.of(problem.prompt), scope=root)
            except Unrecorded:
                return None, root.trace
        return sequence, root.trace

    def _replay_scope(self, problem: Problem, label: str) -> Scope:
        """A scope of the problem in which nothing can be made, and nothing is charged."""
        journal = Recorded(self.journal)
        return Scope.root(problem.id, seed=self.experiment.seed, journal=journal, label=label, began_by=label)

    def _root(
        self,
        problem: Problem,
        label: str,
        budget: Budget | None = None,
        listener: Listener | None = None,
        watch: Watch | None = None,
    ) -> Scope:
        """A scope of the problem for one pool or configuration, with a limit of its own."""
        return Scope.root(
            problem.id, seed=self.experiment.seed, journal=self.journal, budget=budget, label=label, listener=listener,
            watch=watch, began_by=label,
        )  # fmt: skip

    def _is_fresh(self, row: Row) -> bool:
        """Whether a row was made now; a refusal costs nothing and is met again by every replay."""
        return row.payload is not None and row.started >= self.began
