"""What a model has read already, so that nothing is read twice."""

from __future__ import annotations

import asyncio
import struct
from collections import abc
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from hashlib import blake2b
from itertools import islice
from threading import Lock


def names_of(ids: tuple[int, ...], positions: Iterable[int]) -> tuple[bytes, ...]:
    """Names what a causal model reads at each of the ascending positions: ids[: position + 1]."""
    h, start, names = blake2b(digest_size=16), 0, []
    for position in positions:
        h.update(struct.pack(f">{position + 1 - start}I", *ids[start : position + 1]))
        names.append(h.digest())
        start = position + 1
    return tuple(names)


def share_out(wanted: Iterable[abc.Sequence[bytes]], missing: Set[bytes]) -> list[list[int]]:
    """For each list of names, the places of those that are missing and that no list before it has."""
    left = set(missing)
    shares = []
    for names in wanted:
        shares.append([i for i, name in enumerate(names) if name in left])
        left.difference_update(names)
    return shares


class ReadOnce:
    """Values by name. Beyond `limit` of them, those that were not asked for the longest are forgotten, which costs time
    and changes nothing. Threads may share it.

    Keys and values in an engine's cache are not enough: a number that is wanted at a position is computed from that
    position on. Only who no longer asks for the steps before pays for the new ones alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[bytes, float] = {}
        self._lock = Lock()
        self._inflight: dict[bytes, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def claim(
        self, names: abc.Sequence[bytes]
    ) -> AsyncIterator[tuple[Mapping[bytes, float], Set[bytes]]]:
        """The values that are known, and the names that this caller is to read and `keep`.

        Waits for those that others on this event loop are reading; if they fail, it falls to this caller. All are
        claimed at once, and who has claimed waits for the engine alone: no circle of waiting can close.
        """
        wanted, loop = set(names), asyncio.get_running_loop()
        while others := {f for n in wanted if (f := self._inflight.get(n)) and f.get_loop() is loop}:
            await asyncio.wait(others)
        known = self._recall(names)
        missing, done = wanted - known.keys(), loop.create_future()
        self._inflight.update(dict.fromkeys(missing, done))
        try:
            yield known, missing
        finally:
            for name in missing:
                if self._inflight.get(name) is done:
                    del self._inflight[name]
            done.set_result(None)

    def keep(self, values: Mapping[bytes, float]) -> None:
        """Remember what was read."""
        with self._lock:
            self._values.update(values)
            for name in list(islice(self._values, max(0, len(self._values) - self._limit))):
                del self._values[name]

    def _recall(self, names: abc.Sequence[bytes]) -> dict[bytes, float]:
        """Recall the values of these names; they will now be forgotten last."""
        known = {}
        with self._lock:
            for name in names:
                value = self._values.pop(name, None)
                if value is not None:
                    known[name] = self._values[name] = value
        return known
