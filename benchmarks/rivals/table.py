"""What contestants did, and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metagen.analysis.intervals import SHARES, interval
from metagen.tasks.base import Problem
from metagen.verifiers.numbers import parse

#: Of a sample at most.
TOKENS = 200


@dataclass
class Line:
    """One contestant at one method. solve: answers prompts. right: [turns, problems]."""

    method: str
    who: str
    solve: Callable[..., Any]
    right: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)

    def add(self, seconds: float, texts: Iterable[str], problems: Iterable[Problem]) -> None:
        """A turn over all problems."""
        self.seconds.append(seconds)
        pairs = zip(texts, problems, strict=True)
        self.right.append([float(key(text) == key(f"A:{p.reference}\n")) for text, p in pairs])


def key(text: str) -> str | None:
    """The answer of a completion, by its value."""
    found = [line[2:].strip() for line in text.split("\n") if line.startswith("A:")]
    value = parse(found[-1]) if found else None
    return None if value is None else str(value)


def markdown(lines: list[Line], problems: int) -> str:
    """A table; what nobody counted stays unknown."""
    rows = [
        f"{problems} problems, {len(lines[0].seconds)} turns",
        "",
        "| method | who | right, % | seconds | tokens written | requests |",
        "|---|---|---|---|---|---|",
    ]
    for line in sorted(lines, key=lambda one: [x.method for x in lines].index(one.method)):
        share = interval(np.mean(line.right, axis=0), support=SHARES)
        counts = [
            f"{statistics.median(all_):,.0f}" if all_ else "–" for all_ in (line.generated, line.requests)
        ]
        rows.append(
            f"| {line.method} | {line.who} | {100 * float(share.estimate):.1f} [{100 * float(share.low):.0f}, "
            f"{100 * float(share.high):.0f}] | {statistics.median(line.seconds):.1f} | {counts[0]} | {counts[1]} |"
        )
    return "\n".join(rows)
