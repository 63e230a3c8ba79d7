"""One value from several: last, least, mean, product."""

from __future__ import annotations

import pytest

from metagen.errors import InputError
from metagen.verifiers.aggregation import AGGREGATIONS, aggregate


def test_each_is_what_it_says() -> None:
    found = {how: aggregate((0.5, 0.25, 1.0), how) for how in AGGREGATIONS}
    assert found == {"last": 1.0, "min": 0.25, "mean": pytest.approx(1.75 / 3), "product": 0.125}


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_nothing_is_worth_nothing_and_one_is_itself(how: str) -> None:
    assert aggregate((), how) == 0.0 and aggregate((0.3,), how) == 0.3  # type: ignore[arg-type]  # one of them


def test_others_are_refused() -> None:
    with pytest.raises(
        InputError, match="aggregation 'max' is unknown; expected one of last, min, mean, product"
    ):
        aggregate((0.3,), "max")  # type: ignore[arg-type]  # wrong on purpose
