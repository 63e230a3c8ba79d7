"""Paired differences: their interval, the exact test, and what could have been shown."""

import numpy as np
import pytest
from scipy import stats

from metagen.analysis.paired import paired_difference, randomisation_test
from metagen.errors import InputError

DRAW = np.random.default_rng(0)
SKEWED = DRAW.beta(0.5, 2.0, size=(3, 80))


class TestPairedDifference:
    def test_close_to_the_t_test(self) -> None:
        a, b = SKEWED[0], SKEWED[0] * 0.8 + 0.03 * DRAW.standard_normal(80)
        ours, theirs = paired_difference(a, b, support=None), stats.ttest_rel(a, b)
        assert ours.estimate == pytest.approx((a - b).mean())
        assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.01)
        bounds = theirs.confidence_interval()
        assert ours.low == pytest.approx(bounds.low, abs=0.1 * (bounds.high - bounds.low))
        assert ours.low < ours.estimate < ours.high

    def test_an_interval_of_nothing_but_ties_is_not_certainty(self) -> None:
        """Two saturated strategies: none of thirty problems tells them apart, and ten in a hundred others might."""
        same = paired_difference(np.ones(30), np.ones(30))
        assert same.p_value == 1.0 and same.low < -0.1 and same.high > 0.1

    def test_so_few_problems_that_the_test_can_show_nothing(self) -> None:
        """2/2ᵐ is the least p-value of m differences: 0.063 of five, 0.031 of six."""
        rise = np.array([0.9, 0.8, 1.0, 0.7, 0.9, 0.6])
        five, six = (paired_difference(rise[:n], np.zeros(n)) for n in (5, 6))
        assert five.detectable == np.inf and five.p_value > 0.05
        assert six.detectable == pytest.approx(rise.mean()) and six.p_value < 0.05
        assert paired_difference(rise, np.zeros(6), tests=2).detectable == np.inf
        # Of ten that differ on nine, thirty tests would need all of eleven.
        nine = paired_difference(np.r_[np.ones(9), 0.0], np.zeros(10), tests=30)
        assert nine.detectable == np.inf and 30 * nine.p_value > 0.05
        twelve = paired_difference(np.r_[np.ones(9), np.zeros(3)], np.zeros(12), tests=30)
        assert twelve.detectable == pytest.approx(11 / 12) and 30 * twelve.p_value > 0.05

    def test_fewer_problems_than_asked_for_have_an_estimate_alone(self) -> None:
        few = paired_difference([1.0, 0.0, 1.0], [0.0, 0.0, 1.0], fewest=4)
        assert few.estimate == pytest.approx(1 / 3) and few.problems == 3
        assert np.isnan([few.low, few.high, few.p_value, few.detectable]).all()

    def test_detectable_difference_is_found_with_its_power(self) -> None:
        draw = np.random.default_rng(9)
        noise = draw.standard_normal((1000, 100))
        reach = paired_difference(noise[0], np.zeros(100), support=None).detectable
        assert reach == pytest.approx(2.80159 * noise[0].std(ddof=1) / 10, rel=1e-4)
        found = stats.ttest_1samp(noise + 2.80159 / 10, 0.0, axis=1).pvalue < 0.05
        assert found.mean() == pytest.approx(0.8, abs=0.06)

    def test_antisymmetric(self) -> None:
        there, back = paired_difference(SKEWED[0], SKEWED[1]), paired_difference(SKEWED[1], SKEWED[0])
        assert there.estimate == -back.estimate
        assert there.p_value == back.p_value
        assert there.low == pytest.approx(-back.high, abs=1e-9)

    def test_degenerate(self) -> None:
        same = paired_difference(SKEWED[0], SKEWED[0])
        assert (same.estimate, same.p_value) == (0.0, 1.0) and same.low == -same.high < 0.0
        assert np.isnan(same.detectable)
        one = paired_difference([0.7], [0.2])
        assert one.estimate == pytest.approx(0.5)
        assert np.isnan([one.low, one.high, one.p_value, one.detectable]).all()

    def test_faults(self) -> None:
        with pytest.raises(InputError, match=r"shapes \(2,\) and \(3,\)"):
            paired_difference([1, 2], [1, 2, 3])
        with pytest.raises(InputError, match=r"outside of \[0, 1\].*give support="):
            paired_difference([3.0, 2.0], [0.0, 1.0])


class TestRandomisationTest:
    @pytest.mark.parametrize(
        ("differences", "p"),
        [
            ([1.0] * 5, 2 / 32),  # all plus or all minus
            ([3.0, -1.0, 1.0], 6 / 8),
            ([0.5, 0.25, -0.25, 0.0, 0.0], 6 / 8),
            ([0.0] * 9, 1.0),
        ],
    )
    def test_by_hand(self, differences: list[float], p: float) -> None:
        assert randomisation_test(differences) == pytest.approx(p, rel=1e-12)

    def test_of_single_answers_it_is_mcnemars_exact_test(self) -> None:
        differences = np.r_[np.ones(31), -np.ones(9), np.zeros(160)]
        assert randomisation_test(differences) == pytest.approx(stats.binomtest(9, 40).pvalue, rel=1e-9)
        assert randomisation_test(np.ones(100)) == pytest.approx(2.0**-99, rel=1e-9), "no floor but its own"

    def test_of_any_numbers_it_is_what_all_sign_patterns_say(self) -> None:
        for seed in range(20):
            d = np.random.default_rng(seed).normal(0.3, 1.0, 12)
            signs = 1 - 2 * ((np.arange(4096)[:, None] >> np.arange(12)) & 1)
            exact = (np.abs(signs @ d) >= abs(d.sum()) - 1e-12).mean()
            assert exact <= randomisation_test(d) * (1 + 1e-9) and randomisation_test(d) < exact + 0.003

    def test_of_very_many_it_is_normal(self) -> None:
        d = np.random.default_rng(1).normal(0.05, 1.0, 2000)
        assert randomisation_test(d) == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue, rel=0.05)

    def test_p_values_are_uniform_when_nothing_differs(self) -> None:
        draw = np.random.default_rng(8)
        p = [randomisation_test(np.subtract(*draw.random((2, 40)))) for _ in range(200)]
        assert stats.kstest(p, "uniform").pvalue > 1e-4  # false alarms: 1 in 10,000
