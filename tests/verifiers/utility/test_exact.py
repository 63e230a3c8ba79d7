"""Voting is minimum Bayes risk with the exact-answer utility."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.strategies.aggregate import highest_expected_utility, majority_vote, weighted_vote
from metagen.verifiers.function import FunctionRule
from metagen.verifiers.utility.exact import ExactAnswer

#: "3.A" answers A; without a second part there is no answer.
RULE = FunctionRule(lambda text: text.partition(".")[2] or None)
answers = st.sampled_from(["", ".A", ".B", ".C"])
weights = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0]), st.floats(0, 1))
pools = st.lists(st.tuples(answers, weights), min_size=1, max_size=24)


def test_the_same_answer_counts_and_no_answer_does_not(ask) -> None:
    matrix = ask.matrix(ExactAnswer(RULE), ["1.A", "2.B", "3", "4.A"])
    assert matrix.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert ask.matrix(ExactAnswer(RULE), ["1.A", "3"], ["4.A", "5"]).tolist() == [[1, 0], [0, 0]]


@given(pools)
def test_weighted_voting_is_mbr_with_the_exact_answer(ask, pool: list[tuple[str, float | None]]) -> None:
    members = [f"{i}{answer}" for i, (answer, _) in enumerate(pool)]
    scores = [weight for _, weight in pool]
    classes = [answer[1:] or None for answer, _ in pool]
    total = math.fsum(w or 0.0 for w in scores)
    expected = ask.expected(ExactAnswer(RULE), members, weights=scores)
    vote = weighted_vote(classes, scores, members, "salt")
    for name, utility in zip(classes, expected, strict=True):
        assert utility == pytest.approx(vote.totals[name] / total if name and total else 0.0, abs=1e-15)
    if vote.totals:
        best = max(vote.totals.values())
        leaders = {name for name, votes in vote.totals.items() if votes == best}
        assert classes[vote.index] in leaders
        if best > 0:
            # The very classes that tie for the vote tie for the expected utility: sums are exact in both.
            assert {classes[i] for i in np.flatnonzero(expected == expected.max())} == leaders
            chosen = highest_expected_utility(expected.tolist(), scores, classes, members, "salt")
            assert chosen.index == vote.index, "to the last tie"


@given(st.lists(answers, min_size=1, max_size=24))
def test_majority_voting_is_mbr_with_equal_weights(ask, pool: list[str]) -> None:
    members = [f"{i}{answer}" for i, answer in enumerate(pool)]
    classes = [answer[1:] or None for answer in pool]
    expected = ask.expected(ExactAnswer(RULE), members)
    vote = majority_vote(classes, members, "salt")
    counts = [vote.totals[name] if name else 0 for name in classes]
    assert np.allclose(expected * len(pool), counts, rtol=0, atol=1e-12)
    assert expected[vote.index] == expected.max()
