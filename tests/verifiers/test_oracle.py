"""The oracle says what the grader says, for nothing, and says that it knew."""

from __future__ import annotations

from metagen.sequence import Prompt, Sequence
from metagen.testing import run
from metagen.verifiers.oracle import OracleVerifier

PROMPT = Prompt("p", text="?")


def test_grades_are_scores_that_are_marked() -> None:
    async def grade(sequence: Sequence) -> float:
        return float(sequence.text == "right")

    samples = [Sequence.of(PROMPT).extend(text, finish="eos") for text in ("right", "wrong")]
    oracle = OracleVerifier(grade)
    scores, rows = run(lambda s: oracle.score(samples, scope=s))
    assert [(s.value, s.oracle) for s in scores] == [(1.0, True), (0.0, True)]
    assert oracle.oracle and rows == []
