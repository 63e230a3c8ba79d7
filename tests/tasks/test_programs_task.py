"""Program synthesis as a Task: it plugs into verifiers, votes by what programs do, and grades by hidden tests."""

from __future__ import annotations

import asyncio
import json
from collections import abc

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Prompt, Sequence
from metagen.tasks.base import Problem
from metagen.tasks.programs import problems
from metagen.tasks.programs.problems import LEVELS, Split
from metagen.tasks.programs.task import ProgramTask, public_cases
from metagen.verifiers.code.check import Suite
from metagen.verifiers.code.outputs import public_inputs

TASK = ProgramTask("test", per_level=3)
PROBLEMS = list(TASK.problems())
SOURCES = [p.source for row in zip(*(problems.problems(Split.TEST, level, 3) for level in LEVELS), strict=True)
           for p in row]  # fmt: skip


def answered(problem: Problem, text: str) -> Sequence:
    return Sequence(problem.prompt, text, finish="eos")


def test_levels_take_turns() -> None:
    assert [p.level for p in PROBLEMS] == list(LEVELS) * 3
    assert len({p.id for p in PROBLEMS}) == len(PROBLEMS)
    assert list(ProgramTask("test", per_level=3, limit=5).problems()) == PROBLEMS[:5]
    assert list(ProgramTask("validation", per_level=1).problems()) != PROBLEMS[: len(LEVELS)]


def test_the_reference_program_is_right_and_others_are_wrong() -> None:
    for problem, source in zip(PROBLEMS, SOURCES, strict=True):
        texts = [source, f"```python\n{source}```", "def f(x):\n return x\n", "", "no program"]
        assert asyncio.run(TASK.grade(problem, [answered(problem, t) for t in texts])) == [1, 1, 0, 0, 0]


def test_passing_the_examples_is_not_enough() -> None:
    problem = PROBLEMS[0]
    cases = public_cases(problem.prompt)
    lines = "".join(f" if x=={list(c.x)}:\n  return {c.plain[1]}\n" for c in cases)
    crammed = f"def f(x):\n{lines} return 0\n"
    assert asyncio.run(TASK.grade(problem, [answered(problem, crammed)])) == [0]


def test_the_prompt_holds_no_hidden_test() -> None:
    for problem in PROBLEMS:
        hidden = json.loads(problem.reference)["tests"][problems.PUBLIC :]
        assert len(hidden) == problems.HIDDEN
        shown = (problem.prompt.text or "") + json.dumps(dict(problem.prompt.public))
        assert not any(test in shown for test in hidden)
        given = {test.removeprefix("assert ").partition(" == ")[0] for test in hidden}
        assert not given & set(problem.prompt.public["inputs"])


def test_public_data_is_what_verifiers_read() -> None:
    """The verifiers that execute tests, or compare outputs, take it as it is."""
    for problem in PROBLEMS:
        suite = Suite.of(problem.prompt.public)
        assert suite is not None and len(suite.tests) == problems.PUBLIC
        assert suite.entry_points == ("f",)
        assert len(public_inputs(problem.prompt)) == problems.PUBLIC + problems.UNLABELLED
    assert Suite.of(TASK.hidden_tests()[PROBLEMS[0].id]) is not None


def test_programs_that_do_the_same_vote_together() -> None:
    problem = PROBLEMS[0]
    texts = [
        "def f(x):\n return [a+2 for a in x]\n",
        "def f(x):\n x=[a+1 for a in x]\n return [b+1 for b in x]\n",
        "def f(x):\n return [a+3 for a in x]\n",
        "def f(x):\n return x[0]\n if x else 0",
        "def f(x):\n return x[77]\n",
        "nothing",
        " ",
    ]
    answers = asyncio.run(TASK.answer.read([answered(problem, t) for t in texts]))
    assert answers[0].key is not None and answers[0].key == answers[1].key != answers[2].key
    assert [a.verdict for a in answers] == [None] * 3 + ["unparsable"] * 3 + ["missing"]


def test_the_same_program_has_another_key_for_another_problem() -> None:
    text = "def f(x):\n return x\n"
    answers = asyncio.run(TASK.answer.read([answered(p, text) for p in PROBLEMS[:2]]))
    assert answers[0].key != answers[1].key


def test_another_executor_takes_the_place_of_the_interpreter() -> None:
    asked: list[tuple[str, list[str]]] = []

    async def execute(program: str, calls: abc.Sequence[str]) -> list[str | None]:
        asked.append((program, list(calls)))
        return ["same"] * len(calls)

    async def grader(problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        return [0.5] * len(sequences)

    task = ProgramTask("test", per_level=1, execute=execute, grader=grader)
    problem = next(task.problems())
    found = [answered(problem, "import this"), answered(problem, "import that")]
    first, second = asyncio.run(task.answer.read(found))
    assert first.key == second.key is not None
    calls = problems.PUBLIC + problems.UNLABELLED
    assert [(program, len(each)) for program, each in asked] == [
        ("import this", calls),
        ("import that", calls),
    ]
    assert asyncio.run(task.grade(problem, found)) == [0.5, 0.5]
    assert task.answer.fingerprint != TASK.answer.fingerprint


@pytest.mark.parametrize(
    "reference", ["", "[]", "{}", '{"tests": ["assert g(1) == 2"]}', '{"tests": ["f([1])"]}']
)
def test_a_faulty_reference_is_named(reference: str) -> None:
    problem = Problem(PROBLEMS[0].prompt, reference)
    with pytest.raises(DataError, match=r"programs/test/1/0.*expected"):
        asyncio.run(TASK.grade(problem, [answered(problem, "def f(x):\n return x\n")]))


def test_a_problem_keeps_its_examples_as_data() -> None:
    drawn = problems.problems(Split.TEST, 1, 1)[0]
    assert tuple(public_cases(ProgramTask().as_problem(drawn, "p").prompt)) == drawn.public


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "split='tset'; expected one of train, validation, test; did you mean 'test'"),
        ({"levels": [0, 1]}, r"levels=\[0, 1\]; expected a list, each a level from 1 to 4"),
        ({"levels": [1, 1]}, r"levels=\[1, 1\]: 1 is given more than once"),
        ({"levels": []}, r"levels=\[\]: expected at least one"),
        ({"per_level": 0}, "per_level=0; expected an integer ≥ 1"),
        ({"limit": 0}, "limit=0; expected an integer ≥ 1 or None"),
    ],
)
def test_what_is_out_of_range(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProgramTask(**arguments)  # type: ignore[arg-type]  # that is what is tested


def test_a_prompt_without_tests_is_no_problem_of_this_task() -> None:
    assert public_cases(Prompt("p", text="?")) == []
