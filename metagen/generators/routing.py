"""Which replica answers a request: the one whose prefix cache holds most of it, unless that one is overloaded.

The index of what each replica holds is the router's own belief, kept from what it sent where. A wrong belief costs
time and never changes a result. Nothing here knows time, a network or a random number: the same calls
give the same choices, so that a simulation can ask the router that runs.
"""

from __future__ import annotations

from collections import OrderedDict, abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from metagen.errors import EngineError, InputError


@dataclass(slots=True)
class _Replica:
    """order: of joining. load: outstanding. handicap: counted as load. served: requests sent so far.

    held: its blocks, the latest used last.
    """

    name: str
    order: int
    load: int = 0
    handicap: int = 0
    served: int = 0
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)

    @property
    def rank(self) -> tuple[int, int, int]:
        """The lowest is served next, among equals."""
        return self.load + self.handicap, self.served, self.order


class Router:
    """Prefix-affine routing by hashes of token blocks.

    block: tokens of a block; a prefix counts in whole blocks, as in the caches of engines. blocks: that are remembered
    at most, of all replicas together; each has an equal share, and what was used least recently is forgotten first.
    absolute, relative: a replica is overloaded when its load exceeds the least load of any replica by more than
    `absolute`, and is more than `relative` times as large. Loads are in the caller's unit.

    Not thread-safe. Raises InputError for options that are no positive numbers.
    """

    def __init__(
        self, *, block: int = 16, blocks: int = 1 << 18, absolute: int = 16, relative: float = 1.5
    ) -> None:
        for name, value, least in (
            ("block", block, 1),
            ("blocks", blocks, 1),
            ("absolute", absolute, 0),
            ("relative", relative, 1),
        ):
            if not value >= least:
                raise InputError(f"{name}={value!r}: expected a number ≥ {least}")
        self.block, self.blocks, self.absolute, self.relative = block, blocks, absolute, relative
        self._replicas: dict[str, _Replica] = {}
        self._holders: dict[int, set[str]] = {}
        self._joined = 0
        #: The last ids and their hashes: a request is looked up, and then noted.
        self._hashed: tuple[tuple[int, ...], list[int]] = (), []
        #: Ranks of replicas, some of them out of date; the current one of each replica is among them.
        self._ranks: list[tuple[tuple[int, int, int], str]] = []

    def __len__(self) -> int:
        return len(self._replicas)

    def __contains__(self, replica: object) -> bool:
        return replica in self._replicas

    def __iter__(self) -> Iterator[str]:
        return iter(self._replicas)

    @property
    def remembered(self) -> int:
        """Blocks in the index, each counted once for every replica that holds it."""
        return sum(len(replica.held) for replica in self._replicas.values())

    # -- who is there ----------------------------------------------------------------------------

    def join(self, replica: str, handicap: int = 0) -> None:
        """A replica with an empty cache is there. InputError if one of that name is there already."""
        if replica in self._replicas:
            raise InputError(f"replica {replica!r} has joined before; give each its own name")
        self._replicas[replica] = entry = _Replica(replica, self._joined, handicap=handicap)
        self._joined += 1
        self._rank(entry)
        for other in self._replicas.values():
            self._trim(other)

    def handicap(self, replica: str, load: int) -> None:
        """Count a replica as busier by `load` from now on: with others' requests, or since others are to be preferred.

        Nothing happens if it is not there.
        """
        if (entry := self._replicas.get(replica)) is not None and entry.handicap != load:
            entry.handicap = load
            self._rank(entry)

    def leave(self, replica: str) -> None:
        """A replica is gone, and what it held with it. Nothing happens if it is not there."""
        entry = self._replicas.pop(replica, None)
        if entry is not None:
            while entry.held:
                self._forget(entry)

    # -- requests --------------------------------------------------------------------------------

    def choose(self, ids: abc.Sequence[int] | None) -> str:
        """The replica for a request that begins with these token ids; None: they are unknown.

        EngineError if there is no replica.
        """
        if not self._replicas:
            raise EngineError("no replica is there to route to; let one join first")
        least = self._least()
        holders = self._longest(ids or ())
        if not holders or least.name in holders:  # what all hold is no reason to look through all
            return least.name
        best = min((self._replicas[name] for name in holders), key=lambda entry: entry.rank)
        most, few = best.rank[0], least.rank[0]
        over = most > few + self.absolute and most > self.relative * few
        return least.name if over else best.name

    def began(self, replica: str, ids: abc.Sequence[int] | None, load: int = 1) -> None:
        """A request was sent to a replica: it is busier by `load`, and will hold these ids."""
        entry = self._replicas[replica]
        entry.load += load
        entry.served += 1
        self._rank(entry)
        self.holds(replica, ids or ())

    def release(self, replica: str, load: int = 1) -> None:
        """A request was answered or given up. Nothing happens if the replica has left."""
        if (entry := self._replicas.get(replica)) is not None:
            entry.load -= load
            self._rank(entry)

    def holds(self, replica: str, ids: abc.Sequence[int]) -> None:
        """A replica's cache holds these ids. Nothing happens if it has left."""
        if (entry := self._replicas.get(replica)) is None:
            return
        hashes = self._hashes(ids)[: self._share]
        # From the last to the first: a block is never forgotten before those that build on it.
        held = entry.held
        for one in reversed(hashes):
            if one in held:
                held.move_to_end(one)
            else:
                held[one] = None
                self._holders.setdefault(one, set()).add(replica)
        self._trim(entry)

    def load(self, replica: str) -> int:
        """What was sent to a replica and is outstanding."""
        return self._replicas[replica].load

    def match_length(self, replica: str, ids: abc.Sequence[int]) -> int:
        """Tokens at the beginning of `ids` that a replica is believed to hold."""
        count = 0
        for one in self._hashes(ids):
            if replica not in self._holders.get(one, ()):
                break
            count += self.block
        return count

    # -- inside ----------------------------------------------------------------------------------

    def _hashes(self, ids: abc.Sequence[int]) -> list[int]:
        """One for each whole block, of the block and all before it. Hashes of integers are the same everywhere."""
        if ids is self._hashed[0]:
            return self._hashed[1]
        tokens, chained, hashes = tuple(ids), 0, []
        for end in range(self.block, len(tokens) + 1, self.block):
            chained = hash((chained, tokens[end - self.block : end]))
            hashes.append(chained)
        if isinstance(ids, tuple):
            self._hashed = ids, hashes
        return hashes

    def _longest(self, ids: abc.Sequence[int]) -> set[str]:
        """Replicas that hold the longest prefix that any holds; empty if none holds a block."""
        found: set[str] = set()
        for one in self._hashes(ids):
            holders = self._holders.get(one)
            if not holders:
                break
            found = holders
        return found

    @property
    def _share(self) -> int:
        """Blocks that each replica may have in the index."""
        return max(1, self.blocks // max(1, len(self._replicas)))

    def _trim(self, entry: _Replica) -> None:
        while len(entry.held) > self._share:
            self._forget(entry)

    def _forget(self, entry: _Replica) -> None:
        one, _ = entry.held.popitem(last=False)
        holders = self._holders[one]
        holders.discard(entry.name)
        if not holders:
            del self._holders[one]

    def _rank(self, entry: _Replica) -> None:
        heappush(self._ranks, (entry.rank, entry.name))
        if len(self._ranks) > 64 + 4 * len(self._replicas):
            self._ranks = [(one.rank, one.name) for one in self._replicas.values()]
            heapify(self._ranks)

    def _least(self) -> _Replica:
        """The replica with the least load; among equals, the one that was sent the fewest requests."""
        while True:
            rank, name = self._ranks[0]
            entry = self._replicas.get(name)
            if entry is not None and entry.rank == rank:
                return entry
            heappop(self._ranks)
