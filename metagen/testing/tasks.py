"""The laws of tasks, as tests: subclass `TaskLaws` in a test module and give `make` and `solution`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from abc import abstractmethod
from itertools import islice, pairwise
from math import isnan

import pytest

from metagen.sequence import Sequence
from metagen.tasks.base import Problem, Task, check_problems


class TaskLaws:
    """What every Task promises. most: the first problems, which are looked at."""

    most: int = 50

    @abstractmethod
    def make(self) -> Task:
        """The task under test; equal ones each time."""

    @abstractmethod
    def solution(self, problem: Problem) -> str:
        """A right completion of a problem, as a good model would write it."""

    def _first(self, task: Task) -> list[Problem]:
        return list(islice(check_problems(task.problems(), task.name), self.most))

    def _grade(self, task: Task, problem: Problem, *texts: str) -> list[float]:
        sequences = [Sequence.of(problem.prompt).extend(text, finish="eos") for text in texts]
        return asyncio.run(task.grade(problem, sequences))

    def test_the_problems_are_the_same_each_time(self) -> None:
        task = self.make()
        first = self._first(task)
        assert first == self._first(task), "a second look gave others; draw by a seed of your own"
        assert first == self._first(self.make()), "another task that is made alike gave others"

    def test_ids_name_the_problems(self) -> None:
        assert len(list(check_problems(self.make().problems(), "make()"))) > 0

    def test_what_a_strategy_may_see_is_json_and_not_the_reference(self) -> None:
        problems = self._first(self.make())
        json.dumps([dict(problem.prompt.public) for problem in problems])
        for key in problems[0].prompt.public:
            told = [problem for problem in problems if problem.prompt.public.get(key) == problem.reference]
            # Now and then a number of the problem equals its answer.
            assert len(told) < max(2, len(problems)), f"public[{key!r}] is the reference of every problem"

    def test_a_solution_is_right_and_has_an_answer(self) -> None:
        task = self.make()
        for problem in self._first(task):
            text = self.solution(problem)
            assert self._grade(task, problem, text) == [1.0], f"{problem.id}: {text!r} is not graded as right"
            (answer,) = asyncio.run(
                task.answer.read([Sequence.of(problem.prompt).extend(text, finish="eos")])
            )
            assert answer.key is not None, f"{problem.id}: the answer rule reads nothing in {text!r}"

    def test_an_empty_text_is_wrong(self) -> None:
        task = self.make()
        for problem in self._first(task):
            (grade,) = self._grade(task, problem, "")
            assert grade == 0.0 or isnan(grade)

    def test_the_solution_of_another_problem_is_wrong(self) -> None:
        """Now and then it is right by chance; a grader that calls it right always looks at nothing."""
        task = self.make()
        problems = self._first(task)
        pairs = [(a, b) for a, b in pairwise(problems) if a.reference != b.reference]
        if not pairs:
            pytest.skip("all problems that were looked at have one reference")
        grades = [self._grade(task, a, self.solution(b))[0] for a, b in pairs]
        assert any(grade != 1.0 for grade in grades), "solutions of other problems are graded as right"

    def test_each_text_has_a_grade_of_its_own(self) -> None:
        task = self.make()
        for problem in self._first(task)[:5]:
            right = self.solution(problem)
            assert self._grade(task, problem) == []
            grades = self._grade(task, problem, right, "", right)
            assert grades[0] == grades[2] == 1.0
            assert grades[1] != 1.0

    def test_steps_of_a_solution_hold(self) -> None:
        task = self.make()
        for problem in self._first(task):
            held = task.check_steps(problem, self.solution(problem), finished=True)
            assert held is None or all(held), f"{problem.id}: a step of the solution does not hold: {held}"

    def test_a_limit_leaves_the_first_problems(self) -> None:
        task = self.make()
        if dataclasses.is_dataclass(task) and "limit" in {one.name for one in dataclasses.fields(task)}:
            limited = dataclasses.replace(task, limit=2)
            assert self._first(limited) == self._first(task)[:2]
