"""One measured figure, and how it was taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Runs of which the median counts.
RUNS = 5


@dataclass(frozen=True)
class Row:
    """value: in `unit`. bound: what it should be, such as "≥ 2"; None for information only.

    profile: where the time goes, of what missed its bound when it was last profiled.
    """

    name: str
    value: float
    unit: str
    how: str
    bound: str | None = None
    profile: str | None = None

    @property
    def holds(self) -> bool | None:
        if self.bound is None:
            return None
        sign, limit = self.bound.split()
        return self.value >= float(limit) if sign == "≥" else self.value <= float(limit)


def seconds(work: Callable[[], object], repeat: int = RUNS) -> float:
    """Median wall-clock seconds of `work`, after one run that warms caches."""
    work()
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
