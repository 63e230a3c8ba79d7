"""Adaptive allocation, where what it saves is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metagen.runs.curves.frontier import at_cost
from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.questions import adaptive
from metagen.runs.questions.question import answer
from tests.runs.made import made

RESULT = made(60, 32)


def with_adaptive(accuracy: np.ndarray, spends: float) -> StudyResult:
    """The made study, and an adaptive strategy of its small model that spends so many FLOPs on average."""
    vote = RESULT.curve("small", "majority")
    rng = np.random.default_rng(0)
    paid = rng.exponential(1.0, (1, 60))
    costs = {name: paid / paid.mean() * spends for name in vote.costs}
    curve = Curve(
        "small", "adaptive", "adaptive_consistency", np.array([32]), accuracy[None], 0.0 * accuracy[None], costs,
        0.0 * paid, source="run",
    )  # fmt: skip
    return replace(RESULT, curves=(*RESULT.curves, curve))


def test_an_adaptive_strategy_is_beside_the_vote_at_its_mean_cost() -> None:
    vote = RESULT.curve("small", "majority")
    result = with_adaptive(vote.accuracy[-1], 8e7)  # as good as 32 samples, for the price of 8
    (found,) = adaptive.ran(result)
    beside = at_cost(vote, "flops", 8e7)
    assert beside is not None and found.spends == pytest.approx(8e7)
    np.testing.assert_allclose(found.beside.accuracy, beside.accuracy)
    assert found.saved == pytest.approx(4.0)
    assert found.low < found.saved <= found.high


def test_the_first_contrast_is_that_of_what_ran() -> None:
    vote = RESULT.curve("small", "majority")
    found = answer(adaptive.adaptive_pays(with_adaptive(np.minimum(vote.accuracy[-1] + 0.2, 1.0), 8e7)))
    gain = np.minimum(vote.accuracy[-1] + 0.2, 1.0).mean() - vote.accuracy[3].mean()
    assert found.shown and found.estimate == pytest.approx(100 * gain)
    assert found.sentence.startswith("small/adaptive@32 spends 80M FLOPs on average")


def test_harm_that_is_shown_is_an_answer() -> None:
    vote = RESULT.curve("small", "majority")
    result = replace(with_adaptive(np.maximum(vote.accuracy[3] - 0.2, 0.0), 8e7), votes=())
    found = answer(adaptive.adaptive_pays(result))
    assert found.shown and found.high < 0.0 and "−" in found.sentence


def test_what_costs_more_than_any_vote_measured_is_not_compared() -> None:
    dear = with_adaptive(np.ones(60), 5e8)  # 32 votes cost 3.2e8
    assert adaptive.ran(dear) == []
    section = adaptive.section(dear)
    assert section is not None and [note.about for note in section.notes] == ["small/adaptive@32"]


def test_a_vote_that_is_never_as_good_has_no_factor() -> None:
    (found,) = adaptive.ran(with_adaptive(np.ones(60), 8e7))
    assert np.isnan(found.saved)
    section = adaptive.section(with_adaptive(np.ones(60), 8e7))
    assert section is not None
    assert section.tables[0].rows[0][-1].startswith("never as accurate")


def test_the_rule_draws_fewer_samples_and_agrees_with_the_vote() -> None:
    found = adaptive.replay_pools(RESULT)
    assert set(found) == {"small", "large"}
    for one in found.values():
        assert one.most == 32 and one.fewer > 1.0
        assert one.agreement.mean() > 0.95
    assert found["large"].fewer > found["small"].fewer  # more problems on which all agree


def test_samples_dealt_by_difficulty_are_as_many_on_average() -> None:
    found = adaptive.dealt(RESULT)
    assert {(one.model, one.mean) for one in found} == {
        (m, n) for m in ("small", "large") for n in (8.0, 16.0)
    }
    for one in found:
        assert one.drawn <= one.mean + 1e-9
        assert np.isfinite(one.dealt).all() and 0.0 <= one.dealt.min() <= one.dealt.max() <= 1.0


def test_what_is_learned_on_one_half_is_used_on_the_other() -> None:
    """Half of the problems are lost causes, the others need a few votes: dealing wins, and never by seeing them."""
    rng = np.random.default_rng(1)
    shares = np.where(np.arange(60) % 2 == 0, 0.0, 0.62)
    correct = rng.random((60, 32)) < shares[:, None]
    # A lost cause agrees on a wrong answer; the others are split between two.
    classes = np.where(correct, 0, 1)
    pool = replace(RESULT.votes[0], classes=classes, correct=correct)
    found = adaptive.dealt(replace(RESULT, votes=(pool,), models=RESULT.models[:1]))
    gain = {one.mean: float(one.dealt.mean() - one.uniform.mean()) for one in found}
    assert gain[8.0] > 0.01


def test_few_problems_or_no_samples_say_so() -> None:
    few = made(10, 32)
    assert adaptive.dealt(few) == []
    section = adaptive.section(few)
    assert section is not None and "needs pools of 8 samples or more" in section.notes[0].text
    bare = replace(RESULT, votes=())
    assert adaptive.section(bare) is None
    found = answer(adaptive.adaptive_pays(bare))
    assert not found.shown and "no adaptive strategy has a plain vote at its cost" in found.sentence
