"""The first wrong step: accuracies, F1, and a threshold found by looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.analysis.first_error import best_threshold, first_below, first_error
from metagen.errors import InputError

STEPS = [[0.9, 0.8], [0.9, 0.4, 0.3], [0.2, 0.9], [0.9, 0.9, 0.1], [0.7]]
TRUTH = [-1, 1, 1, 2, -1]


def test_accuracy_on_solutions_with_and_without_errors() -> None:
    found = first_error(STEPS, TRUTH)
    assert first_below(STEPS, 0.5).tolist() == [-1, 1, 0, 2, -1]
    assert (found.erroneous, found.correct, found.within_one, found.counts) == (2 / 3, 1.0, 1.0, (3, 2))
    assert found.f1 == pytest.approx(0.8)
    strict = first_error(STEPS, TRUTH, threshold=0.75)
    assert (strict.erroneous, strict.correct) == (2 / 3, 0.5)


def test_nothing_named_and_nothing_there() -> None:
    silent = first_error(STEPS, TRUTH, threshold=0.0)
    assert (silent.erroneous, silent.correct, silent.f1) == (0.0, 1.0, 0.0)
    assert np.isnan(first_error([[0.9]], [-1]).erroneous) and np.isnan(first_error([[0.9]], [-1]).f1)
    assert first_below([[], [np.nan, 0.1]], 0.5).tolist() == [-1, 1]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_the_best_threshold_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = [rng.integers(0, 6, rng.integers(1, 5)) / 5 for _ in range(8)]
    truth = [int(rng.integers(-1, len(s))) for s in steps]
    truth[0], truth[1] = -1, 0
    best = first_error(steps, truth, threshold=best_threshold(steps, truth)).f1
    assert best == pytest.approx(
        max(first_error(steps, truth, threshold=t).f1 for t in np.arange(0, 1.3, 0.05))
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="one each"):
        first_error(STEPS, [0])
    with pytest.raises(InputError, match="solution 1 has 3 steps"):
        first_error(STEPS, [-1, 3, 1, 2, -1])
    with pytest.raises(InputError, match="all are alike"):
        best_threshold([[0.5]], [-1])
    with pytest.raises(InputError, match="needs steps with scores"):
        best_threshold([[np.nan], [np.nan]], [-1, 0])
