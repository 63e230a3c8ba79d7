import numpy as np
import pytest
from scipy import stats

from metagen.analysis import bootstrap
from metagen.analysis.bootstrap import interval, paired_difference
from metagen.errors import InputError

DRAW = np.random.default_rng(0)
SKEWED = DRAW.beta(0.5, 2.0, size=(3, 80))


class TestInterval:
    @pytest.mark.parametrize(
        "data",
        [SKEWED, SKEWED[:, :10] ** 3, DRAW.integers(2, size=(5, 9)).astype(float)],
        ids=["skewed", "few and very skewed", "few and binary"],
    )
    def test_agrees_with_scipy(self, data) -> None:
        ours = interval(data, seed=1)
        theirs = stats.bootstrap(
            (data,), np.mean, axis=1, n_resamples=10_000, method="BCa", rng=np.random.default_rng(1)
        ).confidence_interval
        np.testing.assert_allclose(ours.estimate, data.mean(axis=1))
        # Under one seed scipy draws the same resamples, so what is left is rounding.
        width = ours.high - ours.low
        np.testing.assert_array_less(np.abs(ours.low - theirs.low), 0.01 * width)
        np.testing.assert_array_less(np.abs(ours.high - theirs.high), 0.01 * width)

    def test_is_corrected_for_skewness(self) -> None:
        skewed = SKEWED[0] ** 3
        ours = interval(skewed)
        percentile = stats.bootstrap(
            (skewed,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(2)
        ).confidence_interval
        assert ours.low > percentile.low
        assert ours.high > percentile.high

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        # 400 data sets of 60 problems; 95% ± 4.5 standard errors of the count.
        data = np.random.default_rng(4).beta(2, 2, size=(400, 60))
        result = interval(data, resamples=2000)
        covered = ((result.low <= 0.5) & (result.high >= 0.5)).mean()
        assert 0.90 <= covered <= 0.995

    def test_a_row_does_not_depend_on_its_neighbours_nor_on_chunks(self, monkeypatch) -> None:
        together = interval(SKEWED)
        monkeypatch.setattr(bootstrap, "CELLS", 80 * 777)
        alone = interval(SKEWED[1])
        assert alone.low.shape == ()
        assert float(alone.low) == pytest.approx(together.low[1], abs=1e-12)
        assert float(alone.high) == pytest.approx(together.high[1], abs=1e-12)

    def test_is_deterministic_and_shapes_follow(self) -> None:
        cube = SKEWED.reshape(3, 2, 40)
        first, second = interval(cube, seed=3), interval(cube, seed=3)
        assert first.low.shape == (3, 2)
        np.testing.assert_array_equal(first.low, second.low)
        assert (interval(cube, seed=4).low != first.low).any()

    def test_degenerate(self) -> None:
        equal = interval([0.1] * 7)
        assert (float(equal.low), float(equal.high)) == (equal.estimate, equal.estimate)
        one = interval([0.3])
        assert one.estimate == 0.3
        assert np.isnan(one.low)
        assert np.isnan(one.high)
        mixed = interval([[0.0, 0.0, 0.0], [0.0, 0.5, 1.0]])
        assert mixed.high[0] == 0.0
        assert mixed.low[1] < 0.5 < mixed.high[1]

    def test_all_right_is_not_certainty(self) -> None:
        result = interval([[1.0] * 20, [0.0] * 20], proportion=True)
        exact = stats.binomtest(20, 20).proportion_ci(0.95, method="exact")
        assert result.low[0] == pytest.approx(exact.low)
        assert result.high[0] == 1.0
        assert (result.low[1], result.high[1]) == (0.0, pytest.approx(1 - exact.low))

    def test_faults(self) -> None:
        with pytest.raises(InputError, match="1 of 2 values are NaN"):
            interval([0.1, float("nan")])
        with pytest.raises(InputError, match="at least one problem"):
            interval([])
        with pytest.raises(InputError, match=r"level=1\.5"):
            interval([0.1, 0.2], level=1.5)


class TestPairedDifference:
    def test_close_to_the_t_test(self) -> None:
        a, b = SKEWED[0], SKEWED[0] * 0.8 + 0.03 * DRAW.standard_normal(80)
        ours, theirs = paired_difference(a, b), stats.ttest_rel(a, b)
        assert ours.estimate == pytest.approx((a - b).mean())
        assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.01)
        bounds = theirs.confidence_interval()
        assert ours.low == pytest.approx(bounds.low, abs=0.2 * (bounds.high - bounds.low))
        assert ours.low < ours.estimate < ours.high

    def test_p_value_is_exact_where_signs_can_be_counted(self) -> None:
        # d = (1, 1, 1, 1, 1): only all plus or all minus are as extreme, 2 of 32.
        result = paired_difference([1.0] * 5, [0.0] * 5, resamples=100_000)
        assert result.p_value == pytest.approx(2 / 32, abs=0.004)  # 5 standard errors
        # d = (3, −1, 1): |sum| ≥ 3 for 6 of the 8 sign patterns.
        result = paired_difference([3.0, 0.0, 1.0], [0.0, 1.0, 0.0], resamples=100_000)
        assert result.p_value == pytest.approx(6 / 8, abs=0.007)

    def test_p_values_are_uniform_when_nothing_differs(self) -> None:
        draw = np.random.default_rng(8)
        p = [paired_difference(*draw.random((2, 40)), resamples=500, seed=s).p_value for s in range(200)]
        assert stats.kstest(p, "uniform").pvalue > 1e-4  # false alarms: 1 in 10,000

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
        reach = paired_difference(noise[0], np.zeros(100)).detectable
        assert reach == pytest.approx(2.80159 * noise[0].std(ddof=1) / 10, rel=1e-4)
        found = stats.ttest_1samp(noise + 2.80159 / 10, 0.0, axis=1).pvalue < 0.05
        assert found.mean() == pytest.approx(0.8, abs=0.06)

    def test_antisymmetric(self) -> None:
        there, back = paired_difference(SKEWED[0], SKEWED[1]), paired_difference(SKEWED[1], SKEWED[0])
        assert there.estimate == -back.estimate
        assert there.p_value == back.p_value
        assert there.low == pytest.approx(-back.high, abs=5e-4)

    def test_degenerate(self) -> None:
        same = paired_difference(SKEWED[0], SKEWED[0])
        assert (same.estimate, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
        assert np.isnan(same.detectable)
        one = paired_difference([0.7], [0.2])
        assert one.estimate == pytest.approx(0.5)
        assert np.isnan([one.low, one.high, one.p_value, one.detectable]).all()

    def test_faults(self) -> None:
        with pytest.raises(InputError, match=r"shapes \(2,\) and \(3,\)"):
            paired_difference([1, 2], [1, 2, 3])
