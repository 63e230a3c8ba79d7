"""A task with some of its problems."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator

from metagen.sequence import Sequence
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule


class Subset(Task):
    """Asks these problems of a task, and reads and grades as the task does."""

    def __init__(self, task: Task, problems: abc.Sequence[Problem]) -> None:
        self.task, self.name, self.delimiter, self.mark = task, task.name, task.delimiter, task.mark
        self._problems = tuple(problems)

    @property
    def answer(self) -> AnswerRule:
        return self.task.answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        return await self.task.grade(problem, sequences)
