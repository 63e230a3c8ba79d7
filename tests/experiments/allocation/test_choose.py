"""The best of several options for each difficulty: against all tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.experiments.allocation.choose import Measured, Table


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4))
def test_no_table_within_the_budget_is_better(seed: int, groups: int, options: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.arange(groups), rng.integers(0, groups, 8)]).astype(float)
    measured = {
        f"option {i}": Measured(rng.random(len(values)), rng.integers(1, 9, len(values)))
        for i in range(options)
    }
    edges = [g - 0.5 for g in range(1, groups)]
    budget = float(rng.uniform(4, 8))
    accuracy = np.array([np.asarray(m.accuracy) for m in measured.values()])
    cost = np.array([np.asarray(m.cost) for m in measured.values()])
    at, best = np.arange(len(values)), None
    for table in product(range(options), repeat=groups):
        rows = np.array(table)[values.astype(int)]
        if cost[rows, at].mean() <= budget + 1e-9:
            best = max(best or 0.0, float(accuracy[rows, at].mean()))
    if best is None:
        with pytest.raises(InputError, match="the cheapest has"):
            Table.learn(values, measured, budget=budget, edges=edges)
        return
    found = Table.learn(values, measured, budget=budget, edges=edges)
    reached, spent = found.expected()
    assert reached == pytest.approx(best, abs=1e-9) and spent <= budget * (1 + 1e-6)
    rows = found.choose(values)
    assert accuracy[rows, at].mean() == pytest.approx(reached)


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


def test_what_cannot_be_learned_is_refused() -> None:
    option = {"one": Measured([1.0, 0.0], [1.0, 1.0])}
    with pytest.raises(InputError, match="cheapest has 1: raise the budget"):
        Table.learn([0.1, 0.9], option, budget=0.5, edges=[0.5])
    with pytest.raises(InputError, match=r"\[2, 0\] held-out problems"):
        Table.learn([0.1, 0.2], option, budget=2, edges=[0.5])
    with pytest.raises(InputError, match="the same problems"):
        Table.learn([0.1, 0.9], {"one": Measured([1.0], [1.0])}, budget=2, edges=[0.5])
    with pytest.raises(InputError, match="0 options"):
        Table.learn([0.1], {}, budget=2, edges=[])
