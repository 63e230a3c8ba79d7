"""The best accuracy that each budget buys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metagen.analysis.ties import margin


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration at one cost: accuracy in [0, 1] with bounds, `label` naming it in full.

    error: Monte-Carlo standard error of the accuracy; 0 where it is exact.
    """

    label: str
    cost: float
    accuracy: float
    low: float
    high: float
    error: float = 0.0


def frontier(points: Iterable[Point]) -> list[Point]:
    """The points that beat every cheaper one, by cost: the best under each budget. Ties beat nothing (`ties`)."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.accuracy, p.label)):
        if not kept or point.accuracy > kept[-1].accuracy + margin(point.error, kept[-1].error):
            kept.append(point)
    return kept
