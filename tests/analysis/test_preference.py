"""Bradley and Terry's strengths, and Elo's ratings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from metagen.analysis.preference import (
    ELO_UNIT,
    bradley_terry,
    elo,
    elo_expectation,
)
from metagen.errors import InputError


def preferences(theta: np.ndarray, matches: float = 1.0) -> np.ndarray:
    """The wins that are expected of these strengths."""
    return matches * expit(theta[:, None] - theta[None, :]) * ~np.eye(len(theta), dtype=bool)


def test_two_items_have_the_log_odds_of_their_wins() -> None:
    found = bradley_terry([[0, 3], [1, 0]])
    assert found.theta == pytest.approx([np.log(3) / 2, -np.log(3) / 2])
    assert found.probability(0, 1) == pytest.approx(0.75)


def test_expected_wins_give_back_the_strengths_however_many_each_pair_met() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(scale=2.0, size=7)
    meetings = rng.integers(1, 50, (7, 7))
    for weights in (np.ones((7, 7)), meetings + meetings.T):
        found = bradley_terry(preferences(theta) * weights)
        assert found.theta == pytest.approx(theta - theta.mean(), abs=1e-8)


def test_few_meetings_suffice_if_they_are_connected() -> None:
    theta = np.array([0.0, 1.0, -2.0, 0.5])
    ring = np.zeros((4, 4))
    for i in range(4):
        j = (i + 1) % 4
        ring[i, j], ring[j, i] = expit(theta[i] - theta[j]), expit(theta[j] - theta[i])
    assert bradley_terry(ring).theta == pytest.approx(theta - theta.mean(), abs=1e-8)


def test_the_maximum_is_one_by_another_optimiser() -> None:
    rng = np.random.default_rng(1)
    wins, prior = rng.poisson(3.0, (6, 6)) * 1.0, 0.5
    np.fill_diagonal(wins, 0.0)

    def loss(t: np.ndarray) -> float:
        pairs = (wins * log_expit(t[:, None] - t[None, :])).sum()
        return -float(pairs + prior * (log_expit(t) + log_expit(-t)).sum())

    other = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-9}).x
    assert bradley_terry(wins, prior=prior).theta == pytest.approx(other - other.mean(), abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0.1, 9.0))
def test_names_scale_and_direction_change_nothing_but_themselves(seed: int, n: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    wins = rng.uniform(0.1, 5.0, (n, n))
    theta = bradley_terry(wins).theta
    order = rng.permutation(n)
    assert bradley_terry(wins[np.ix_(order, order)]).theta == pytest.approx(theta[order], abs=1e-7)
    assert bradley_terry(scale * wins).theta == pytest.approx(theta, abs=1e-7)
    assert bradley_terry(wins.T).theta == pytest.approx(-theta, abs=1e-7)
    assert theta.mean() == pytest.approx(0.0, abs=1e-12)


def test_standard_errors_are_those_of_repeated_tournaments() -> None:
    rng = np.random.default_rng(2)
    theta, matches = np.array([0.8, 0.0, -0.8]), 200
    p = preferences(theta)
    fits = []
    for _ in range(400):
        upper = np.triu(rng.binomial(matches, p), 1)
        fits.append(bradley_terry(upper + np.tril(matches - upper.T, -1)))
    spread = np.std([f.theta for f in fits], axis=0, ddof=1)
    # 400 repetitions know a standard deviation to 3.5%; 5 of those are a false alarm of 2e-6 in all.
    assert np.mean([f.error for f in fits], axis=0) == pytest.approx(spread, rel=0.18)


def test_who_never_lost_needs_a_prior() -> None:
    wins = [[0, 2, 1], [0, 0, 1], [0, 1, 0]]
    with pytest.raises(InputError, match="never lost"):
        bradley_terry(wins)
    with pytest.raises(InputError, match="never lost"):
        bradley_terry(np.zeros((3, 3)))
    theta = bradley_terry(wins, prior=0.5).theta
    assert np.isfinite(theta).all() and theta[0] > max(theta[1:])
    assert np.abs(bradley_terry(wins, prior=50.0).theta).max() < np.abs(theta).max()
    assert bradley_terry(np.zeros((2, 2)), prior=1.0).theta == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("wins", [[[0, 1]], [], [[0, -1], [1, 0]], [[0, np.nan], [1, 0]]])
def test_what_is_no_table_of_wins_is_refused(wins: list[list[float]]) -> None:
    with pytest.raises(InputError):
        bradley_terry(wins)


def test_elo_is_bradley_and_terry_in_points() -> None:
    assert elo_expectation(1500.0, 1100.0) == pytest.approx(1 / (1 + 10**-1))
    found = bradley_terry([[0, 10], [1, 0]])
    ratings = found.elo()
    assert ratings.mean() == pytest.approx(1500.0) and ratings[0] - ratings[1] == pytest.approx(400.0)
    assert elo_expectation(ratings[0], ratings[1]) == pytest.approx(found.probability(0, 1))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0, 1)).filter(lambda m: m[0] != m[1]),
        max_size=30,
    ),
    st.floats(0, 100),
)
def test_elo_moves_points_and_makes_none(matches: list[tuple[int, int, float]], k: float) -> None:
    assert elo(matches, 4, k=k).sum() == pytest.approx(4 * 1500.0, abs=1e-6)
    turned = [(b, a, 1.0 - result) for a, b, result in matches]
    assert elo(turned, 4, k=k) == pytest.approx(elo(matches, 4, k=k), abs=1e-6)


def test_one_match_is_what_the_rule_says() -> None:
    assert elo([(0, 1, 1.0)], 3, k=32.0) == pytest.approx([1516.0, 1484.0, 1500.0])
    ratings = elo([(0, 1, 1.0), (1, 2, 0.5)], 3, k=32.0)
    lost = 32 * (0.5 - float(elo_expectation(1484.0, 1500.0)))
    assert ratings == pytest.approx([1516.0, 1484.0 + lost, 1500.0 - lost])


def test_elo_settles_where_bradley_and_terry_put_it() -> None:
    rng = np.random.default_rng(3)
    theta = np.array([0.9, 0.1, -1.0])
    pairs = rng.permutation(np.tile([[0, 1], [0, 2], [1, 2]], (4000, 1)))
    matches = [(int(a), int(b), float(rng.random() < expit(theta[a] - theta[b]))) for a, b in pairs]
    ratings = elo(matches, 3, k=1.0, orders=4)
    assert (ratings - 1500.0) / ELO_UNIT == pytest.approx(theta - theta.mean(), abs=0.12)
    assert elo(matches[:50], 3, orders=3, seed=1) == pytest.approx(elo(matches[:50], 3, orders=3, seed=1))


@pytest.mark.parametrize("match", [(0, 0, 1.0), (0, 3, 1.0), (-1, 0, 1.0), (0, 1, 1.5), (0, 1, float("nan"))])
def test_a_match_of_nobody_is_refused(match: tuple[int, int, float]) -> None:
    with pytest.raises(InputError, match="two different items"):
        elo([match], 3)
