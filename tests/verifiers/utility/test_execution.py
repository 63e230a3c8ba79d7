"""Programs that print alike agree."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import DataError, InputError
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.outputs import ProgramOutputs
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.utility.base import Matrix
from metagen.verifiers.utility.execution import ExecutionAgreement

OUTPUTS = {"p": ["1", "2", "3"], "q": ["1", "2", "4"], "r": [None, None, "3"], "s": [None, None, None]}


def test_the_share_of_inputs_with_equal_outputs(ask) -> None:
    third = 1 / 3
    matrix = ask.matrix(ExecutionAgreement(OUTPUTS), ["p", "q", "r", "s", "p"])
    assert matrix.tolist() == [
        [1, 2 / 3, third, 0, 1],
        [2 / 3, 1, 0, 0, 2 / 3],
        [third, 0, third, 0, third],
        [0, 0, 0, 0, 0],
        [1, 2 / 3, third, 0, 1],
    ]
    whole = ask.matrix(ExecutionAgreement(OUTPUTS, agreement="all"), ["p", "q", "r"], ["p", "r"])
    assert whole.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_each_program_is_run_once(ask) -> None:
    runs: list[list[str]] = []

    async def execute(programs: list[Sequence], scope: Scope) -> list[list[str]]:
        runs.append([program.text for program in programs])
        return [[str(eval(program.text, {"__builtins__": {}}))] for program in programs]

    utility = ExecutionAgreement(execute, name="eval")
    assert ask.matrix(utility, ["1+1", "2", "3", "2"], ["2", "2*1"]).tolist() == [
        [1, 1],
        [1, 1],
        [0, 0],
        [1, 1],
    ]
    assert runs == [["1+1", "2", "3", "2*1"]]


def test_programs_in_a_sandbox() -> None:
    try:
        sandbox = Sandbox()
    except IsolationError as error:
        pytest.skip(f"programs cannot be isolated here: {error}")
    prompt = Prompt("p", text="Double it.", public={"inputs": ["f(1)", "f(-2)", "f('a')"]})
    texts = ["def f(x): return 2 * x", "def f(x): return x + x", "def f(x): return abs(2 * x)", "no program"]
    programs = [Sequence(prompt, f"```python\n{text}\n```", finish="eos") for text in texts]
    utility = ExecutionAgreement(ProgramOutputs(sandbox))
    assert utility.fingerprint != ExecutionAgreement(OUTPUTS).fingerprint

    async def main() -> tuple[Matrix, int]:
        scope = Scope.root("p")
        return await utility.matrix(programs, scope=scope), scope.usage.calls

    matrix, calls = asyncio.run(main())
    third = 1 / 3
    assert matrix.tolist() == [[1, 1, third, 0], [1, 1, third, 0], [third, third, 2 * third, 0], [0, 0, 0, 0]]
    assert calls == 4, "each program runs once, as a leaf call"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"p": ["1"]}, "there are no outputs of 'q', a candidate of problem 'p'"),
        ({"p": ["1"], "q": ["1", "2"]}, "gave 2 lists of 1 or 2 outputs; expected one list each"),
        ({"p": [], "q": []}, "gave 2 lists of 0 outputs"),
    ],
)
def test_outputs_that_cannot_be_compared(outputs: dict[str, list[str]], message: str, ask) -> None:
    with pytest.raises(DataError, match=message):
        ask.matrix(ExecutionAgreement(outputs), ["p", "q"])


def test_options() -> None:
    with pytest.raises(InputError, match="agreement='most'"):
        ExecutionAgreement(OUTPUTS, agreement="most")  # type: ignore[arg-type]  # wrong on purpose
    names = {
        ExecutionAgreement(OUTPUTS, agreement=a, name=n).fingerprint for a in ("share", "all") for n in "ab"
    }  # type: ignore[arg-type]  # a literal in a loop
    assert len(names) == 4
