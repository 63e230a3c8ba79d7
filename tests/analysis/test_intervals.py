"""Intervals of means: exact bounds, coverage at the edges, and the standard error of published logs."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metagen.analysis.intervals import DIFFERENCES, SHARES, interval
from metagen.errors import InputError

POOLS = Path(__file__).parents[1] / "data" / "pools"
DRAW = np.random.default_rng(0)
SKEWED = DRAW.beta(0.5, 2.0, size=(3, 80))


class TestShares:
    @pytest.mark.parametrize("problems", [8, 30, 500])
    def test_of_all_right_or_all_wrong_the_exact_binomial_bound(self, problems: int) -> None:
        result = interval([[1.0] * problems, [0.0] * problems], support=SHARES)
        exact = stats.binomtest(problems, problems).proportion_ci(0.95, method="exact")
        assert result.low[0] == pytest.approx(exact.low, rel=1e-6) and result.high[0] == 1.0
        assert (result.low[1], result.high[1]) == (0.0, pytest.approx(1 - exact.low, rel=1e-6))

    @pytest.mark.parametrize("problems", [30, 64, 198, 500])
    def test_single_answers_are_covered_at_every_truth(self, problems: int) -> None:
        """Exact coverage of single answers, summed over the binomial; the bootstrap's falls to 14% at 0.5%."""
        counts = np.arange(problems + 1)
        found = interval(np.arange(problems) < counts[:, None], support=SHARES)
        truths = np.linspace(0.005, 0.995, 397)
        held = (found.low[:, None] <= truths) & (truths <= found.high[:, None])
        covered = (stats.binom.pmf(counts[:, None], problems, truths) * held).sum(axis=0)
        assert covered.min() > 0.93
        middle = (truths > 0.2) & (truths < 0.8)
        assert covered[middle].mean() == pytest.approx(0.957, abs=0.007)

    def test_an_easy_pool_allows_for_a_kind_of_problem_that_it_does_not_hold(self) -> None:
        """Two of a hundred problems are hard: the true mean is 97.3%, and of thirty often none is hard."""
        rng = np.random.default_rng(1)
        chance = np.where(rng.random((2000, 30)) < 0.02, 0.05, 0.992)
        found = interval(rng.binomial(64, chance) / 64, support=SHARES)
        truth = 0.02 * 0.05 + 0.98 * 0.992
        assert ((found.low <= truth) & (truth <= found.high)).mean() > 0.95

    @given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0, 1))
    def test_bounds_hold_the_mean_and_rise_with_it(self, values: list[float], other: float) -> None:
        found = interval(values, support=SHARES)
        assert 0.0 <= found.low <= found.estimate <= found.high <= 1.0
        mirrored = interval(1.0 - np.array(values), support=SHARES)
        assert mirrored.low == pytest.approx(1.0 - found.high, abs=1e-7)

    def test_a_row_does_not_depend_on_its_neighbours_and_shapes_follow(self) -> None:
        cube = SKEWED.reshape(3, 2, 40)
        found = interval(cube, support=SHARES)
        assert found.low.shape == found.error.shape == (3, 2)
        assert interval(cube[1, 0], support=SHARES).low == found.low[1, 0]

    def test_of_many_problems_it_is_the_normal_interval(self) -> None:
        values = np.random.default_rng(2).beta(2, 3, 20_000)
        found = interval(values, support=SHARES)
        assert found.high - found.low == pytest.approx(2 * 1.959964 * found.error, rel=0.01)

    def test_rounding_is_no_value_outside(self) -> None:
        assert interval([1.0 + 1e-12] * 9, support=SHARES).high == 1.0
        with pytest.raises(InputError, match=r"1 of 2 values lie outside of \[0, 1\], such as 1\.5"):
            interval([0.1, 1.5], support=SHARES)


class TestDifferences:
    def test_no_difference_on_any_problem_is_not_certainty(self) -> None:
        found = interval([0.0] * 30, support=DIFFERENCES)
        bound = 1.0 - 0.025 ** (1 / 30)
        assert (found.low, found.high) == (pytest.approx(-bound, rel=0.02), pytest.approx(bound, rel=0.02))

    def test_saturated_differences_are_covered(self) -> None:
        """Two strategies that differ on one problem in fifty; the bootstrap covers 55 to 83%."""
        rng = np.random.default_rng(3)
        for problems in (30, 64, 198):
            differences = np.where(rng.random((2000, problems)) < 0.02, 1.0, 0.0)
            found = interval(differences, support=DIFFERENCES)
            assert ((found.low <= 0.02) & (found.high >= 0.02)).mean() > 0.93


class TestWithoutSupport:
    def test_close_to_the_t_interval_and_corrected_for_skewness(self) -> None:
        normal = np.random.default_rng(5).normal(3.0, 2.0, 50)
        found, t = interval(normal), stats.ttest_1samp(normal, 0.0).confidence_interval()
        assert found.high - found.low == pytest.approx(t.high - t.low, rel=1e-9)
        skewed = SKEWED[0] ** 3
        found, t = interval(skewed), stats.ttest_1samp(skewed, 0.0).confidence_interval()
        assert found.low > t.low and found.high > t.high

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        data = np.random.default_rng(4).gamma(2.0, 1.0, size=(2000, 60))
        found = interval(data)
        assert 0.93 <= ((found.low <= 2.0) & (found.high >= 2.0)).mean() <= 0.97

    def test_degenerate(self) -> None:
        equal = interval([0.1] * 7)
        assert (float(equal.low), float(equal.high)) == (equal.estimate, equal.estimate)
        one = interval([0.3])
        assert one.estimate == 0.3 and np.isnan([one.low, one.high, one.error]).all()


def test_the_standard_error_is_that_of_published_logs() -> None:
    """Clustered by problem, of twelve logs of 45 problems; failed calls have no verdict, and are left out there."""
    logs = [
        json.loads(line) for line in (POOLS / "otis_mock_aime_counts.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(logs) == 12
    for log in logs:
        right, judged = np.array(log["right"]), np.array(log["judged"])
        found = interval(right[judged > 0] / judged[judged > 0], support=SHARES)
        assert found.estimate == pytest.approx(log["stored_accuracy"], abs=1e-9)
        assert found.error == pytest.approx(log["stored_stderr"], abs=1e-9)


def test_faults() -> None:
    with pytest.raises(InputError, match="1 of 2 values are NaN"):
        interval([0.1, float("nan")])
    with pytest.raises(InputError, match="at least one problem"):
        interval([])
    with pytest.raises(InputError, match=r"level=1\.5"):
        interval([0.1, 0.2], level=1.5)
