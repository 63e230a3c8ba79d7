"""Verifiers from execution: public tests with feedback, hidden tests, agreement of outputs, CodeT."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, DataError, InputError
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Score, Sequence
from metagen.testing import VerifierLaws
from metagen.verifiers.base import Verifier
from metagen.verifiers.code.check import Suite
from metagen.verifiers.code.codet import DualAgreement, ask_for_tests, assertions, codet_at_k, dual_agreement
from metagen.verifiers.code.hidden import BrokenTests, HiddenTests
from metagen.verifiers.code.outputs import ProgramOutputs, output_classes, public_inputs
from metagen.verifiers.code.public import PublicTests, public_tests
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.utility.execution import ExecutionAgreement

PROMPT = Prompt(
    "square",
    text="Write f(x), the square of x.",
    public={"tests": ["assert f(2) == 4", "assert f(-3) == 9"], "entry_points": ["f"]},
)
SQUARE = "def f(x): return x * x"
POWER = "def f(x): return x ** 2"
DOUBLE = "def f(x): return 2 * x"
CUBE = "def f(x): return x ** 3"
BROKEN = "def f(x) return x"
LOOP = "def f(x):\n    return x * x if x > 0 else f(x)"


def candidates(*programs: str, prompt: Prompt = PROMPT) -> list[Sequence]:
    return [Sequence.of(prompt).extend(f"So:\n```python\n{p}\n```\n", finish="eos") for p in programs]


def score(verifier: Verifier, sequences: list[Sequence], **root: Any) -> list[Score]:
    async def scored() -> list[Score]:
        return await verifier.score(sequences, scope=Scope.root("square", **root))

    return asyncio.run(scored())


# -- public tests ----------------------------------------------------------------------------------


def test_public_tests_give_a_share_a_verdict_and_words(sandbox: Sandbox) -> None:
    right, half, broken, loop = score(PublicTests(sandbox), candidates(SQUARE, DOUBLE, BROKEN, LOOP))
    assert (right.value, right.verdict, right.feedback) == (1.0, None, "2 of 2 tests pass.")
    assert (half.value, half.verdict) == (0.5, "failed")
    assert half.feedback == (
        "1 of 2 tests pass.\n\nFailing test: assert f(-3) == 9\nCall: f(-3)\nExpected: 9\nGot: -6"
    )
    assert (broken.value, broken.verdict) == (0.0, "raised")
    assert broken.feedback is not None and "SyntaxError" in broken.feedback
    assert (loop.value, loop.verdict) == (0.5, "raised")
    assert loop.feedback is not None and "Call: f(-3)" in loop.feedback and "RecursionError" in loop.feedback
    assert not right.oracle


def test_without_program_or_tests(sandbox: Sandbox) -> None:
    verifier = PublicTests(sandbox)
    assert score(verifier, [Sequence.of(PROMPT)])[0].verdict == "missing"
    nothing = score(verifier, candidates(SQUARE, prompt=Prompt("bare", text="Write f.")))[0]
    assert (nothing.value, nothing.verdict) == (None, "untested")


def test_limits_that_are_not_given_are_those_of_the_sandbox(sandbox: Sandbox) -> None:
    assert public_tests(sandbox, wall=2)._limits == replace(sandbox.limits, wall=2)
    assert public_tests(sandbox, memory=1024)._limits == replace(sandbox.limits, memory=1024)


def test_tests_of_two_kinds_are_refused(sandbox: Sandbox) -> None:
    both = Prompt("both", text="?", public={**PROMPT.public, "io": {"inputs": ["1"], "outputs": ["1"]}})
    with pytest.raises(InputError, match="both io and tests, and only io would run; give one"):
        score(PublicTests(sandbox), candidates(SQUARE, prompt=both))


def test_long_words_are_cut(sandbox: Sandbox) -> None:
    program = "def f(x):\n    raise ValueError('\\n'.join(map(str, range(1000))))"
    feedback = score(PublicTests(sandbox), candidates(program))[0].feedback
    assert feedback is not None and len(feedback.splitlines()) < 60 and "…" in feedback


def test_scores_are_recorded_and_charged(sandbox: Sandbox) -> None:
    journal = MemoryJournal()
    verifier = PublicTests(sandbox)
    first = score(verifier, candidates(SQUARE, DOUBLE, SQUARE), journal=journal, budget=Budget(calls=2))
    assert [s.value for s in first] == [1.0, 0.5, 1.0]
    again = score(verifier, candidates(DOUBLE, CUBE), journal=journal, budget=Budget(calls=1))
    assert again[0] == first[1] and again[1].verdict == "unscored"


# -- hidden tests ----------------------------------------------------------------------------------

HIDDEN = {"square": Suite(("assert f(5) == 25", "assert f(0) == 0"))}


def test_hidden_tests_grade_and_say_nothing(sandbox: Sandbox) -> None:
    verifier = HiddenTests(sandbox, HIDDEN)
    right, wrong, lost = asyncio.run(verifier.grade([*candidates(POWER, DOUBLE), Sequence.of(PROMPT)]))
    assert (right.value, right.oracle, right.feedback) == (1.0, True, None)
    assert (wrong.value, wrong.verdict, wrong.oracle, wrong.feedback) == (0.0, "failed", True, None)
    assert (lost.value, lost.verdict) == (0.0, "missing")
    with pytest.raises(DataError, match="other"):
        asyncio.run(verifier.grade(candidates(SQUARE, prompt=Prompt("other", text="?"))))


def test_broken_tests_are_no_grade(sandbox: Sandbox) -> None:
    broken = {"square": Suite(("assert f(5) == 25",), setup="import nowhere")}
    with pytest.raises(
        BrokenTests, match=r"problem 'square' are broken.* fails whatever .*'nowhere'.*import in"
    ):
        asyncio.run(HiddenTests(sandbox, broken).grade(candidates(SQUARE)))
    public = {"tests": ["assert f(5) == np.int64(25)"], "entry_points": ["f"]}
    (nothing,) = score(
        PublicTests(sandbox), candidates(SQUARE, prompt=Prompt("square", text="?", public=public))
    )
    assert (nothing.value, nothing.verdict) == (None, "untested")
    assert nothing.feedback is not None and "name 'np' is not defined" in nothing.feedback
    public = {"tests": ["assert f(5 == 25"], "entry_points": ["f"]}
    (nothing,) = score(
        PublicTests(sandbox), candidates(SQUARE, prompt=Prompt("square", text="?", public=public))
    )
    assert (nothing.value, nothing.verdict) == (None, "untested")


def test_fingerprints_name_the_data(sandbox: Sandbox) -> None:
    one, other = HiddenTests(sandbox, HIDDEN), HiddenTests(sandbox, {"square": Suite(("assert f(5) == 26",))})
    assert one.fingerprint == HiddenTests(sandbox, dict(HIDDEN)).fingerprint != other.fingerprint


# -- agreement -------------------------------------------------------------------------------------


def outputs(sandbox: Sandbox, *programs: str, **root: Any) -> list[tuple[str | None, ...] | None]:
    async def run() -> list[tuple[str | None, ...] | None]:
        return await ProgramOutputs(sandbox)(candidates(*programs), Scope.root("square", **root))

    return asyncio.run(run())


def test_outputs_are_equal_where_values_are(sandbox: Sandbox) -> None:
    square, power, double, broken = outputs(sandbox, SQUARE, "def f(x): return float(x ** 2)", DOUBLE, BROKEN)
    assert square == power and None not in square and len(square) == 2
    assert double[0] == square[0] and double[1] != square[1]
    assert broken == (None, None)
    assert output_classes([square, power, double, broken])[0] == output_classes([power])[0]
    assert output_classes([broken]) == [None]


def test_outputs_within_a_budget(sandbox: Sandbox) -> None:
    """What was not reached is not known; it has not failed."""
    found = outputs(sandbox, SQUARE, DOUBLE, BROKEN, budget=Budget(calls=1))
    assert found[0] is not None and None not in found[0] and found[1] is found[2] is None

    async def matrix() -> Any:
        utility = ExecutionAgreement(ProgramOutputs(sandbox))
        scope = Scope.root("square", budget=Budget(calls=2))
        return await utility.matrix(candidates(SQUARE, POWER, DOUBLE), scope=scope)

    nan = np.nan
    np.testing.assert_array_equal(asyncio.run(matrix()), [[1, 1, nan], [1, 1, nan], [nan, nan, nan]])
    with pytest.raises(BudgetExhausted):
        outputs(sandbox, SQUARE, budget=Budget(calls=0))


def test_mbr_exec_chooses_what_most_programs_do(sandbox: Sandbox) -> None:
    """The 0-1 utility over outputs, and the vote over output classes, are one."""
    programs = [DOUBLE, SQUARE, CUBE, BROKEN, POWER, BROKEN, BROKEN]

    async def values() -> Any:
        utility = ExecutionAgreement(ProgramOutputs(sandbox), agreement="all")
        return await utility.expected(candidates(*programs), scope=Scope.root("square"))

    expected = asyncio.run(values())
    classes = output_classes(outputs(sandbox, *programs))
    votes = Counter(c for c in classes if c is not None)
    assert expected == pytest.approx([votes[c] / 7 if c else 0.0 for c in classes])
    assert set(np.flatnonzero(expected == expected.max())) == {1, 4}


def test_programs_of_several_problems_are_not_compared(sandbox: Sandbox) -> None:
    mixed = [*candidates(SQUARE), *candidates(SQUARE, prompt=Prompt("other", text="?"))]
    with pytest.raises(DataError, match="'square', 'other' are compared"):
        asyncio.run(ProgramOutputs(sandbox)(mixed, Scope.root("square")))
    with pytest.raises(DataError, match="'square', 'other' are compared"):
        score(DualAgreement(sandbox, writer(), ask=ask, n=4), mixed)


def test_inputs() -> None:
    assert public_inputs(PROMPT) == ("f(2)", "f(-3)")
    assert public_inputs(Prompt("p", text="?", public={"inputs": ["g(1)"], "tests": ["assert g(2)"]})) == (
        "g(1)",
    )
    wrapped = {"tests": ["assert answer(len('ab')) == 4"], "setup": "def answer(x):\n    return f(x)\n"}
    assert public_inputs(Prompt("p", text="?", public=wrapped)) == ("len('ab')",)
    for public in ({}, wrapped | {"tests": ["assert answer(2) == 4"]}):
        with pytest.raises(DataError, match="public inputs"):
            public_inputs(Prompt("p", text="?", public=public))


def test_dual_agreement_by_hand() -> None:
    """Two programs pass the same two of three tests, one passes all three, one none."""
    passed = [[1, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]]
    assert dual_agreement(passed) * 12 == pytest.approx([4, 4, 3, 0])


def test_both_published_rules_by_hand() -> None:
    """Four programs pass two tests, one passes five: 8 against 5 by the product, 4 against 5 by the root."""
    passed = [[1, 1, 0, 0, 0]] * 4 + [[1, 1, 1, 1, 1]]
    assert dual_agreement(passed) * 25 == pytest.approx([8, 8, 8, 8, 5])
    root = dual_agreement(passed, "sqrt") * 5 * 5**0.5
    assert root == pytest.approx([4, 4, 4, 4, 5]) and root.argmax() == 4
    with pytest.raises(InputError, match="rule='cube': expected one of product, sqrt"):
        dual_agreement(passed, "cube")  # type: ignore[arg-type]  # that is what is tested


def test_codet_at_k_by_hand() -> None:
    """Ten programs, six tests. By the root: A scores √4 · 3 = 6, B √1 · 5 = 5, C √2 · 2, D √2 · 2, and one passes none.

    Of A two of four are right, of B none of one, of C and D, which tie and count as one set, one of four.
    """
    a, b, c, d = [1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1]
    passed = [a, a, a, a, b, c, c, d, d, [0] * 6]
    right = [1, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    scores = dual_agreement(passed, "sqrt")
    assert [codet_at_k(scores, right, k) for k in (1, 2, 3)] == pytest.approx([0.5, 0.5, 1 - 0.5 * 0.75])
    # Fewer sets than k: A, B and C with D again, each draw a new one.
    assert codet_at_k(scores, right, 4) == pytest.approx(1 - 0.5 * 0.75 * 0.5)
    assert codet_at_k(scores, right, 7) == pytest.approx(1 - 0.5**3 * 0.75**2)
    # By the product A scores 12, B 5, C and D 4: the order is the same here.
    assert codet_at_k(dual_agreement(passed), right, 3) == pytest.approx(1 - 0.5 * 0.75)
    # No set at all: any two of three.
    assert codet_at_k([0, 0, 0], [1, 0, 0], 2) == pytest.approx(2 / 3)
    assert codet_at_k([0.5], [True], 1) == 1.0


@pytest.mark.parametrize(
    ("scores", "correct", "k", "words"),
    [([], [], 1, "at least one"), ([1], [1, 0], 1, "got"), ([1, 2], [1, 0], 3, "k=3"), ([1], [1], 0, "k=0")],
)
def test_codet_at_k_of_nothing(scores: list[float], correct: list[int], k: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        codet_at_k(scores, correct, k)


@given(
    st.integers(1, 6).flatmap(
        lambda m: st.lists(st.lists(st.booleans(), min_size=m, max_size=m), min_size=1, max_size=8)
    )
)
def test_dual_agreement_is_the_size_of_a_consensus_set(passed: list[list[bool]]) -> None:
    scores = dual_agreement(passed)
    assert ((scores >= 0) & (scores <= 1)).all()
    for row, value in zip(passed, scores, strict=True):
        assert value * len(passed) * len(row) == pytest.approx(passed.count(row) * sum(row))


@pytest.mark.parametrize("passed", [[], [[]], [1, 0]])
def test_dual_agreement_needs_a_table(passed: Any) -> None:
    with pytest.raises(InputError, match="programs by tests"):
        dual_agreement(passed)


# -- CodeT -----------------------------------------------------------------------------------------

#: Samples of a generator that writes tests: right ones, a wrong one, one cut off, one that attacks.
WRITTEN = (
    "4\nassert f(-3) == 9\n",
    "4\nassert f(1) == 3\nassert g(1) == 1\n",
    "4\nassert f(5) == 25\nassert f(",
    "4\nassert f(__import__('os')._exit(0))\n",
)


def writer(samples: tuple[str, ...] = WRITTEN) -> FunctionGenerator:
    return FunctionGenerator(
        lambda prefix, seed, index: samples[index % len(samples)], name=f"tests {samples}"
    )


def ask(prompt: Prompt) -> Prompt:
    return Prompt(f"{prompt.problem_id}/tests", text=f"{prompt.text}\nassert f(2) == ")


def test_assertions() -> None:
    text = """assert f(1) == 2
x = 1
  assert f( 3 ) == [
assert g(1)
assert f(1) == (yield)
assert True
# assert f(2)
assert f(1) == 2, 'why'"""
    assert assertions(text, ("f",)) == ["assert f(1) == 2", "assert f(1) == 2, 'why'"]
    assert assertions("assert g(1)\nassert True", ()) == ["assert g(1)"]


@pytest.mark.parametrize(
    "deep",
    ["+".join(["1"] * 500), "-" * 500 + "1", "-" * 5000 + "1", "(" * 5000 + ")" * 5000, "[" * 90 + "]" * 90],
)
def test_code_that_is_nested_without_end_calls_nothing(deep: str) -> None:
    """A model's test must not end the run, whatever its parser or printer cannot take."""
    assert set(assertions(f"assert f({deep}) == 1", ("f",))) <= {f"assert f({deep}) == 1"}


def test_programs_and_generated_tests_vouch_for_each_other(sandbox: Sandbox) -> None:
    """Of 5 tests SQUARE and POWER pass 3, DOUBLE 1 (the first), CUBE and BROKEN none."""
    verifier = DualAgreement(sandbox, writer(), ask=ask, n=4)
    scores = score(verifier, [*candidates(SQUARE, DOUBLE, POWER, CUBE, BROKEN), Sequence.of(PROMPT)])
    assert [s.value for s in scores] == pytest.approx([6 / 25, 1 / 25, 6 / 25, 0, 0, 0])
    assert scores[5].verdict == "missing"


def test_the_rule_of_the_authors_code(sandbox: Sandbox) -> None:
    """Of 4 programs and 5 tests, as before: √2 · 3 over √4 · 5 for what agrees, 1 over that for DOUBLE."""
    verifier = DualAgreement(sandbox, writer(), ask=ask, n=4, rule="sqrt")
    assert verifier.fingerprint != DualAgreement(sandbox, writer(), ask=ask, n=4).fingerprint
    scores = score(verifier, candidates(SQUARE, DOUBLE, POWER, CUBE))
    assert [s.value for s in scores] == pytest.approx([2**0.5 * 3 / 10, 1 / 10, 2**0.5 * 3 / 10, 0])


def test_executions_are_recorded_once(sandbox: Sandbox) -> None:
    verifier, journal = DualAgreement(sandbox, writer(), ask=ask, n=4), MemoryJournal()
    first = score(verifier, candidates(SQUARE, DOUBLE), journal=journal, budget=Budget(calls=6))
    # The samples and one execution are recorded; the one that is new fits.
    second = score(verifier, candidates(SQUARE, POWER), journal=journal, budget=Budget(calls=6))
    assert first[0].value == pytest.approx(3 / 10) and second[0].value == pytest.approx(6 / 10)


def test_no_tests_no_score(sandbox: Sandbox) -> None:
    scores = score(
        DualAgreement(sandbox, writer(("4",)), ask=lambda p: Prompt("t", text="?"), n=2), candidates(SQUARE)
    )
    assert (scores[0].value, scores[0].verdict) == (None, "untested")


# -- laws ------------------------------------------------------------------------------------------


class CodeLaws(VerifierLaws):
    prompt = PROMPT
    texts = (SQUARE, DOUBLE, BROKEN, POWER)

    @pytest.fixture(autouse=True)
    def _sandbox(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox


class TestPublicTests(CodeLaws):
    def make(self) -> Verifier:
        return PublicTests(self.sandbox)


class TestHiddenTests(CodeLaws):
    def make(self) -> Verifier:
        return HiddenTests(self.sandbox, HIDDEN)


class TestDualAgreement(CodeLaws):
    def make(self) -> Verifier:
        return DualAgreement(self.sandbox, writer(), ask=ask, n=4)


def test_tests_are_asked_for_in_the_form_of_the_task() -> None:
    text = ask_for_tests(Prompt("t", text='def f(x):\n    """Square."""\n', public={"entry_points": ["f"]}))
    assert (text.text or "").endswith("# Tests of f:\nassert f(") and text.public["entry_points"] == ["f"]
    chat = ask_for_tests(Prompt("c", messages=(Message("user", "Write f."),), public={"entry_points": ["f"]}))
    assert len(chat.messages) == 2 and "`f`" in chat.messages[1].content
