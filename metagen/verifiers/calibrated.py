"""A verifier whose scores are mapped monotonically: calibrated, in the same order."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier

#: Scores in [0, 1], any shape, to as many in [0, 1]. What tells two maps apart must show in their repr.
Calibration = Callable[[NDArray[np.float64]], NDArray[np.float64]]
#: Where a map is tried out before it is used.
GRID = np.linspace(0.0, 1.0, 1001)


@part
class Calibrated(Verifier):
    """The member's value mapped by `calibration`; raw keeps what the member said, its own raw score where it has one.

    calibration: such as `Temperature` or `Isotonic` of `metagen.analysis.calibration`, fitted on other
    problems. The values of steps are left as they are, since the map was not fitted on them, unless
    steps=True. Verdicts pass through. Raises InputError for a map that leaves [0, 1] or descends.
    """

    verifier: Verifier = field(kw_only=False)
    calibration: Calibration = field(kw_only=False)
    steps: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        mapped = np.asarray(self.calibration(GRID), dtype=np.float64)
        if mapped.shape != GRID.shape or not ((mapped >= 0.0) & (mapped <= 1.0)).all():
            raise InputError(
                f"{self.calibration!r} does not map [0, 1] into [0, 1]; a score's value lies there"
            )
        if (np.diff(mapped) < 0.0).any():
            at = float(GRID[int(np.argmax(np.diff(mapped) < 0.0))])
            raise InputError(
                f"{self.calibration!r} descends at {at:g}; a calibration keeps the order of scores"
            )
        self.members = (self.verifier,)
        self.name = self.name or self.verifier.name

    @property
    def fingerprint(self) -> str:
        return digest("calibrated", self.verifier.fingerprint, repr(self.calibration), str(self.steps)).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        return [self._map_score(score) for score in await self.verifier.score(sequences, scope=scope)]

    def _map_score(self, score: Score) -> Score:
        if score.value is None:
            return score
        (value,) = self._map([score.value])
        steps = score.steps
        if self.steps and steps:
            steps = tuple(self._map(steps))
        return replace(score, value=value, raw=score.value if score.raw is None else score.raw, steps=steps)

    def _map(self, values: abc.Sequence[float]) -> list[float]:
        return [float(v) for v in self.calibration(np.asarray(values, dtype=np.float64))]
