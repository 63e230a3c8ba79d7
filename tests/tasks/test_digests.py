"""A run is never continued on other data: the digests of the embedded tasks, which runs have recorded, stay equal."""

from __future__ import annotations

import pytest

from metagen.runs.work.survey import data
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Task
from metagen.tasks.countdown.task import CountdownTask
from metagen.tasks.programs.task import ProgramTask


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (ArithmeticTask(levels=range(1, 9)), "7771ecdd4d7e53078563799f7e3b2c05"),
        (ArithmeticTask(), "d6124fd8ec12da231f82e256bb6ee53a"),
        (
            ArithmeticTask("test", levels=[7, 2], per_level=3, form="direct", seed=4, limit=5),
            "2211752743531f6ba6e6540a6d482b44",
        ),
        (ProgramTask(), "4c7b2a765fa98142ae6a1c79851aac39"),
        (ProgramTask("train", levels=(3,), per_level=4, seed=2), "8384dc30ed9ce3da5446799ff656c66e"),
        (CountdownTask(), "2d08730964ae27e1046be3aa34bea431"),
        (
            CountdownTask("test", levels=(4, 1), per_level=2, seed=9, limit=3),
            "c30ed40b031ee6c3df2bd2f87280700b",
        ),
    ],
)
def test_the_data_of_a_task_have_the_name_that_they_had(task: Task, named: str) -> None:
    assert data(task).hex() == named


def test_the_rules_that_journals_name_have_the_names_that_they_had() -> None:
    rules = [
        ArithmeticTask().answer,
        ArithmeticTask(form="direct").answer,
        ProgramTask().answer,
        CountdownTask().answer,
    ]
    assert [rule.fingerprint for rule in rules] == [
        "91c128ac148cf7b9951010481c738b4a",
        "184297bdf9da893c5adfc910043e00d4",
        "3cb497c3e86a3e5f946432ff9c3c74d0",
        "countdown expression Rules(integers=True, largest=999)",
    ]
