"""Weights and resampling: exact shares, limits, expectations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.strategies.tree.resampling import effective_size, log_mean, normalise, resample

log_weights = st.lists(st.floats(-50, 50), min_size=1, max_size=6)


def test_by_hand() -> None:
    log_w, counts = [math.log(3.0), math.log(1.0)], [1, 2]
    assert normalise(log_w, counts) == pytest.approx([3 / 5, 2 / 5])
    assert effective_size(log_w, counts) == pytest.approx(25 / 11)
    assert log_mean(log_w, counts) == pytest.approx(math.log(5 / 3))
    assert (normalise([], []), effective_size([], []), log_mean([], [])) == ([], 0.0, -math.inf)


@given(log_weights, st.floats(-600, 600))
def test_only_ratios_of_weights_matter_and_nothing_overflows(log_w: list[float], shift: float) -> None:
    ones, moved = [1] * len(log_w), [w + shift for w in log_w]
    assert normalise(moved, ones) == pytest.approx(normalise(log_w, ones), abs=1e-9)
    assert math.fsum(normalise(moved, ones)) == pytest.approx(1.0)
    assert 1.0 - 1e-9 <= effective_size(moved, ones) <= len(log_w) + 1e-9
    assert log_mean(moved, ones) == pytest.approx(log_mean(log_w, ones) + shift, abs=1e-9)


def test_the_effective_size_goes_from_all_to_one() -> None:
    assert effective_size([2.0] * 8, [1] * 8) == pytest.approx(8.0)
    assert effective_size([2.0], [8]) == pytest.approx(8.0), "equal particles are particles still"
    assert effective_size([0.0, -100.0, -100.0], [1, 1, 1]) == pytest.approx(1.0)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).filter(lambda w: sum(w) > 1e-6), st.floats(0, 0.999)
)
def test_systematic_draws_are_within_one_of_their_share(weights: list[float], shift: float) -> None:
    n = 10
    taken = resample(weights, [shift] * n, "systematic")
    assert sum(taken) == n
    for k, w in zip(taken, weights, strict=True):
        assert math.floor(n * w / sum(weights) - 1e-6) <= k <= math.ceil(n * w / sum(weights) + 1e-6)


@pytest.mark.parametrize("how", ["multinomial", "systematic"])
def test_each_weight_is_taken_in_proportion_and_zero_never(how: str) -> None:
    rng, weights, n = np.random.default_rng(7), [0.5, 0.0, 0.2, 0.3], 4
    taken = np.array([resample(weights, list(rng.random(n)), how) for _ in range(4000)])  # type: ignore[arg-type]
    # Four standard errors of a multinomial, which systematic draws do not exceed.
    error = 4 * np.sqrt(n * np.array(weights) * (1 - np.array(weights)) / len(taken))
    assert (np.abs(taken.mean(0) - n * np.array(weights)) <= error + 1e-12).all()
    assert taken[:, 1].sum() == 0
    if how == "systematic":
        assert taken.var(0).sum() < 0.5 * n * (1 - sum(w * w for w in weights))


def test_the_ends_of_the_interval_and_no_draws() -> None:
    almost = math.nextafter(1.0, 0.0)
    assert resample([0.25, 0.75], [0.0, 0.2499, 0.25, almost]) == [2, 2]
    assert resample([1.0, 0.0], [almost]) == [1, 0]
    assert resample([0.5, 0.5], []) == [0, 0]


@pytest.mark.parametrize("how", ["multinomial", "systematic"])
def test_where_nothing_weighs_anything_all_weigh_the_same(how: str) -> None:
    """Weights underflow where values are sure and the temperature is low."""
    assert resample([0.0], [0.7, 0.7], how) == [2]  # type: ignore[arg-type]  # one of the two
    assert resample([0.0, 0.0], [0.2, 0.8], how) == [1, 1]  # type: ignore[arg-type]
