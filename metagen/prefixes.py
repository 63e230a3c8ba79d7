"""The logical prefix cache: which prefix tokens a problem has already paid for, per model.

Budgets count logical tokens: the cache is cold at the start of the problem and never evicts, so a
prefix counts once per model, whatever an engine's real cache holds or forgets. Sequences of ids are
kept sorted as big-endian bytes; the longest known prefix of a new one is shared with a neighbour.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Sequence

WIDTH = 4


class Prefixes:
    """Token sequences whose keys and values one model holds, for one problem."""

    __slots__ = ("_known", "_noted")

    def __init__(self) -> None:
        self._known: list[bytes] = []
        # Most samples are never continued, and what nobody asks about need not be sorted in.
        self._noted: list[Iterable[int]] = []

    def count_known(self, ids: Iterable[int]) -> int:
        """Tokens at the start of `ids` that are paid for."""
        self._settle()
        data = _pack(ids)
        return self._overlap(data, bisect.bisect_left(self._known, data))

    def add(self, ids: Iterable[int]) -> int:
        """Pay for `ids`; returns how many tokens at its start were paid for before."""
        self._settle()
        return self._insert(ids)

    def note(self, ids: Sequence[int]) -> None:
        """`add`, where nobody wants to know yet what was paid for before."""
        self._noted.append(ids)

    def _settle(self) -> None:
        noted, self._noted = self._noted, []
        for ids in noted:
            self._insert(ids)

    def _insert(self, ids: Iterable[int]) -> int:
        data = _pack(ids)
        at = bisect.bisect_left(self._known, data)
        known = self._overlap(data, at)
        if known * WIDTH < len(data):
            before = at - 1
            if before >= 0 and data.startswith(self._known[before]):
                self._known[before] = data
            else:
                self._known.insert(at, data)
        return known

    def _overlap(self, data: bytes, at: int) -> int:
        return max(
            (_common(data, self._known[i]) for i in (at - 1, at) if 0 <= i < len(self._known)), default=0
        )


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
