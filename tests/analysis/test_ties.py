"""What counts as better, and who is named among ties."""

import numpy as np
import pytest

from metagen.analysis.frontier import Point, frontier
from metagen.analysis.ties import first_best, leaders, margin


def test_half_a_point_or_two_monte_carlo_errors() -> None:
    assert margin() == pytest.approx(0.005) and margin(0.003, 0.004) == pytest.approx(0.01)
    assert leaders([0.80, 0.801, 0.79, 0.804]).tolist() == [0, 1, 3]
    assert leaders([0.80, 0.83], [0.01, 0.015]).tolist() == [0, 1]


def test_the_cheapest_of_ties_is_named() -> None:
    assert first_best([0.80, 0.804, 0.79]) == 0
    assert first_best([0.80, 0.81]) == 1


def test_a_vote_of_two_beats_no_single_sample() -> None:
    """Ties are split, so a vote of two is right as often as one sample, at 1.64 times the cost."""
    points = [
        Point("single", 1.0, 0.700, 0.6, 0.8),
        Point("majority@2", 1.64, 0.700 + 1e-9, 0.6, 0.8, error=0.001),
        Point("majority@4", 2.92, 0.704, 0.6, 0.8),
        Point("majority@8", 5.5, 0.720, 0.6, 0.8, error=0.001),
    ]
    assert [point.label for point in frontier(points)] == ["single", "majority@8"]


def test_small_steps_add_up() -> None:
    points = [Point(str(i), 1.0 + i, 0.5 + 0.004 * i, 0.4, 0.6) for i in range(5)]
    assert [point.label for point in frontier(points)] == ["0", "2", "4"]
    assert np.diff([point.accuracy for point in frontier(points)]).min() > margin()
