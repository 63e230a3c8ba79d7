"""Scores of any scale, mapped into [0, 1]: what a weighted vote makes of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError

Floats = NDArray[np.float64]
Kind = Literal["ranks", "minmax", "softmax", "sigmoid", "identity"]
#: Of `identity` there is nothing to choose: it is what scores in [0, 1] have.
KINDS: Final = tuple(kind for kind in get_args(Kind) if kind != "identity")
#: `softmax(10)`: a kind with its temperature.
WRITTEN: Final = re.compile(r"(?P<kind>[a-z]+)(?:\((?P<temperature>[^()]+)\))?")


@dataclass(frozen=True, slots=True)
class UnitMap:
    """A monotone map of the scores s of one problem's samples into [0, 1].

    ranks: of N scores the r-th lowest is r/N; equal scores share the mean of their ranks. minmax: (s − min)/(max −
    min), 1 where all are equal. softmax: exp((s − max)/T), which is softmax up to a factor that no vote sees. sigmoid:
    1/(1 + exp(−s/T)). identity: scores that lie in [0, 1] as they are. ranks never makes scores equal that are not;
    softmax and sigmoid do where scores are large beside T.
    """

    kind: Kind
    temperature: float = 1.0

    @classmethod
    def of(cls, written: str | UnitMap) -> UnitMap:
        """A map as people write it: `ranks`, `minmax`, `softmax`, `softmax(10)`, `sigmoid`, `sigmoid(2.5)`.

        Raises InputError for another name, or a temperature that is not above 0.
        """
        if isinstance(written, UnitMap):
            return written
        match = WRITTEN.fullmatch(written.strip())
        name, given = (match["kind"], match["temperature"]) if match else ("", None)
        kind = next((kind for kind in KINDS if kind == name), None)
        if kind is None or (given is not None and kind not in ("softmax", "sigmoid")):
            raise InputError(
                f"{written!r} maps no scores into [0, 1]; expected ranks, minmax, softmax, softmax(T), sigmoid or "
                "sigmoid(T)"
            )
        try:
            temperature = 1.0 if given is None else float(given)
        except ValueError:
            temperature = math.nan
        if not 0.0 < temperature < math.inf:
            raise InputError(f"{written!r}: the temperature is {given!r}; expected a number > 0")
        return cls(kind, temperature)

    def __str__(self) -> str:
        return self.kind + ("" if self.temperature == 1.0 else f"({self.temperature:g})")

    def __call__(self, scores: Floats) -> Floats:
        """The scores of one problem's samples, [samples], all finite, in [0, 1]."""
        s = np.asarray(scores, dtype=np.float64)
        if not s.size or self.kind == "identity":
            return s
        match self.kind:
            case "ranks":
                order = np.sort(s)
                below, upto = np.searchsorted(order, s, "left"), np.searchsorted(order, s, "right")
                return np.asarray((below + 1 + upto) / (2 * s.size))
            case "minmax":
                low, high = s.min() / 2, s.max() / 2  # halves: the difference of two finite numbers is finite
                return (s / 2 - low) / (high - low) if high > low else np.ones(s.size)
            case "softmax":
                return np.asarray(np.exp((s / 2 - s.max() / 2) / self.temperature * 2))
            case _:
                tail = np.exp(-np.abs(s) / self.temperature)
                return np.asarray(np.where(s >= 0, 1.0, tail) / (1.0 + tail))

    def count_ties(self, scores: Floats) -> int:
        """Count the different scores that have become equal to another one."""
        return len(np.unique(scores)) - len(np.unique(self(scores)))
