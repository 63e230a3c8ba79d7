"""Two runs, paired: every configuration that both have, over the problems that both have solved or failed.

Problems are the same when id, prompt and reference are. Differences are means over problems, with their intervals;
p-values are those of the exact paired randomisation test (for single runs McNemar's), corrected by Holm for the
number of comparisons. With one candidate all strategies of a pool are the same test, which counts once.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import isfinite, isnan
from typing import Any, TypeVar

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metagen.analysis.comparison import Contrast, holm, p_number
from metagen.analysis.paired import Difference, paired_difference
from metagen.errors import InputError
from metagen.runs.curves.measured import FEW, solve_pools
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.names import nearest
from metagen.runs.table.tables import read
from metagen.runs.words import DETECTABLE, least, percent, signed_points
from metagen.runs.work import unfinished

T = TypeVar("T")

# A name of the first and one of the second; either may stand in several.
Pairs = abc.Sequence[tuple[str, str]]
#: Problems gained or lost that are named, and configurations of which they are.
NAMED = 5
#: Significance, after correction.
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """One configuration in both runs: b − a over the problems that both have.

    a, b: accuracies. p_value: Holm's. accuracies: by problem, in a and in b. also: names of configurations that are
    this very test.
    """

    name: str
    oracle: bool
    a: float
    b: float
    difference: Difference
    p_value: float
    accuracies: Mapping[str, tuple[float, float]]
    also: tuple[str, ...] = ()

    @property
    def gained(self) -> tuple[str, ...]:
        """Problems that only b is more often right than wrong on."""
        return tuple(id for id, (p, q) in self.accuracies.items() if p <= 0.5 < q)

    @property
    def lost(self) -> tuple[str, ...]:
        """Problems that only a is more often right than wrong on."""
        return tuple(id for id, (p, q) in self.accuracies.items() if q <= 0.5 < p)

    @property
    def shown(self) -> bool:
        """Whether there is a difference, beyond chance and the number of comparisons."""
        return self.p_value <= ALPHA


def publish(a: RunDirectory, b: RunDirectory, pairs: Pairs | None = None) -> RenderableType:
    """What two runs differ in, for the terminal.

    pairs: a configuration of a and the one of b to compare it with; by default those of equal names.
    Raises InputError where the runs share no problem or no configuration, or a problem of one id is not the same.
    """
    compared, problems = compare(a, b, pairs)
    return render(compared, problems, a, b)


def compare(
    a: RunDirectory, b: RunDirectory, pairs: Pairs | None = None
) -> tuple[list[Compared], tuple[int, int, int]]:
    """The comparisons, and the numbers of problems: in both, in a, in b.

    Raises InputError where no configuration has a problem in both.
    """
    with ExitStack() as stack:
        (first, one), (second, two) = (stack.enter_context(unfinished.tables(run)) for run in (a, b))
        shared, sizes = _problems(first, second, a, b)
        tests = _tests(_pairs(one.lines, two.lines, pairs, a, b))
        left = accuracy_by_problem(first, [x for (x, _), _ in tests])
        right = accuracy_by_problem(second, [y for (_, y), _ in tests])
        found = []
        for (x, y), also in tests:
            ids = [id for id in shared if id in left[x.name] and id in right[y.name]]
            if ids:
                found.append((x, y, also, {id: (left[x.name][id], right[y.name][id]) for id in ids}))
    if not found:
        raise InputError(
            f"no configuration of {str(a.root)!r} and {str(b.root)!r} has finished a problem in both; resume the runs"
        )
    columns = [tuple(zip(*accuracies.values(), strict=True)) for *_, accuracies in found]
    tested = max(1, sum(len(ours) >= FEW for ours, _ in columns))
    differences = [paired_difference(theirs, ours, tests=tested, fewest=FEW) for ours, theirs in columns]
    p_values = holm([d.p_value for d in differences])
    compared = [
        Compared(
            name=_name(x, y),
            oracle=x.oracle or y.oracle,
            a=float(np.mean(ours)),
            b=float(np.mean(theirs)),
            difference=difference,
            p_value=p,
            accuracies=accuracies,
            also=also,
        )
        for (x, y, also, accuracies), (ours, theirs), difference, p in zip(
            found, columns, differences, p_values, strict=True
        )
    ]
    return compared, sizes


def data(
    compared: Iterable[Compared], problems: tuple[int, int, int], a: RunDirectory, b: RunDirectory
) -> dict[str, Any]:
    """For JSON; what the problems cannot tell is null."""
    return {
        "a": str(a.root),
        "b": str(b.root),
        "problems": dict(zip(("both", "a", "b"), problems, strict=True)),
        "configurations": [
            {
                "name": c.name,
                "also": list(c.also),
                "oracle": c.oracle,
                **numbers_of(c),
                "problems": {id: {"a": p, "b": q} for id, (p, q) in c.accuracies.items()},
            }
            for c in compared
        ],
    }


def numbers_of(test: Compared | Contrast) -> dict[str, Any]:
    """The numbers of a comparison for JSON."""
    return {
        "a": test.a,
        "b": test.b,
        "difference": {k: v if isfinite(v) else None for k, v in asdict(test.difference).items()},
        "p_holm": None if isnan(test.p_value) else test.p_value,
        "shown": test.shown,
    }


def _tests(pairs: Iterable[tuple[Cell, Cell]]) -> list[tuple[tuple[Cell, Cell], tuple[str, ...]]]:
    """The pairs, each with the names of others that are the same test: whatever picks one of one candidate."""
    found: dict[tuple[str, ...], list[tuple[Cell, Cell]]] = {}
    for x, y in pairs:
        single = all(line.pooled and (line.n or 1) == 1 for line in (x, y))
        found.setdefault((x.generator, y.generator) if single else (x.name, y.name, ""), []).append((x, y))
    tests = []
    for same in found.values():
        # One of one is no upper bound, even if an oracle picks it.
        same.sort(key=lambda pair: pair[0].oracle or pair[1].oracle)
        tests.append((same[0], tuple(_name(x, y) for x, y in same[1:])))
    return tests


def _name(x: Cell, y: Cell) -> str:
    return x.name if x.name == y.name else f"{x.name} → {y.name}"


def accuracy_by_problem(directory: RunDirectory, lines: abc.Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Configurations, each with its accuracy on every problem that it has finished, by id."""
    pooled = solve_pools(directory, lines)
    found = {name: dict(zip(one.ids, one.accuracy.tolist(), strict=True)) for name, one in pooled.items()}
    for line in lines:
        if not line.pooled:
            table = read(directory.table("outcomes"), ["problem", "correct"], configuration=line.name)
            rows = zip(table["problem"].to_pylist(), table["correct"].to_pylist(), strict=True)
            found[line.name] = {problem: float(correct) for problem, correct in rows}
    return {line.name: found.get(line.name, {}) for line in lines}


def _problems(
    first: RunDirectory, second: RunDirectory, a: RunDirectory, b: RunDirectory
) -> tuple[list[str], tuple[int, int, int]]:
    """Ids that both have, in the order of the first, and the numbers: in both, in each."""
    left, right = identities(first), identities(second)
    shared = [id for id in left if id in right]
    if not shared:
        raise InputError(
            f"the runs share no problem: {str(a.root)!r} has {_some(left)}; {str(b.root)!r} has {_some(right)}. "
            "Compare runs over the same task, split and seed"
        )
    for part, at, what in (("prompt", 0, "is asked otherwise"), ("reference", 1, "has another answer")):
        other = [id for id in shared if left[id][at] != right[id][at]]
        if other:
            raise InputError(
                f"problem {other[0]!r} {what} in {str(b.root)!r} than in {str(a.root)!r} "
                f"(and so {len(other) - 1} more): one id, but another {part}. Compare runs over the same data"
            )
    return shared, (len(shared), len(left), len(right))


def identities(directory: RunDirectory) -> dict[str, tuple[str, str]]:
    """Id → digest of the prompt, and reference."""
    columns = ["problem", "place", "salt", "reference"]
    rows = read(directory.table("problems"), columns).sort_by("place").to_pylist()
    return {row["problem"]: (row["salt"], row["reference"]) for row in rows}


def _pairs(
    one: abc.Sequence[Cell],
    two: abc.Sequence[Cell],
    pairs: Pairs | None,
    a: RunDirectory,
    b: RunDirectory,
) -> list[tuple[Cell, Cell]]:
    left, right = {line.name: line for line in one}, {line.name: line for line in two}
    found = pair(left, right, pairs, [f"the run {str(run.root)!r}" for run in (a, b)], "configuration")
    if not found and pairs is None:
        example = f"{one[0].name}={two[0].name}" if one and two else "A=B"
        raise InputError(
            f"the runs share no configuration: {str(a.root)!r} has {_some(left)}; {str(b.root)!r} has "
            f"{_some(right)}. Say which belong together, such as {example}"
        )
    return found


def pair(
    left: Mapping[str, T],
    right: Mapping[str, T],
    pairs: Pairs | None,
    owners: abc.Sequence[str],
    what: str,
) -> list[tuple[T, T]]:
    """What is compared with what: those of `pairs`, by default those of equal names.

    owners, what: words for the two sides and for what they have. InputError for a name that a side has not.
    """
    if pairs is None:
        return [(left[name], right[name]) for name in left if name in right]
    for side, known, owner in ((0, left, owners[0]), (1, right, owners[1])):
        for name in (names[side] for names in pairs):
            if name not in known:
                raise InputError(f"{owner} has no {what} {name!r}; {nearest(name, known, f'{what}s')}")
    return [(left[x], right[y]) for x, y in pairs]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f", … ({len(names)} in all)" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more


# ------------------------------------------------------------------------------------------------ words


def render(
    compared: abc.Sequence[Compared], problems: tuple[int, int, int], a: RunDirectory, b: RunDirectory
) -> RenderableType:
    """Everything that `metagen compare` shows."""
    both, left, right = problems
    title = Text.assemble(("A ", "bold"), str(a.root), ("   B ", "bold"), str(b.root))
    title.append(f"\n{both:,} problems in both", "bold")
    if (left, right) != (both, both):
        title.append(f" (of {left:,} in A and {right:,} in B)")
    shown = [c for c in compared if c.shown]
    count = "1 configuration is shown to differ" if len(shown) == 1 else f"{len(shown)} are shown to differ"
    title.append(f"; of {len(compared)} compared, {count}\n")
    parts: list[RenderableType] = [
        title,
        _table(compared),
        Text(),
        *_name_problems(compared),
        _notes(compared),
    ]
    return Group(*(Padding(part, (0, 0, 0, 1)) for part in parts))


def _table(compared: Iterable[Compared]) -> Table:
    table = table_of_tests("configuration", "gained", "lost")
    for c in compared:
        name = f"{c.name} (oracle)" if c.oracle and "(oracle)" not in c.name else c.name
        means = percent(c.a, ""), percent(c.b, "")
        counts = str(len(c.gained)), str(len(c.lost))
        table.add_row(f"{name} *" if c.also else name, *means, *cells_of(c, *counts))
    return table


def table_of_tests(first: str, *more: str) -> Table:
    """A table of comparisons without rows; more: columns between the test and what it could detect."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in (first, "A %", "B %", "B − A", "95%, alone", "p (Holm)", *more, "detectable"):
        table.add_column(name, justify="left" if name == first else "right")
    return table


def cells_of(test: Compared | Contrast, *more: str) -> tuple[str | Text, ...]:
    """The cells of a comparison behind the accuracies of both sides."""
    d = test.difference
    style = "" if not test.shown else "bold green" if d.estimate > 0 else "bold red"
    bounds = "–" if isnan(d.low) else f"{signed_points(d.low)} … {signed_points(d.high)}"
    detectable = "" if test.shown else least(d)
    return Text(signed_points(d.estimate), style), bounds, p_number(test.p_value), *more, detectable


def _name_problems(compared: abc.Sequence[Compared]) -> Iterable[RenderableType]:
    """The first problems gained and lost, of the configuration that gains or loses most."""
    most = max(compared, key=lambda c: len(c.gained) + len(c.lost))
    for what, ids in (("gained", most.gained), ("lost", most.lost)):
        if ids:
            more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
            yield Text.assemble((f"{what} by {most.name}: ", "bold"), ", ".join(ids[:NAMED]) + more)
    if most.gained or most.lost:
        yield Text()


def _notes(compared: abc.Sequence[Compared]) -> Text:
    small = sum(c.difference.problems < FEW for c in compared)
    few = (
        f"\nOf fewer than {FEW} problems, as here in {small}, there is no interval and no test."
        if small
        else ""
    )
    same = "* and whatever else picks one of one candidate of this generator: one test, counted once.\n"
    return Text(
        f"{same if any(c.also for c in compared) else ''}"
        "Differences in points of accuracy, over the same problems. 95%, alone: each interval by itself, uncorrected.\n"
        f"p: exact paired randomisation test, corrected by Holm for {len(compared) - small} comparisons.\n"
        "gained, lost: problems that only B, or only A, gets right more often than wrong.\n"
        "detectable: where they are not shown to differ, the smallest detectable difference, after correction;\n"
        f"none: they could show none of any size. {DETECTABLE}{few}",
        "dim",
    )
