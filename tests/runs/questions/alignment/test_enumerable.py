"""Policies on models that can be enumerated: what must hold of every one, and what each model is there to show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metagen.analysis.alignment import kl, tilt
from metagen.runs.questions.alignment.enumerable import Reached, exact, frontier, palindromes, symbols


@pytest.fixture(scope="module")
def reached() -> dict[str, dict[tuple[str, str], Reached]]:
    return {model.name: {(r.policy, r.knob): r for r in found} for model, found in exact()}


def test_palindromes_are_the_words_of_the_documentation() -> None:
    """docs/decoding/value_tilted.md: 62 words, E_p[r] = 0.258; the tilt of λ = 1 wins 0.486 at 0.119 nats."""
    model = palindromes()
    assert len(model.p) == 62 and model.mean == pytest.approx(0.258, abs=5e-4)
    q = tilt(model.p, model.r, 1.0)
    assert (q @ model.r, kl(q, model.p)) == pytest.approx((0.486, 0.119), abs=5e-4)


def test_symbols_are_independent_and_equal_counts_have_one_reward() -> None:
    model = symbols(4)
    assert len(model.p) == 3**4 and len(np.unique(model.r)) == 15
    assert model.p.max() == pytest.approx(0.5**4) and model.r.max() == pytest.approx(4 * math.log(0.67))


def test_nothing_wins_more_than_the_tilt_or_goes_further_than_its_bound(reached) -> None:
    for found in reached.values():
        for r in found.values():
            assert r.reward <= r.optimal + 1e-8
            assert math.isnan(r.bound) or r.kl <= r.bound + 1e-9
            assert 0.0 <= r.wins <= 1.0
        assert found["best-of-n", "n = 1"].kl == pytest.approx(0.0, abs=1e-12)


def test_of_right_and_wrong_best_of_n_is_optimal(reached) -> None:
    for (policy, _), r in reached["palindromes"].items():
        if policy in ("best-of-n", "soft best-of-16", "token-wise, soft value"):
            assert r.reward == pytest.approx(r.optimal, abs=1e-8)
    # Of blocks that are worth the same, none is kept for the rounding of its value.
    single = [reached["palindromes"]["blocks of 1", f"n = {n}"].kl for n in (2, 4, 16)]
    assert single == pytest.approx([0.456, 1.428, 2.674], abs=5e-4)
    two = reached["palindromes"]["blocks of 2", "n = 4"]  # docs/studies/alignment.md
    assert two.reward / two.optimal == pytest.approx(0.922, abs=5e-4)
    # Blocks, and values of a model that does not know that it will be tilted, are not.
    assert reached["palindromes"]["blocks of 2", "n = 4"].reward < 0.95 * 0.7338
    assert reached["palindromes"]["token-wise, expected value", "λ = 2/sd"].reward < 0.65


def test_softening_comes_nearer_to_the_tilt(reached) -> None:
    plain = reached["symbols"]["best-of-n", "n = 16"]
    soft = reached["symbols"]["soft best-of-16", "β = 0.5 sd"]
    assert plain.reward / plain.optimal < soft.reward / soft.optimal < 1.0 and soft.kl < plain.kl


def test_a_sum_of_rewards_needs_no_soft_value(reached) -> None:
    """Of independent tokens with rewards that add up, the tilt token by token is that of the whole."""
    for (policy, knob), r in reached["symbols"].items():
        if policy == "token-wise, expected value":
            assert r.reward == pytest.approx(reached["symbols"]["token-wise, soft value", knob].reward)


def test_a_proxy_is_over_optimised_and_pessimism_is_not_fooled(reached) -> None:
    by = {policy: [r.reward for (p, _), r in reached["symbols"].items() if p == policy]
          for policy in ("by one proxy", "by the mean of 4", "pessimistic, of 4")}  # fmt: skip
    one, pessimist = by["by one proxy"], by["pessimistic, of 4"]
    assert max(one) > 0 > one[-1] and pessimist == sorted(pessimist)
    assert one[-1] < by["by the mean of 4"][-1] < pessimist[-1]


def test_the_frontier_rises_to_the_best_outcomes() -> None:
    model = palindromes()
    far, most = frontier(model, 3.0)
    assert far[-1] == 3.0 and most[0] == pytest.approx(0.0, abs=1e-12) and most == sorted(most)
    assert most[-1] == pytest.approx(1.0 - model.mean)
