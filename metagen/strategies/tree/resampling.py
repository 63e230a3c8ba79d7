"""Weights of particles, and who goes on by them."""

from __future__ import annotations

import math
from collections import abc
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Resampling = Literal["multinomial", "systematic"]


def normalise(log_w: abc.Sequence[float], counts: abc.Sequence[int]) -> list[float]:
    """Shares, which add up to 1, of places where `counts` particles each weigh exp(log_w)."""
    w = _scale(log_w) * np.asarray(counts, np.float64)
    return [float(x) for x in w / w.sum()] if len(w) else []


def effective_size(log_w: abc.Sequence[float], counts: abc.Sequence[int]) -> float:
    """(Σ w)² / Σ w² over all particles (Kong 1992): n if all weigh the same, 1 if one weighs all; 0 for none."""
    w, c = _scale(log_w), np.asarray(counts, np.float64)
    return float((c * w).sum() ** 2 / (c * w * w).sum()) if len(w) else 0.0


def log_mean(log_w: abc.Sequence[float], counts: abc.Sequence[int]) -> float:
    """Log of the mean weight of all particles; -inf for none."""
    if not counts:
        return -math.inf
    c = np.asarray(counts, np.float64)
    return max(log_w) + math.log(float((_scale(log_w) * c).sum() / c.sum()))


def resample(
    weights: abc.Sequence[float], draws: abc.Sequence[float], how: Resampling = "multinomial"
) -> list[int]:
    """How often each of the weights is taken, in len(draws) draws.

    draws: uniform in [0, 1). `multinomial`: each picks one by the cumulative weights. `systematic`: the first of them
    shifts a comb of equal distances, so that of n draws weight w (of a sum of 1) is taken ⌊nw⌋ or ⌈nw⌉ times. Where
    nothing weighs anything, all weigh the same.
    """
    if not draws:
        return [0] * len(weights)
    n, edges = (
        len(draws),
        np.cumsum(np.asarray(weights if any(weights) else [1.0] * len(weights), np.float64)),
    )
    at = np.asarray(draws, np.float64) if how == "multinomial" else (np.arange(n) + draws[0]) / n
    goals = np.minimum(at * edges[-1], np.nextafter(edges[-1], 0.0))
    picked = np.searchsorted(edges, goals, side="right")
    return [int(k) for k in np.bincount(picked, minlength=len(weights))]


def _scale(log_w: abc.Sequence[float]) -> Floats:
    """The weights themselves, the largest at 1."""
    values = np.asarray(log_w, np.float64)
    return np.exp(values - values.max()) if len(values) else values
