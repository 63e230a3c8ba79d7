"""The embedded task as a Task."""

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.sequence import Finish, Sequence
from metagen.tasks.arithmetic import (
    Form,
    Split,
    check,
    extract_answer,
    read_prompt,
    reference_solution,
    split_of,
)
from metagen.tasks.arithmetic.task import ArithmeticTask


def test_levels_take_turns() -> None:
    problems = list(ArithmeticTask(levels=[1, 3, 6], per_level=2).problems())
    assert [p.level for p in problems] == [1, 3, 6, 1, 3, 6]
    assert len({p.id for p in problems}) == 6
    assert list(ArithmeticTask(levels=[1, 3, 6], per_level=2, limit=4).problems()) == problems[:4]


def test_more_per_level_begins_with_fewer() -> None:
    few, many = (list(ArithmeticTask(levels=[2], per_level=n).problems()) for n in (3, 5))
    assert many[:3] == few


def test_problems_come_from_their_split_and_seed() -> None:
    for split in Split:
        problems = ArithmeticTask(split.value, per_level=2).problems()
        assert {split_of(read_prompt(p.prompt.text or "")[0]) for p in problems} == {split}
    assert list(ArithmeticTask(seed=1).problems()) != list(ArithmeticTask().problems())
    assert list(ArithmeticTask(seed=1).problems()) == list(ArithmeticTask("validation", seed=1).problems())


@pytest.mark.parametrize("form", ["steps", "direct"])
def test_the_reference_solution_is_right(form: str) -> None:
    task = ArithmeticTask(form=form, per_level=3)  # type: ignore[arg-type]
    for problem in task.problems():
        parsed, found = read_prompt(problem.prompt.text or "")
        assert found == form
        solution = Sequence(problem.prompt, reference_solution(parsed, found), finish="eos")
        wrong = Sequence(problem.prompt, "A:12345\n", finish="eos")
        assert asyncio.run(task.grade(problem, [solution, wrong])) == [1.0, 0.0]


lines = st.sampled_from(
    ["A:", "A:3", "A: 6/4 ", "3", "", "a=1+2=3", "A:x", " A:5", "A:1.5.", "A:-150%", "\r", "A:0/0"]
)


@given(
    st.lists(lines, max_size=5).map("\n".join),
    st.sampled_from(Form),
    st.sampled_from(["eos", "stop", "length", None]),
)
def test_answers_are_read_as_the_step_checker_reads_them(
    text: str, form: Form, finish: Finish | None
) -> None:
    task = ArithmeticTask(form=form.value, per_level=1, levels=[1])
    (problem,) = task.problems()
    finished = finish in ("eos", "stop")
    sequence = Sequence(problem.prompt, text, finish=finish)
    (answer,) = asyncio.run(task.answer.read([sequence]))
    assert answer.text == extract_answer(text, form, finished=finished)
    verdict = check(read_prompt(problem.prompt.text or "")[0], text, form, finished=finished)
    assert asyncio.run(task.grade(problem, [sequence])) == [float(verdict.correct)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "split='tset'; expected one of train, validation, test; did you mean 'test'"),
        ({"form": "step"}, "form='step'; expected one of steps, direct; did you mean 'steps'"),
        ({"levels": [0, 1]}, r"levels=\[0, 1\]; expected a list, each a level from 1 to 8"),
        ({"levels": [1, 1]}, r"levels=\[1, 1\]: 1 is given more than once"),
        ({"levels": []}, r"levels=\[\]: expected at least one"),
        ({"levels": 5}, "levels=5; expected a list, each a level from 1 to 8"),
        ({"levels": [True]}, r"levels=\[True\]; expected a list, each a level from 1 to 8"),
        ({"per_level": 0}, "per_level=0; expected an integer ≥ 1"),
        ({"per_level": 1.5}, "per_level=1.5; expected an integer ≥ 1"),
        ({"limit": "2"}, "limit='2'; expected an integer ≥ 1 or None"),
        ({"limit": 0}, "limit=0; expected an integer ≥ 1 or None"),
    ],
)
def test_what_is_out_of_range(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ArithmeticTask(**arguments)  # type: ignore[arg-type]


def test_a_task_is_made_without_arguments() -> None:
    assert len(list(islice(ArithmeticTask().problems(), 7))) == 7
