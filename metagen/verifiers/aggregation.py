"""One value from the values of the steps."""

from __future__ import annotations

import math
from collections import abc
from typing import Literal

from metagen.errors import InputError

Aggregation = Literal["last", "min", "mean", "product"]
AGGREGATIONS: tuple[Aggregation, ...] = ("last", "min", "mean", "product")


def aggregate(steps: abc.Sequence[float], how: Aggregation) -> float:
    """One value from the values of the steps; 0 for no steps at all.

    Raises InputError for an unknown aggregation.
    """
    if not steps:
        return 0.0
    match how:
        case "last":
            return steps[-1]
        case "min":
            return min(steps)
        case "mean":
            return math.fsum(steps) / len(steps)
        case "product":
            return math.prod(steps)
    raise InputError(f"aggregation {how!r} is unknown; expected one of {', '.join(AGGREGATIONS)}")
