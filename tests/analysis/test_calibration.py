"""Calibration: maps that keep the order and recover what was distorted, and diagrams whose bins add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from metagen.analysis.calibration import (
    Isotonic,
    Temperature,
    brier_score,
    fit_isotonic,
    fit_temperature,
    log_loss,
    reliability,
)
from metagen.analysis.estimators import best_of_k
from metagen.errors import InputError


def drawn(seed: int, problems: int = 500, samples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities, and what came of them."""
    rng = np.random.default_rng(seed)
    p = expit(rng.normal(size=(problems, 1)) + rng.normal(size=(problems, samples)))
    return p, rng.random(p.shape) < p


def test_a_temperature_undoes_another() -> None:
    p, right = drawn(0)
    # 20,000 samples: the standard error of 1/T is about 0.015.
    assert fit_temperature(p, right).temperature == pytest.approx(1.0, abs=0.1)
    assert fit_temperature(expit(3.0 * logit(p)), right).temperature == pytest.approx(3.0, abs=0.3)
    both = fit_temperature(expit(3.0 * logit(p) + 1.5), right, bias=True)
    assert both.temperature == pytest.approx(3.0, abs=0.3) and both.bias == pytest.approx(-0.5, abs=0.1)


def test_a_fitted_temperature_is_the_one_of_least_loss() -> None:
    p, right = drawn(1, 60, 10)
    sharp = expit(2.0 * logit(p))
    best = fit_temperature(sharp, right)
    least = log_loss(best(sharp), right)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert log_loss(Temperature(best.temperature * factor)(sharp), right) > least


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_no_map_changes_what_best_of_n_chooses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random((6, 8)), 2)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    right = rng.random(scores.shape) < 0.2 + 0.6 * np.nan_to_num(scores)
    right[0, :2] = True, False
    scores[0, :2] = 0.9, 0.1
    for calibrated in (fit_isotonic(scores, right)(scores), Temperature(3.3, 0.7)(scores)):
        plain = best_of_k(scores, right, (1, 3, 8)).accuracy
        assert best_of_k(calibrated, right, (1, 3, 8)).accuracy == pytest.approx(plain, abs=1e-12)
        assert (np.isnan(calibrated) == np.isnan(scores)).all()


def test_isotonic_regression_learns_any_rising_curve() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random((400, 50))
    right = rng.random(scores.shape) < scores**3
    fitted = fit_isotonic(scores, right)
    x = np.linspace(0.05, 0.95, 19)
    assert fitted(x) == pytest.approx(x**3, abs=0.06)
    assert brier_score(fitted(scores), right) < brier_score(scores, right)


def test_isotonic_blocks_are_those_of_pooled_violators() -> None:
    # 0.2 and 0.3 are in the wrong order and become one block of half right ones.
    fitted = fit_isotonic([[0.1, 0.2, 0.3, 0.9, 0.9]], [[0, 1, 0, 1, 1]])
    assert fitted.points == ((0.1, 0.0), (0.25, 0.5), (0.9, 1.0))


def test_bins_hold_everything_and_a_calibrated_score_has_a_small_error() -> None:
    p, right = drawn(3)
    found = reliability(p, right)
    assert found.count.sum() == p.size
    assert (found.count * found.accuracy).sum() == pytest.approx(right.sum())
    assert found.expected_error < 0.02
    inside = (found.low <= found.score) & (found.score <= found.high)
    assert inside.sum() >= 8
    sharp = reliability(expit(3.0 * logit(p)), right)
    assert sharp.expected_error > 0.1 and sharp.largest_error >= sharp.expected_error


def test_an_error_is_the_gap_of_the_bins_by_their_size() -> None:
    found = reliability([[0.1, 0.1, 0.9], [1.0]], [[0, 1, 1], [0]], bins=2)
    # Two at 0.1, half right; two at 0.95, half right.
    assert found.count.tolist() == [2, 2]
    assert found.expected_error == pytest.approx(0.5 * 0.4 + 0.5 * 0.45)
    assert found.largest_error == pytest.approx(0.45)


def test_empty_bins_are_nan_and_bins_of_equal_mass_are_not_empty() -> None:
    found = reliability([[0.05, 0.06], [0.95, 0.07]], [[0, 0], [1, 1]])
    assert np.isnan(found.accuracy[5]) and found.count[5] == 0 and found.expected_error < 0.4
    p, right = drawn(4, 50, 20)
    even = reliability(p, right, equal="mass", bins=5)
    assert even.count.min() == even.count.max() == 200
    ties = reliability([[0.5] * 9], [[0] * 5 + [1] * 4], equal="mass")
    assert ties.count.sum() == 9


def test_bounds_know_that_samples_of_a_problem_are_alike() -> None:
    rng = np.random.default_rng(5)
    right = np.repeat(rng.random((40, 1)) < 0.5, 100, axis=1)  # all or nothing, problem by problem
    found = reliability(np.full(right.shape, 0.55), right)
    width = float(found.high[5] - found.low[5])
    assert 0.2 < width < 0.45  # 40 problems, not 4,000 samples


def test_scores_of_calibration_by_hand() -> None:
    assert brier_score([[0.8, 0.4]], [[1, 0]]) == pytest.approx((0.04 + 0.16) / 2)
    assert log_loss([[0.8, 0.4]], [[1, 0]]) == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    assert np.isfinite(log_loss([[0.0, 1.0]], [[1, 0]]))


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(InputError, match="all are alike"):
        fit_temperature([[0.1, 0.9]], [[1, 1]])
    with pytest.raises(InputError, match="do not go with"):
        fit_temperature([[0.1, 0.9, 0.2, 0.8]], [[1, 0, 1, 0]])
    with pytest.raises(InputError, match=r"in \[0, 1\]"):
        reliability([[1.5]], [[1]])
    with pytest.raises(InputError, match="equal='typo': expected 'width' or 'mass'"):
        reliability([[0.5]], [[1]], equal="typo")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InputError, match="at least one score"):
        fit_isotonic([[np.nan]], [[1]])
    for right in ([1, 1], [0, 0]):
        with pytest.raises(InputError, match="all are alike"):
            fit_isotonic([[0.1, 0.9]], [right])
    with pytest.raises(InputError, match="temperature > 0"):
        Temperature(0.0)
    for points in (((0.5, 0.5), (0.4, 0.6)), ((0.1, 0.6), (0.4, 0.5)), ((0.1, 1.2),), ()):
        with pytest.raises(InputError, match="ascending"):
            Isotonic(points)


def test_scores_that_separate_perfectly_want_a_temperature_near_0() -> None:
    found = fit_temperature([[0.1, 0.9, 0.2, 0.8]], [[0, 1, 0, 1]])
    assert 0.01 <= found.temperature < 0.2
