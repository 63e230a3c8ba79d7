"""Rewards of pools: by all subsets, and of pools as models; and what is said of what is missing."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from metagen.analysis.alignment import best_of_n_pmf, kl_bound, kl_estimate
from metagen.analysis.intervals import SHARES
from metagen.runs.curves.study import Votes
from metagen.runs.questions.alignment.pools import (
    Rewarded,
    best,
    ladder,
    mean_of,
    reaches,
    read_rewards,
    share,
)
from tests.runs.made import made

NAN = math.nan


def pool(reward, gold=None, logprob=None, others=None) -> Rewarded:
    reward = np.array(reward, float)
    gold = np.zeros(reward.shape) if gold is None else np.array(gold, float)
    logprob = np.full(reward.shape, NAN) if logprob is None else np.array(logprob, float)
    return Rewarded(
        "m", "v", reward, gold, logprob, np.zeros((0, *reward.shape)) if others is None else others
    )


@pytest.fixture(scope="module")
def votes() -> Votes:
    return made(20, 16).votes[0]


def test_the_best_of_n_is_the_mean_over_subsets() -> None:
    rng = np.random.default_rng(0)
    some = pool(
        rng.integers(0, 4, (5, 7)) / 4, rng.integers(0, 2, (5, 7)), np.log(rng.uniform(0.01, 0.3, (5, 7)))
    )
    for found in best(some, [1, 2, 4, 6, 7]):
        n = found.n
        for row, (r, g, lp) in enumerate(zip(some.reward, some.gold, some.logprob, strict=True)):
            sums, wins = np.zeros(3), []
            subsets = list(combinations(range(7), n))
            for subset in map(list, subsets):
                top = np.flatnonzero(r[subset] == r[subset].max())
                at = np.array(subset)[top]
                sums += [r[subset].max(), g[at].mean(), kl_estimate(n, np.exp(lp[at])).mean()]
                fresh = [i for i in range(7) if i not in subset]
                wins += [(r[subset].max() > r[i]) + 0.5 * (r[subset].max() == r[i]) for i in fresh]
            reward, gold, _ = sums / len(subsets)
            assert (found.reward[row], found.gold[row]) == pytest.approx((reward, gold))
            assert found.wins[row] == pytest.approx(np.mean(wins)) if wins else np.isnan(found.wins[row])
            assert found.gold_wins[row] == pytest.approx(0.5 * (1 + gold - g.mean()))
        assert found.bound == kl_bound(n) and 0 <= found.estimate <= found.bound + 1e-12


def test_the_estimate_is_that_of_the_model() -> None:
    """Samples of a model of eight outcomes: the estimator is below the bound, as in expectation."""
    rng = np.random.default_rng(1)
    p, r, n = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02]), np.linspace(1, 0, 8), 4
    drawn = rng.choice(8, p=p, size=(400, 64))
    (found,) = best(pool(r[drawn], logprob=np.log(p)[drawn]), [n])
    exact = float(best_of_n_pmf(p, r, n) @ kl_estimate(n, p))
    assert found.estimate == pytest.approx(exact, abs=0.005) and exact < 0.96 * kl_bound(n)
    assert mean_of(found.reward)[0] == pytest.approx(float(best_of_n_pmf(p, r, n) @ r), abs=0.01)


def test_pools_are_models() -> None:
    rng = np.random.default_rng(2)
    some = pool(rng.random((6, 64)), rng.integers(0, 2, (6, 64)))
    every = reaches(some, [1, 2, 16])
    by = {(r.policy, r.knob): r for r in every}
    p = np.full(64, 1 / 64)
    for i, row in enumerate(some.reward):
        q = best_of_n_pmf(p, row, 16)
        assert by["best-of-n", "n = 16"].reward[i] == pytest.approx(q @ row)
        assert by["best-of-n", "n = 16"].gold[i] == pytest.approx(q @ some.gold[i])
    # Of 64 samples, the best of a few drawn with replacement is nearly that without.
    (two,) = best(some, [2])
    np.testing.assert_allclose(by["best-of-n", "n = 2"].reward, two.reward, atol=0.01)
    np.testing.assert_allclose(by["best-of-n", "n = 2"].kl, kl_bound(2), atol=0.01)
    assert all((r.reward <= r.optimal + 1e-9).all() for r in every)
    soft = [by["soft best-of-16", f"β = {b:g}"] for b in (1.0, 0.3, 0.1, 0.03)]
    assert [float(r.kl.mean()) for r in soft] == sorted(float(r.kl.mean()) for r in soft)
    assert share(some, by["best-of-n", "n = 16"]).estimate < share(some, soft[2]).estimate < 1.0
    assert share(some, by["tilt", "λ = 4"]).estimate == 1.0
    assert not any(policy.startswith("pessimistic") for policy, _ in by)


def test_of_right_and_wrong_best_of_n_is_optimal() -> None:
    right = np.random.default_rng(3).integers(0, 2, (12, 32))
    some = pool(right, right)
    for r in reaches(some, [1, 2, 4, 8]):
        if float(r.kl.mean()) > 1e-9:
            assert share(some, r).estimate == pytest.approx(1.0, abs=1e-6)
    assert mean_of(best(some, [4])[0].wins)[0] < 4 / 5  # ties are halves


def test_pessimism_needs_an_ensemble() -> None:
    rng = np.random.default_rng(4)
    true = rng.random((10, 32))
    fooled = true.copy()
    fooled[:, 0] = 1.5  # one sample fools the first verifier
    true[:, 0] = 0.0
    some = pool(fooled, true, others=np.stack([fooled, true, true]))
    by = {(r.policy, r.knob): r for r in reaches(some, [1, 8])}
    pessimist = by["pessimistic, 3 verifiers", "n = 8"]
    assert pessimist.gold.mean() > by["best-of-n", "n = 8"].gold.mean()


def test_equal_rewards_gain_nothing() -> None:
    some = pool(np.ones((9, 8)), np.ones((9, 8)))
    for r in reaches(some, [1, 2]):
        assert np.abs(r.kl).max() < 1e-9 and math.isnan(share(some, r).estimate)
    assert mean_of(best(some, [2])[0].wins) == (0.5, 0.5, 0.5)


def test_what_is_missing_is_said(votes: Votes) -> None:
    whole = read_rewards(votes, "prm", known=["prm"])
    assert whole.notes == () and whole.reward.shape == (20, 16) and len(whole.others) == 1

    score = votes.scores["prm"].copy()
    score[3, 2] = NAN
    sizes = votes.sizes.copy()
    sizes[:1] = 8
    logprob = votes.logprob.copy()
    logprob[5, :3] = NAN
    part = read_rewards(
        replace(votes, scores={"prm": score, "other": score}, sizes=sizes, logprob=logprob),
        "prm",
        known=["prm", "other"],
    )
    said = [note.text for note in part.notes]
    assert part.reward.shape == (18, 16) and part.logprob.shape == (18, 16)
    assert said[0] == "on 19 of 20 problems, those with 16 samples each"
    assert said[1].startswith("1 problems are left out, because")
    assert (
        "only the bound on KL is shown: its estimate needs log-probabilities, and 3 of 288 samples" in said[2]
    )
    assert math.isnan(best(part, [4])[0].estimate)

    other = np.where(np.arange(16) < 2, NAN, votes.scores["prm"])
    part = read_rewards(
        replace(votes, scores={"prm": votes.scores["prm"], "other": other}), "prm", known=["prm", "other"]
    )
    assert len(part.others) == 1 and "other: not in the ensemble" in part.notes[0].text

    for temperature, adapters, words in (
        (0.7, "", "drawn at 0.7"),
        (None, "", "drawn at an unknown temperature"),
        (1.0, "top_p=0.9", "drawn at 1 with top_p=0.9"),
    ):
        part = read_rewards(votes, "prm", temperature=temperature, adapters=adapters)
        assert words in part.notes[0].text and np.isnan(part.logprob).all()

    none = read_rewards(replace(votes, scores={"prm": np.full(score.shape, NAN)}), "prm")
    assert none.reward.shape == (0, 16) and len(none.notes) == 1


def test_what_is_not_eligible_loses(votes: Votes) -> None:
    able = np.arange(16) % 2 == np.zeros((20, 1))
    able[0] = False  # where nothing is eligible, everything is
    found = read_rewards(replace(votes, eligible=able), "prm")
    np.testing.assert_array_equal(found.reward[0], votes.scores["prm"][0])
    assert (found.reward[1:, 1::2] <= found.reward[1:].min(axis=1, keepdims=True)).all()
    np.testing.assert_array_equal(found.reward[1:, ::2], votes.scores["prm"][1:, ::2])


def test_gold_may_be_another_verifier(votes: Votes) -> None:
    scores = {"prm": votes.scores["prm"], "judge": votes.scores["prm"] ** 2}
    found = read_rewards(replace(votes, scores=scores), "prm", "judge")
    np.testing.assert_allclose(found.gold, found.reward**2)
    assert np.isnan(best(found, [2])[0].gold_wins).all()


def test_small_things() -> None:
    assert ladder(16, 64) == [1, 2, 4, 8, 16] and ladder(100, 64)[-1] == 64 and ladder(0, 64) == [1]
    assert mean_of(np.array([])) == pytest.approx((NAN, NAN, NAN), nan_ok=True)
    assert mean_of(np.array([0.2, 0.4])) == pytest.approx((0.3, NAN, NAN), nan_ok=True)
    assert mean_of(np.ones(12)) == (1.0, 1.0, 1.0)
    # 0.025^(1/12), Clopper and Pearson
    assert mean_of(np.ones(12), support=SHARES) == pytest.approx((1.0, 0.735, 1.0), abs=5e-4)
    assert mean_of(np.full(12, 0.1 + 0.2 - 0.3), support=SHARES) == pytest.approx((0, 0, 0.265), abs=5e-4)
    low, high = mean_of(np.arange(10.0))[1:]
    assert 2 < low < 4.5 < high < 7
