"""Where words come from: verifiers, tools, public tests; what is said once, late, or not at all."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from metagen.errors import EngineError, InputError
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.public import PublicTests
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.refine.toys import LINE, PROMPT, chain_of, texts, tool, values, writes


def test_words_come_from_the_source_that_is_given() -> None:
    told = values({"a": Score(0.5, feedback="measured"), "b": Score(0.5)})
    other = FunctionVerifier(lambda s: Score(0.0, feedback=f"other on {s.text}"), name="other")

    async def examine(candidate: str, task: str, public: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        assert (task, public) == ("Count:", {})
        return f"tool on {candidate}"

    sources: dict[str, Any] = {
        "measured": None, "other on a": other, "tool on a": tool(examine), "?": Silence(),
    }  # fmt: skip
    for expected, feedback in sources.items():
        asked: list[str] = []

        def mend(prefix: Sequence, seed: int, index: int, asked: list[str] = asked) -> str:
            asked.append(prefix.prompt.text or "")
            return "b"

        strategy = Refinement(
            writes("a"), FunctionGenerator(mend), verifier=told, feedback=feedback, rounds=1, ask=LINE
        )
        strategy.solve(PROMPT)
        assert asked == [f"Count:a\n\n|{expected}\n\n"]


def test_a_tools_words_are_recorded_charged_and_said_once_of_equal_texts() -> None:
    heard: list[str] = []

    def listen(candidate: str) -> str:
        heard.append(candidate)
        return "wrong"

    def make() -> Refinement:
        return Refinement(writes("a"), writes("a", "b", "a"), feedback=tool(listen), rounds=3)

    journal = MemoryJournal()
    result = make().solve(PROMPT, journal=journal)
    assert heard == ["a", "b"] and result.usage.calls == 4 + 2
    assert [r.kind for r in result.trace.rows].count("tool") == 2
    assert make().solve(PROMPT, journal=journal).usage.calls == 6 and heard == ["a", "b"]
    assert result.text == "a", "without a verifier the last is returned"


def test_a_slow_tool_is_cut_off_and_the_remark_says_so() -> None:
    async def slow(candidate: str) -> str:
        await asyncio.sleep(10)
        return "never"

    feedback = tool(slow, name="slow", timeout=0.01, attempts=1)
    remark = chain_of(Refinement(writes("a"), writes("b"), feedback=feedback, rounds=1)).rounds[0].remark
    assert remark is not None and remark.text is not None
    assert remark.text.startswith("the tool 'slow' took longer than 0.01 seconds")


def test_a_tool_with_nothing_to_say_may_end_it_and_a_broken_one_is_not_hidden() -> None:
    def complains(candidate: str) -> str | None:
        return None if candidate == "b" else f"{candidate} is not b"

    for ends, written, how in ((True, ["a", "b"], "content"), (False, ["a", "b", "c"], "rounds")):
        strategy = Refinement(writes("a"), writes("b", "c"), feedback=tool(complains, ends=ends), rounds=2)
        chain = chain_of(strategy)
        assert (texts(chain), chain.ended, chain.best) == (written, how, len(written) - 1)

    def broken(candidate: str) -> str:
        raise EngineError("no such tool")

    with pytest.raises(EngineError, match="no such tool"):
        Refinement(writes("a"), feedback=tool(broken)).solve(PROMPT)
    with pytest.raises(InputError, match="said 3; expected a text"):
        Refinement(writes("a"), feedback=tool(lambda candidate: 3)).solve(PROMPT)
    with pytest.raises(InputError, match="needs 'code'; as feedback it gets candidate"):
        tool(lambda code: None)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        return Sandbox()
    except IsolationError as error:
        if os.environ.get("CI") and os.geteuid() == 0:
            raise
        pytest.skip(f"untrusted programs cannot be isolated on this machine: {error}")


def test_public_tests_localise_the_error(sandbox: Sandbox) -> None:
    tests = {"tests": ["assert f(2) == 4", "assert f(-3) == 9"], "entry_points": ["f"]}
    square = Prompt("square", text="Write f(x), the square of x.\n", public=tests)

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        assert prefix.prompt.public == tests, "a strategy that corrects may run the tests as well"
        return (
            "def f(x): return x * x" if "Call: f(-3)\nExpected: 9\nGot: -6" in said else "def f(x): return x"
        )

    double = FunctionGenerator(lambda p, s, i: "def f(x): return 2 * x", name="double")
    result = Refinement(double, FunctionGenerator(mend), verifier=PublicTests(sandbox)).solve(square)
    assert [(o.sequence.text[17:], o.value) for o in result.candidates] == [("2 * x", 0.5), ("x * x", 1.0)]
