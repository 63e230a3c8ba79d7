"""The look over a task before a run: its size, and ids that occur twice."""

from collections.abc import Iterator

import pytest

from metagen.errors import DataError
from metagen.runs.declare.subset import Subset
from metagen.runs.work import survey as module
from metagen.runs.work.asked import Asked
from metagen.runs.work.survey import survey
from metagen.sequence import Prompt
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Problem


def task(*names: str) -> Subset:
    problems = [Problem(Prompt(name, text=f"{i}?"), str(i)) for i, name in enumerate(names)]
    return Subset(ArithmeticTask("validation", limit=1), problems)


def test_a_task_is_counted() -> None:
    found = survey(task("a", "b", "c"))
    assert (found.problems, found.first.id) == (3, "a")


def test_no_problems_and_ids_that_occur_twice_are_errors() -> None:
    with pytest.raises(DataError, match="holds no problems; expected at least one"):
        survey(task())
    with pytest.raises(DataError, match="problem id 'b' occurs twice; ids must be unique"):
        survey(task("a", "b", "c", "b"))


def test_marks_that_are_equal_by_chance_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mark", lambda problem: 7)
    assert survey(task("a", "b", "c")).problems == 3
    with pytest.raises(DataError, match="'c' occurs twice"):
        survey(task("a", "b", "c", "c"))


def test_problems_are_found_while_they_are_worked_on_and_after() -> None:
    passes = 0

    class Counted(Subset):
        def problems(self) -> Iterator[Problem]:
            nonlocal passes
            passes += 1
            return super().problems()

    inside = task("a", "b")
    first, second = inside.problems()
    asked = Asked(Counted(inside, [first, second]))
    with asked.now(second):
        assert asked["b"] is second
    assert passes == 0
    assert asked["b"] == second
    assert passes == 1
    with pytest.raises(DataError, match="has no problem 'c'"):
        asked["c"]
