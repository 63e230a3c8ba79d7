"""Families of comparisons: Holm by hand and by law, what a sentence may claim, and what picking costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.analysis.comparison import Contrast, contrasts, holm, pick, sentence
from metagen.analysis.intervals import SHARES
from metagen.analysis.paired import paired_difference
from metagen.errors import InputError

NAN = float("nan")


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_is_between_nothing_and_bonferroni(values: list[float]) -> None:
    corrected = holm(values)
    for p, q in zip(values, corrected, strict=True):
        assert p <= q <= min(1.0, p * len(values)) or q == max(corrected)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [corrected[i] for i in order] == sorted(corrected)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, NAN])[:3] == pytest.approx([0.03, 0.06, 0.06])


class TestContrasts:
    draw = np.random.default_rng(0)
    a = draw.random(60)
    better = np.clip(a + draw.normal(0.15, 0.1, 60), 0, 1)
    alike = np.clip(a + draw.normal(0.0, 0.1, 60), 0, 1)

    def test_they_are_the_paired_differences_with_holms_p_values(self) -> None:
        both = contrasts({"better": (self.a, self.better), "alike": (self.a, self.alike)})
        single = [paired_difference(b, self.a) for b in (self.better, self.alike)]
        assert [c.p_value for c in both] == holm([d.p_value for d in single])
        assert [c.difference.estimate for c in both] == [d.estimate for d in single]
        assert [c.shown for c in both] == [True, False]
        assert both[0].b - both[0].a == pytest.approx(both[0].difference.estimate)
        assert both[0].more == pytest.approx((self.better > self.a).mean())
        assert both[0].more + both[0].less <= 1

    def test_a_family_needs_larger_differences(self) -> None:
        alone = contrasts({"alike": (self.a, self.alike)})[0].difference.detectable
        pair = (self.a, self.alike)
        among = contrasts({str(i): pair for i in range(10)})[0].difference.detectable
        assert alone == paired_difference(self.alike, self.a).detectable
        assert 1.2 * alone < among < 1.5 * alone

    def test_a_detectable_difference_is_detected_four_times_in_five(self) -> None:
        """In a family of five, at Bonferroni's level; 200 repetitions, 0.8 ± 0.09 at three standard errors."""
        draw = np.random.default_rng(1)
        spread, found = 0.2, 0
        rows = {str(i): (np.zeros(50), draw.normal(0, spread, 50)) for i in range(5)}
        probe = contrasts(rows, support=None)
        least = float(np.mean([c.difference.detectable for c in probe]))
        for _ in range(200):
            sample = draw.normal(least, spread, 50)
            found += sample.mean() / (sample.std(ddof=1) / np.sqrt(50)) > 2.5758  # two-sided 0.05 / 5
        assert found / 200 == pytest.approx(0.8, abs=0.12)

    def test_problems_that_one_lacks_are_left_out_of_that_pair_only(self) -> None:
        a, b = self.a.copy(), self.better.copy()
        a[3], b[7] = NAN, NAN
        keep = np.delete(np.arange(60), [3, 7])
        first, second = contrasts({"part": (a, b), "whole": (self.a, self.better)})
        assert (first.difference.problems, second.difference.problems) == (58, 60)
        assert first.difference.estimate == pytest.approx((self.better - self.a)[keep].mean())

    def test_what_problems_cannot_tell_counts_for_no_correction(self) -> None:
        found = contrasts({"none": ([NAN], [1.0]), "one": ([0.0], [1.0]), "some": (self.a, self.better)})
        assert [np.isnan(c.p_value) for c in found] == [True, True, False]
        assert not found[0].shown and not found[1].shown
        assert found[2].p_value == paired_difference(self.better, self.a).p_value

    def test_nothing_to_compare_is_no_contrast(self) -> None:
        assert contrasts({}) == []

    def test_faults(self) -> None:
        with pytest.raises(InputError, match="rows of two: values of shapes"):
            contrasts({"rows of two": ([0.0, 1.0], [1.0])})
        with pytest.raises(InputError, match="infinite"):
            contrasts({"x": ([0.0, 1.0], [1.0, np.inf])})


class TestSentence:
    def test_what_is_shown_has_its_interval_and_what_is_not_the_least_that_would_have_been(self) -> None:
        pool = TestContrasts
        shown, hidden = contrasts({"b": (pool.a, pool.better), "c": (pool.a, pool.alike)})
        begins = f"+{100 * shown.difference.estimate:.1f} points, 95% interval uncorrected [+"
        assert sentence(shown).startswith(begins)
        assert sentence(shown).endswith("p < 0.001, corrected for 2 comparisons (Holm)")
        least = f"{100 * hidden.difference.detectable:.1f} points"
        assert sentence(hidden).startswith(f"not shown to differ (smallest detectable difference {least}): ")
        assert "uncorrected [" in sentence(hidden)

    def test_one_comparison_needs_no_correction_and_names_none(self) -> None:
        (alone,) = contrasts({"b": (TestContrasts.a, TestContrasts.better)})
        assert "95% interval [+" in sentence(alone) and sentence(alone).endswith("p < 0.001")

    def test_an_interval_is_named_by_its_own_level(self) -> None:
        (alone,) = contrasts({"b": (TestContrasts.a, TestContrasts.better)}, alpha=0.5)
        assert "50% interval [+" in sentence(alone)

    @pytest.mark.parametrize(
        ("a", "b", "said"),
        [
            ([1.0] * 40, [1.0] * 40, "both solve all 40 problems, which cannot tell them apart"),
            ([0.0] * 40, [0.0] * 40, "neither solves any of 40 problems, which cannot tell them apart"),
            (
                [0.5] * 9,
                [0.5] * 9,
                "both have the same accuracy on each of 9 problems, which cannot tell them apart",
            ),
            ([0.0] * 40, [1.0] * 40, "+100.0 points on each of 40 problems, p < 0.001"),
            ([0.25], [0.0], "−25.0 points on one problem, which tells nothing about others"),
            ([NAN], [0.0], "no problem has both: nothing to compare"),
        ],
    )
    def test_data_without_spread(self, a: list[float], b: list[float], said: str) -> None:
        assert sentence(contrasts({"x": (a, b)})[0]) == said

    def test_no_least_difference_where_none_could_be_shown(self) -> None:
        pair = np.zeros(10), np.r_[np.ones(9), 0.0]
        among = contrasts({str(i): pair for i in range(30)})[0]
        assert not among.shown
        assert "not shown to differ (smallest detectable difference none of any size)" in sentence(among)
        assert "detectable" not in sentence(contrasts({"alone": pair})[0])  # shown

    def test_too_few_problems_have_no_test(self) -> None:
        fine, few = contrasts(
            {"a": (np.zeros(9), np.ones(9)), "b": (np.zeros(6), [1, 1, 1, 0, 0, 0])}, fewest=8
        )
        assert fine.p_value == fine.difference.p_value, "the others do not count"
        assert (
            sentence(few) == "+50.0 points on 6 problems, too few for an interval or a test" and not few.shown
        )


class TestPicked:
    def test_the_best_of_equal_options_flatters_and_held_out_problems_do_not(self) -> None:
        draw = np.random.default_rng(2)
        naive, honest = [], []
        for seed in range(30):  # twenty options that are all worth 0.5
            found = pick((draw.random((20, 60)) < 0.5).astype(float), seed=seed)
            naive.append(found.naive)
            honest.append(found.estimate)
        assert np.mean(naive) > 0.6
        assert np.mean(honest) == pytest.approx(0.5, abs=0.025)  # 0.0645 / √30 = 0.012 is one standard error

    def test_an_option_that_is_always_best_is_worth_its_mean(self) -> None:
        values = np.random.default_rng(3).random((1, 31)) + np.array([[0.0], [2.0], [1.0]])
        found = pick(values)
        assert found.chosen == 1 and found.shares.tolist() == pytest.approx([0, 1, 0])
        assert found.estimate == pytest.approx(values[1].mean()) == pytest.approx(found.naive)
        assert found.low < found.estimate < found.high

    def test_one_problem_has_no_other_half(self) -> None:
        found = pick([[0.0], [1.0]])
        assert np.isnan(found.estimate) and found.naive == 1.0 and found.chosen == 1

    def test_intervals_hold_what_is_true_of_the_winner(self) -> None:
        """Twenty coins on a hundred problems: of forty intervals 35 hold 0.5; at 95% fewer with probability 0.003.

        Intervals of values averaged over halves, in which the luck of each option cancels, hold it in 83%.
        """
        draw, covered = np.random.default_rng(5), 0
        for seed in range(40):
            found = pick((draw.random((20, 100)) < 0.5).astype(float), support=SHARES, seed=seed)
            covered += found.low <= 0.5 <= found.high
        assert covered >= 35

    def test_problems_that_are_all_alike_leave_room_for_others(self) -> None:
        every, none = pick(np.ones((3, 12)), support=SHARES), pick(np.zeros((3, 12)), support=SHARES)
        assert every.estimate == every.high == 1.0 and every.low == pytest.approx(0.025 ** (1 / 12))
        assert none.estimate == none.low == 0.0 and none.high == pytest.approx(1 - 0.025 ** (1 / 12))

    def test_a_difference_is_measured_of_what_was_picked_by_its_values(self) -> None:
        """Equal options against one more of them: the winner seems better by its luck, and is not."""
        draw, naive, honest, shown = np.random.default_rng(7), [], [], 0
        for seed in range(30):
            rows = (draw.random((21, 80)) < 0.5).astype(float)
            found = pick(rows[1:], judged=rows[1:] - rows[0], seed=seed)
            assert found.chosen == pick(rows[1:]).chosen
            naive.append(found.naive)
            honest.append(found.estimate)
            shown += found.low > 0
        assert np.mean(naive) > 0.07 and np.mean(honest) == pytest.approx(0.0, abs=0.03)
        assert shown <= 3

    def test_a_rule_of_ones_own_chooses(self) -> None:
        values = np.array([[0.498] * 20, [0.5] * 20])
        found = pick(values, choose=lambda rows: int(np.argmin(rows.mean(axis=1))))
        assert found.chosen == 0 and found.estimate == pytest.approx(0.498)
        assert found.shares.tolist() == pytest.approx([1, 0])

    @pytest.mark.parametrize("values", [[0.0, 1.0], [[NAN, 1.0]], np.zeros((0, 3))])
    def test_faults(self, values: list[float]) -> None:
        with pytest.raises(InputError, match="picking among values"):
            pick(values)
        with pytest.raises(InputError, match="picking among judged"):
            pick(np.zeros((2, 3)), judged=np.zeros((3, 2)))


def test_a_contrast_is_a_value() -> None:
    one = contrasts({"x": ([0.0, 1.0], [1.0, 1.0])})[0]
    assert isinstance(one, Contrast) and one == contrasts({"x": ([0.0, 1.0], [1.0, 1.0])})[0]
