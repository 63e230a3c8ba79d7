"""Ensembles: three ways to combine, verdicts that pass through, and members that are not paid for twice."""

from __future__ import annotations

import numpy as np
import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.parallel import BestOfN
from metagen.testing import VerifierLaws, run
from metagen.testing.generators import CountingJournal
from metagen.verifiers.base import Verifier
from metagen.verifiers.ensemble import Combine, Ensemble
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.oracle import OracleVerifier

PROMPT = Prompt("p", text="Task.")


def sequences(*texts: str) -> list[Sequence]:
    return [Sequence.of(PROMPT).extend(text, finish="eos") for text in texts]


def constant(*values: float) -> list[Verifier]:
    return [FunctionVerifier(lambda s, v=v: v, name=f"{i} {v}") for i, v in enumerate(values)]  # type: ignore[misc]


def score(verifier: Verifier, *texts: str, **how: object) -> list[Score]:
    return run(lambda s: verifier.score(sequences(*texts), scope=s.child("score")), **how)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("combine", "expected"),
    [("mean", 0.6), ("worst", 0.2), ("uncertainty", 0.6 - 0.5 * (0.09 + 0.01 + 0.16) / 3)],
)
def test_the_three_ways_to_combine(combine: Combine, expected: float) -> None:
    values = (0.9, 0.7, 0.2)
    penalty = 0.5 if combine in ("uncertainty", "lower-bound") else 1.0
    (one,) = score(Ensemble(constant(*values), combine, penalty=penalty), "x")
    assert one.value == pytest.approx(expected) == one.raw


def test_verdicts_that_members_cannot_read_are_counted() -> None:
    said = FunctionGenerator(lambda prefix, seed, index: ("Yes", "hm")[index % 2], name="half")
    half, mute = (Judge(generator=said, samples=n) for n in (2, 4))
    never = Judge(generator=FunctionGenerator(lambda *_: "hm", name="never"), samples=3)
    assert [score(Ensemble(members), "x")[0].unread for members in ([half, mute], [half, never])] == [3, 4]


def test_weights_are_shares() -> None:
    (one,) = score(Ensemble(constant(1.0, 0.0), weights=[3, 1]), "x")
    (doubt,) = score(Ensemble(constant(1.0, 0.0), "uncertainty", weights=[3, 1], penalty=2.0), "x")
    assert one.value == 0.75 and doubt.raw == pytest.approx(0.75 - 2 * (0.75 * 0.0625 + 0.25 * 0.5625))


def test_a_penalty_of_at_most_1_never_leaves_the_unit_interval_and_a_larger_one_is_cut() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = rng.choice([0.0, 1.0, rng.random()], size=rng.integers(2, 6)).tolist()
        (one,) = score(Ensemble(constant(*values), "uncertainty", penalty=1.0), "x")
        assert one.raw is not None and -1e-12 <= one.raw <= 1.0
    (far,) = score(Ensemble(constant(0.0, 0.9), "uncertainty", penalty=5.0), "x")
    assert far.value == 0.0 and far.raw == pytest.approx(0.45 - 5 * 0.2025)


def test_steps_combine_where_all_have_them() -> None:
    first = FunctionVerifier(lambda s: Score(0.5, steps=(0.9, 0.5)), name="a")
    second = FunctionVerifier(lambda s: Score(0.3, steps=(0.7, 0.3)), name="b")
    (one,) = score(Ensemble([first, second], "worst"), "x")
    assert one.steps == (0.7, 0.3) and one.value == 0.3
    (mixed,) = score(Ensemble([first, *constant(0.3)]), "x")
    assert mixed.steps is None and mixed.value == pytest.approx(0.4)


def test_verdicts_and_feedback_pass_through() -> None:
    slow = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text == "b" else 0.4, name="slow")
    wary = FunctionVerifier(lambda s: Score(0.0, verdict="forged", feedback="no"), name="wary")
    a, b = score(Ensemble([wary, slow, *constant(0.8)]), "a", "b")
    assert (a.value, a.verdict, a.feedback) == (pytest.approx(0.4), "forged", "no")
    assert (b.value, b.verdict, b.feedback) == (None, "timeout", "no")


def test_a_member_that_scored_by_itself_is_not_paid_again() -> None:
    journal = CountingJournal()
    members = constant(0.1, 0.9)
    score(members[0], "a", "b", journal=journal)
    assert journal.recorded == 2
    score(Ensemble(members), "a", "b", journal=journal)
    assert journal.recorded == 4
    score(Ensemble(members, "worst"), "b", "a", journal=journal)
    assert journal.recorded == 4


def test_where_a_budget_ends_the_rest_is_unscored_and_no_member_works_in_vain() -> None:
    members = constant(0.1, 0.9)
    held = score(Ensemble(members), "a", "b", "c", budget=Budget(calls=5))
    assert [s.verdict for s in held] == [None, None, "unscored"]

    async def refused(scope: Scope) -> int:
        with pytest.raises(BudgetExhausted):
            await Ensemble(members).score(sequences("a", "b"), scope=scope.child("score"))
        return scope.usage.calls

    assert run(refused, budget=Budget(calls=2))[0] == 2
    with pytest.raises(BudgetExhausted):
        score(Ensemble(members), "a", budget=Budget(calls=0))


def test_an_oracle_among_the_members_marks_everything() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    with_oracle = Ensemble([*constant(0.5), OracleVerifier(grade)])
    assert with_oracle.oracle and not Ensemble(constant(0.5)).oracle
    assert all(s.oracle for s in score(with_oracle, "a"))
    writer = FunctionGenerator(lambda *_: "x")
    assert BestOfN(writer, 2, verifier=with_oracle).solve(PROMPT).oracle


def test_everything_enters_the_fingerprint() -> None:
    a, b = constant(0.1, 0.9)
    kinds = [
        Ensemble([a, b]),
        Ensemble([b, a]),
        Ensemble([a]),
        Ensemble([a, b], "worst"),
        Ensemble([a, b], "uncertainty"),
        Ensemble([a, b], "uncertainty", penalty=2.0),
        Ensemble([a, b], weights=[1, 2]),
    ]
    assert len({one.fingerprint for one in kinds}) == len(kinds)
    assert Ensemble([a, b], weights=[2, 2]).fingerprint == Ensemble([a, b]).fingerprint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"members": []}, "at least one"),
        ({"members": constant(0.5), "combine": "uncertainty"}, "two for an uncertainty"),
        ({"combine": "median"}, "expected one of mean, worst, uncertainty"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"weights": [1.0]}, "expected 2 numbers"),
        ({"weights": [0.0, 0.0]}, "not all of them 0"),
        ({"weights": [1.0, 1.0], "combine": "worst"}, "no use for weights"),
        ({"penalty": 3.0}, "penalty=3.0: combine='mean' has no use for a penalty; leave it out"),
        ({"penalty": 3.0, "combine": "worst"}, "combine='worst' has no use for a penalty"),
    ],
)
def test_what_cannot_be_combined_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Ensemble(**{"members": constant(0.1, 0.9), **options})  # type: ignore[arg-type]


class TestEnsemble(VerifierLaws):
    def make(self) -> Verifier:
        length = FunctionVerifier(lambda s: len(s.text) / 10, name="length")
        verdicts = FunctionVerifier(
            lambda s: Score(None, verdict="timeout") if s.text == "two" else 0.5, name="verdicts"
        )
        return Ensemble([length, verdicts], "uncertainty")


class TestWithOracle(VerifierLaws):
    def make(self) -> Verifier:
        async def grade(sequence: Sequence) -> float:
            return 1.0

        return Ensemble([OracleVerifier(grade), *constant(0.5)], "worst")
