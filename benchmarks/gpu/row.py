"""One figure of a GPU, or the reason why there is none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


class Lacks(Exception):
    """A part that is not here, and how to get it. The next call tries the task again."""


@dataclass(frozen=True)
class Found:
    """value: the median, in `unit`; None where nothing was measured, and `note` says why.

    low, high: of the runs that the median is of. goal: what the value should be, such as "≥ 2"; None: for information.
    """

    name: str
    value: float | None
    unit: str
    settings: str
    goal: str | None = None
    low: float | None = None
    high: float | None = None
    note: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the value is what it should be; None without a goal or a value."""
        if self.goal is None or self.value is None:
            return None
        sign, limit = self.goal.split()
        return self.value >= float(limit) if sign == "≥" else self.value <= float(limit)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def found(
    name: str,
    values: float | Sequence[float],
    unit: str,
    settings: str,
    goal: str | None = None,
    note: str | None = None,
) -> Found:
    """The median of several runs with the lowest and the highest, or one value."""
    if isinstance(values, int | float):
        return Found(name, float(values), unit, settings, goal, note=note)
    middle, how = statistics.median(values), f"{settings}; median of {len(values)} runs"
    return Found(name, middle, unit, how, goal, min(values), max(values), note)


def missing(name: str, why: str, settings: str = "") -> Found:
    """What was not measured, and why."""
    return Found(name, None, "", settings, note=why)
