"""The three disjoint spaces of an embedded task's problems."""

from __future__ import annotations

from enum import StrEnum


class Split(StrEnum):
    """The space of a problem, for good: no problem is both trained on and tested on. Each task says how it decides."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
