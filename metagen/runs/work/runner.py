"""Runs an experiment into a directory, resumable at any moment.

What is recorded is never paid for again, so resuming is running again in the same directory.
"""

from __future__ import annotations

import json
import shutil
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
from metagen.strategies.base import wait
from metagen.tasks.base import Problem, Task

_LOG = logger(__name__)
#: Seconds that a run waits for its journal: whoever lists runs beside it holds the lock for a moment.
PATIENCE = 0.5


def run(
    setup: Setup,
    directory: RunDirectory,
    meter: Meter | None = None,
    *,
    only: Callable[[int, Problem], bool] | None = None,
    calls: bool = False,
) -> State:
    """Run, or go on with, an experiment in `directory`; returns how it ended. Works in scripts and in notebooks.

    A MetagenError of one problem is noted in the state and the others go on (a run of which nothing is delivered
    has failed); a journal that cannot be written ends the run. An interrupt (KeyboardInterrupt) waits some seconds
    for a clean end; a second one does not. A run with another seed or other data than the directory's is refused,
    and changes nothing in it. only: of a place of the task and its problem, whether that is worked on; by default all.
    calls: write the table of calls too (see `calls.py`); a run in shards has none.
    """
    if setup.experiment.executor.shards is not None:
        # It goes on with the parts of this module.
        from metagen.runs.work.shards import run as shards

        return shards.run(setup, directory, meter)
    directory.claim()
    with directory.held("run"), opened(directory, setup.experiment.seed) as journal, ExitStack() as stack:
        if only is None and directory.shards.exists():
            # Of an earlier call, in shards: what its drivers had not told yet.
            from metagen.runs.work.shards.run import gather

            wait(gather(directory, journal, setup.experiment.seed))
            shutil.rmtree(directory.shards)
        known = journal.count()
        bind(journal, setup.task)
        directory.write("experiment.yaml", dump(setup.experiment))
        makers = Makers.of(setup).after(Makers.recorded(directory))
        facts = {**environment(), **makers.to_dict()}
        directory.write("environment.json", json.dumps(facts, indent=1) + "\n")
        table = Calls(setup, makers) if calls else None
        status: Status = "failed"
        meter = meter or Meter()
        shared = stack.enter_context(sharing(setup.experiment, directory, journal, meter))
        work = Work(setup, directory, shared, meter, only=only, calls=table)
        _LOG.info("run resumed" if known else "run started", extra={"run": str(directory.root), **work.plan})
        # Of this call nobody knows yet how long it takes.
        directory.save(replace(work.state("running"), seconds=0.0))
        directory.discard()
        try:
            with rarely():
                wait(_all(work, shared))
            status = "complete" if work.delivered else "failed"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            directory.save(work.state(status))
            _LOG.info("run finished", extra={"run": str(directory.root), "status": status, **work.facts})
    return work.state(status)


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


async def _all(work: Work, journal: Journal) -> None:
    try:
        await work.all()
    finally:
        if isinstance(journal, CachedJournal):
            await journal.settle()


def opened(directory: RunDirectory, seed: int) -> SQLiteJournal:
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
    bound = journal.bound()
    if bound and not any(problem.id in bound for problem in task.problems()):
        first = next(task.problems()).id
        raise JournalMismatch(
            f"{str(journal.path)!r} holds other problems ({next(iter(bound))!r}, …), and none of this "
            f"experiment's ({first!r}, …); give another run directory by --out"
        )
    journal.bind_all((p.id, p.digest) for p in task.problems())
