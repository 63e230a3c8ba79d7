"""What a run has recorded so far, read from its journal while that is written: records, spend, and both over time.

Only records that came since the last look are read.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from metagen.cost import Usage
from metagen.journal import ATTEMPT, Row, SQLiteJournal
from metagen.runs.work.makers import Makers

#: Records that are read at a time.
MOST = 5_000
#: Points of a curve over time at most.
POINTS = 400
#: Amounts that are added up.
SUMS = ("prefilled", "cached", "generated", "flops", "money", "seconds")
#: One sample or score: problem, path, kind, who made it, content, index.
Item = tuple[str, str, str, str, bytes, int]
_FIELDS = {f.name for f in fields(Usage)}
assert _FIELDS.issuperset(SUMS)


@dataclass
class Spent:
    """What one generator or verifier spent. sums: by amount; None once a record does not know it."""

    kind: str
    records: int = 0
    sums: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(SUMS, 0.0))

    def add(self, usage: Usage) -> None:
        self.records += 1
        for name, total in self.sums.items():
            amount = getattr(usage, name)
            self.sums[name] = None if total is None or amount is None else total + amount


@dataclass
class Ledger:
    """Adds up the records of one journal. mark: the last record that was read. whole: there was no more then.

    attempts: those that have begun, by their key, with the items that have not ended. waiting: by item, the attempts
    that have not ended it, the newest last.
    """

    mark: int = 0
    whole: bool = False
    attempts: dict[bytes, set[Item]] = field(default_factory=dict)
    waiting: dict[Item, list[bytes]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    spent: dict[tuple[str, str], Spent] = field(default_factory=dict)
    #: Second → records of kind generate, and tokens that they generated (None: unknown) in that second.
    seconds: dict[int, tuple[int, int | None]] = field(default_factory=dict)

    def read(self, journal: SQLiteJournal, until: float = -inf) -> None:
        """Read what has come since, to `until` by the monotonic clock; at least `MOST` records."""
        self.whole = False
        while not self.whole:
            mark, rows = journal.since(self.mark, MOST)
            for columns in rows:
                self._add(Row.of(columns))
            self.mark, self.whole = mark, len(rows) < MOST
            if time.monotonic() >= until:
                return

    def _add(self, row: Row) -> None:
        if row.limit == ATTEMPT:
            self._attempt(row)
            return
        if row.payload is None:  # refused
            return
        if not row.cached:
            self._end((row.problem, row.path, row.kind, row.by, row.content, row.index))
        self.problems[row.problem] += 1
        self.spent.setdefault((row.kind, row.by), Spent(row.kind)).add(row.usage)
        if row.kind == "generate" and not row.cached:
            records, tokens = self.seconds.get(int(row.started), (0, 0))
            made = row.usage.generated
            total = None if tokens is None or made is None else tokens + made
            self.seconds[int(row.started)] = (records + 1, total)

    def _attempt(self, row: Row) -> None:
        """An attempt that begins; or what became of it, which ends it."""
        several = (row.payload or {}).get("items")
        items = [(row.content, row.index)] if several is None else [(bytes.fromhex(c), n) for c, n in several]
        if row.status == "open":
            names = {(row.problem, row.path, row.kind, row.by, *item) for item in items}
            for name in names - self.attempts.get(row.key, set()):
                self.waiting.setdefault(name, []).append(row.key)
            self.attempts[row.key] = names
            return
        for name in self.attempts.pop(row.key, ()):
            self._leave(name, row.key)

    def _end(self, name: Item) -> None:
        """An item that ended, by its newest attempt."""
        if not (keys := self.waiting.get(name)):
            return
        key = keys[-1]
        self._leave(name, key)
        self.attempts[key].discard(name)
        if not self.attempts[key]:
            del self.attempts[key]

    def _leave(self, name: Item, key: bytes) -> None:
        self.waiting[name].remove(key)
        if not self.waiting[name]:
            del self.waiting[name]

    def total(self, name: str) -> float | None:
        """An amount of all together; None where one of them does not know it."""
        amounts = [spent.sums[name] for spent in self.spent.values()]
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if len(known) == len(amounts) else None

    def data(self, makers: Makers) -> dict[str, Any]:
        """For JSON. Amounts that are unknown are null."""
        return {
            "whole": self.whole,
            "problems": len(self.problems),
            "attempts": len(self.attempts),
            "spent": [
                {"name": makers.name(by), "kind": kind, "records": spent.records, **spent.sums}
                for (kind, by), spent in self.spent.items()
            ],
            "time": self._curve(),
        }

    def _curve(self) -> list[tuple[int, int, int | None]]:
        """Seconds since the first record, with the samples and the tokens until then."""
        if not self.seconds:
            return []
        begin, samples = min(self.seconds), 0
        tokens: int | None = 0
        points = []
        for second in sorted(self.seconds):
            more, made = self.seconds[second]
            samples += more
            tokens = None if tokens is None or made is None else tokens + made
            points.append((second - begin, samples, tokens))
        stride = -(-len(points) // POINTS)
        return points[::-1][::stride][::-1]
