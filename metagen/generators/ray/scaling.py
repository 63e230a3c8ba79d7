"""How many replicas a pool has, by what they are asked: more where requests pile up, fewer where they would do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metagen.errors import InputError


@dataclass(frozen=True, slots=True)
class Scaling:
    """Between the replicas that a pool opens with and `most`, as many as the work needs.

    load: samples and texts under way that one replica is enough for; where there are more, another replica starts.
    idle: seconds that fewer replicas must have been enough, before one of them leaves; it finishes what it was asked.

    Raises InputError for a number that is too small.
    """

    most: int
    load: int = 64
    idle: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("most", 1), ("load", 1), ("idle", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise InputError(f"{name}={value!r}: expected a number ≥ {least}")

    def wanted(self, load: int, least: int) -> int:
        """Replicas for so much under way, `least` at least."""
        return max(least, min(self.most, math.ceil(load / self.load)))


class Scaler:
    """Decides, from one look to the next. Time is told, so that tests need no clock."""

    def __init__(self, scaling: Scaling, least: int) -> None:
        self._scaling, self._least = scaling, least
        self._enough_since: float | None = None

    @property
    def most(self) -> int:
        """Replicas at most."""
        return self._scaling.most

    def change(self, now: float, load: int, there: int, coming: int) -> int:
        """Replicas to add, or −1: let one go. load: under way; there, coming: replicas that answer, and that open."""
        wanted = self._scaling.wanted(load, self._least)
        if wanted >= there + coming:
            self._enough_since = None
            return wanted - there - coming
        if self._enough_since is None:
            self._enough_since = now
        if now - self._enough_since < self._scaling.idle:
            return 0
        self._enough_since = now
        return -1
