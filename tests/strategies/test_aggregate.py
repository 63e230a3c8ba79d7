"""Aggregation: exact votes, ties by digest, and the identities between the methods."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.strategies.aggregate import (
    Rule,
    best_of,
    borda_weights,
    highest_expected_utility,
    majority_vote,
    ranked_vote,
    soft_best_of,
    weighted_vote,
)

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
        lambda c, w, m: highest_expected_utility([x or 0.0 for x in w], w, c, m, SALT),
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
    expected = [math.fsum(w or 0.0 for c, w in pool if c == own) for own in classes]
    vote = weighted_vote(classes, weights, names, SALT)
    risk = highest_expected_utility(expected, weights, [None] * len(names), names, SALT)
    chosen = classes[risk.index]
    assert chosen is not None and vote.totals[chosen] == max(vote.totals.values())


def test_a_choice_by_the_tie_rule_alone_is_blind() -> None:
    none, some = [None] * 4, [None, None, 0.1, None]
    classes, texts = ["a", "a", "a", "b"], members(4)
    assert weighted_vote(classes, none, texts, SALT).blind
    assert not weighted_vote(classes, some, texts, SALT).blind
    assert not weighted_vote(["a"] * 4, none, texts, SALT).blind  # all say the same
    assert not majority_vote(classes, texts, SALT).blind
    assert majority_vote([None] * 4, texts, SALT).blind and ranked_vote([[]] * 4, texts, SALT).blind
    assert best_of(none, texts, SALT).blind and not best_of(none, ["same"] * 4, SALT).blind
    assert highest_expected_utility([0.0] * 4, none, classes, texts, SALT).blind
    assert not highest_expected_utility([0.0] * 4, some, classes, texts, SALT).blind


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


# -- soft best-of-n ------------------------------------------------------------------------------------


def test_soft_best_of_draws_by_the_exponential_of_scores() -> None:
    """Frequencies over 4,000 seeds against exp(r/β)/Z, within four standard errors."""
    scores, beta, draws = [0.0, 0.5, 1.0], 0.5, 4000
    weights = [math.exp(r / beta) for r in scores]
    counts = Counter(
        soft_best_of(scores, members(3), SALT, beta=beta, seed=seed).index for seed in range(draws)
    )
    for i, weight in enumerate(weights):
        p = weight / sum(weights)
        assert abs(counts[i] / draws - p) < 4 * math.sqrt(p * (1 - p) / draws)


def test_equal_members_have_a_chance_each() -> None:
    """Three copies of x and one y, all of the same score: x in three of four draws."""
    drawn = [soft_best_of([1.0] * 4, ["x", "x", "y", "x"], SALT, beta=1, seed=s).index for s in range(2000)]
    assert abs(sum(i == 2 for i in drawn) / 2000 - 0.25) < 0.04


@given(candidates, st.integers(0, 100), st.randoms(use_true_random=False))
def test_a_soft_choice_depends_on_the_seed_and_not_on_the_order(
    pool: list[tuple[str | None, float | None]], seed: int, rng: Any
) -> None:
    scores, names = [w for _, w in pool], members(len(pool))
    order = list(range(len(pool)))
    rng.shuffle(order)
    here = soft_best_of(scores, names, SALT, beta=0.3, seed=seed).index
    there = soft_best_of([scores[i] for i in order], [names[i] for i in order], SALT, beta=0.3, seed=seed)
    assert order[there.index] == here
    assert scores[here] is not None or all(score is None for score in scores)


def test_a_small_beta_is_best_of_n() -> None:
    for seed in range(50):
        assert soft_best_of([0.2, 0.9, 0.8, None], members(4), SALT, beta=1e-3, seed=seed).index == 1


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_a_beta_that_says_nothing_is_refused(beta: float) -> None:
    with pytest.raises(InputError, match=r"beta=.*for β = 0 take best-of-n"):
        soft_best_of([1.0], ["a"], SALT, beta=beta, seed=0)


# -- ranks ---------------------------------------------------------------------------------------------


def test_borda_weights_are_powers_of_ranks_and_ties_share() -> None:
    assert borda_weights([0.1, 0.9, None, 0.5]) == [1.0, 3.0, None, 2.0]
    assert borda_weights([0.1, 0.9, 0.5], power=2) == [1.0, 9.0, 4.0]
    assert borda_weights([0.5, 0.9, 0.5, 0.1]) == [2.5, 4.0, 2.5, 1.0]
    assert borda_weights([0.3, 0.7], power=0) == [1.0, 1.0] and borda_weights([None]) == [None]
    second, first = borda_weights([*map(float, range(64))], power=171.0)[-2:]
    assert [first, second] == pytest.approx([1.0, (63 / 64) ** 171]), "64^171 is no float"
    with pytest.raises(InputError, match="power=-1"):
        borda_weights([0.3], power=-1)


def test_a_borda_vote_lies_between_the_majority_and_the_best() -> None:
    classes, scores = ["a", "a", "b"], [0.1, 0.2, 0.9]
    chosen = {
        power: classes[weighted_vote(classes, borda_weights(scores, power=power), members(3), SALT).index]
        for power in (0.0, 0.9, 2.0, 20.0)
    }
    assert chosen == {0.0: "a", 0.9: "a", 2.0: "b", 20.0: "b"}  # 1 + 2^p against 3^p: equal at p = 1
    assert chosen[20.0] == classes[best_of(scores, members(3), SALT).index]


BALLOTS = ["ab", "ab", "ba", "ca", "cb", "ca"]


def test_ranked_votes_count_as_their_rules_say() -> None:
    """Points for two of three classes named; the reciprocal ranks; the run-off of a against c."""
    ballots = [list(ballot) for ballot in BALLOTS]
    borda = ranked_vote(ballots, members(6), SALT)
    assert borda.totals == {"a": 2 + 2 + 1 + 1 + 1, "b": 1 + 1 + 2 + 1, "c": 6}
    assert ballots[borda.index][0] == "a"
    reciprocal = ranked_vote(ballots, members(6), SALT, rule="reciprocal")
    assert reciprocal.totals == {"a": 2 + 1.5, "b": 1 + 0.5 * 3, "c": 3.0}
    runoff = ranked_vote(ballots, members(6), SALT, rule="instant-runoff")
    # b leads one ballot and is struck out; that one goes to a: 3 against 3, and the tie rule strikes one of them.
    assert runoff.totals in ({"a": 5.0}, {"c": 3.0})
    assert ballots[runoff.index][0] in "ac"


def test_a_ranked_vote_with_one_name_a_ballot_is_a_majority() -> None:
    classes = ["x", "y", "y", "z", "y"]
    for rule in get_args(Rule):
        chosen = ranked_vote([[c] for c in classes], members(5), SALT, rule=rule)
        assert classes[chosen.index] == "y" or rule == "borda"
    # Among three classes named once each, Borda gives 2 points for a first place.
    assert ranked_vote([[c] for c in classes], members(5), SALT).totals == {"x": 2.0, "y": 6.0, "z": 2.0}


def test_who_is_first_on_no_ballot_cannot_win_and_empty_ballots_do_not_vote() -> None:
    ballots = [["a", "m"], ["b", "m"], ["c", "m"], []]
    chosen = ranked_vote(ballots, members(4), SALT)
    assert chosen.totals["m"] == max(chosen.totals.values()) and chosen.index < 3
    assert ranked_vote([[], []], members(2), SALT).index in (0, 1)
    with pytest.raises(InputError, match="rule='condorcet': expected one of borda"):
        ranked_vote([["a"]], members(1), SALT, rule="condorcet")  # type: ignore[arg-type]


@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_ranked_votes_do_not_depend_on_the_order_of_ballots(ballots: list[list[str]], rng: Any) -> None:
    names, order = members(len(ballots)), list(range(len(ballots)))
    rng.shuffle(order)
    for rule in get_args(Rule):
        here = ranked_vote(ballots, names, SALT, rule=rule)
        there = ranked_vote([ballots[i] for i in order], [names[i] for i in order], SALT, rule=rule)
        assert order[there.index] == here.index and there.totals == here.totals


# -- minimum Bayes risk ----------------------------------------------------------------------------------


@settings(max_examples=100)
@given(candidates)
def test_a_weighted_vote_is_minimum_bayes_risk_to_the_last_tie(
    pool: list[tuple[str | None, float | None]],
) -> None:
    pool = [(c, w) for c, w in pool if c is not None]
    if not pool:
        return
    classes, weights, names = [c for c, _ in pool], [w for _, w in pool], members(len(pool))
    expected = [math.fsum((w or 0.0) for c, w in pool if c == own) for own in classes]
    risk = highest_expected_utility(expected, weights, classes, names, SALT)
    vote = weighted_vote(classes, weights, names, SALT)
    assert risk.index == vote.index and risk.totals == vote.totals


def test_what_is_not_known_is_worse_than_any_utility() -> None:
    nan = math.nan
    assert highest_expected_utility([nan, -3.0, nan], [1.0] * 3, [None] * 3, members(3), SALT).index == 1
    assert highest_expected_utility([nan, 0.1], [1.0] * 2, ["a", "b"], members(2), SALT).totals == {"b": 0.1}
    firsts = {
        highest_expected_utility([nan] * 3, [1.0] * 3, [None] * 3, members(3), str(salt)).index
        for salt in range(40)
    }
    assert firsts == {0, 1, 2}
