"""The expectation over references, where some of the matrix is not known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.verifiers.utility.base import expected_utility

NAN = math.nan


def test_what_is_not_known_is_left_out_of_the_mean() -> None:
    matrix = np.array([[1.0, 0.5, NAN], [NAN, NAN, NAN], [0.0, 0.25, 1.0]])
    assert np.array_equal(expected_utility(matrix), [0.75, NAN, 1.25 / 3], equal_nan=True)
    weighted = expected_utility(matrix, [1.0, 3.0, 4.0])
    assert np.array_equal(weighted, [0.625, NAN, 4.75 / 8], equal_nan=True)
    nothing = expected_utility(matrix, [0.0, None, 1.0])
    assert np.array_equal(nothing, [0.0, NAN, 1.0], equal_nan=True)


def test_sums_are_exact_before_rounding() -> None:
    row = np.array([[1e16, 1.0, -1e16, 1.0]])
    assert expected_utility(row)[0] == 0.5
    assert expected_utility(np.full((1, 10), 0.1))[0] == 0.1


def test_weights_count_up_to_a_factor() -> None:
    matrix = np.array([[1.0, 0.0, 0.5]])
    for scale in (1.0, 3.7e-300, 1e307):
        assert expected_utility(matrix, [4 * scale, 2 * scale, 8 * scale])[0] == pytest.approx(
            8 / 14, rel=1e-14
        )
    assert expected_utility(matrix, [1e308, 1e308, 1e308])[0] == 0.5


@pytest.mark.parametrize("utility", [math.inf, -math.inf])
def test_utilities_are_finite(utility: float) -> None:
    with pytest.raises(InputError, match="an infinite utility has no mean"):
        expected_utility(np.array([[1.0, utility]]))


@pytest.mark.parametrize("weight", [-1.0, math.inf, NAN, "1", 1j])
def test_weights_are_checked(weight: Any) -> None:
    with pytest.raises(InputError, match="a reference has the weight"):
        expected_utility(np.ones((1, 2)), [1.0, weight])
