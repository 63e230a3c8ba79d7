"""One budget over a data set: against brute force, and against the optimum of a pool whose truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.analysis.paired import paired_difference
from metagen.analysis.stopping import running_vote
from metagen.errors import InputError
from metagen.runs.work.allocation.allocate import (
    Difficulty,
    Plan,
    accuracy_at,
    allocate,
    expected_costs,
    majorant,
    uniform,
)

Array = np.ndarray


@st.composite
def concave(draw: st.DrawFn) -> Array:
    """A few rising concave curves of up to four samples, with gains that tie."""
    gains = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]), min_size=4, max_size=4)
    rows = draw(st.lists(gains, min_size=1, max_size=4))
    return np.stack([np.concatenate([[0.0], np.cumsum(sorted(row, reverse=True))]) for row in rows])


def brute(curves: Array, budget: float, cost: Array, floor: int = 0) -> float:
    """The largest sum of gains that any allocation within the budget has."""
    best = -np.inf
    for given_ in product(range(floor, curves.shape[1]), repeat=len(curves)):
        if np.dot(given_, cost) <= budget + 1e-9:
            best = max(best, sum(curves[i, n] for i, n in enumerate(given_)))
    return best


@settings(max_examples=60)
@given(concave(), st.integers(0, 16), st.integers(0, 1))
def test_greedy_is_optimal_on_concave_curves(curves: Array, budget: int, floor: int) -> None:
    ones = np.ones(len(curves))
    if budget < floor * len(curves):
        return
    found = allocate(curves, budget, floor=floor)
    assert found.sum() <= budget and (found >= floor).all()
    assert curves[np.arange(len(curves)), found].sum() == pytest.approx(brute(curves, budget, ones, floor))


@settings(max_examples=60)
@given(concave(), st.integers(0, 20), st.integers(0, 10_000))
def test_with_unequal_costs_it_keeps_to_the_budget_and_loses_less_than_one_gain(
    curves: Array, budget: int, seed: int
) -> None:
    cost = np.random.default_rng(seed).integers(1, 4, len(curves)).astype(float)
    found = allocate(curves, budget, cost=cost)
    assert (found * cost).sum() <= budget
    lost = brute(curves, budget, cost) - curves[np.arange(len(curves)), found].sum()
    assert -1e-9 <= lost <= np.diff(curves, axis=1).max() + 1e-9


def test_steps_of_a_curve_that_is_not_concave_are_taken_whole() -> None:
    vote = np.array([0.0, 0.5, 0.5, 0.7, 0.7, 0.8])  # of two no better than of one
    assert np.array(majorant(vote)) == pytest.approx(np.array([(0.5, 1), (0.1, 2), (0.05, 2)]))
    falls = np.array([0.0, 0.4, 0.3, 0.2, 0.1, 0.0])
    assert majorant(falls) == [(0.4, 1)], "where more samples hurt, none are bought"
    assert majorant(np.array([1.0, 0.5])) == []
    both = np.stack([vote, falls])
    assert [allocate(both, b).tolist() for b in range(8)] == [
        [0, 0], [1, 0], [1, 1], [1, 1], [3, 1], [3, 1], [5, 1], [5, 1],
    ]  # fmt: skip
    late = np.array([[0.0, 0.0, 0.0, 0.9], [0.0, 0.1, 0.2, 0.3]])
    assert allocate(late, 2).tolist() == [0, 2], "what cannot be finished is not begun"


def test_floors_ceilings_and_ties() -> None:
    curves = np.tile(np.array([0.0, 0.5, 0.6, 0.65]), (3, 1))
    assert allocate(curves, 4).tolist() == [2, 1, 1], "of equal gains the earlier problem"
    assert allocate(curves, 4, ceiling=1).tolist() == [1, 1, 1]
    assert allocate(curves, 5, ceiling=[1, 3, 3]).tolist() == [1, 2, 2]
    assert allocate(curves, 5, floor=[3, 0, 0]).tolist() == [3, 1, 1]
    assert allocate(curves, 10, cost=[10, 1, 1]).tolist() == [0, 3, 3], (
        "a sample of the first would take it all"
    )
    with pytest.raises(InputError, match="a budget of 2 does not pay for the floors, 3"):
        allocate(curves, 2, floor=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"curves": np.zeros(3)}, r"shape \(3,\)"), ({"curves": np.array([[0.0, np.nan]])}, "finite"),
        ({"cost": 0.0}, "cost=0.0"), ({"cost": -1}, "cost=-1"), ({"floor": -1}, "floor=-1"),
        ({"ceiling": 9}, "ceiling=9"), ({"floor": 2, "ceiling": 1}, "floor ≤ ceiling"),
    ],
)  # fmt: skip
def test_what_cannot_be_allocated_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        allocate(**({"curves": np.zeros((2, 4)), "budget": 5} | change))  # type: ignore[arg-type]  # that is what is tested


# -------------------------------------------------------------------------------- a pool that is known

SHARES = np.array([0.98, 0.5, 0.03])
#: A sample of each is paid with ten tokens.
TOKENS = 10.0


def known(problems: int, seed: int, samples: int = 32) -> tuple[Array, Array, Array]:
    """Classes, kinds and tokens of problems that are nearly always right; half of the time, against four rivals; wrong
    in unison.

    More samples gain nothing on the first and the last, and nearly all that is missing on the second.
    """
    rng = np.random.default_rng(seed)
    kind = np.arange(problems) % 3
    wrong = np.where(kind[:, None] == 2, 1, rng.integers(1, 5, (problems, samples)))
    classes = np.where(rng.random((problems, samples)) < SHARES[kind][:, None], 0, wrong)
    return classes, kind, np.full((problems, samples), TOKENS)


def test_learned_curves_are_those_of_the_problems_that_look_alike() -> None:
    classes, kind, _ = known(3000, 1, 16)
    learned = Difficulty.learn(classes, classes == 0, first=6, groups=4, orders=4)
    assert learned.curves.shape == (len(learned.rows), 17) and learned.rows.sum() == 12_000
    assert (learned.curves[:, 0] == 0).all()
    # Who agrees throughout is right or wrong for good; whoever does not is of the second kind, and gains.
    gains = learned.curves[:, 16] - learned.curves[:, 6]
    assert abs(gains[-1]) < 0.02 < 0.05 < gains[0]
    group = learned.groups(classes)
    assert kind[group == 0].tolist() == [1] * (group == 0).sum()
    single = (classes == 0).mean(axis=1)
    for g in range(len(learned.rows)):
        # The first sample of an order stands for all of its problem's: within five standard errors.
        assert learned.curves[g, 1] == pytest.approx(
            single[group == g].mean(), abs=5 * 0.5 / np.sqrt((group == g).sum())
        )


def test_without_monotony_a_curve_is_the_plain_mean() -> None:
    classes = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    correct = np.array([[0] * 4, [0] * 4, [1, 1, 1, 1], [1, 1, 1, 1]])
    plain = Difficulty.learn(classes, correct, first=4, groups=2, orders=3, monotone=False)
    assert plain.edges.tolist() == [1.0] and plain.rows.tolist() == [6, 6]
    assert plain.curves.tolist() == [[0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]
    smooth = Difficulty.learn(classes, correct, first=4, groups=2, orders=3, monotone=True)
    assert smooth.curves[:, 4].tolist() == [0.5, 0.5], (
        "an easier group cannot be less accurate: they are pooled"
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 11), st.integers(1, 8), st.sampled_from([1, 2, 6]))
def test_no_group_of_a_small_pool_is_empty(seed: int, problems: int, samples: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    classes, scores = rng.integers(-1, 4, (problems, samples)), rng.random((problems, samples))
    for predictor in ("agreement", "mean_score"):
        learned = Difficulty.learn(
            classes, classes == 0, first=int(rng.integers(1, samples + 1)), weights=scores, predictor=predictor,
            groups=groups, orders=3,
        )  # fmt: skip
        assert (learned.rows > 0).all() and learned.rows.sum() == 3 * problems
        assert len(learned.rows) == len(learned.edges) + 1 <= groups
        assert learned.curves.shape == (len(learned.rows), samples + 1) and np.isfinite(learned.curves).all()


def test_where_all_agree_there_is_one_group() -> None:
    learned = Difficulty.learn(np.zeros((5, 4)), np.ones((5, 4)), first=2, groups=4, orders=2)
    assert learned.edges.tolist() == [] and learned.rows.tolist() == [10]
    assert learned.expected_accuracy(np.ones((1, 4))).tolist() == [[0, 1, 1, 1, 1]]


def test_allocation_beats_uniform_and_is_near_the_optimum_on_other_problems() -> None:
    held_out, _, _ = known(900, 2)
    classes, kind, tokens = known(900, 3)
    difficulty = Difficulty.learn(held_out, held_out == 0, first=4, groups=4)
    budget = 900 * 7 * TOKENS
    given_ = Plan(budget, (difficulty,)).replay(classes, tokens)
    assert (given_ >= 4).all() and given_.sum() * TOKENS <= budget
    assert given_[kind == 1].mean() > 10 and given_[kind != 1].mean() < 5

    curves = np.pad(running_vote(classes, classes == 0), ((0, 0), (1, 0)))
    ours, same = accuracy_at(curves, given_), accuracy_at(curves, uniform(900, budget, TOKENS))
    difference = paired_difference(ours, same)
    assert difference.low > 0.01, difference
    # Who knows the kinds gives all that is left after the first four to the second: 4 + 3 · 3.
    best = accuracy_at(curves, np.where(kind == 1, 13.0, 4.0))
    assert best.mean() - 0.015 < ours.mean() < best.mean() + 0.015


def test_smoothing_that_supposes_too_much_misleads() -> None:
    held_out, _, _ = known(900, 2)
    learned = [
        Difficulty.learn(held_out, held_out == 0, first=4, groups=4, monotone=m) for m in (False, True)
    ]
    plain, smooth = (d.curves[-1, 32] - d.curves[-1, 4] for d in learned)
    assert (np.diff(learned[1].curves, axis=0) >= -1e-12).all()
    assert abs(plain) < 0.02 < smooth, "what is wrong in unison now seems to gain"


def test_costs_of_few_samples_are_drawn_towards_the_mean_as_far_as_chance_goes() -> None:
    rng = np.random.default_rng(7)
    same = rng.uniform(50, 150, (400, 3))
    assert expected_costs(same).std() < 0.5 * same.mean(axis=1).std(), "problems that differ by chance"
    truth = rng.uniform(50, 150, 400)
    apart = truth[:, None] + rng.normal(0, 20, (400, 3))
    error = np.abs(expected_costs(apart) - truth).mean()
    assert (
        error < np.abs(apart.mean(axis=1) - truth).mean()
        and np.corrcoef(expected_costs(apart), truth)[0, 1] > 0.9
    )
    nan = float("nan")
    assert expected_costs([[4.0, 4.0], [8.0, nan], [nan, nan]]).tolist() == [4.0, 8.0, 6.0]
    # Planned on shrunken costs, the budget is met where lengths vary by chance alone.
    held_out, _, _ = known(600, 8)
    classes, _, _ = known(600, 9)
    tokens = rng.integers(1, 20, classes.shape).astype(float)
    difficulty = Difficulty.learn(held_out, held_out == 0, first=4, groups=4, orders=5)
    drawn = Plan(600 * 8 * 10.0, (difficulty,)).replay(classes, tokens)
    spent = tokens[np.arange(32) < drawn[:, None]].sum()
    assert 0.97 < spent / 48_000 < 1.01


def test_rounds_renew_the_estimates_and_pass_no_checkpoint_unlooked() -> None:
    held_out, _, _ = known(600, 4)
    classes, _, tokens = known(300, 5)
    levels = tuple(Difficulty.learn(held_out, held_out == 0, first=k, groups=4, orders=8) for k in (3, 8))
    plan = Plan(300 * 8 * 10.0, levels)
    drawn = np.zeros(300, dtype=int)
    rounds = []
    while ((wanted := plan.next(drawn, classes, tokens)) > drawn).any():
        drawn = wanted
        rounds.append(drawn)
    assert (rounds[0] == 3).all() and rounds[1].max() == 8 < rounds[2].max() and len(rounds) >= 3
    assert (plan.replay(classes, tokens) == drawn).all() and drawn.sum() * 10 <= plan.budget
    # What has not been drawn is not looked at.
    hidden = np.where(np.arange(32) < drawn[:, None], classes, -1)
    paid = np.where(np.arange(32) < drawn[:, None], tokens, np.nan)
    assert (plan.replay(hidden, np.nan_to_num(paid)) == drawn).all()


def test_a_spent_budget_a_ceiling_and_a_verifier_as_predictor() -> None:
    rng = np.random.default_rng(6)
    kind = np.arange(90) % 3
    # Right 90%, 60% and 30% of the time, against one rival, as the scores say: a vote gains on the second kind, and
    # loses on the third.
    classes = (rng.random((90, 32)) > np.array([0.9, 0.6, 0.3])[kind][:, None]).astype(int)
    tokens = np.full((90, 32), TOKENS)
    scores = np.array([0.9, 0.6, 0.3])[kind][:, None] * np.ones((1, 32))
    difficulty = Difficulty.learn(
        classes, classes == 0, first=2, weights=scores, predictor="mean_score", groups=3, orders=20
    )
    assert (difficulty.groups(classes, scores) == 2 - kind).all()
    assert (Plan(90 * 2 * TOKENS, (difficulty,)).replay(classes, tokens, scores) == 2).all()
    rich = Plan(1e9, (difficulty,), ceiling=7).replay(classes, tokens, scores)
    assert (rich[kind == 1] == 7).all() and (rich[kind == 2] == 2).all(), (
        "nothing is spent where more samples hurt"
    )


def test_accuracy_between_whole_numbers_is_in_proportion() -> None:
    curves = np.array([[0.0, 0.5, 0.7], [0.0, 1.0, 0.0]])
    assert accuracy_at(curves, [0.5, 2]).tolist() == [0.25, 0.0]
    assert accuracy_at(curves, [1, 1.25]).tolist() == [0.5, 0.75]
    assert accuracy_at(curves, uniform(2, 30, 10)).tolist() == pytest.approx([0.6, 0.5])
    with pytest.raises(InputError, match="expected 0 … 2"):
        accuracy_at(curves, [3, 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: Plan(1.0, ()), "at least one"), (lambda d: Plan(1.0, (d, d)), "ascending"),
        (lambda d: Plan(1.0, (d,), ceiling=1), r"expected 2 … 4"),
        (lambda d: Difficulty.learn(np.zeros((2, 4)), np.zeros((2, 4)), first=5), "first=5"),
        (lambda d: Difficulty.learn(np.zeros((2, 4)), np.zeros((2, 4)), first=1, predictor="mood"), "mood"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_are_refused(make: object, words: str) -> None:
    difficulty = Difficulty.learn(np.zeros((2, 4)), np.zeros((2, 4)), first=2)
    with pytest.raises(InputError, match=words):
        make(difficulty)  # type: ignore[operator]  # one of several classes
