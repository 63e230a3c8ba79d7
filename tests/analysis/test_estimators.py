"""Brute force over all subsets, from the definitions, against the estimators."""

import time
from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from math import comb, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.analysis import estimators
from metagen.analysis.estimators import best_of_k, majority_at_k, pass_at_k, weighted_at_k
from metagen.errors import InputError

NAN = float("nan")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def brute_vote(classes, weights, correct, k) -> float:
    """Every k-subset: the classes with the most weight share the win; a class is as right as its members."""
    right = {c: np.mean([r for d, r in zip(classes, correct, strict=True) if d == c]) for c in classes}
    total = 0.0
    for subset in combinations(range(len(classes)), k):
        votes: dict[int, Fraction] = defaultdict(Fraction)
        for i in subset:
            if classes[i] >= 0 and not isnan(weights[i]):
                votes[classes[i]] += Fraction(weights[i])
        winners = [c for c, v in votes.items() if v == max(votes.values())]
        total += float(np.mean([right[c] for c in winners])) if winners else 0.0
    return total / comb(len(classes), k)


def brute_best(scores, correct, k) -> float:
    total = 0.0
    for subset in combinations(range(len(scores)), k):
        known = [i for i in subset if not isnan(scores[i])]
        best = [i for i in known if scores[i] == max(scores[j] for j in known)]
        total += float(np.mean([correct[i] for i in best])) if best else 0.0
    return total / comb(len(scores), k)


@st.composite
def pools(draw):
    """A few problems with few samples, small class ids, scores from a grid (so that they tie), some missing."""
    problems, n = draw(st.integers(1, 3)), draw(st.integers(1, 7))

    def table(cell):
        return draw(st.lists(st.lists(cell, min_size=n, max_size=n), min_size=problems, max_size=problems))

    classes = np.array(table(st.sampled_from([-3, -1, 0, 1, 2, 7])))
    scores = np.array(table(st.sampled_from([0.0, 0.25, 0.5, 1.0, NAN])))
    right = np.array(table(st.booleans()))
    # Answers of one class are equally right.
    correct = np.take_along_axis(right, np.maximum(classes, 0) % n, axis=1)
    return classes, scores, correct


class TestPassAtK:
    def test_by_hand(self) -> None:
        assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)
        assert pass_at_k(10, 1, 1) == pytest.approx(0.1)

    def test_all_small_cases(self) -> None:
        for n in range(1, 12):
            for c in range(n + 1):
                for k in range(1, n + 1):
                    assert pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)

    def test_extremes_are_exact(self) -> None:
        assert pass_at_k(1000, 0, 500) == 0.0
        assert pass_at_k(1000, 501, 500) == 1.0
        exact = float(1 - Fraction(comb(99_990, 1000), comb(100_000, 1000)))
        assert pass_at_k(100_000, 10, 1000) == pytest.approx(exact, rel=1e-8)

    def test_broadcasts(self) -> None:
        table = pass_at_k(np.array([10, 20, 30]), np.array([1, 2, 3]), np.array([1, 5])[:, None])
        assert table.shape == (2, 3)
        np.testing.assert_allclose(table[0], 0.1)

    @pytest.mark.parametrize("arguments", [(5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6)])
    def test_faults(self, arguments) -> None:
        with pytest.raises(InputError, match="0 ≤ c ≤ n and 1 ≤ k ≤ n"):
            pass_at_k(*arguments)


class TestBruteForce:
    @settings(max_examples=150, deadline=None)
    @given(pools())
    def test_best_of_k(self, pool) -> None:
        _, scores, correct = pool
        ks = range(1, scores.shape[1] + 1)
        expected = [[brute_best(s, c, k) for s, c in zip(scores, correct, strict=True)] for k in ks]
        np.testing.assert_allclose(best_of_k(scores, correct, ks).accuracy, expected, atol=1e-12)

    @settings(max_examples=150, deadline=None)
    @given(pools())
    def test_votes(self, pool) -> None:
        classes, scores, correct = pool
        n = classes.shape[1]
        ks = range(1, n + 1)
        for weights, result in (
            (np.ones(scores.shape), majority_at_k(classes, correct, ks, rng())),
            (scores, weighted_at_k(classes, scores, correct, ks, rng())),
        ):
            expected = [
                [brute_vote(*row, k) for row in zip(classes, weights, correct, strict=True)] for k in ks
            ]
            np.testing.assert_allclose(result.accuracy, expected, atol=1e-12)
            assert not result.error.any()  # all of it enumerated

    def test_majority_with_classes_of_mixed_correctness(self) -> None:
        classes, correct = [[0, 0, 0, 1, 1, -1]], [[True, False, True, False, True, True]]
        result = majority_at_k(classes, correct, [2, 3, 4], rng())
        expected = [brute_vote(classes[0], [1.0] * 6, correct[0], k) for k in (2, 3, 4)]
        np.testing.assert_allclose(result.accuracy[:, 0], expected)

    def test_monte_carlo_within_its_error(self) -> None:
        # C(12, 6) = 924 > 300 subsets. A false alarm at 5 standard errors: below 1e-5 for 24 values.
        draw = rng(3)
        classes = draw.integers(-1, 4, size=(12, 12))
        scores, correct = draw.random((12, 12)), classes == 0
        for weights, result in (
            (np.ones(scores.shape), majority_at_k(classes, correct, [6], rng(), subsets=300)),
            (scores, weighted_at_k(classes, scores, correct, [6], rng(), subsets=300)),
        ):
            truth = [brute_vote(*row, 6) for row in zip(classes, weights, correct, strict=True)]
            assert (result.error > 0).any()
            np.testing.assert_array_less(np.abs(result.accuracy[0] - truth), 5 * result.error[0] + 1e-9)

    def test_the_stated_monte_carlo_error_is_the_spread_of_repetitions(self) -> None:
        classes = rng(1).integers(0, 3, size=(1, 40))
        runs = [majority_at_k(classes, classes == 0, [9], rng(s), subsets=100) for s in range(200)]
        spread = np.std([r.accuracy[0, 0] for r in runs], ddof=1)
        stated = np.mean([r.error[0, 0] for r in runs])
        assert stated == pytest.approx(spread, rel=0.25)  # the spread itself is known to ±5%


class TestIdentities:
    draw = rng(5)
    classes = draw.integers(-1, 6, size=(20, 32))
    scores = draw.random((20, 32))
    correct = classes == 1
    ks = (1, 2, 5, 16, 31, 32)

    @pytest.mark.parametrize("constant", [1.0, 0.1, 1 / 3])
    def test_weighted_voting_with_equal_scores_is_majority_voting(self, constant: float) -> None:
        scores = np.full(self.scores.shape, constant)
        equal = weighted_at_k(self.classes, scores, self.correct, self.ks, rng(9))
        plain = majority_at_k(self.classes, self.correct, self.ks, rng(9))
        np.testing.assert_array_equal(equal.accuracy, plain.accuracy)

    def test_with_no_weight_at_all_the_classes_that_are_there_tie(self) -> None:
        alone = weighted_at_k([[0, 0, 1, -1]], [[0.0] * 4], [[True, True, False, False]], [4], rng())
        assert alone.accuracy[0, 0] == 0.5

    def test_best_of_k_with_constant_scores_is_the_mean(self) -> None:
        result = best_of_k(np.full(self.scores.shape, 0.7), self.correct, self.ks)
        np.testing.assert_allclose(result.accuracy, np.tile(self.correct.mean(axis=1), (len(self.ks), 1)))

    def test_one_sample_is_the_mean_whatever_the_rule(self) -> None:
        mean = self.correct.mean(axis=1)
        for result in (
            best_of_k(self.scores, self.correct, [1]),
            majority_at_k(self.classes, self.correct, [1], rng()),
            weighted_at_k(self.classes, self.scores, self.correct, [1], rng()),
        ):
            np.testing.assert_allclose(result.accuracy[0], mean)
            assert not result.error.any()

    def test_best_of_k_with_an_oracle_is_pass_at_k(self) -> None:
        right = self.correct.sum(axis=1)
        coverage = pass_at_k(32, right, np.array(self.ks)[:, None])
        np.testing.assert_allclose(
            best_of_k(self.correct, self.correct, self.ks).accuracy, coverage, atol=1e-12
        )

    def test_weighted_voting_between_distinct_answers_is_best_of_k(self) -> None:
        classes = np.tile(np.arange(32), (20, 1))
        weighted = weighted_at_k(classes, self.scores, self.correct, [32, 31], rng())
        np.testing.assert_allclose(
            weighted.accuracy, best_of_k(self.scores, self.correct, [32, 31]).accuracy, atol=1e-12
        )

    def test_permuting_samples_changes_no_exact_value(self) -> None:
        order = rng(2).permutation(32)
        pool = self.classes, self.scores, self.correct
        before = weighted_at_k(*pool, [1, 31, 32], rng())
        after = weighted_at_k(*(a[:, order] for a in pool), [1, 31, 32], rng())
        np.testing.assert_allclose(before.accuracy, after.accuracy)


class TestContract:
    def test_no_answer_never_votes_and_nothing_is_wrong(self) -> None:
        classes = [[-1, -1, -1, 0]]
        everything = [[True] * 4]  # even if the grader were to call an answerless sample right
        assert majority_at_k(classes, everything, [1, 3, 4], rng()).accuracy[:, 0] == pytest.approx(
            [0.25, 0.75, 1]
        )
        assert majority_at_k([[-1, -2]], [[True, True]], [2], rng()).accuracy[0, 0] == 0.0

    def test_a_sample_without_score_is_never_chosen(self) -> None:
        assert best_of_k([[NAN, 0.0]], [[True, False]], [2]).accuracy[0, 0] == 0.0
        assert best_of_k([[NAN, NAN]], [[True, True]], [1, 2]).accuracy.max() == 0.0
        # −∞ is a score: the lowest, above none.
        assert best_of_k([[-np.inf, NAN]], [[True, False]], [2]).accuracy[0, 0] == 1.0

    def test_sums_that_differ_only_by_rounding_tie(self) -> None:
        assert 0.1 + 0.1 + 0.1 != 0.3
        result = weighted_at_k([[0, 0, 0, 1]], [[0.1, 0.1, 0.1, 0.3]], [[1, 1, 1, 0]], [4], rng())
        assert result.accuracy[0, 0] == 0.5

    def test_chunks_and_other_ks_do_not_change_the_draw(self, monkeypatch) -> None:
        pool = TestIdentities
        whole = weighted_at_k(pool.classes, pool.scores, pool.correct, [4, 16], rng(1), subsets=50)
        monkeypatch.setattr(estimators, "CELLS", 50 * 32 * 3)
        split = weighted_at_k(pool.classes, pool.scores, pool.correct, [16], rng(1), subsets=50)
        np.testing.assert_array_equal(whole.accuracy[1], split.accuracy[0])

    def test_mean_over_problems(self) -> None:
        pool = TestIdentities
        result = majority_at_k(pool.classes, pool.correct, [8], rng())
        assert result.mean[0] == pytest.approx(result.accuracy[0].mean())
        assert result.mean_error[0] == pytest.approx(np.sqrt((result.error[0] ** 2).sum()) / 20)

    def test_faults(self) -> None:
        two = [[0, 1]]
        with pytest.raises(InputError, match=r"between 1 and the pool's 2"):
            majority_at_k(two, [[True, False]], [3], rng())
        with pytest.raises(InputError, match="ks="):
            best_of_k([[0.1, 0.2]], [[True, False]], [])
        with pytest.raises(InputError, match="one shape"):
            best_of_k([[0.1, 0.2]], [[True]], [1])
        with pytest.raises(InputError, match="none empty"):
            best_of_k(np.zeros((0, 4)), np.zeros((0, 4), bool), [1])
        with pytest.raises(InputError, match=r"-0\.5"):
            weighted_at_k(two, [[-0.5, 1.0]], [[True, False]], [1], rng())
        with pytest.raises(InputError, match="subsets=1"):
            majority_at_k(two, [[True, False]], [1], rng(), subsets=1)

    def test_speed(self) -> None:
        draw = rng(0)
        classes = draw.integers(-1, 40, size=(500, 64))
        start = time.process_time()
        weighted_at_k(classes, draw.random((500, 64)), classes == 0, [1, 2, 4, 8, 16, 32, 64], rng())
        assert time.process_time() - start < 2.0
