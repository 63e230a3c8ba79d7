"""What each problem costs under a configuration, and what hardware would make of it: costs of a curve, as arrays.

Tokens, FLOPs and money are accounted, seconds were measured. Modelled are `roofline:NAME` and `latency:NAME`: the least
seconds of work, and of waiting with as many machines as there are calls, on the accelerator NAME. They need the table
`calls` of a run (`runner.run(…, calls=True)`) and the shapes of its models; the pools of any run suffice where nothing
is verified.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metagen.analysis.estimators import pass_at_k, subset_share
from metagen.cost import Beside, ModelShape
from metagen.errors import InputError
from metagen.runs.curves.efficiency.called import Accelerator, Called, Shapes, known_places
from metagen.runs.curves.efficiency.critical import longest
from metagen.runs.curves.study import Floats
from metagen.runs.declare import registry, schema
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table import tables
from metagen.runs.table.tables import floats, integers, read_outcomes
from metagen.runs.work import build, calls, offline
from metagen.runs.work.calls import GENERATION
from metagen.runs.work.makers import Makers

__all__ = ["Accelerator", "direct", "plain", "pool_costs", "shape_from_plain", "shapes"]

#: Columns of a usage that costs are made of.
SPENT = ("prefilled", "generated", "flops", "flops_2n", "money", "seconds")


def shapes(directory: RunDirectory) -> dict[str, ModelShape | None]:
    """The shapes of the models behind a run's calls, by the names that its tables bear; engines stay closed.

    Raises what the experiment does whose parts lie on this machine no more.
    """
    noted = Makers.of_run(directory)
    experiment = offline.with_stand_ins(
        schema.load(directory.experiment), fingerprints=True, noted=noted.engines
    )
    with build.open_setup(experiment) as setup:
        return calls.shapes(setup, Makers.of(setup).after(noted))


def plain(shape: ModelShape) -> dict[str, Any]:
    """A shape as JSON."""
    return asdict(shape)


def shape_from_plain(data: Mapping[str, Any]) -> ModelShape:
    """Inverse of `plain`."""
    beside = tuple(
        Beside(**{**one, "shape": shape_from_plain(one["shape"])}) for one in data.get("beside", ())
    )
    return ModelShape(**{**data, "beside": beside})


def pool_costs(
    directory: RunDirectory,
    generator: str,
    verifier: str | None,
    ns: abc.Sequence[int],
    accelerators: Mapping[str, Accelerator],
    shapes: Shapes,
    stated: Callable[[dict[str, Floats]], dict[str, Floats]] = dict,
) -> tuple[dict[str, Floats], Floats]:
    """Expected costs of n candidates of a pool, [len(ns), problems] each; the verifier's part of the exact FLOPs.

    NaN where unknown, and where a problem's pool has no n candidates. stated: of the costs of the candidates alone,
    those with what is said of them where nobody counted. Work: of each call by the probability that
    a random n-subset needs it. Waiting: the expected longest of the n, each from its prompt to its score.
    """
    count = len(known_places(directory))
    parts = [GENERATION] if verifier is None else [GENERATION, verifier]
    spent = _part_costs(directory, generator, parts, ns)
    total = stated(_columns(spent[GENERATION]))
    if verifier is not None:
        total = {name: total[name] + more for name, more in _columns(spent[verifier]).items()}
    known = ~np.isnan(total["seconds"])
    costs = {"samples": np.where(known, np.asarray(ns, dtype=np.float64)[:, None], np.nan), **total}
    judged = spent[verifier]["flops"] if verifier is not None else np.where(known, 0.0, np.nan)
    if not accelerators:
        return costs, judged
    blocks = Called.blocks(directory, generator, parts)
    if blocks is None and verifier is None:
        blocks = Called.of_samples(directory, generator)
    modelled = {name: np.full((2, len(ns), count), np.nan) for name in accelerators}
    for called in blocks or ():
        for name, accelerator in accelerators.items():
            for column, rows, times in _Times(called, accelerator, shapes):
                modelled[name][:, :, column] = _Pool(rows, *times).costs(ns)
    for name, found in modelled.items():
        costs[f"roofline:{name}"], costs[f"latency:{name}"] = found
    return costs, judged


def direct(
    directory: RunDirectory,
    configuration: str,
    accelerators: Mapping[str, Accelerator],
    shapes: Shapes,
) -> tuple[dict[str, Floats], Floats]:
    """Costs of a configuration that ran by itself, [problems] each; the verifiers' part of the exact FLOPs.

    NaN where unknown, and where it returned nothing. physical: tokens that were really computed for its calls, unknown
    where an attempt was lost; those that several configurations share count for each. Waiting: the longest path of its
    calls. Raises InputError for a configuration that the run has not.
    """
    line, places = _line(directory, configuration), known_places(directory)
    count = len(places)
    table = read_outcomes(directory.table("outcomes"), configuration)
    columns = np.searchsorted(places, integers(table["place"]))

    def spread(values: Floats) -> Floats:
        found = np.full(count, np.nan)
        found[columns] = values
        return found

    spent = {name: spread(floats(table[name])) for name in (*SPENT, "verifier_flops")}
    costs = {"samples": spread(_samples(line, table)), **_columns(spent)}
    blocks = Called.blocks(directory, configuration)
    names = [f"{what}:{name}" for name in accelerators for what in ("roofline", "latency")]
    modelled = {name: np.full(count, np.nan) for name in (*([] if blocks is None else ["physical"]), *names)}
    for called in blocks or ():
        _model(called, accelerators, shapes, modelled)
    if blocks is not None and "lost" in table.column_names:  # runs of earlier versions do not tell
        modelled["physical"][spread(floats(table["lost"])) > 0] = np.nan
    costs |= modelled
    done = np.isin(np.arange(count), columns)
    return {k: np.where(done, v, np.nan) for k, v in costs.items()}, spent["verifier_flops"]


def _samples(line: Cell, table: pa.Table) -> Floats:
    """Candidates, [problems of the table]: n, but what a strategy without n, or one that may end early, really drew."""
    if line.n is not None and not registry.says(line.kind, "adaptive"):
        return np.full(len(table), float(line.n))
    calls = floats(table["calls"])
    if "verifier_calls" in table.column_names:
        return calls - floats(table["verifier_calls"])
    # Runs of earlier versions do not tell.
    return calls if line.verifier is None else np.full(len(table), np.nan)


def _model(
    called: Called, accelerators: Mapping[str, Accelerator], shapes: Shapes, into: Mapping[str, Floats]
) -> None:
    """Tokens computed, work and waiting of some problems, put into the arrays of `direct`."""
    for column, rows in called.problems():
        real = rows.physical.sum()
        # Nothing computed at all: who answers does not count it.
        known = real or not (rows.context.sum() + rows.generated.sum())
        into["physical"][column] = real if known else np.nan
    for name, accelerator in accelerators.items():
        for column, rows, (shared, _, alone) in _Times(called, accelerator, shapes):
            into[f"roofline:{name}"][column] = shared.sum()
            into[f"latency:{name}"][column] = longest(rows.graph, alone).seconds


@dataclass(frozen=True, slots=True)
class _Times:
    """The calls of each problem, with their seconds in a batch, what of these is paid for once, and those alone."""

    called: Called
    accelerator: Accelerator
    shapes: Shapes

    def __iter__(self) -> Any:
        made = [
            of(self.accelerator, self.shapes)
            for of in (self.called.batch_seconds, self.called.heads, self.called.alone)
        ]
        first = 0
        for column, rows in self.called.problems():
            last = first + len(rows)
            yield column, rows, tuple(times[first:last] for times in made)
            first = last


@dataclass(frozen=True)
class _Pool:
    """The calls of one problem's pool. shared, heads, alone: seconds of each call, see `Called`."""

    rows: Called
    shared: Floats
    heads: Floats
    alone: Floats

    def costs(self, ns: abc.Sequence[int]) -> Floats:
        """Work and waiting, [2, len(ns)]; NaN where n is more than there are."""
        generates = self.rows.part == GENERATION
        size = len({int(s) for s in self.rows.sample[generates]})
        # Calls that no sample can be told to need belong to all alike.
        need = np.array(
            [
                1 if assumed else max(1, len(s))
                for s, assumed in zip(self.rows.samples, self.rows.assumed, strict=True)
            ]
        )
        waiting = np.sort(self._waiting(size))
        found = np.full((2, len(ns)), np.nan)
        for i, n in enumerate(ns):
            if n <= size:
                found[0, i] = self.heads.sum() + pass_at_k(size, need, n) @ (self.shared - self.heads)
                found[1, i] = np.diff(subset_share(size, n)) @ waiting
        return found

    def _waiting(self, size: int) -> Floats:
        """Seconds from the prompt to the score, of each sample: its calls, and the longest of those that judge it.

        Of calls that no sample can be told to need each waits for the longest of a kind.
        """
        rows = self.rows
        order = {s: i for i, s in enumerate(sorted({int(s) for s in rows.sample[rows.part == GENERATION]}))}
        drawn, judged, beyond = np.zeros(size), np.zeros(size), dict[str, float]()
        for i, seconds in enumerate(self.alone.tolist()):
            if rows.part[i] == GENERATION:
                drawn[order[int(rows.sample[i])]] += seconds
            elif rows.assumed[i] or not rows.samples[i]:
                beyond[rows.kind[i]] = float(np.maximum(beyond.get(rows.kind[i], 0.0), seconds))
            else:
                those = [order[s] for s in rows.samples[i]]
                judged[those] = np.maximum(judged[those], seconds)
        return np.asarray(drawn + judged + sum(beyond.values()))


def _part_costs(
    directory: RunDirectory, generator: str, parts: Iterable[str], ns: abc.Sequence[int]
) -> dict[str, dict[str, Floats]]:
    """By part of a pool the costs that it is expected to have, [len(ns), problems] each."""
    places = known_places(directory)
    found = {part: {name: np.full((len(ns), len(places)), np.nan) for name in SPENT} for part in parts}
    for table in tables.parts(directory.table("costs"), ["place", "generator", "part", "n", *SPENT]):
        for part, arrays in found.items():
            rows = table.filter((pc.field("generator") == generator) & (pc.field("part") == part))
            sizes = np.asarray(rows["n"].to_numpy())
            columns = np.searchsorted(places, integers(rows["place"]))
            for name, array in arrays.items():
                values = floats(rows[name])
                for i, n in enumerate(ns):
                    array[i, columns[sizes == n]] = values[sizes == n]
    return found


def _columns(total: Mapping[str, Floats]) -> dict[str, Floats]:
    """The accounted and measured costs of a curve, from usage."""
    return {
        "generated": total["generated"],
        "tokens": total["prefilled"] + total["generated"],
        **{name: total[name] for name in ("flops", "flops_2n", "money", "seconds")},
    }


def _line(directory: RunDirectory, configuration: str) -> Cell:
    lines = {line.name: line for line in directory.state().lines if not line.pooled}
    if configuration not in lines:
        raise InputError(
            f"{str(directory.root)!r}: {configuration!r} did not run by itself; those that did: {', '.join(lines)}"
        )
    return lines[configuration]
