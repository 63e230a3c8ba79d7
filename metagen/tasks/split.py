"""The three disjoint spaces of an embedded task's problems."""

from __future__ import annotations

from enum import StrEnum


class Split(StrEnum):
    """Where a problem belongs, and stays: what is trained on is never tested on. Each task says how it decides."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
