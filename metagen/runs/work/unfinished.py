"""A run that has not come to its end: its tables, made from what the journal holds so far.

The experiment is run again over its journal, with its engines closed, in a directory that is thrown away.
What is not recorded fails instead of being made, so that parts which are not whole are left out.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from metagen.errors import InputError
from metagen.journal import SQLiteJournal
from metagen.runs.declare import plan, schema, study_schema
from metagen.runs.directory import Role, RunDirectory, State
from metagen.runs.names import nearest
from metagen.runs.work import build, offline
from metagen.runs.work.attempts import Recorded
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.work import Work
from metagen.strategies.base import wait
from metagen.tasks.base import Problem


@contextlib.contextmanager
def tables(directory: RunDirectory, problem: str | None = None) -> Iterator[tuple[RunDirectory, State]]:
    """Where the tables of a run are, and how far it came; for a run without an end, made for as long as this lasts.

    problem: of such a run, only the one of this id. Raises InputError for a run, or a problem, of which no part is
    whole yet, and for a problem that the run does not have.
    """
    state = directory.state()
    if state.status not in ("running", "interrupted") and directory.table("candidates").exists():
        yield directory, state
        return
    with tempfile.TemporaryDirectory(prefix="metagen-") as folder:
        found = RunDirectory(Path(folder))
        work = _replay(directory, found, problem)
        if not work.delivered:
            raise nothing_yet(directory, problem)
        # Failures are those that the run itself noted, not that of parts which are still to come.
        yield (
            found,
            replace(
                work.state(state.status),
                problems=state.problems,
                seconds=state.seconds,
                failures=state.failures,
            ),
        )


def _replay(directory: RunDirectory, into: RunDirectory, problem: str | None) -> Work:
    noted = Makers.of_run(directory).engines
    experiment = offline.with_stand_ins(schema.load(directory.experiment), fingerprints=True, noted=noted)
    with build.open_setup(experiment) as setup, SQLiteJournal(directory.journal, read_only=True) as journal:
        if problem is not None and all(one.id != problem for one in setup.task.problems()):
            raise unknown(directory, problem, [one.id for one in setup.task.problems()])
        own = problems_of(directory)

        def only(place: int, one: Problem) -> bool:
            return (problem is None or one.id == problem) and (own is None or own(place, one))

        work = Work(setup, into, Recorded(journal), Meter(), only=only)
        wait(work.all())
    return work


def problems_of(directory: RunDirectory) -> Callable[[int, Problem], bool] | None:
    """Which problems of its task a run works on, as its study says where it is the run of a role; None for all."""
    if (study := directory.study) is None:
        return None
    role = cast(Role, directory.root.resolve().name)
    return plan.worked_on(study_schema.load(study.study), role)


def nothing_yet(directory: RunDirectory, problem: str | None = None) -> InputError:
    """The error for a run, or a problem of it, of which no part is whole."""
    what = (
        "has not finished any part of its work, so there is nothing to report"
        if problem is None
        else f"has nothing on problem {problem!r} yet: no part of the work on it is finished"
    )
    return InputError(f"the run {str(directory.root)!r} {what}; {directory.resume_hint}")


def unknown(directory: RunDirectory, problem: str, known: list[str]) -> InputError:
    """The error for a problem that a run does not have."""
    return InputError(
        f"the run {str(directory.root)!r} has no problem {problem!r}; {nearest(problem, known, 'problems')}"
    )
