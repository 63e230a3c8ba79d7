"""The limit of a vote: curves tend to it, and weights beat counting exactly where theory says."""

import numpy as np
import pytest

from metagen.analysis.estimators import majority_at_k, weighted_at_k
from metagen.analysis.limits import exact_vote_limit, vote_limit
from metagen.errors import InputError

NAN = float("nan")
#: Outcomes of a model: the right answer leads in v·g, another in g.
PMF = np.array([0.3, 0.1, 0.5, 0.1])
CLASSES = np.array([0, 0, 1, -1])
CORRECT = np.array([True, True, False, False])
WEIGHTS = np.array([0.9, 0.7, 0.4, 1.0])


def sampled(samples: int, problems: int = 50, seed: int = 0):
    """Pools of that model."""
    drawn = np.random.default_rng(seed).choice(4, size=(problems, samples), p=PMF)
    return CLASSES[drawn], CORRECT[drawn], WEIGHTS[drawn]


class TestExact:
    def test_weights_win_where_the_right_answer_leads_in_v_g_only(self) -> None:
        assert exact_vote_limit(PMF, CLASSES, CORRECT) == 0.0
        assert exact_vote_limit(PMF, CLASSES, CORRECT, WEIGHTS) == 1.0

    @pytest.mark.parametrize("seed", range(20))
    def test_weights_beat_counting_iff_the_shares_say_so(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        g, v, classes = draw.dirichlet(np.ones(8)), draw.random(8), np.arange(8) % 3
        right = classes == 0
        counted, weighed = (np.bincount(classes, weights=w) / w.sum() for w in (g, g * v))
        assert exact_vote_limit(g, classes, right) == (counted[0] > counted[1:].max())
        assert exact_vote_limit(g, classes, right, v) == (weighed[0] > weighed[1:].max())

    def test_curves_of_samples_tend_to_it(self) -> None:
        for n, least in ((16, 0.15), (2048, 0.0)):
            classes, correct, weights = sampled(n)
            rng = np.random.default_rng(0)
            counted = majority_at_k(classes, correct, [n], rng).mean[0]
            weighed = weighted_at_k(classes, weights, correct, [n], rng).mean[0]
            if least:  # not there yet
                assert counted > exact_vote_limit(PMF, CLASSES, CORRECT) + 0.05
            else:
                assert counted == exact_vote_limit(PMF, CLASSES, CORRECT)
                assert weighed == exact_vote_limit(PMF, CLASSES, CORRECT, WEIGHTS)

    def test_ties_split_and_a_class_is_as_right_as_its_members(self) -> None:
        assert exact_vote_limit([0.5, 0.5], [0, 1], [True, False]) == 0.5
        assert exact_vote_limit([0.25, 0.75], [0, 0], [True, False]) == 0.25
        # Without any weight, the classes that are there tie.
        assert exact_vote_limit([0.2, 0.8], [0, 1], [True, False], [0.0, 0.0]) == 0.5

    def test_no_vote_is_wrong(self) -> None:
        assert exact_vote_limit([1.0], [-1], [True]) == 0.0
        assert exact_vote_limit([1.0], [0], [True], [NAN]) == 0.0
        # What never happens has no vote.
        assert exact_vote_limit([1.0, 0.0], [0, 1], [True, False], [0.0, 1.0]) == 1.0

    def test_faults(self) -> None:
        with pytest.raises(InputError, match=r"sums to 0\.9"):
            exact_vote_limit([0.5, 0.4], [0, 1], [True, False])
        with pytest.raises(InputError, match="one length"):
            exact_vote_limit([0.5, 0.5], [0], [True])
        with pytest.raises(InputError, match="negative or infinite"):
            exact_vote_limit([0.5, 0.5], [0, 1], [True, False], [-1.0, 1.0])


class TestEstimated:
    def test_a_large_pool_has_the_limit_of_the_distribution(self) -> None:
        classes, correct, weights = sampled(2000)
        assert vote_limit(classes, correct).estimate == 0.0
        found = vote_limit(classes, correct, weights)
        assert found.estimate == 1.0 and found.stable == 1.0 and found.samples == 2000
        assert found.low > 0.9  # the binomial bound: 50 problems do not prove all

    def test_it_is_where_the_curve_of_the_same_pool_ends(self) -> None:
        classes, correct, weights = sampled(30, seed=4)
        rng = np.random.default_rng(0)
        np.testing.assert_allclose(
            vote_limit(classes, correct).accuracy, majority_at_k(classes, correct, [30], rng).accuracy[0]
        )
        np.testing.assert_allclose(
            vote_limit(classes, correct, weights).accuracy,
            weighted_at_k(classes, weights, correct, [30], rng).accuracy[0],
        )

    def test_ties_no_votes_and_missing_weights(self) -> None:
        classes = [[0, 1, -1, -1], [-1, -1, -1, -1], [0, 0, 1, 1]]
        correct = [[True, False, False, False], [True] * 4, [True, True, False, False]]
        plain = vote_limit(classes, correct)
        assert plain.accuracy.tolist() == [0.5, 0.0, 0.5] and plain.tied.tolist() == [True, False, True]
        weights = [[0.0, 0.0, 1.0, 1.0], [1.0] * 4, [0.5, 0.5, 0.5, NAN]]
        assert vote_limit(classes, correct, weights).accuracy.tolist() == [0.5, 0.0, 1.0]

    def test_close_leads_are_not_stable(self) -> None:
        draw = np.random.default_rng(0)
        close, clear = draw.integers(0, 2, (200, 64)), (draw.random((200, 64)) < 0.1).astype(int)
        assert vote_limit(close, close == 0).stable < 0.65
        assert vote_limit(clear, clear == 0).stable == 1.0
        assert np.isnan(vote_limit([[0]], [[True]]).stable)

    def test_one_problem_has_no_interval(self) -> None:
        found = vote_limit([[0, 0]], [[True, True]])
        assert found.estimate == 1.0 and np.isnan(found.low)

    def test_faults(self) -> None:
        with pytest.raises(InputError, match="one shape"):
            vote_limit([[0, 1]], [[True]])
        with pytest.raises(InputError, match=r"-1\.0"):
            vote_limit([[0, 1]], [[True, False]], [[-1.0, 0.0]])
