import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.analysis.ranks import standing
from metagen.analysis.selection import over_optimisation, pooled_auc, problem_aucs, within_problem_auc
from metagen.errors import InputError

NAN = float("nan")
values = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0, -np.inf, NAN]), st.booleans()), min_size=1, max_size=9
)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -np.inf, np.inf, NAN]), min_size=1, max_size=8))
def test_standing_by_definition(row) -> None:
    lower, equal = standing(np.array([row]))
    known = np.array([not np.isnan(v) for v in row])
    assert lower[0].tolist() == [sum(w < v for w in row) for v in row]
    assert equal[0][known].tolist() == [sum(w == v for w in row) for v in row if not np.isnan(v)]
    assert not equal[0][~known].any()


@given(values)
def test_auc_by_pairs(row) -> None:
    right = [s for s, c in row if c and not np.isnan(s)]
    wrong = [s for s, c in row if not c and not np.isnan(s)]
    pairs = [(a > b) + 0.5 * (a == b) for a in right for b in wrong]
    expected = np.mean(pairs) if pairs else NAN
    auc = problem_aucs([[s for s, _ in row]], [[c for _, c in row]])[0]
    np.testing.assert_allclose(auc, expected)


def test_pooling_rewards_what_cannot_select() -> None:
    # Scores tell the easy problem from the hard one, and nothing within either.
    scores = [[0.9] * 4, [0.1] * 4]
    correct = [[True, True, True, False], [True, False, False, False]]
    assert within_problem_auc(scores, correct) == 0.5
    assert pooled_auc(scores, correct) == 0.75


def test_problems_with_one_class_are_left_out() -> None:
    scores, correct = [[0.1, 0.9], [0.9, 0.1]], [[True, True], [True, False]]
    np.testing.assert_array_equal(problem_aucs(scores, correct), [NAN, 1.0])
    assert within_problem_auc(scores, correct) == 1.0
    assert np.isnan(within_problem_auc([[0.1, 0.2]], [[True, True]]))
    assert np.isnan(pooled_auc([[0.1, 0.2]], [[True, True]]))


def test_the_arguments_are_left_alone() -> None:
    correct = np.array([[True, False]])
    problem_aucs(np.array([[NAN, 0.5]]), correct)
    assert correct.tolist() == [[True, False]]


def test_auc_faults() -> None:
    with pytest.raises(InputError, match="one \\[problems, samples\\]"):
        problem_aucs([[0.1, 0.2]], [[True]])


class TestOverOptimisation:
    noise = 0.1 * np.random.default_rng(0).standard_normal((4, 100))
    ks = (1, 4, 16, 64)

    def test_a_fall_is_found(self) -> None:
        falling = np.clip(np.array([[0.4], [0.5], [0.45], [0.3]]) + self.noise, 0.0, 1.0)
        fall = over_optimisation(falling, self.ks)
        assert fall.found
        assert (fall.peak, fall.largest) == (4, 64)
        assert fall.difference.estimate == pytest.approx(-0.2, abs=0.05)
        assert (fall.at_peak, fall.at_largest) == pytest.approx((0.5, 0.3), abs=0.05)
        assert fall.at_largest - fall.at_peak == pytest.approx(fall.difference.estimate)

    def test_a_rise_is_not(self) -> None:
        assert not over_optimisation(
            np.array([[0.3], [0.4], [0.45], [0.5]]) + self.noise, self.ks, support=None
        ).found

    def test_noise_is_rarely_called_a_fall(self) -> None:
        # At most 2.5% of flat curves may fall by chance, however the peak was chosen; 200 trials.
        draw = np.random.default_rng(1)
        found = [over_optimisation(draw.random((5, 50)), (1, 2, 4, 8, 16)).found for _ in range(200)]
        assert np.mean(found) < 0.06

    def test_a_constant_curve_does_not_fall(self) -> None:
        assert not over_optimisation(np.full((2, 10), 0.5), (1, 2)).found

    def test_one_problem_shows_nothing(self) -> None:
        fall = over_optimisation([[0.9], [0.1]], (1, 2))
        assert not fall.found
        assert np.isnan(fall.difference.p_value)

    def test_faults(self) -> None:
        for accuracy, ks in (([[0.1, 0.2]], (1,)), ([[0.1], [0.2]], (2, 1)), ([[0.1], [0.2]], (1, 2, 3))):
            with pytest.raises(InputError, match="ascending order"):
                over_optimisation(accuracy, ks)
