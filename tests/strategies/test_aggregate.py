"""Aggregation: exact votes, ties by digest, and the identities between the methods."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.strategies.aggregate import best_of, majority_vote, minimum_bayes_risk, weighted_vote

values = st.none() | st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0]) | st.floats(0, 1)
candidates = st.lists(st.tuples(st.none() | st.sampled_from("abc"), values), min_size=1, max_size=8)
SALT = "salt"


def members(n: int) -> list[str]:
    return [f"y{i}" for i in range(n)]


@settings(max_examples=60)
@given(candidates, st.randoms(use_true_random=False))
def test_permuting_the_candidates_changes_nothing(
    pool: list[tuple[str | None, float | None]], rng: object
) -> None:
    names = members(len(pool))
    order = list(range(len(pool)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    classes, weights = [c for c, _ in pool], [w for _, w in pool]
    there = ([classes[i] for i in order], [weights[i] for i in order], [names[i] for i in order])
    here = (classes, weights, names)
    for choose in (
        lambda c, w, m: best_of(w, m, SALT),
        lambda c, w, m: weighted_vote(c, w, m, SALT),
        lambda c, w, m: majority_vote(c, m, SALT),
        lambda c, w, m: minimum_bayes_risk([[float(a == b) for b in m] for a in m], w, m, SALT),
    ):
        assert names[choose(*here).index] == there[2][choose(*there).index]
    assert weighted_vote(*here, SALT).totals == weighted_vote(*there, SALT).totals


@settings(max_examples=60)
@given(candidates)
def test_the_winning_class_has_the_largest_total_and_the_member_is_its_heaviest(
    pool: list[tuple[str | None, float | None]],
) -> None:
    chosen = weighted_vote([c for c, _ in pool], [w for _, w in pool], members(len(pool)), SALT)
    exact: dict[str, Fraction] = {}
    for name, weight in pool:
        if name is not None:
            exact[name] = exact.get(name, Fraction(0)) + Fraction(weight or 0.0)
    if not exact:
        assert chosen.totals == {} and (pool[chosen.index][1] or 0) == max(w or 0 for _, w in pool)
        return
    winner, weight = pool[chosen.index]
    assert winner is not None and float(exact[winner]) == max(float(total) for total in exact.values())
    assert chosen.totals == {name: float(total) for name, total in exact.items()}
    assert (weight or 0.0) == max(w or 0.0 for c, w in pool if c == winner)


@settings(max_examples=60)
@given(candidates)
def test_a_weighted_vote_is_minimum_bayes_risk_with_class_equality_as_utility(
    pool: list[tuple[str | None, float | None]],
) -> None:
    """Over candidates that have an answer; among the winners of the vote MBR does not tell members apart."""
    pool = [(c, w) for c, w in pool if c is not None]
    if not pool:
        return
    classes, weights, names = [c for c, _ in pool], [w for _, w in pool], members(len(pool))
    utilities = [[float(a == b) for b in classes] for a in classes]
    vote = weighted_vote(classes, weights, names, SALT)
    risk = minimum_bayes_risk(utilities, weights, names, SALT)
    chosen = classes[risk.index]
    assert chosen is not None and vote.totals[chosen] == max(vote.totals.values())


def test_equal_weights_are_a_majority_vote() -> None:
    classes = ["a", "b", None, "b", "a", "b"]
    assert majority_vote(classes, members(6), SALT) == weighted_vote(classes, [1.0] * 6, members(6), SALT)
    assert majority_vote(classes, members(6), SALT).totals == {"a": 2.0, "b": 3.0}


def test_sums_are_rounded_once() -> None:
    """0.1 + 0.2 == 0.3 here: three tenths in parts tie with three tenths at once, however they are added."""
    totals = weighted_vote(["a"] * 10 + ["b"], [0.1] * 10 + [1.0], members(11), SALT).totals
    assert totals == {"a": 1.0, "b": 1.0}


def test_a_score_of_zero_beats_none_and_verdicts_lose() -> None:
    assert best_of([None, 0.0, None], members(3), SALT).index == 1
    assert best_of([0.5, None, 0.7], members(3), SALT).index == 2


def test_ties_are_broken_by_the_salt_and_not_by_the_place() -> None:
    names = members(4)
    firsts = {names[best_of([0.5] * 4, names, str(salt)).index] for salt in range(60)}
    assert firsts == set(names)
    classes = {majority_vote(["a", "b"], ["x", "y"], str(salt)).index for salt in range(40)}
    assert classes == {0, 1}


def test_no_candidates_and_wrong_lengths_are_errors() -> None:
    with pytest.raises(InputError, match="no candidates"):
        best_of([], [], SALT)
    with pytest.raises(InputError, match="1 values for 2 candidates"):
        best_of([1.0], ["a", "b"], SALT)
    with pytest.raises(InputError, match="3 values for 2"):
        weighted_vote(["a", "b"], [1.0] * 3, ["x", "y"], SALT)
