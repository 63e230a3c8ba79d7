"""The prefix-aware router of Ray Serve, by its own prefix tree, with the interface of `metagen`'s Router.

Its rule (ray.serve.llm, PrefixCacheAffinityRouter): while queues differ by no more than a threshold, the replicas with
the longest matching prefix, or those that hold the least text where less than a tenth of the prompt matches; else two
at random. Of these, the one with the shortest queue. It learns prompts, not answers. Its default threshold is infinite.
Needs grpcio and grpcio-reflection, which Ray Serve imports.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

#: Share of a prompt that must match.
MATCH = 0.1
#: Code points that are no halves of pairs.
FIRST, CODES = 0xE000, 0x100000


class ServeRouter:
    """threshold: by how much the longest queue may exceed the shortest. Loads are numbers of samples, as elsewhere."""

    def __init__(self, threshold: float = float("inf"), seed: int = 0) -> None:
        from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree import PrefixTree

        self.threshold, self._random, self._clock = threshold, random.Random(seed), count(1)
        self._tree, self._loads = PrefixTree(), Counter[str]()
        #: The text of the ids that were looked up last, which are inserted next.
        self._text: tuple[tuple[int, ...] | None, str] = None, ""

    def __len__(self) -> int:
        return len(self._loads)

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def join(self, replica: str) -> None:
        self._loads[replica] = 0
        self._tree.add_tenants([replica], next(self._clock))

    def leave(self, replica: str) -> None:
        del self._loads[replica]
        self._tree.remove_tenants([replica])

    def choose(self, ids: tuple[int, ...] | None) -> str:
        names = list(self._loads)
        chosen: Sequence[str] = ()
        if ids is not None and max(self._loads.values()) - min(self._loads.values()) <= self.threshold:
            matched, holders = self._tree.prefix_match(self._told(ids), names)
            enough = len(matched) >= MATCH * len(ids)
            chosen = (holders if enough else self._tree.get_smallest_tenants()) or ()
        if not chosen:
            chosen = self._random.sample(names, min(2, len(names)))
        return min(chosen, key=self._loads.__getitem__)

    def began(self, replica: str, ids: tuple[int, ...] | None, load: int = 1) -> None:
        """However it was chosen, Ray Serve learns where a prompt went."""
        self._loads[replica] += load
        if ids is not None:
            self._tree.insert(self._told(ids), replica, next(self._clock))

    def _told(self, ids: tuple[int, ...]) -> str:
        if self._text[0] is not ids:
            self._text = ids, "".join(chr(FIRST + one % CODES) for one in ids)
        return self._text[1]

    def release(self, replica: str, load: int = 1) -> None:
        if replica in self._loads:
            self._loads[replica] -= load

    def holds(self, replica: str, ids: tuple[int, ...]) -> None:
        """Ray Serve does not learn what was answered."""
