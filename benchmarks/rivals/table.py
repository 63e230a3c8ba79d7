"""What contestants did, and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from metagen.analysis.intervals import SHARES, interval
from metagen.verifiers.numbers import parse

#: Of a sample at most.
TOKENS = 200
Solve = Callable[[str, int], Awaitable[str]]


@dataclass
class Line:
    """One contestant at one method. right: [turns, problems]."""

    method: str
    who: str
    solve: Solve
    right: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


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
