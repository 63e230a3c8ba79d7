"""Probabilities and log-odds."""

from __future__ import annotations

import math
from collections import abc


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def logit(p: float, edge: float) -> float:
    """The log-odds log p / (1 − p) of p, which is kept `edge` away from 0 and 1."""
    p = min(1.0 - edge, max(edge, p))
    return math.log(p) - math.log1p(-p)


def log_odds(row: abc.Sequence[float], right: int) -> float:
    """The log-odds of `right`, from logits or log-probabilities of labels; one number is taken as it is.

    So the sigmoid of the result is the softmax at `right`.
    """
    if len(row) == 1:
        return row[0]
    others = [x for i, x in enumerate(row) if i != right]
    top = max(others)
    if top == -math.inf:
        return math.inf if row[right] > top else 0.0
    return row[right] - (top + math.log(math.fsum(math.exp(x - top) for x in others)))
