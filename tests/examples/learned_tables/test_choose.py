"""The best of several options for each difficulty: against all tables, against sums done by hand, and under noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from choose import Measured, Table
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError


def random_options(rng: np.random.Generator, problems: int, options: int) -> dict[str, Measured]:
    return {
        f"option {i}": Measured(rng.random(problems), rng.integers(1, 9, problems).astype(float))
        for i in range(options)
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4))
def test_no_table_within_the_budget_is_better(seed: int, groups: int, options: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.arange(groups), rng.integers(0, groups, 8)]).astype(float)
    measured = random_options(rng, len(values), options)
    edges = [g - 0.5 for g in range(1, groups)]
    budget, cheap = float(rng.uniform(4, 8)), {"cheap": Measured(0 * values, 0 * values)}
    found = Table.learn(values, cheap | measured, budget=budget, edges=edges)
    share, at = found.rows / found.rows.sum(), np.arange(groups)
    best = 0.0
    for table in product(range(options + 1), repeat=groups):
        if share @ found.cost[at, list(table)] <= budget + 1e-9:
            best = max(best, float(share @ found.accuracy[at, list(table)]))
    reached, spent = found.expected()
    assert reached == pytest.approx(best, abs=1e-9) and spent <= budget * (1 + 1e-6)
    # The costs are those of the problems, as they were.
    cost = np.array([np.asarray(m.cost) for m in (cheap | measured).values()])
    assert cost[found.choose(values), np.arange(len(values))].mean() == pytest.approx(spent)
    dear = float(np.min([found.cost[g, 1:].min() for g in range(groups)])) / 2
    with pytest.raises(InputError, match="the cheapest has"):
        Table.learn(values, measured, budget=dear, edges=edges)


def test_hard_problems_get_the_dear_option_where_it_pays() -> None:
    agreement = np.array([0.25, 0.25, 0.5, 0.5, 1.0, 1.0])
    options = {
        "stop": Measured([0.0, 0.0, 0.5, 0.5, 1.0, 1.0], [1.0] * 6),
        "more": Measured([0.0, 0.0, 0.9, 0.9, 1.0, 1.0], [4.0] * 6),
        "larger": Measured([0.7, 0.7, 0.9, 0.9, 1.0, 1.0], [10.0] * 6),
    }
    table = Table.learn(agreement, options, budget=5.0, edges=[0.5, 1.0])
    assert table.names == ("larger", "more", "stop") and table.expected() == pytest.approx((2.6 / 3, 5.0))
    assert [table.options[i] for i in table.choose([0.1, 0.5, 0.99, 1.0])] == [
        "larger",
        "more",
        "more",
        "stop",
    ]
    assert Table.learn(agreement, options, budget=1.0, edges=[0.5, 1.0]).names == ("stop",) * 3
    huge = {name: Measured(m.accuracy, np.asarray(m.cost) * 1e12) for name, m in options.items()}
    assert Table.learn(agreement, huge, budget=5e12, edges=[0.5, 1.0]).names == table.names, (
        "whatever the unit"
    )


def test_leads_are_shrunk_as_far_as_they_may_be_chance() -> None:
    """Two groups of four and two problems, two options, by hand."""
    values = [0.0] * 4 + [1.0] * 2
    one, two = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    table = Table.learn(
        values, {"one": Measured(one, [1.0] * 6), "two": Measured(two, [1.0] * 6)}, budget=1.0, edges=[0.5]
    )
    # Leads of one over the mean of both: ½ ½ 0 0 | −½ 0. Means ¼ | −¼, over all 1/12; within, Σ(d − d̄)² = ¼ + ⅛.
    inside = (1 / 4 + 1 / 8) / (6 - 2)
    noise = np.array([inside / 4, inside / 2])
    share = np.array([4, 2]) / 6
    between = share @ np.array([1 / 4 - 1 / 12, -1 / 4 - 1 / 12]) ** 2 - (share * (1 - share)) @ noise
    between /= 1 - share @ share  # the mean over all is made of the two
    trust = between / (between + noise)
    lead = 1 / 12 + trust * (np.array([1 / 4, -1 / 4]) - 1 / 12)
    assert trust[1] < trust[0] < 1
    assert table.accuracy == pytest.approx(
        np.array([1 / 2, 3 / 4])[:, None] + np.stack([lead, -lead], axis=1)
    )
    assert table.names == ("one", "two") and table.rows.tolist() == [4, 2]


def test_what_groups_differ_by_is_estimated_without_bias() -> None:
    """Two groups whose leads differ by 0.2: with many problems nothing is shrunk, with few not too much on average."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        group = np.repeat([0.0, 1.0], 40)
        lead = np.where(group == 0, 0.2, -0.2) + rng.normal(0, 0.5, 80)
        options = {"one": Measured(0.5 + lead / 2, np.ones(80)), "two": Measured(0.5 - lead / 2, np.ones(80))}
        accuracy = Table.learn(group, options, budget=1.0, edges=[0.5]).accuracy
        found.append((accuracy[0, 0] - accuracy[1, 0]) / 0.2)
    # τ²/(τ² + σ²/n) = .04/(.04 + .25/40) = .86 of the true difference of 2 × 0.2 / 2, were τ² known.
    assert 0.8 < np.mean(found) < 1.0


def test_where_options_differ_by_chance_alone_all_groups_rank_them_nearly_alike() -> None:
    rng = np.random.default_rng(0)
    values, hard = rng.random(120), rng.random(120)
    options = {f"option {i}": Measured((rng.random(120) > hard) * 1.0, np.ones(120)) for i in range(8)}
    table = Table.learn(values, options, budget=1.0, edges=[0.2, 0.4, 0.6, 0.8])
    group = np.searchsorted(table.edges, values, side="right")
    raw = np.stack([np.bincount(group, m.accuracy) for m in options.values()], axis=1) / table.rows[:, None]
    lead = table.accuracy - table.accuracy.mean(axis=1, keepdims=True)
    noise = raw - raw.mean(axis=1, keepdims=True)
    assert np.ptp(lead, axis=0).mean() < 0.3 * np.ptp(noise, axis=0).mean()


def crossed(problems: int, seed: int) -> tuple[np.ndarray, dict[str, Measured]]:
    """Each option is right on one half of the difficulties, 80 times of 100, and else 20; both cost the same."""
    rng = np.random.default_rng(seed)
    values = rng.random(problems)
    easy = values > 0.5
    chance = {"for the hard": np.where(easy, 0.2, 0.8), "for the easy": np.where(easy, 0.8, 0.2)}
    return values, {
        name: Measured((rng.random(problems) < p) * 1.0, np.ones(problems)) for name, p in chance.items()
    }


def test_as_many_groups_as_hold_on_problems_that_were_not_learned_from() -> None:
    values, options = crossed(problems=200, seed=3)
    table = Table.learn(values, options, budget=1.0, groups=4)
    (alone, _), *more = table.validated
    assert len(more) == 3 and max(accuracy for accuracy, _ in more) > alone + 0.15
    assert len(table.edges) >= 1 and table.names[0] == "for the hard" and table.names[-1] == "for the easy"
    fresh, measured = crossed(problems=2000, seed=4)
    accuracy = np.stack([np.asarray(m.accuracy) for m in measured.values()])
    reached = accuracy[table.choose(fresh), np.arange(2000)].mean()
    # What validation promises holds: 200 problems, so a standard error of 0.03.
    assert reached > 0.7 and abs(reached - max(accuracy for accuracy, _ in table.validated)) < 0.1


def test_problems_that_are_all_alike_in_difficulty_get_the_best_option_for_all() -> None:
    rng = np.random.default_rng(5)
    measured = random_options(rng, 50, 6)
    reached = {
        name: (np.asarray(m.accuracy).mean(), np.asarray(m.cost).mean()) for name, m in measured.items()
    }
    budget = float(np.median([cost for _, cost in reached.values()]))
    table = Table.learn(np.ones(50), measured, budget=budget)
    means = {name: float(accuracy) for name, (accuracy, cost) in reached.items() if cost <= budget}
    assert 0 < len(means) < 6 and table.names == (max(means, key=means.__getitem__),)
    assert table.expected()[0] == pytest.approx(max(means.values())) and len(table.validated) == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_the_order_of_problems_changes_nothing_and_the_mean_cost_is_kept(seed: int, orders: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (orders, 60)).astype(float)
    measured = {f"option {i}": Measured(rng.random((orders, 60)), rng.uniform(1, 9, 60)) for i in range(4)}
    table = Table.learn(values, measured, budget=6.0)
    assert table.expected()[1] <= 6.0 * (1 + 1e-6)
    order = rng.permutation(60)
    shuffled = {
        name: Measured(np.asarray(m.accuracy)[:, order], np.asarray(m.cost)[order])
        for name, m in measured.items()
    }
    again = Table.learn(values[:, order], shuffled, budget=6.0)
    assert again.names == table.names and again.edges.tolist() == table.edges.tolist()
    assert again.accuracy == pytest.approx(table.accuracy) and again.cost == pytest.approx(table.cost)
    assert np.array(again.validated) == pytest.approx(np.array(table.validated))


def test_a_problem_whose_first_samples_differ_counts_in_each_of_its_groups() -> None:
    values = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    vote = Measured([[0.2, 0.6, 1.0], [0.8, 0.6, 0.0]], cost=[3.0, 4.0, 5.0])
    table = Table.learn(values, {"vote": vote}, budget=9.0, edges=[0.5])
    assert table.rows.tolist() == [1.0, 2.0] and table.cost[:, 0].tolist() == [4.0, 4.0]
    assert table.accuracy[:, 0] == pytest.approx([0.1, (0.8 + 2 * 0.6 + 1.0) / 4])


def test_what_cannot_be_learned_is_refused() -> None:
    option = {"one": Measured([1.0, 0.0], [1.0, 1.0])}
    with pytest.raises(InputError, match="cheapest has 1: raise the budget"):
        Table.learn([0.1, 0.9], option, budget=0.5, edges=[0.5])
    with pytest.raises(InputError, match="cheapest has 1: raise the budget"):
        Table.learn([0.1, 0.9], option, budget=0.5)
    with pytest.raises(InputError, match=r"\[2.0, 0.0\] held-out problems"):
        Table.learn([0.1, 0.2], option, budget=2, edges=[0.5])
    with pytest.raises(InputError, match="the same problems"):
        Table.learn([0.1, 0.9], {"one": Measured([1.0], [1.0])}, budget=2, edges=[0.5])
    with pytest.raises(InputError, match="0 options"):
        Table.learn([0.1], {}, budget=2, edges=[])
    with pytest.raises(InputError, match="finite values"):
        Table.learn([0.1, np.nan], option, budget=2)
    with pytest.raises(InputError, match="groups=0"):
        Table.learn([0.1, 0.9], option, budget=2, groups=0)
