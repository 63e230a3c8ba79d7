"""One look over a task before it is run: how many problems it holds, and that their ids are unique."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass

import numpy as np

from metagen.errors import DataError
from metagen.sequence import digest
from metagen.tasks.base import Problem, Task


@dataclass(frozen=True, slots=True)
class Survey:
    """problems: how many. first: the one that comes first."""

    problems: int
    first: Problem


def survey(task: Task) -> Survey:
    """Raises DataError for no problems at all, and for an id that occurs twice. Holds 8 bytes of each problem."""
    first, marks = None, array("Q")
    for problem in task.problems():
        first = first or problem
        marks.append(_mark(problem))
    if first is None:
        raise DataError(f"task {task.name!r} holds no problems; expected at least one")
    ordered = np.sort(np.frombuffer(marks, dtype=np.uint64))
    twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if twice:
        # Two ids may share a mark by chance: once in tens of millions of tasks of a million problems.
        ids = Counter(problem.id for problem in task.problems() if _mark(problem) in twice)
        name, count = ids.most_common(1)[0]
        if count > 1:
            raise DataError(f"task {task.name!r}: problem id {name!r} occurs twice; ids must be unique")
    return Survey(len(marks), first)


def data(task: Task) -> bytes:
    """16 bytes that name the problems of a task, with their data."""
    found = sorted((problem.id, problem.digest) for problem in task.problems())
    return digest(*(part for one in found for part in one))


def _mark(problem: Problem) -> int:
    return int.from_bytes(digest(problem.id)[:8], "little")
