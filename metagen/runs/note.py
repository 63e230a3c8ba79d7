"""A note for readers of results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """What could not be computed, or should be known. about: a configuration, a cost, a section of the report."""

    about: str
    text: str
