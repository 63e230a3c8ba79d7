"""Error rates and what they predict: against enumeration, against simulation, and against the pool's own curve."""

from __future__ import annotations

from itertools import product
from math import comb, prod

import numpy as np
import pytest
from scipy.stats import binom

from metagen.analysis.error_rates import (
    LEVELS,
    ErrorRates,
    Levels,
    error_rates,
    levels,
    predict_best_of_n,
    predict_by_group,
    predict_in_pool,
)
from metagen.analysis.estimators import best_of_k, pass_at_k
from metagen.analysis.ragged import Pool
from metagen.errors import InputError

THREE = Levels(np.array([0.2, 0.3, 0.4]), np.array([0.5, 0.25, 0.2]), (0.1, 0.05))


def brute_force(p: float, of: Levels, n: int) -> float:
    """Every outcome of n samples: right or wrong, unscored (level −1) or on a level."""
    kinds = []
    for right, masses, missing in ((True, of.right, of.unscored[0]), (False, of.wrong, of.unscored[1])):
        share = p if right else 1 - p
        kinds += [(right, -1, share * missing), *((right, s, share * m) for s, m in enumerate(masses))]
    total = 0.0
    for samples in product(kinds, repeat=n):
        best = max(level for _, level, _ in samples)
        among = [right for right, level, _ in samples if level == best]
        if best >= 0:
            total += prod(mass for _, _, mass in samples) * sum(among) / len(among)
    return total


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_prediction_is_the_sum_over_all_outcomes(p: float, n: int) -> None:
    two = ErrorRates(0.5, 0.7, 0.2).levels
    for of in (THREE, two):
        assert predict_best_of_n(p, of, [n])[0] == pytest.approx(brute_force(p, of, n), abs=1e-12)


def test_a_verifier_that_accepts_or_rejects_has_a_closed_form() -> None:
    p, t, f = 0.3, 0.8, 0.15
    a = p * t + (1 - p) * f
    for n in (1, 2, 5, 20, 300):
        expected = (1 - (1 - a) ** n) * p * t / a + (1 - a) ** n * p * (1 - t) / (1 - a)
        assert predict_best_of_n(p, ErrorRates(0.5, t, f).levels, [n])[0] == pytest.approx(expected)
    # The limit of resampling: more samples do not help a verifier that accepts wrong ones.
    assert predict_best_of_n(p, ErrorRates(0.5, t, f).levels, [5000])[0] == pytest.approx(
        float(ErrorRates(0.5, t, f).limit(p))
    )
    assert float(ErrorRates(0.5, t, f).limit(p)) == pytest.approx(p * t / a)


def test_perfect_useless_and_inverted_verifiers() -> None:
    p, ns = np.array([0.05, 0.4, 0.9]), [1, 3, 10]
    perfect = predict_best_of_n(p, ErrorRates(0.5, 1.0, 0.0).levels, ns)
    assert perfect == pytest.approx(1 - (1 - p) ** np.array(ns)[:, None])
    useless = predict_best_of_n(p, ErrorRates(0.5, 0.6, 0.6).levels, ns)
    assert useless == pytest.approx(np.tile(p, (3, 1)))
    inverted = predict_best_of_n(p, ErrorRates(0.5, 0.0, 1.0).levels, ns)
    assert inverted == pytest.approx(p ** np.array(ns)[:, None])


def test_a_pool_predicts_without_bias_what_its_unknown_share_does() -> None:
    size = 12
    c = np.arange(size + 1)
    for p, n in product((0.15, 0.6), (1, 2, 5, 12)):
        pools = predict_in_pool(c, np.full(size + 1, size), THREE, [n])[0]
        mean = float((binom.pmf(c, size, p) * pools).sum())
        assert mean == pytest.approx(float(predict_best_of_n(p, THREE, [n])[0]), abs=1e-12)


def test_in_a_pool_a_perfect_verifier_predicts_pass_at_k() -> None:
    c, sizes, ns = np.array([0, 1, 4, 8]), np.array([8, 8, 8, 8]), [1, 2, 5, 8]
    found = predict_in_pool(c, sizes, ErrorRates(0.5, 1.0, 0.0).levels, ns)
    assert found == pytest.approx(pass_at_k(sizes, c, np.array(ns)[:, None]), abs=1e-12)


def test_in_a_pool_of_ties_the_subset_is_enumerated() -> None:
    right = [True, True, False, False, False]
    t, f, n = 0.6, 0.3, 3
    total = 0.0
    for subset in {
        tuple(s) for s in product(range(5), repeat=n) if len(set(s)) == n and list(s) == sorted(s)
    }:
        for accepted in product((0, 1), repeat=n):
            mass = prod(
                (t if a else 1 - t) if right[i] else (f if a else 1 - f)
                for i, a in zip(subset, accepted, strict=True)
            )
            among = [right[i] for i, a in zip(subset, accepted, strict=True) if a] or [
                right[i] for i in subset
            ]
            total += mass * sum(among) / len(among)
    found = predict_in_pool([2], [5], ErrorRates(0.5, t, f).levels, [n])
    assert found[0, 0] == pytest.approx(total / comb(5, n))


def simulated(problems: int, samples: int, *, ease: float = 0.0) -> tuple[Pool, np.ndarray]:
    """Scores that depend on correctness and, by `ease`, on how easy the problem is; and the problems' shares."""
    rng = np.random.default_rng(0)
    share = rng.uniform(0.1, 0.9, (problems, 1))
    correct = rng.random((problems, samples)) < share
    scores = np.clip(rng.normal(0.4 + 0.1 * correct + ease * (share - 0.5), 0.1), 0.0, 1.0)
    return Pool.of(scores, correct), share[:, 0]


def test_prediction_meets_measurement_where_scores_depend_on_correctness_alone() -> None:
    pool, _ = simulated(400, 32)
    ns = [1, 2, 4, 8, 16, 32]
    predicted = predict_in_pool(pool.correct.sum(axis=1), pool.sizes, levels(pool), ns)
    measured = best_of_k(pool.scores, pool.correct, ns).accuracy
    # Fixed seed; the standard error of the mean difference is below 0.01 at every n.
    assert predicted.mean(axis=1) == pytest.approx(measured.mean(axis=1), abs=0.02)


def test_prediction_is_too_high_where_the_verifier_knows_problems_and_groups_mend_it() -> None:
    pool, share = simulated(400, 32, ease=0.5)
    measured = best_of_k(pool.scores, pool.correct, [8]).accuracy[0].mean()
    missed = predict_by_group(pool, [8])[0].mean() - measured
    # Within a tenth of difficulty there is little left to know of a problem.
    left = predict_by_group(pool, [8], np.round(10 * share))[0].mean() - measured
    assert missed > 0.05 and abs(left) < missed / 4


def test_groups_of_one_problem_predict_what_was_measured_with_its_own_samples_drawn_anew() -> None:
    pool = Pool.of([[0.9, 0.5, 0.4], [0.3, 0.2, np.nan], [0.1, 0.9, 0.9]], [[1, 0, 0], [0, 0, 0], [1, 1, 1]])
    found = predict_by_group(pool, [1, 2], [0, 1, 2])
    assert found[0] == pytest.approx([1 / 3, 0.0, 1.0])
    # A right sample scores 0.9 and beats any wrong one; all are wrong; all are right.
    assert found[1] == pytest.approx([2 / 3, 0.0, 1.0])
    assert (predict_by_group(pool, [2]) == predict_in_pool([1, 0, 3], [3, 3, 3], levels(pool), [2])).all()
    with pytest.raises(InputError, match="a label for each"):
        predict_by_group(pool, [1], [0, 1])


def test_levels_are_the_scores_of_right_and_wrong_samples() -> None:
    of = levels(Pool.of([[0.1, 0.5, np.nan], [0.5, 0.5]], [[0, 1, 1], [0, 0]]))
    assert of.right == pytest.approx([0.0, 0.5]) and of.wrong == pytest.approx([1 / 3, 2 / 3])
    assert of.unscored == (0.5, 0.0)
    rng = np.random.default_rng(0)
    many = levels(Pool.of(rng.random((100, 100)), rng.random((100, 100)) < 0.5))
    assert len(many.right) == LEVELS and many.right.sum() == pytest.approx(1.0)


def test_error_rates_at_a_threshold_and_at_the_best_one() -> None:
    pool = Pool.of([[0.9, 0.8, 0.3, np.nan], [0.8, 0.1, 0.2, 0.1]], [[1, 1, 1, 1], [0, 0, 0, 0]])
    assert error_rates(pool, 0.8) == ErrorRates(0.8, 0.5, 0.25)
    assert error_rates(pool) == ErrorRates(0.3, 0.75, 0.25)
    assert error_rates(pool, 2.0) == ErrorRates(2.0, 0.0, 0.0)
    assert np.isnan(error_rates(pool, 2.0).limit(0.5))
    with pytest.raises(InputError, match="all are alike"):
        error_rates(Pool.of([[0.5]], [[1]]))
    with pytest.raises(InputError, match="all are alike"):
        levels(Pool.of([[0.5]], [[0]]))
    with pytest.raises(InputError, match="no sample has one"):
        error_rates(Pool.of([[np.nan, np.nan]], [[0, 1]]))


def test_what_is_no_distribution_or_no_n_is_refused() -> None:
    with pytest.raises(InputError, match="sum to"):
        Levels(np.array([0.5]), np.array([1.0]))
    with pytest.raises(InputError, match="≥ 0"):
        Levels(np.array([1.5, -0.5]), np.array([0.5, 0.5]))
    with pytest.raises(InputError, match="n ≥ 1"):
        predict_best_of_n(0.5, THREE, [0])
    with pytest.raises(InputError, match="smallest pool"):
        predict_in_pool([1], [4], THREE, [5])
