"""Rows of unequal length: what is a sample, what has a score, and what is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from metagen.analysis.ragged import Pool, Rows, pad
from metagen.errors import InputError


def test_shorter_rows_end_in_nothing() -> None:
    assert np.isnan(pad([[1, 2, 3], [4]])).tolist() == [[False] * 3, [False, True, True]]
    assert pad(np.ones((2, 3), dtype=int)).dtype == np.float64
    assert pad([[], [1.0]]).shape == (2, 1)


def test_a_sample_without_a_score_is_a_sample() -> None:
    pool = Pool.of([[0.9, np.nan], [0.5, 0.4, np.nan]], [[1, 0], [0, 0, 1]])
    assert pool.sizes.tolist() == [2, 3]
    assert pool.present.tolist() == [[True, True, False], [True, True, True]]
    assert pool.scored.tolist() == [[True, False, False], [True, True, False]]
    assert pool.correct.tolist() == [[True, False, False], [False, False, True]]


def test_problems_of_one_size_have_no_gaps() -> None:
    groups = list(Pool.of([[0.1, 0.2], [0.3], [0.4, 0.5]], [[0, 1], [1], [1, 0]]).by_size())
    assert [rows.tolist() for rows, _, _ in groups] == [[1], [0, 2]]
    assert groups[1][1].tolist() == [[0.1, 0.2], [0.4, 0.5]] and groups[0][2].tolist() == [[True]]


@pytest.mark.parametrize(
    ("scores", "correct", "words"),
    [
        ([[0.1, 0.2], [0.3]], [[1, 0], [0, 1]], "differ in the samples"),
        ([[0.1]], [[1, 0]], r"expected one \[problems"),
        ([[np.inf]], [[1]], "infinite"),
        ([[0.5, 0.5]], [[np.nan, 1.0]], "not known whether"),
        ([[0.5], []], [[1], []], "no sample"),
        ([[0.5]], [[0.5]], "true and false"),
        ([0.5, 0.6], [1, 0], "one row of numbers"),
        ([], [], "one row of numbers"),
    ],
)
def test_what_is_no_pool_is_refused(scores: Rows, correct: Rows, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Pool.of(scores, correct)
