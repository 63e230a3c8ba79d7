"""Runs an experiment into a directory, resumable at any moment.

What is recorded is never paid for again, so resuming is running again in the same directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from metagen.errors import InputError
from metagen.journal import SQLiteJournal
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work.build import Setup
from metagen.runs.work.progress import Meter
from metagen.runs.work.shards import run as shards
from metagen.runs.work.solve import solve
from metagen.strategies.base import Observe, wait
from metagen.tasks.base import Problem


def run(
    setup: Setup,
    directory: RunDirectory,
    meter: Meter | None = None,
    *,
    only: Callable[[int, Problem], bool] | None = None,
    calls: bool = False,
    observe: Observe | None = None,
) -> State:
    """Run, or go on with, an experiment in `directory`; returns how it ended. Works in scripts and in notebooks.

    A MetagenError of one problem is noted in the state and the others go on (a run of which nothing is delivered
    has failed); a journal that cannot be written ends the run. An interrupt (KeyboardInterrupt) waits some seconds
    for a clean end; a second one does not. A run with another seed or other data than the directory's is refused,
    and changes nothing in it. only: of a place of the task and its problem, whether that is worked on; by default all.
    calls: write the table of calls too (see `calls.py`); a run in shards has none. observe: opens what is told of the
    events of each problem and configuration, such as `metagen.integrations.telemetry.tracing`; InputError with shards.
    """
    if setup.experiment.executor.shards is not None:
        if observe is not None:
            raise InputError(
                "executor.shards: drivers in processes of their own do not tell of their calls; leave out shards, or "
                "run without traces"
            )
        return shards.run(setup, directory, meter)

    def gather(journal: SQLiteJournal) -> None:
        # What the drivers of an earlier call, in shards, had not told yet.
        if directory.shards.exists():
            wait(shards.gather(directory, journal, setup.experiment.seed))
            shutil.rmtree(directory.shards)

    return solve(
        setup, directory, meter, only=only, calls=calls, before=None if only else gather, observe=observe
    )
