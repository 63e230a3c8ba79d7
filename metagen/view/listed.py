"""The problems of a run as its page lists them: a line of each, searched, filtered, sorted and cut into pages here.

A run may have many thousands; a browser gets those that it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from metagen.errors import InputError
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.page import browser
from metagen.runs.table.problem import Examined, Examiner

#: Characters of a prompt in a line.
HEAD = 160
#: Lines that one answer holds at most.
MOST = 2000
Sort = Literal["order", "level", "right", "left", "generated"]
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is looked for. q: part of an id, or of the beginning of a prompt. filter: of `browser.FILTERS`, or
    `right:NAME` or `wrong:NAME` of a configuration. Raises InputError for a filter and an order that there are not.
    """

    q: str = ""
    filter: str = ""
    level: str = ""
    generator: str = ""
    sort: Sort = "order"

    def __post_init__(self) -> None:
        if self.sort not in get_args(Sort):
            raise InputError(f"sort={self.sort!r} is unknown; expected one of: {', '.join(get_args(Sort))}")
        kind, _, name = self.filter.partition(":")
        if self.filter not in ("", *browser.FILTERS) and not (kind in ("right", "wrong") and name):
            known = ", ".join(("right:NAME", "wrong:NAME", *browser.FILTERS))
            raise InputError(f"filter={self.filter!r} is unknown; expected one of: {known}")

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Self:
        """From the parts of an address."""
        parts: dict[str, Any] = {one.name: asked[one.name] for one in fields(cls) if asked.get(one.name)}
        return cls(**parts)

    def fits(self, line: Line) -> bool:
        if self.level and str(line["level"]) != self.level:
            return False
        if self.q and self.q.strip().lower() not in f"{line['id']}\n{line['head']}".lower():
            return False
        pools = [pool for pool in line["pools"] if not self.generator or pool["generator"] == self.generator]
        if self.generator and not pools:
            return False
        kind, _, name = self.filter.partition(":")
        if not self.filter:
            return True
        if kind in ("right", "wrong") and name:
            return line["outcomes"].get(name) is (kind == "right")
        if kind == "never":
            return all(not pool["right"] for pool in pools) if self.generator else not line["solved"]
        return any(self.filter in pool["marks"] for pool in pools)


@dataclass
class Listed:
    """Lines by the place of their problem in the task."""

    lines: dict[int, Line] = field(default_factory=dict)

    def facets(self) -> dict[str, list[Any]]:
        """What there is to choose from: levels, generators, and configurations that ran by themselves."""
        lines = self.lines.values()
        return {
            "levels": sorted({one["level"] for one in lines if one["level"] is not None}),
            "generators": list(dict.fromkeys(pool["generator"] for one in lines for pool in one["pools"])),
            "direct": list(dict.fromkeys(name for one in lines for name in one["outcomes"])),
        }

    def find(self, wish: Wish) -> list[Line]:
        """The lines that fit, in the order that is wished for; unknown values come last."""
        found = [line for _, line in sorted(self.lines.items()) if wish.fits(line)]
        if value := VALUES.get(wish.sort):
            down = -1.0 if wish.sort in ("left", "generated") else 1.0
            found.sort(key=lambda line: (1, 0.0) if (v := value(line)) is None else (0, down * v))
        return found

    def page(self, wish: Wish, start: int, count: int) -> dict[str, Any]:
        found = self.find(wish)
        count = min(count, MOST)
        return {"total": len(found), "start": start, "problems": found[start : start + count]}

    def beside(self, wish: Wish, problem: str) -> dict[str, Any]:
        """Where a problem stands, and those before and after it; null where it is not among them."""
        ids = [line["id"] for line in self.find(wish)]
        if problem not in ids:
            return {"at": None, "total": len(ids), "before": None, "next": None}
        at = ids.index(problem)
        return {
            "at": at,
            "total": len(ids),
            "before": ids[at - 1] if at else None,
            "next": ids[at + 1] if at + 1 < len(ids) else None,
        }


def _rate(line: Line) -> float | None:
    """The share of its samples that is right; without samples, of its configurations."""
    if size := sum(pool["size"] for pool in line["pools"]):
        return float(sum(pool["right"] for pool in line["pools"]) / size)
    outcomes = line["outcomes"].values()
    return sum(outcomes) / len(outcomes) if outcomes else None


VALUES: Mapping[str, Callable[[Line], float | None]] = {
    "level": lambda line: line["level"],
    "right": _rate,
    "left": _rate,
    "generated": lambda line: line["generated"],
}


def lines_of(directory: RunDirectory, cells: Sequence[Cell]) -> dict[int, Line]:
    """The lines of a run with these tables, by place, of the problems of which there is something."""
    with Examiner(directory, cells) as examiner:
        return {
            int(examiner.places[number]): line_of(one)
            for number, one in examiner.each()
            if one.pools or one.outcomes
        }


def line_of(one: Examined) -> Line:
    """A problem in the list."""
    generated = [o["generated"] for o in one.outcomes]
    pooled = [s["generated"] for pool in one.pools for s in pool.spent]
    amounts = [*generated, *pooled]
    solved = any(pool.right for pool in one.pools) or any(o["correct"] for o in one.outcomes)
    return {
        "id": one.problem,
        "level": one.level,
        "head": browser.cut(one.prompt.strip(), HEAD),
        "pools": [
            {"name": p.name, "generator": p.generator, "right": p.right, "size": p.size, "marks": browser.marks(p)}
            for p in one.pools
        ],
        "outcomes": {o["configuration"]: bool(o["correct"]) for o in one.outcomes},
        "generated": None if None in amounts else sum(amounts),
        "solved": solved,
    }  # fmt: skip
