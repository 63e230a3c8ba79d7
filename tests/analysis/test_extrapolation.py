"""Coverage beyond the pool: predictive intervals hold the truth, and say where no law fits."""

import numpy as np
import pytest
from scipy.special import betaln

from metagen.analysis.extrapolation import coverage_beyond
from metagen.errors import InputError


def test_of_beta_chances_the_interval_holds_the_truth() -> None:
    """At 16 times the pool; the law that was fitted to means covered 28%. 40 pools, of which 35 at least."""
    rng = np.random.default_rng(0)
    a, b = 0.3, 0.7
    truth = 1.0 - np.exp(betaln(a, b + 1024) - betaln(a, b))
    found = [coverage_beyond(64, rng.binomial(64, rng.beta(a, b, 100)), [1024])[0] for _ in range(40)]
    assert sum(one.low <= truth <= one.high for one in found) >= 35
    assert all(one.fits and one.high - one.low < 0.35 for one in found)


def test_problems_that_nobody_can_solve_are_allowed_for() -> None:
    rng = np.random.default_rng(1)
    chance = np.where(rng.random(200) < 0.15, 0.0, rng.beta(0.9, 0.1, 200))
    (found,) = coverage_beyond(64, rng.binomial(64, chance), [1024])
    assert found.low < 0.85 < found.high and found.fits


def test_where_no_beta_fits_the_bounds_are_those_of_any_distribution() -> None:
    rng = np.random.default_rng(2)
    chance = np.where(rng.random(200) < 0.5, 0.1, 0.9)
    (found,) = coverage_beyond(64, rng.binomial(64, chance), [1024])
    assert not found.fits and found.high == 1.0 and found.low > 0.9


def test_too_few_solved_problems_say_nothing_about_the_rest() -> None:
    """Chances of 0.5% look like zeros in 64 samples, and 30 counts show no form; nearly all are solved by 1,024."""
    rng = np.random.default_rng(4)
    found = [coverage_beyond(64, rng.binomial(64, np.full(30, 0.005)), [1024])[0] for _ in range(40)]
    few = [one for one in found if not one.fits]
    assert len(few) > 30 and all(one.high == 1.0 and one.low < 0.5 for one in few)
    truth = 1.0 - 0.995**1024
    assert sum(one.low <= truth <= one.high for one in found) >= 38


def test_within_the_pool_it_is_near_what_was_measured_and_rises_with_k() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(8, 33, 300)
    found = coverage_beyond(sizes, rng.binomial(sizes, rng.beta(1.0, 2.0, 300)), [1, 4, 100])
    assert found[0].estimate == pytest.approx(1 / 3, abs=0.06)
    assert found[0].high < found[1].low < found[1].estimate < found[2].estimate < 1.0


def test_faults() -> None:
    with pytest.raises(InputError, match="expected \\[problems\\] with 0 ≤ right ≤ samples"):
        coverage_beyond(4, [5, 1], [8])
    with pytest.raises(InputError, match=r"k=\[0\.0\]"):
        coverage_beyond(4, [3, 1], [0])
