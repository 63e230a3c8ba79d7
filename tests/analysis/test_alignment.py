"""Best-of-n, soft, pessimistic, blockwise and token-wise policies, where the model is a table."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.analysis import alignment
from metagen.analysis.alignment import (
    best_of_n_pmf,
    blockwise_pmf,
    expected_blocks,
    expected_values,
    kl,
    kl_bound,
    kl_estimate,
    pessimistic_pmf,
    sequences,
    soft_best_of_n_pmf,
    soft_values,
    tilt,
    tilt_at,
    tokenwise_pmf,
    win_rate,
    win_rate_bound,
)
from metagen.errors import InputError
from metagen.generators.enumerable import EnumerableEngine

LONGEST = 4


@st.composite
def worlds(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A distribution, some outcomes of probability 0, and rewards with ties."""
    size = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any))
    rewards = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0, 3.0]), min_size=size, max_size=size))
    return np.array(counts) / sum(counts), np.array(rewards)


def after(done: tuple[int, ...]) -> tuple[float, float, float]:
    """Up to four letters; what comes next depends on the last one."""
    if len(done) == LONGEST:
        return 0.0, 0.0, 1.0
    return {(): (0.5, 0.3, 0.2), (0,): (0.2, 0.6, 0.2), (1,): (0.5, 0.25, 0.25)}[done[-1:]]


def reward(y: tuple[int, ...]) -> float:
    """The share of the first letter, and a little for length."""
    return y.count(0) / max(1, len(y)) + 0.01 * len(y)


def arrays(of: dict, q: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both over the same sequences, and their rewards."""
    return np.array(list(of.values())), np.array([q.get(y, 0.0) for y in of]), np.array([*map(reward, of)])


def by_draws(p, r, n, choose) -> np.ndarray:
    """The policy by all p^n possible draws; choose: rewards of the draws → shares."""
    found = np.zeros(len(p))
    for drawn in product(range(len(p)), repeat=n):
        np.add.at(found, list(drawn), choose(r[list(drawn)]) * np.prod(p[list(drawn)]))
    return found


def best(r: np.ndarray) -> np.ndarray:
    return (r == r.max()) / (r == r.max()).sum()


@pytest.mark.parametrize(
    ("outcomes", "n", "exact", "estimate", "bound"),
    [(2, 4, 0.4594, 0.4991, 0.6363), (4, 16, 1.3301, 1.3376, 1.8351), (100, 100, 3.5745, 3.5897, 3.6152)],
)
def test_published_figures_of_uniform_models(outcomes, n, exact, estimate, bound) -> None:
    p, r = np.full(outcomes, 1 / outcomes), np.arange(outcomes)
    q = best_of_n_pmf(p, r, n)
    found = [kl(q, p), float(q @ kl_estimate(n, p)), kl_bound(n)]
    np.testing.assert_allclose(found, [exact, estimate, bound], atol=6e-5)


def test_two_outcomes_in_closed_form() -> None:
    """log 2 − h(2⁻ⁿ): Beirami et al. (2024), their example."""
    for n in (1, 2, 5, 20):
        e = 2.0**-n
        h = -e * math.log(e) - ((1 - e) * math.log1p(-e) if e < 1 else 0.0)
        assert kl(best_of_n_pmf([0.5, 0.5], [0, 1], n), [0.5, 0.5]) == pytest.approx(math.log(2) - h)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(1, 4), st.sampled_from([0.05, 0.5, 4.0]))
def test_policies_are_what_draws_give(world, n, beta) -> None:
    p, r = world
    np.testing.assert_allclose(best_of_n_pmf(p, r, n), by_draws(p, r, n, best), atol=1e-12)

    def soft(some: np.ndarray) -> np.ndarray:
        weight = np.exp((some - some.max()) / beta)
        return weight / weight.sum()

    np.testing.assert_allclose(soft_best_of_n_pmf(p, r, n, beta), by_draws(p, r, n, soft), atol=1e-10)


@settings(max_examples=100, deadline=None)
@given(worlds(), st.sampled_from([1, 2, 7, 64, 4096]))
def test_bounds_hold_with_ties(world, n) -> None:
    p, r = world
    q = best_of_n_pmf(p, r, n)
    assert q.sum() == pytest.approx(1.0, abs=1e-12) and (q >= 0).all() and (q[p == 0] == 0).all()
    assert kl(q, p) <= kl_bound(n) + 1e-12
    assert 0.5 - 1e-12 <= win_rate(q, p, r) <= win_rate_bound(n) + 1e-12
    # 1 − ½ E_p[Fⁿ + (F⁻)ⁿ]
    by_law = 1 - 0.5 * sum(
        mass * (p[r <= one].sum() ** n + p[r < one].sum() ** n) for mass, one in zip(p, r, strict=True)
    )
    assert win_rate(q, p, r) == pytest.approx(by_law, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from([1, 3, 50, 10_000]))
def test_soft_lies_between_the_model_and_best_of_n(world, n) -> None:
    p, r = world
    np.testing.assert_allclose(soft_best_of_n_pmf(p, r, n, 1e-4), best_of_n_pmf(p, r, n), atol=1e-10)
    np.testing.assert_allclose(soft_best_of_n_pmf(p, r, n, 1e9), p, atol=1e-7)
    for beta in (0.01, 0.3, 5.0):
        assert soft_best_of_n_pmf(p, r, n, beta).sum() == pytest.approx(1.0, abs=1e-10)
    # As n grows it is the tilt with λ = 1/β.
    np.testing.assert_allclose(soft_best_of_n_pmf(p, r, 10**7, 0.5), tilt(p, r, 2.0), atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from([2, 5, 64]), st.sampled_from([0.1, 1.0]))
def test_no_policy_wins_more_than_the_tilt_at_its_divergence(world, n, beta) -> None:
    p, r = world
    for q in (best_of_n_pmf(p, r, n), soft_best_of_n_pmf(p, r, n, beta), pessimistic_pmf(p, r, n, 0.5, r**2)):
        most, _ = tilt_at(p, r, kl(q, p))
        assert most @ r >= q @ r - 1e-8


@settings(max_examples=60, deadline=None)
@given(worlds(), st.floats(1e-6, 3.0))
def test_the_tilt_of_so_much_divergence(world, nats) -> None:
    p, r = world
    q, lam = tilt_at(p, r, nats)
    if math.isinf(lam):  # beyond what the support allows
        best_mass = p[(r == r[p > 0].max())].sum()
        assert kl(q, p) == pytest.approx(-math.log(best_mass), abs=1e-12) and kl(q, p) <= nats + 1e-9
    else:
        assert kl(q, p) == pytest.approx(nats, abs=1e-9)
        np.testing.assert_allclose(q, tilt(p, r, lam))


def test_edges() -> None:
    p, flat = np.array([0.5, 0.3, 0.2]), np.ones(3)
    assert tilt_at(p, flat, 0.0)[1] == 0.0 and tilt_at(p, flat, 1.0)[1] == math.inf
    for q in (
        tilt(p, flat, 7.0),
        tilt_at(p, flat, 1.0)[0],
        best_of_n_pmf(p, flat, 9),
        tilt(p, [0, 1, 2], 0.0),
    ):
        np.testing.assert_allclose(q, p)
    np.testing.assert_allclose(tilt(p, [0, 1, 1], math.inf), [0, 0.6, 0.4])
    np.testing.assert_allclose(tilt(p, [0, 1, 1], -math.inf), [1, 0, 0])
    np.testing.assert_allclose(tilt(p, [0, 1e6, 2e6], 1e6), [0, 0, 1])
    np.testing.assert_allclose(soft_best_of_n_pmf(p, [0, 1e6, 2e6], 4, 1e-3), best_of_n_pmf(p, [0, 1, 2], 4))
    assert kl([1.0, 0.0], [0.0, 1.0]) == math.inf and kl(p, p) == 0.0
    # What is nearly certain is not rounded off.
    q = best_of_n_pmf([1 - 1e-18, 1e-18], [0, 1], 100)
    assert q[1] == pytest.approx(1e-16, rel=1e-9)
    assert best_of_n_pmf([1e-300, 1.0], [0, 1], 2).tolist() == [0.0, 1.0]


def test_estimator_at_its_limits() -> None:
    for n in (1, 4, 1000):
        np.testing.assert_allclose(kl_estimate(n, [0.0, 5e-324, 1e-15]), kl_bound(n), atol=1e-9)
        assert kl_estimate(n, 1.0) == 0.0 and 0 <= kl_estimate(n, 1 - 1e-16) < 1e-9
    inside = kl_estimate(8, np.linspace(0, 1, 200))
    assert (np.diff(inside) <= 1e-12).all() and np.isnan(kl_estimate(8, math.nan))


def test_pessimism_is_best_of_n_by_the_bound() -> None:
    p, mean, spread = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.9]), np.array([0.0, 0.0, 0.5])
    np.testing.assert_allclose(pessimistic_pmf(p, mean, 4, 0.0, spread), best_of_n_pmf(p, mean, 4))
    assert pessimistic_pmf(p, mean, 64, 1.0, spread)[1] > 0.99  # 0.9 − 0.5 < 0.5


def test_sequences_are_those_of_the_engine() -> None:
    names = ("a", "b", "$")
    engine = EnumerableEngine(names, lambda _, done: after(tuple(map(names.index, done))), name="letters")
    for longest in (2, LONGEST + 1):
        exact = engine.sequences(max_tokens=longest)
        found = {tuple(names[z] for z in y): p for y, p in sequences(after, longest).items()}
        assert found.keys() == exact.keys() and all(found[y] == pytest.approx(exact[y]) for y in exact)


@pytest.mark.parametrize("n", [1, 3, 8])
def test_one_block_is_best_of_n(n) -> None:
    of = sequences(after, LONGEST + 1)
    p, q, r = arrays(of, blockwise_pmf(after, reward, n, LONGEST + 1, LONGEST + 1))
    np.testing.assert_allclose(q, best_of_n_pmf(p, r, n), atol=1e-14)


@pytest.mark.parametrize(("n", "block"), [(2, 1), (4, 1), (3, 2), (16, 3)])
def test_blocks_stay_within_their_bound(n, block) -> None:
    of = sequences(after, LONGEST + 1)
    values = expected_values(of, reward)
    chosen = blockwise_pmf(after, values.__getitem__, n, block, LONGEST + 1)
    p, q, r = arrays(of, chosen)
    assert q.sum() == pytest.approx(1.0) and 0 < kl(q, p) <= kl_bound(n, expected_blocks(chosen, block))
    assert q @ r > p @ r
    np.testing.assert_allclose(arrays(of, blockwise_pmf(after, reward, 1, block, LONGEST + 1))[1], p)


def test_blocks_are_what_pairs_of_draws_give() -> None:
    """Of values that are equal but for rounding, neither is the higher."""

    def alternating(y: tuple[int, ...]) -> tuple[float, float, float]:
        return (0.3, 0.3, 0.4) if len(y) % 2 else (0.5, 0.2, 0.3)

    of = sequences(alternating, 4)
    values = expected_values(of, lambda y: y.count(0) + 0.3 * len(y))
    found = dict.fromkeys(of, 0.0)

    def ends(y: tuple[int, ...]) -> bool:
        return y[-1] == 2 or len(y) == 4

    def follow(prefix: tuple[int, ...], mass: float) -> None:
        two = {
            y: sum(p for z, p in of.items() if z[: len(y)] == y)
            for y in {z[: len(prefix) + 2] for z in of if z[: len(prefix)] == prefix}
        }
        whole = sum(two.values())
        for y, first in two.items():
            wins = sum(p * np.heaviside(round(values[y] - values[z], 9), 0.5) for z, p in two.items())
            share = mass * 2.0 * first * wins / whole**2
            if ends(y):
                found[y] += share
            else:
                follow(y, share)

    follow((), 1.0)
    for scale in (1.0, 1e-15, 1e15):
        chosen = blockwise_pmf(alternating, lambda y, by=scale: by * values[y], 2, 2, 4)
        assert chosen == pytest.approx(found, abs=1e-14)
    for wrong in (math.nan, math.inf, -math.inf):
        with pytest.raises(InputError, match="finite rewards"):
            blockwise_pmf(alternating, lambda y, wrong=wrong: wrong if len(y) == 4 else 0.0, 2, 2, 4)


def test_a_block_of_one_token_by_hand() -> None:
    """Two draws from (½, ½), then the end; the second token is worth more."""
    chosen = blockwise_pmf(lambda y: (0.5, 0.5, 0.0) if not y else (0.0, 0.0, 1.0), lambda y: y[0], 2, 1, 3)
    assert chosen == pytest.approx({(0, 2): 0.25, (1, 2): 0.75})
    assert expected_blocks(chosen, 1) == 2.0


@pytest.mark.parametrize("lam", [-1.0, 0.0, 0.5, 4.0, 60.0])
def test_only_the_soft_value_makes_the_tilt_of_whole_sequences(lam) -> None:
    of = sequences(after, LONGEST + 1)
    soft = soft_values(of, reward, lam)
    p, q, r = arrays(of, tokenwise_pmf(after, soft.__getitem__, lam, LONGEST + 1))
    np.testing.assert_allclose(q, tilt(p, r, lam), atol=1e-12)
    expected = expected_values(of, reward)
    q = arrays(of, tokenwise_pmf(after, expected.__getitem__, lam, LONGEST + 1))[1]
    assert (np.abs(q - tilt(p, r, lam)).sum() > 1e-3) == (lam != 0.0)
    assert tilt_at(p, r, kl(q, p))[0] @ r >= q @ r - 1e-9


def test_best_of_n_reaches_the_tilt_in_rate() -> None:
    """Words of m symbols, reward log q: e^(mΔ) of them win, per symbol, what the tilt wins at Δ (Yang et al. 2024)."""
    p, r, nats = np.array([0.5, 0.3, 0.2]), np.log([0.22, 0.11, 0.67]), 0.2
    most = tilt_at(p, r, nats)[0] @ r
    short_of = []
    for m in (5, 20, 80):
        counts = np.array([(i, j, m - i - j) for i in range(m + 1) for j in range(m + 1 - i)])
        ways = math.lgamma(m + 1) - np.vectorize(math.lgamma)(counts + 1).sum(axis=1)
        types = np.exp(ways + counts @ np.log(p))
        q = best_of_n_pmf(types / types.sum(), counts @ r, math.exp(m * nats))
        assert kl(q, types / types.sum()) / m <= nats
        short_of.append(most - q @ (counts @ r) / m)
    assert 0 < short_of[2] < short_of[1] < short_of[0] and short_of[2] < 0.03


def test_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    for call, words in (
        (lambda: best_of_n_pmf([0.5, 0.4], [0, 1], 2), "sum to 1"),
        (lambda: best_of_n_pmf([0.5, 0.5], [0, 1, 2], 2), r"expected one \[outcomes\]"),
        (lambda: best_of_n_pmf([0.5, 0.5], [0, math.nan], 2), "outcome 1 has the reward nan"),
        (lambda: best_of_n_pmf([0.5, 0.5], [0, 1], 0), "n=0"),
        (lambda: soft_best_of_n_pmf([0.5, 0.5], [0, 1], 2, 0.0), "take best_of_n_pmf"),
        (lambda: soft_best_of_n_pmf([0.5, 0.5], [0, 1], 2, 1e-310), "take best_of_n_pmf"),
        (lambda: tilt_at([0.5, 0.5], [0, 1], -1.0), "at least 0"),
        (lambda: tilt([0.5, 0.5], [0, 1], math.nan), "lam=nan"),
        (lambda: kl([1.0], [0.5, 0.5]), "same outcomes"),
        (lambda: kl_estimate(4, 1.5), "probabilities in"),
        (lambda: kl_bound(0), "expected n ≥ 1"),
        (lambda: kl_bound(2, -1.0), "expected n ≥ 1"),
        (lambda: blockwise_pmf(after, reward, 2, 0, 5), "block=0"),
        (lambda: sequences(after, 0), "longest=0"),
        (lambda: sequences(lambda y: (0.5, 0.6), 3), r"after \(\) p="),
    ):
        with pytest.raises(InputError, match=words):
            call()
    monkeypatch.setattr(alignment, "MOST", 20)
    for call in (
        lambda: sequences(after, 5),
        lambda: blockwise_pmf(after, reward, 2, 1, 5),
        lambda: blockwise_pmf(after, reward, 2, 5, 5),
        lambda: tokenwise_pmf(after, reward, 1.0, 5),
    ):
        with pytest.raises(InputError, match="too many to enumerate"):
            call()
