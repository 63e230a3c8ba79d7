"""The logical prefix cache: which prefix tokens a problem has already paid for, per model.

Budgets count logical tokens: the cache is cold at the start of the problem and never evicts, so a
prefix counts once per model, whatever an engine's real cache holds or forgets. Sequences of ids are
kept sorted as big-endian bytes; the longest known prefix of a new one is shared with a neighbour.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable

WIDTH = 4


class Prefixes:
    """Token sequences whose keys and values one model holds, for one problem."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[bytes] = []

    def known(self, ids: Iterable[int]) -> int:
        """Tokens at the start of `ids` that are paid for."""
        data = _pack(ids)
        at = bisect.bisect_left(self._known, data)
        return max(
            (_common(data, self._known[i]) for i in (at - 1, at) if 0 <= i < len(self._known)), default=0
        )

    def add(self, ids: Iterable[int]) -> int:
        """Pay for `ids`; returns how many tokens at its start were paid for before."""
        data = _pack(ids)
        at = bisect.bisect_left(self._known, data)
        known = max(
            (_common(data, self._known[i]) for i in (at - 1, at) if 0 <= i < len(self._known)), default=0
        )
        if known * WIDTH < len(data):
            before = at - 1
            if before >= 0 and data.startswith(self._known[before]):
                self._known[before] = data
            else:
                self._known.insert(at, data)
        return known


def _pack(ids: Iterable[int]) -> bytes:
    ids = tuple(ids)
    return struct.pack(f">{len(ids)}I", *ids)


def _common(a: bytes, b: bytes) -> int:
    """Tokens that a and b share at their start."""
    low, high = 0, min(len(a), len(b)) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * WIDTH] == b[: middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low
