"""The confidence of a token (Fu et al. 2025, eq. 2), from log-probabilities that a server or a library gives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import nlargest

from metagen.sequence import MOST_CONFIDENT


def confidence(logprobs: Iterable[float], k: int) -> float:
    """C = −(1/k) Σ log p over the k largest, each at least −MOST_CONFIDENT. There must be k of them."""
    return -math.fsum(max(value, -MOST_CONFIDENT) for value in nlargest(k, logprobs)) / k
