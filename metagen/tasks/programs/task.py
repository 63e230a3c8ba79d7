"""Program synthesis as a Task: prompts with public tests, hidden tests as reference, outputs as answers."""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Final

from metagen.errors import DataError
from metagen.parts import name_of, part
from metagen.sequence import Prompt, Sequence, digest
from metagen.tasks.base import Problem
from metagen.tasks.levelled import FourLevels, LevelledTask
from metagen.tasks.programs import problems
from metagen.tasks.programs.cases import Case, case
from metagen.tasks.programs.grammar import ENTRY_POINT
from metagen.tasks.programs.interpreter import Output, outputs
from metagen.tasks.programs.problems import DELIMITER, LEVELS
from metagen.tasks.split import Split
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.code import plain
from metagen.verifiers.code.outputs import output_classes, public_inputs
from metagen.verifiers.code.program import FencedProgram, ProgramRule

#: Runs a program and evaluates calls such as `f([3,1])`: a key for each, equal for equal values, None for no value.
Execute = Callable[[str, abc.Sequence[str]], Awaitable[abc.Sequence[str | None]]]
#: Runs the hidden tests of a problem against programs: A(y) of each sequence, in [0, 1].
Grader = Callable[[Problem, abc.Sequence[Sequence]], Awaitable[list[float]]]


async def interpret(program: str, calls: abc.Sequence[str]) -> list[str | None]:
    """Execution by the task's own interpreter; a program outside of its subset of Python gives no value.

    Raises ValueError for a call that is not of the entry point with one list.
    """
    return [key_of(output) for output in outputs(program, ENTRY_POINT, [_arguments(c) for c in calls])]


def key_of(output: Output) -> str | None:
    """The key that a sandbox gives to the same value."""
    return plain.key(_tag(output.value)) if output.status == "returned" else None


@part
class ProgramTask(LevelledTask):
    """`per_level` problems of each of `levels`, from one of three disjoint spaces of functions.

    `Prompt.public` holds `tests` (such as `assert f([3,1]) == [1,3]`), `entry_points`, and `inputs` (calls
    such as `f([3,1])`, those of the tests and more whose right values nobody is told, for comparing what
    programs do). The reference is
    these and the hidden tests, in the same form. execute: how outputs are found for voting; grader: runs all tests; by
    default both are the task's own interpreter, and a sandbox may take its place. seed, limit: as of `LevelledTask`.
    """

    name = "programs"
    delimiter = DELIMITER

    levels: FourLevels = LEVELS
    execute: Execute = interpret
    grader: Grader | None = None

    @cached_property
    def answer(self) -> OutputsRule:
        return OutputsRule(self.execute)

    def draw(self, level: int, count: int) -> list[problems.Problem]:
        return problems.problems(Split(self.split), level, count, self.seed)

    def as_problem(self, drawn: problems.Problem, name: str) -> Problem:
        inputs = [call(x) for x in (*(c.x for c in drawn.public), *drawn.unlabelled)]
        public = {**_tests(drawn.public), "inputs": inputs}
        reference = json.dumps(_tests((*drawn.public, *drawn.hidden)))
        return Problem(Prompt(name, text=drawn.prompt, public=public), reference, drawn.level)

    def hidden_tests(self) -> dict[str, dict[str, Any]]:
        """The hidden tests by problem id, for a verifier that runs them in a sandbox."""
        return {problem.id: json.loads(problem.reference) for problem in self.problems()}

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """1 for a program that passes all public and all hidden tests, else 0."""
        if self.grader is not None:
            return await self.grader(problem, sequences)
        cases = hidden_cases(problem)
        inputs = [c.plain[0] for c in cases]
        grades = {}
        for program in {_program(s) for s in sequences}:
            got = outputs(program or "", ENTRY_POINT, inputs)
            grades[program] = float(all(o.equals(c.plain[1]) for o, c in zip(got, cases, strict=True)))
        return [grades[_program(s)] for s in sequences]


def _tests(cases: abc.Sequence[Case]) -> dict[str, Any]:
    tests = [f"assert {call(c.x)} == {_json(c.plain[1])}" for c in cases]
    return {"tests": tests, "setup": "", "entry_points": [ENTRY_POINT]}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def call(x: abc.Sequence[int]) -> str:
    """The call of the entry point with a list."""
    return f"{ENTRY_POINT}({_json(list(x))})"


def public_cases(prompt: Prompt) -> list[Case]:
    """The public tests of a prompt as data. DataError if they are not of this task."""
    return [_case(test, prompt.problem_id) for test in prompt.public.get("tests", ())]


def hidden_cases(problem: Problem) -> list[Case]:
    """The tests of the reference, which begin with the public ones. DataError if they are not of this task."""
    try:
        tests = json.loads(problem.reference)["tests"]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"the reference of problem {problem.id!r} holds no tests ({error!r}): {problem.reference!r:.80}; expected "
            "JSON such as {'tests': ['assert f([3,1]) == [1,3]']}"
        ) from None
    return [_case(test, problem.id) for test in tests]


def _case(test: str, problem_id: str) -> Case:
    left, _, right = test.removeprefix("assert ").partition(" == ")
    try:
        ((x,), expected) = _arguments(left), json.loads(right)
    except ValueError:
        raise DataError(
            f"problem {problem_id!r}: {test!r} is no test of this task; expected 'assert f([3,1]) == [1,3]'"
        ) from None
    return case(x, expected)


def _arguments(call: str) -> list[Any]:
    if not (call.startswith(f"{ENTRY_POINT}(") and call.endswith(")")):
        raise ValueError(f"not a call of {ENTRY_POINT}: {call!r}")
    return [json.loads(call[len(ENTRY_POINT) + 1 : -1])]


#: The whole text, unless a chat model has put a fence around it.
PROGRAM: Final[ProgramRule] = FencedProgram()


def _program(sequence: Sequence) -> str | None:
    return PROGRAM.read(sequence)


class OutputsRule(AnswerRule):
    """Programs vote together if they do the same: equal outputs on all the prompt's `inputs`.

    Verdicts: `missing` for no program; `unparsable` for one that fails on any of the inputs.
    """

    def __init__(self, execute: Execute = interpret) -> None:
        self._execute = execute

    @property
    def fingerprint(self) -> str:
        how = "interpreter" if self._execute is interpret else name_of(self._execute)
        return digest("program outputs", PROGRAM.fingerprint, how).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        known: dict[bytes, Answer] = {}
        for s in sequences:
            if s.digest not in known:
                known[s.digest] = await self._answer(s)
        return [known[s.digest] for s in sequences]

    async def key(self, answer: str) -> str | None:
        """None: the class of a program depends on inputs, and a text that stands by itself has none."""
        return None

    async def _answer(self, sequence: Sequence) -> Answer:
        program = _program(sequence)
        if program is None:
            return Answer(verdict="missing")
        outputs_ = await self._execute(program, public_inputs(sequence.prompt))
        key = output_classes([outputs_])[0]
        return Answer(program, key, None if key is not None else "unparsable")


def _tag(value: Any) -> Any:
    """A value as a sandbox sends it."""
    if isinstance(value, list):
        return [_tag(v) for v in value]
    if isinstance(value, tuple | set):
        return {type(value).__name__: [_tag(v) for v in value]}
    return {"int": hex(value)} if type(value) is int else value
