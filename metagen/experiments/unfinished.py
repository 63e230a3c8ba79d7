"""A run that has not come to its end: its tables, made from what the journal holds so far.

The experiment is run again over its journal, with its engines closed, in a directory that is thrown away.
What is not recorded fails instead of being made, so that parts which are not whole are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from metagen.errors import DataError, InputError
from metagen.experiments import build, offline, runner, schema
from metagen.experiments.directory import RunDirectory, State
from metagen.experiments.progress import Meter
from metagen.journal import SQLiteJournal


class _Closed(dict[bytes, Any]):
    """The calls in flight of a journal that nothing may be added to: there are none, and none can begin."""

    def __setitem__(self, key: bytes, value: object) -> NoReturn:
        raise DataError("this part is not recorded yet; resume the run")


@contextlib.contextmanager
def tables(directory: RunDirectory) -> Iterator[tuple[RunDirectory, State]]:
    """Where the tables of a run are, and how far it came; for a run without an end, made for as long as this lasts.

    Raises InputError for a run of which no part is whole yet.
    """
    state = directory.state()
    if state.status not in ("running", "interrupted") and directory.table("candidates").exists():
        yield directory, state
        return
    with tempfile.TemporaryDirectory(prefix="metagen-") as folder:
        found = RunDirectory(Path(folder))
        work = _replay(directory, found)
        if not work.delivered:
            raise InputError(
                f"the run {str(directory.root)!r} has not finished any part of its work, so there is nothing to "
                f"report; {directory.resume_hint}"
            )
        # Failures are those that the run itself noted, not that of parts which are still to come.
        yield found, replace(work.state(state.status), seconds=state.seconds, failures=state.failures)


def _replay(directory: RunDirectory, into: RunDirectory) -> runner._Run:
    experiment = offline.closed(schema.load(directory.experiment), fingerprints=True)
    with build.opened(experiment) as setup, SQLiteJournal(directory.journal, read_only=True) as journal:
        journal.inflight = _Closed()
        work = runner._Run(setup, into, journal, Meter(), list(setup.task.problems()))
        asyncio.run(work.all())
    return work
