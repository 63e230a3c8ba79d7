"""The shipped simulation in small: intervals hold the truth as often as they say, at the edges too."""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks import calibration


def test_intervals_hold_the_truth_at_the_edges() -> None:
    """Eight cells of 40 studies for each quantity: 320, of which 95% ± 1.2%; conservative ones hold more."""
    held = defaultdict(list)
    for cell in calibration.cells(problems=(30, 100), truths=(0.02, 0.5), forms=("wide", "narrow"), most=40):
        held[cell.quantity].append(cell.covered)
    assert len(held) == 8 and all(len(cells) == 4 * 2 for cells in held.values())
    assert {name: np.mean(cells) >= 0.93 for name, cells in held.items()} == dict.fromkeys(held, True)


def test_the_true_values_are_those_of_the_strategies() -> None:
    assert calibration.majority(np.array([0.0, 0.5, 1.0])) == pytest.approx([0.0, 0.5, 1.0])
    # Two of four are right, each with the chance of two wrong ones: 4 of 6.
    assert calibration.best(np.array([0.0, 1.0])) == pytest.approx([0.0, 1.0])
    rng = np.random.default_rng(0)
    drawn = calibration._measure(rng, np.full((1, 4000), 0.3))
    assert drawn["best-of-4"].mean() == pytest.approx(float(calibration.best(np.array(0.3))), abs=0.004)
    assert drawn["majority@9"].mean() == pytest.approx(float(calibration.majority(np.array(0.3))), abs=0.006)


def test_the_table_names_the_cells_below() -> None:
    low = calibration.Cell("single", 30, "wide", 0.02, 0.02, 0.8, 0.1, 100)
    text = calibration.markdown([low, calibration.Cell("single", 30, "wide", 0.5, 0.5, 0.95, 0.1, 100)])
    assert "| single | 30 | 80.0% | 87.5% | 1 | 1 | 0 | 10.0 |" in text
    assert "| single | 30 | wide | 2.0% | 2.0% | 80.0% |" in text
