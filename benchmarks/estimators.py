"""Curves at every k from large pools: what a study's report computes for each model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.row import Row, seconds
from metagen.analysis.estimators import best_of_k, majority_at_k, pass_at_k, votes_at_k

PROBLEMS, SAMPLES, CLASSES = 10_000, 256, 40
#: A study of the embedded family: closed forms throughout.
FEW_PROBLEMS, FEW_SAMPLES = 500, 64
#: Of the largest, since each takes seconds.
REPEAT = 3


def rows() -> Iterator[Row]:
    """Pass@k, majority, weighted voting and best-of-k, with wrong answers of Zipf frequency."""
    large = pool(PROBLEMS, SAMPLES)
    how = f"{PROBLEMS:,} problems × {SAMPLES} samples, {CLASSES + 1} classes, k = 1, 2, 4 … {SAMPLES}"
    yield Row(
        "pass@k, majority, weighted, best-of-k", seconds(lambda: curves(*large), REPEAT), "s", how, "≤ 10"
    )
    small = pool(FEW_PROBLEMS, FEW_SAMPLES)
    ks = powers(FEW_SAMPLES)
    taken = seconds(lambda: majority_at_k(small[0], small[2], ks, np.random.default_rng(0), exact=True))
    how = f"{FEW_PROBLEMS} problems × {FEW_SAMPLES} samples, every power of two"
    yield Row("majority@k in closed form", 1e3 * taken, "ms", how)


def pool(
    problems: int, samples: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], np.ndarray, np.ndarray]:
    """Classes, scores that tell a little, correctness."""
    rng = np.random.default_rng(0)
    correct = rng.random((problems, samples)) < rng.beta(1.2, 1.2, size=(problems, 1))
    frequency = 1.0 / np.arange(1, CLASSES + 1)
    wrong = rng.choice(CLASSES, size=(problems, samples), p=frequency / frequency.sum()) + 1
    silent = rng.random((problems, samples)) < 0.05
    classes = np.where(correct, 0, np.where(silent, -1, wrong))
    return classes, np.clip(rng.normal(0.35 + 0.3 * correct, 0.2), 0.0, 1.0), correct


def curves(classes: np.ndarray, scores: np.ndarray, correct: np.ndarray) -> None:
    samples = classes.shape[1]
    ks = powers(samples)
    pass_at_k(samples, correct.sum(axis=1), np.array(ks)[:, None])
    best_of_k(scores, correct, ks)
    votes_at_k(classes, correct, ks, np.random.default_rng(0), weights={"majority": None, "weighted": scores})


def powers(samples: int) -> list[int]:
    return [2**i for i in range(samples.bit_length())]
