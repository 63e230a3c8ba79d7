"""Brute force over all subsets, from the definitions, against the estimators."""

import time
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations, product
from math import comb, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.analysis import subset_votes
from metagen.analysis.estimators import (
    AtK,
    best_of_k,
    best_of_k_by_verdicts,
    majority_at_k,
    mbr_at_k,
    mean_best_of_k,
    pass_at_k,
    soft_best_at_k,
    votes_at_k,
    weighted_at_k,
)
from metagen.analysis.subset_votes import Ballots, Draws, majority_exact, majority_work
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


class TestClosedForm:
    @settings(max_examples=150, deadline=None)
    @given(pools())
    def test_it_counts_every_subset(self, pool) -> None:
        classes, scores, _ = pool
        n = classes.shape[1]
        correct = scores >= 0.5  # classes of mixed correctness among them
        found = majority_exact(Ballots.of(classes, correct), range(1, n + 1))
        expected = [
            [brute_vote(c, [1.0] * n, r, k) for c, r in zip(classes, correct, strict=True)]
            for k in range(1, n + 1)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)

    def test_it_is_what_counting_random_subsets_tends_to(self) -> None:
        """500 problems × 64 samples, voted on one subset at a time; a false alarm at 4 standard errors: 6e-5 each."""
        draw = rng(0)
        classes = draw.integers(-1, 6, size=(500, 64)) * (draw.random((500, 64)) < 0.8)
        correct, ks = classes == 0, (3, 8, 32)
        exact = majority_at_k(classes, correct, ks, rng())
        assert not exact.error.any()
        for k, accuracy in zip(ks, exact.accuracy, strict=True):
            counted = np.zeros((500, 20))
            for problem, row in enumerate(classes):
                for i in range(20):
                    votes = Counter(c for c in draw.choice(row, k, replace=False) if c >= 0)
                    winners = [c for c, v in votes.items() if v == max(votes.values())]
                    counted[problem, i] = (0 in winners) / max(len(winners), 1)
            error = np.sqrt((counted.var(axis=1, ddof=1) / 20).sum()) / 500
            assert abs(counted.mean() - accuracy.mean()) < 4 * error

    def test_blocks_of_permutations_tend_to_it(self) -> None:
        """720 values within 5 standard errors, their means within 4. What 1 of 64 subsets shows, some draws miss."""
        classes = rng(2).integers(-1, 5, size=(120, 48))
        ks = (2, 3, 6, 12, 24, 40)
        exact = majority_at_k(classes, classes == 0, ks, rng(), exact=True)
        drawn = majority_at_k(classes, classes == 0, ks, rng(), exact=False)
        off = np.abs(drawn.accuracy - exact.accuracy)
        assert (drawn.error > 0).mean() > 0.9
        np.testing.assert_array_less(off, 5 * drawn.error + 5 / 64)
        np.testing.assert_array_less(np.abs(drawn.mean - exact.mean), 4 * drawn.mean_error)

    def test_large_numbers_keep_their_digits(self) -> None:
        # Two classes of 500: whatever k is odd, each wins half of the subsets.
        classes = np.repeat([[0, 1]], 500, axis=0).reshape(1, -1)
        found = majority_at_k(classes, classes == 0, [1, 11, 501, 1000], rng(), exact=True)
        np.testing.assert_allclose(found.accuracy, 0.5, rtol=1e-11)

    def test_pools_that_are_all_alike(self) -> None:
        wrong = np.ones((3, 40), dtype=np.int64)
        assert not majority_at_k(wrong, wrong == 0, [9], rng()).accuracy.any()
        assert not majority_at_k(-wrong, wrong == 1, [9], rng()).accuracy.any()  # nobody votes
        right = majority_at_k(wrong, wrong == 1, [9], rng())
        np.testing.assert_allclose(right.accuracy, 1.0, rtol=1e-12)

    def test_asking_for_subsets_asks_for_drawing(self) -> None:
        classes = rng(0).integers(0, 3, size=(3, 40))
        assert majority_at_k(classes, classes == 0, [9], rng(), subsets=100).error.any()
        assert not majority_at_k(classes, classes == 0, [9], rng()).error.any()

    def test_work_grows_with_the_pool_and_is_refused_beyond_floats(self) -> None:
        small, large = (Ballots.of(c, c == 0) for c in (rng(0).integers(0, 9, (5, n)) for n in (32, 128)))
        assert 0 < majority_work(small) < majority_work(large)
        alone = [Ballots.of(np.arange(n)[None], np.arange(n)[None] == 0) for n in (8, 16)]
        assert 0 < majority_work(alone[0]) < majority_work(alone[1])
        huge = np.zeros((1, 1001), dtype=np.int64)
        assert majority_work(Ballots.of(huge, huge == 0)) == np.inf
        with pytest.raises(InputError, match="at most 1000"):
            majority_at_k(huge, huge == 0, [500], rng(), exact=True)
        assert majority_at_k(huge, huge == 0, [500], rng()).accuracy[0, 0] == 1.0

    def test_the_closed_form_counts_no_weights_and_draws_no_subsets(self) -> None:
        classes = np.repeat([[0, 1]], [10, 30], axis=1)
        scores = np.where(classes == 0, 0.99, 0.01)
        with pytest.raises(InputError, match="exact=True: the scores of a problem differ"):
            weighted_at_k(classes, scores, classes == 0, [20], rng(), exact=True)
        same = weighted_at_k(classes, np.full_like(scores, 0.5), classes == 0, [20], rng(), exact=True)
        assert same.accuracy == majority_at_k(classes, classes == 0, [20], rng(), exact=True).accuracy
        with pytest.raises(InputError, match="subsets=64: exact=True draws no subsets"):
            majority_at_k(classes, classes == 0, [20], rng(), 64, exact=True)


class TestDraws:
    @given(st.integers(1, 100_000), st.one_of(st.none(), st.integers(2, 2000)), st.integers(1, 300))
    def test_blocks_fit_in_a_permutation_and_keep_the_number_asked_for(self, problems, subsets, n) -> None:
        draws = Draws.of(problems, subsets)
        assert draws.permutations >= 2  # or there is no error to tell
        for k in range(1, n + 1):
            assert 1 <= draws.blocks(n, k) <= n // k
            assert draws.permutations * draws.blocks(n, k) <= draws.subsets

    def test_more_for_few_problems(self) -> None:
        assert [Draws.of(p, None).subsets for p in (1, 500, 2000, 10_000)] == [512, 512, 262, 64]


class TestCounting:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_comparing_votes_in_pairs_is_counting_them(self, weighted) -> None:
        draw = rng(0)
        voted = draw.integers(0, 13, size=(6, 200, 3))  # 12 is "no answer"
        weights = draw.choice([0.0, 0.1, 0.2, 0.3], size=voted.shape) if weighted else None
        right = draw.random((6, 12))
        won = subset_votes.winners(voted, weights, 12)
        expected = (won * right[:, None, :]).sum(axis=-1) / np.maximum(won.sum(axis=-1), 1)
        np.testing.assert_allclose(subset_votes._tally(voted, weights, right), expected, atol=1e-12)
        np.testing.assert_allclose(subset_votes._tally_pairs(voted, weights, right), expected, atol=1e-12)

    def test_votes_together_are_votes_alone(self) -> None:
        pool = TestIdentities
        some = np.where(pool.scores < 0.2, NAN, pool.scores)
        given = {"plain": None, "all": pool.scores, "some": some}
        both = votes_at_k(pool.classes, pool.correct, pool.ks, rng(4), weights=given)
        plain = majority_at_k(pool.classes, pool.correct, pool.ks, rng(4))
        np.testing.assert_array_equal(both["plain"].accuracy, plain.accuracy)
        for name in ("all", "some"):
            alone = weighted_at_k(pool.classes, given[name], pool.correct, pool.ks, rng(4))
            np.testing.assert_array_equal(both[name].accuracy, alone.accuracy)
            np.testing.assert_array_equal(both[name].error, alone.error)

    def test_of_the_same_subsets_differences_are_sharper(self) -> None:
        """Weights that hardly differ: their difference varies less than each, as the subsets are shared."""
        classes, scores = TestIdentities.classes[:1], TestIdentities.scores[:1]
        correct = classes == classes[0, 0]
        drawn = []
        for seed in range(60):
            given = {"one": scores, "other": scores + 0.02 * TestIdentities.scores[1:2]}
            both = votes_at_k(classes, correct, [8], rng(seed), weights=given, subsets=64)
            drawn.append([found.accuracy[0, 0] for found in both.values()])
        one, other = np.array(drawn).T
        assert 0 < np.std(other - one) < 0.5 * np.std(other)


class TestChoices:
    """Best, soft best and minimum risk, against all subsets."""

    @settings(max_examples=100, deadline=None)
    @given(pools())
    def test_mean_of_the_best(self, pool) -> None:
        classes, scores, correct = pool
        ks = range(1, scores.shape[1] + 1)
        found = mean_best_of_k(scores, classes, ks)
        for row, (score, value) in enumerate(zip(scores, classes, strict=True)):
            for k in ks:
                every = [
                    np.mean([value[i] for i in s if score[i] == np.nanmax(score[list(s)])])
                    for s in combinations(range(len(score)), k)
                    if not np.isnan(score[list(s)]).all()
                ]
                np.testing.assert_allclose(found[k - 1, row], np.mean(every) if every else NAN, atol=1e-12)
        if not np.isnan(scores).any():
            np.testing.assert_allclose(
                mean_best_of_k(scores, correct, ks), best_of_k(scores, correct, ks).accuracy
            )

    @settings(max_examples=100, deadline=None)
    @given(pools(), st.sampled_from([0.1, 1.0]))
    def test_soft_best(self, pool, beta) -> None:
        classes, scores, _ = pool
        ks = range(1, scores.shape[1] + 1)
        found = soft_best_at_k(scores, classes, ks, beta, rng())
        for row, (score, value) in enumerate(zip(scores, classes, strict=True)):
            for k in ks:
                every = []
                for subset in combinations(range(len(score)), k):
                    known = [i for i in subset if not np.isnan(score[i])]
                    share = np.exp(score[known] / beta)
                    every += [(share * value[known]).sum() / share.sum()] if known else []
                np.testing.assert_allclose(
                    found.accuracy[k - 1, row], np.mean(every) if every else NAN, atol=1e-12
                )
        assert not np.nan_to_num(found.error).any()

    def test_soft_best_lies_between_the_mean_and_the_best(self) -> None:
        pool = TestIdentities
        # The largest gap of a pool's scores may be tiny, so that β must be, too.
        hard = soft_best_at_k(pool.scores, pool.correct, [8, 32], 1e-9, rng())
        best = best_of_k(pool.scores, pool.correct, [8, 32])
        np.testing.assert_allclose(hard.accuracy[1], best.accuracy[1])
        np.testing.assert_array_less(np.abs(hard.accuracy - best.accuracy), 5 * hard.error + 0.01)
        assert np.abs(hard.mean[0] - best.mean[0]) < 4 * hard.mean_error[0]
        flat = soft_best_at_k(pool.scores, pool.correct, [32], 1e9, rng())
        np.testing.assert_allclose(flat.accuracy[0], pool.correct.mean(axis=1), atol=1e-6)

    def test_the_error_where_some_subsets_have_no_score(self) -> None:
        scores = np.where(rng(1).random((1, 40)) < 0.8, NAN, 1.0)
        values = rng(2).random((1, 40))
        runs = [soft_best_at_k(scores, values, [3], 1.0, rng(s), subsets=200) for s in range(200)]
        spread = np.std([r.accuracy[0, 0] for r in runs], ddof=1)
        assert np.mean([r.error[0, 0] for r in runs]) == pytest.approx(spread, rel=0.25)
        truth = values[~np.isnan(scores)].mean()
        assert np.mean([r.accuracy[0, 0] for r in runs]) == pytest.approx(truth, abs=4 * spread / 14)

    @pytest.mark.parametrize("grid", [(0.0, 0.5, 1.0), (-2.0, -1.0)])
    def test_minimum_risk(self, grid) -> None:
        draw = rng(3)
        utility, correct = draw.choice(grid, size=(4, 6, 6)), draw.random((4, 6)) < 0.5
        ks = range(1, 7)
        found = mbr_at_k(utility, correct, ks, rng())
        for row in range(4):
            for k in ks:
                total = 0.0
                for subset in combinations(range(6), k):
                    gathered = [utility[row, i, list(subset)].sum() for i in subset]
                    best = [i for i, g in zip(subset, gathered, strict=True) if g == max(gathered)]
                    total += correct[row, best].mean() / comb(6, k)
                assert found.accuracy[k - 1, row] == pytest.approx(total, abs=1e-12)

    def test_minimum_risk_of_equal_answers_is_the_majority(self) -> None:
        classes = rng(0).integers(0, 5, size=(15, 24))
        same = classes[:, :, None] == classes[:, None, :]
        risk = mbr_at_k(same, classes == 0, [1, 7, 12, 24], rng(1))
        vote = majority_at_k(classes, classes == 0, [1, 7, 12, 24], rng(1), subsets=200)
        np.testing.assert_allclose(risk.accuracy, vote.accuracy, atol=1e-12)
        np.testing.assert_allclose(risk.error, vote.error, atol=1e-12)

    def test_faults(self) -> None:
        with pytest.raises(InputError, match="such as problem 0, sample 1"):
            mean_best_of_k([[NAN, 1.0]], [[0.0, NAN]], [1])
        assert mean_best_of_k([[NAN, 1.0]], [[NAN, 3.0]], [1, 2]).tolist() == [[3.0], [3.0]]
        with pytest.raises(InputError, match=r"beta=0\.0"):
            soft_best_at_k([[1.0]], [[1.0]], [1], 0.0, rng())
        with pytest.raises(InputError, match="a score is infinite"):
            soft_best_at_k([[np.inf]], [[1.0]], [1], 1.0, rng())
        with pytest.raises(InputError, match=r"expected finite \[problems, n, n\]"):
            mbr_at_k(np.zeros((1, 2, 3)), [[True, False]], [1], rng())
        with pytest.raises(InputError, match="1 of it not finite"):
            mbr_at_k([[[NAN]]], [[True]], [1], rng())


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
        equal = weighted_at_k(self.classes, scores, self.correct, self.ks, rng(9), subsets=100)
        plain = majority_at_k(self.classes, self.correct, self.ks, rng(9), subsets=100)
        np.testing.assert_array_equal(equal.accuracy, plain.accuracy)
        np.testing.assert_array_equal(equal.error, plain.error)

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
        monkeypatch.setattr(subset_votes, "CELLS", 50 * 32 * 3)
        split = weighted_at_k(pool.classes, pool.scores, pool.correct, [16], rng(1), subsets=50)
        np.testing.assert_array_equal(whole.accuracy[1], split.accuracy[0])

    def test_mean_over_problems(self) -> None:
        pool = TestIdentities
        result = majority_at_k(pool.classes, pool.correct, [8], rng())
        assert result.mean[0] == pytest.approx(result.accuracy[0].mean())
        assert AtK((8,), result.accuracy[:, :2], np.array([[0.3, 0.4]])).mean_error[0] == pytest.approx(0.25)

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


# -- best-of-k by the mean of several verdicts -------------------------------------------------------------------------


def test_equal_verdicts_in_another_order_tie() -> None:
    verdicts, correct = [[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]], [[True, False]]
    found = best_of_k_by_verdicts(verdicts, correct, [2], 3, np.random.default_rng(0))
    assert found.accuracy[0] == 0.5


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_best_of_k_by_verdicts_is_the_average_over_all_draws_of_verdicts() -> None:
    """Against every way of drawing v of V verdicts of each sample, one that said nothing among them."""
    verdicts = np.array([[[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [np.nan, 1.0, 0.0]]])
    correct = np.array([[True, False, False]])
    for v in (1, 2, 3):
        ways = [
            np.nanmean(verdicts[0, :, :, None][:, list(d)], axis=(1, 2)) for d in combinations(range(3), v)
        ]
        exact = np.mean(
            [
                best_of_k([[ways[a][0], ways[b][1], ways[c][2]]], correct, [1, 2, 3]).accuracy[:, 0]
                for a, b, c in product(range(len(ways)), repeat=3)
            ],
            axis=0,
        )
        found = best_of_k_by_verdicts(verdicts, correct, [1, 2, 3], v, np.random.default_rng(0), draws=2000)
        # Five standard errors of a mean over draws; exact where all verdicts are taken.
        assert np.abs(found.accuracy[:, 0] - exact).max() <= 5 * found.error.max() + 1e-12
        assert (found.error.max() == 0.0) == (v == 3)


@pytest.mark.parametrize(("v", "draws"), [(0, 64), (3, 64), (1, 1)])
def test_verdicts_that_are_not_there_are_refused(v: int, draws: int) -> None:
    with pytest.raises(InputError, match="1 ≤ v ≤ V, and at least 2 draws"):
        best_of_k_by_verdicts(np.ones((1, 2, 2)), [[True, False]], [1], v, np.random.default_rng(0), draws)
