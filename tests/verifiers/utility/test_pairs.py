"""Utilities that are functions of the user's."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.sequence import Sequence
from metagen.verifiers.utility.pairs import FunctionUtility

TEXTS = ["a", "bb", "ccc", "bb"]


def test_what_a_function_does_not_know_is_left_out(ask: Any) -> None:
    utility = FunctionUtility(lambda y, z: None if z.text == "ccc" else float(len(y.text) == len(z.text)))
    assert np.isnan(ask.matrix(utility, TEXTS)[:, 2]).all()
    assert ask.expected(utility, TEXTS).tolist() == [1 / 3, 2 / 3, 0, 2 / 3]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_values_are_finite(value: float, ask: Any) -> None:
    with pytest.raises(InputError, match=r"'odd' is -?inf for 'a' against 'a'"):
        ask.matrix(FunctionUtility(lambda y, z: value, name="odd"), TEXTS)


def test_functions_wait_side_by_side(ask: Any) -> None:
    here = most = 0

    async def slow(y: Sequence, z: Sequence) -> float:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await asyncio.sleep(0)
        here -= 1
        return 1.0

    ask.matrix(FunctionUtility(slow), TEXTS)
    assert most == 9, "pairs of the three texts that are different"


def test_a_function_that_is_not_symmetric_is_found_out(ask: Any) -> None:
    length = FunctionUtility(lambda y, z: len(y.text) / len(z.text), name="ratio", symmetric=True)
    with pytest.raises(InputError, match=r"'ratio' is not symmetric: 2\.0 one way and 0\.5 the other"):
        ask.matrix(length, TEXTS)
    assert ask.matrix(length, TEXTS[:1]).tolist() == [[1.0]]
