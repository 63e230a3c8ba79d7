"""One process at work on an experiment, in the directory of its run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from metagen.cache import Cache, CachedJournal
from metagen.errors import InputError, JournalLocked, JournalMismatch
from metagen.journal import Journal, SQLiteJournal
from metagen.logs import logger
from metagen.runs.declare.schema import dump
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import RunDirectory, State, Status, environment
from metagen.runs.work.build import Setup
from metagen.runs.work.calls import Calls
from metagen.runs.work.garbage import rarely
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.work import Work
from metagen.strategies.base import Observe, wait
from metagen.tasks.base import Problem, Task

_LOG = logger(__name__)
#: Seconds that a run waits for its journal: whoever lists runs beside it holds the lock for a moment.
PATIENCE = 0.5


@contextmanager
def sharing(
    experiment: Experiment, directory: RunDirectory, journal: SQLiteJournal, meter: Meter
) -> Iterator[Journal]:
    """The journal, beside the cache of the experiment if it has one; the meter counts what ever came from there."""
    meter.cached = 0
    if experiment.cache is None:
        with suppress(InputError):
            meter.cached = directory.state().cached
        yield journal
        return
    with Cache(experiment.cache, experiment.seed) as cache:
        yield CachedJournal(journal, cache, meter)


def solve(
    setup: Setup,
    directory: RunDirectory,
    meter: Meter | None = None,
    *,
    only: Callable[[int, Problem], bool] | None = None,
    calls: bool = False,
    before: Callable[[SQLiteJournal], None] | None = None,
    observe: Observe | None = None,
) -> State:
    """As `runner.run` without shards. before: called with the journal when it is open, before anything is read."""
    directory.claim()
    with (
        directory.hold("run"),
        open_journal(directory, setup.experiment.seed) as journal,
        ExitStack() as stack,
    ):
        if before is not None:
            before(journal)
        known = journal.count()
        bind(journal, setup.task)
        directory.write("experiment.yaml", dump(setup.experiment))
        makers = Makers.of(setup).after(Makers.of_run(directory))
        facts = {**environment(), **makers.to_dict()}
        directory.write("environment.json", json.dumps(facts, indent=1) + "\n")
        table = Calls(setup, makers) if calls else None
        status: Status = "failed"
        meter = meter or Meter()
        shared = stack.enter_context(sharing(setup.experiment, directory, journal, meter))
        work = Work(setup, directory, shared, meter, only=only, calls=table, observe=observe)
        _LOG.info("run resumed" if known else "run started", extra={"run": str(directory.root), **work.plan})
        # Of this call nobody knows yet how long it takes.
        directory.save(replace(work.state("running"), seconds=0.0))
        directory.discard()
        try:
            with rarely():
                wait(_all(work, shared))
            status = "complete" if work.delivered else "failed"
        except BaseException as error:
            # What was made before an error that ends the run is as good as before an interrupt.
            if work.delivered or isinstance(error, KeyboardInterrupt):
                status = "interrupted"
            raise
        finally:
            directory.save(work.state(status))
            _LOG.info("run finished", extra={"run": str(directory.root), "status": status, **work.facts})
    return work.state(status)


async def _all(work: Work, journal: Journal) -> None:
    try:
        await work.all()
    finally:
        if isinstance(journal, CachedJournal):
            await journal.settle()


def open_journal(directory: RunDirectory, seed: int) -> SQLiteJournal:
    """The journal, for writing; JournalLocked if another process keeps it for longer than a look takes."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return SQLiteJournal(directory.journal, seed=seed)
        except JournalLocked:
            if time.monotonic() >= until:
                raise
            time.sleep(PATIENCE / 10)


def bind(journal: SQLiteJournal, task: Task) -> None:
    """Tie the journal to the problems; JournalMismatch for changed data, and for altogether other problems.

    Problems count that were bound before: of recorded samples, which are read where they are, the journal has no rows.
    """
    bound = journal.bound_digests()
    if bound and not any(problem.id in bound for problem in task.problems()):
        first = next(task.problems()).id
        raise JournalMismatch(
            f"{str(journal.path)!r} holds other problems ({next(iter(bound))!r}, …), and none of this "
            f"experiment's ({first!r}, …); give another run directory by --out"
        )
    journal.bind_all((p.id, p.digest) for p in task.problems())
