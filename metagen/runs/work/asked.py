"""The problems that are being worked on, for graders that are told an id alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from metagen.errors import DataError
from metagen.tasks.base import Problem, Task


class Asked:
    """Finds a problem of a task by its id: at once while it is being worked on, else by going over the task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._now: dict[str, Problem] = {}

    @contextlib.contextmanager
    def now(self, problem: Problem) -> Iterator[None]:
        """Keep the problem at hand for as long as the block lasts."""
        self._now[problem.id] = problem
        try:
            yield
        finally:
            del self._now[problem.id]

    def __getitem__(self, id: str) -> Problem:
        """Raises DataError for an id that the task does not have."""
        if id in self._now:
            return self._now[id]
        found = next((problem for problem in self._task.problems() if problem.id == id), None)
        if found is None:
            raise DataError(f"task {self._task.name!r} has no problem {id!r}; grade what it asks only")
        return found
