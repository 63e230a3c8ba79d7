"""Programs of thought, run in a sandbox."""

from __future__ import annotations

import shutil

import pytest

from metagen.generators.function import FunctionGenerator
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.patterns import program_of_thought, run_python
from metagen.strategies.chain.steps import Use
from metagen.strategies.tools import ToolError
from metagen.testing import CountingJournal, last_word
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.limits import MIB, Limits
from metagen.verifiers.code.sandbox import Sandbox
from tests.strategies.chain.toolbox import call


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    if shutil.which("bwrap") is None:
        pytest.skip("programs cannot be isolated on this machine: there is no bubblewrap")
    try:
        return Sandbox(limits=Limits(wall=5.0, memory=256 * MIB, processes=16))
    except IsolationError as error:
        pytest.skip(f"programs cannot be isolated on this machine: {error}")


def test_a_program_of_thought_is_run(sandbox: Sandbox) -> None:
    program = "Let me see.\n```python\nx = 6 * 7\nprint(x)\n```\n"
    generator = FunctionGenerator(
        lambda p, s, i: program if "Python" in (p.prompt.text or "") else f"It is {p.prompt.text}"
    )
    assert program_of_thought(generator, sandbox, answer=last_word).solve("6 times 7?").text == "42"
    chain = program_of_thought(generator, sandbox, conclude="{result}!")
    result = chain.solve("6 times 7?")
    assert result.text == "It is 42!" and [r.path for r in result.trace.rows] == [
        "0/program",
        "0/result",
        "0/answer",
    ]


def test_what_goes_wrong_in_a_program_is_told(sandbox: Sandbox) -> None:
    tool, journal = run_python(sandbox), CountingJournal()
    for program, words in (("1/0", "ZeroDivisionError"), ("while True: pass", "timeout"), ("", "no program")):
        limited = tool if program != "while True: pass" else run_python(Sandbox(limits=Limits(wall=0.3)))
        for _ in range(2):
            with pytest.raises(ToolError, match=words):
                call(limited, {"program": program}, journal=journal)
    assert journal.recorded == 3
    assert Chain({"r": Use(tool, program="{prompt}")}).solve("print(1").text.startswith("raised: ")
