"""Maps of scores into [0, 1]: exact values, and which of them keep the order."""

from __future__ import annotations

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.generators.unit import UnitMap


@pytest.mark.parametrize(
    ("written", "scores", "expected"),
    [
        ("ranks", [50.0, -900.0, 50.0, 98.0], [2.5 / 4, 1 / 4, 2.5 / 4, 1.0]),
        ("minmax", [0.0, 25.0, 100.0], [0.0, 0.25, 1.0]),
        ("minmax", [-1.7e308, 1.7e308], [0.0, 1.0]),
        ("minmax", [7.0, 7.0], [1.0, 1.0]),
        ("softmax(10)", [80.0, 100.0], [np.exp(-2.0), 1.0]),
        ("softmax", [-900.0, -901.0], [1.0, np.exp(-1.0)]),
        ("sigmoid(2.5)", [0.0, 5.0, -5.0], [0.5, 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0))]),
        ("ranks", [], []),
    ],
)
def test_values_are_those_of_the_formula(written: str, scores: list[float], expected: list[float]) -> None:
    assert UnitMap.of(written)(np.array(scores)) == pytest.approx(expected)
    assert str(UnitMap.of(written)) == written


@pytest.mark.parametrize(
    ("written", "lost"), [("ranks", 0), ("minmax", 0), ("sigmoid", 61), ("softmax(30)", 0)]
)
def test_a_judge_from_0_to_100_saturates_a_sigmoid_and_nothing_else(written: str, lost: int) -> None:
    """1/(1 + exp(−s)) rounds to 1 from s = 37 on: 63 of the 101 scores there, and a few below share a value."""
    found = UnitMap.of(written).count_ties(np.arange(101.0))
    assert found == 0 if not lost else found >= lost


def test_orders_are_kept_and_values_lie_in_the_unit_interval() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e3, 1e300):
        scores = rng.normal(size=200) * scale
        for written in ("ranks", "minmax", "softmax(7)", "sigmoid"):
            values = UnitMap.of(written)(scores)
            assert values.min() >= 0.0 and values.max() <= 1.0
            assert (np.diff(values[np.argsort(scores)]) >= 0).all(), written


@pytest.mark.parametrize(
    "written", ["logistic", "ranks(2)", "softmax(0)", "softmax(x)", "softmax(nan)", "identity", ""]
)
def test_what_is_no_map_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="expected"):
        UnitMap.of(written)
