"""The table of calls, read: what each call of a pool or configuration waits for, and how long hardware takes for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metagen.cost import Hardware, ModelShape
from metagen.errors import InputError
from metagen.runs.curves.efficiency.critical import Graph
from metagen.runs.curves.efficiency.roofline import seconds
from metagen.runs.curves.study import Bools, Floats, Ints
from metagen.runs.directory import RunDirectory
from metagen.runs.table.called import read_calls
from metagen.runs.table.tables import blocks, floats, integers, read
from metagen.runs.work.calls import GENERATION

Shapes = Mapping[str, ModelShape | None]
_USAGE = ("prefilled", "cached", "generated")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A processor that serves `batch` sequences at once. Raises InputError for a batch < 1."""

    name: str
    hardware: Hardware
    batch: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"accelerator {self.name!r}: batch={self.batch!r}; expected at least 1")


@dataclass(frozen=True, eq=False)
class Called:
    """The calls of a pool or configuration, sorted by problem: columns of equal length.

    problem: which of the run's, in the order of the task. starts, parents: as in `Graph`, numbered within a problem.
    prefilled, cached, generated, context, physical: tokens, NaN for unknown.
    """

    problem: Ints
    part: NDArray[Any]
    kind: NDArray[Any]
    maker: NDArray[Any]
    path: NDArray[Any]
    sample: Ints
    starts: Ints
    parents: Ints
    depth: Ints
    waits: Bools
    assumed: Bools
    prefilled: Floats
    cached: Floats
    generated: Floats
    context: Floats
    physical: Floats

    @classmethod
    def blocks(
        cls, directory: RunDirectory, configuration: str, parts: Collection[str] = ()
    ) -> Iterator[Called] | None:
        """Those of a configuration, or of a pool under its generator's name, some whole problems at a time.

        None for a run without a table of calls. parts: only these, such as generation and one of the verifiers.
        """
        path = directory.table("calls")
        if not path.exists():
            return None
        places = known_places(directory)

        def read() -> Iterator[Called]:
            for rows in read_calls(path, configuration):
                found = cls._of(rows, places)
                yield found._select(np.isin(found.part, list(parts))) if parts else found

        return read()

    @classmethod
    def _of(cls, rows: pa.Table, places: Ints) -> Called:
        """The rows of a table of calls. places: of the run's problems in the task, ascending."""
        lengths = integers(pc.list_value_length(rows["parents"]), 0)

        def words(name: str) -> NDArray[Any]:
            coded = rows[name].combine_chunks()
            known = np.array(coded.dictionary.to_pylist(), dtype=object)
            return np.asarray(known[coded.indices.to_numpy()])

        def flags(name: str) -> Bools:
            return np.asarray(rows[name].to_numpy(zero_copy_only=False), dtype=bool)

        new, cached, made, context, physical = (
            floats(rows[name]) for name in (*_USAGE, "context", "physical")
        )
        return cls(
            np.searchsorted(places, integers(rows["place"])), words("part"), words("kind"), words("maker"),
            words("path"), integers(rows["sample"]), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            integers(pc.list_flatten(rows["parents"])), integers(rows["depth"]), flags("waits"), flags("assumed"),
            new, cached, made, context, physical,
        )  # fmt: skip

    @classmethod
    def of_samples(cls, directory: RunDirectory, generator: str) -> Iterator[Called]:
        """The samples of a pool, one call each, some whole problems at a time: what every run tells."""
        places = known_places(directory)
        for whole in blocks(directory.table("candidates"), ["sample", *_USAGE]):
            rows = whole.filter(pc.equal(whole["generator"], generator))
            rows = rows.sort_by([("place", "ascending"), ("sample", "ascending")])
            if len(rows):
                yield cls._of_samples(rows, generator, places)

    @classmethod
    def _of_samples(cls, rows: pa.Table, generator: str, places: Ints) -> Called:
        count = len(rows)
        new, cached, made = (floats(rows[name]) for name in _USAGE)
        part, kind, maker, path = (
            np.full(count, word, dtype=object) for word in (GENERATION, "generate", generator, "")
        )
        none = np.zeros(count, dtype=bool)
        return cls(
            np.searchsorted(places, integers(rows["place"])), part, kind, maker, path, integers(rows["sample"]),
            np.zeros(count + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.ones(count, dtype=np.int64),
            none, none, new, cached, made, new + cached, np.full(count, np.nan),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.problem)

    def _columns(self) -> dict[str, NDArray[Any]]:
        """What there is one of for each call."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("starts", "parents")}

    def _select(self, mask: Bools) -> Called:
        """Some of the calls; none of them may wait for another."""
        first = np.searchsorted(self.problem, self.problem)
        place = np.cumsum(mask) - 1
        child = np.repeat(np.arange(len(self)), np.diff(self.starts))
        edge = mask[child] & mask[parent := self.parents + first[child]]
        # The first of a problem may be left out: its place is that of the next which is kept.
        begin = np.concatenate([[0], np.cumsum(mask)])[first]
        counts = np.bincount(place[child[edge]], minlength=int(mask.sum()))
        columns = {name: value[mask] for name, value in self._columns().items()}
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Called(**columns, starts=starts, parents=(place[parent] - begin[child])[edge])

    def problems(self, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Called]]:
        """The calls of each problem that has some. wanted: only of these."""
        at = np.flatnonzero(np.diff(self.problem, prepend=-1))
        for first, last in zip(at, [*at[1:], len(self)], strict=False):
            if wanted is not None and int(self.problem[first]) not in wanted:
                continue
            low, high = self.starts[first], self.starts[last]
            columns = {name: value[first:last] for name, value in self._columns().items()}
            starts = self.starts[first : last + 1] - low
            yield int(self.problem[first]), Called(**columns, starts=starts, parents=self.parents[low:high])

    def first(self, n: int) -> Called:
        """Of the calls of one problem those that the first n samples of a pool need."""
        keep = [
            bool(assumed) or any(s < n for s in samples)
            for samples, assumed in zip(self.samples, self.assumed, strict=True)
        ]
        return self._select(np.array(keep, dtype=bool))

    @cached_property
    def graph(self) -> Graph:
        """What the calls of one problem wait for."""
        return Graph(self.starts, self.parents, self.depth, self.waits)

    @cached_property
    def samples(self) -> list[frozenset[int]]:
        """Of one problem's pool, the samples that need each call: itself, or those of the text that is judged."""
        found: list[frozenset[int]] = []
        for i, part in enumerate(self.part):
            if part == GENERATION:
                found.append(frozenset([int(self.sample[i])]))
            else:
                above = self.parents[self.starts[i] : self.starts[i + 1]]
                found.append(frozenset().union(*(found[j] for j in above)))
        return found

    # -- time --------------------------------------------------------------------------------------

    def batch_seconds(self, accelerator: Accelerator, shapes: Shapes) -> Floats:
        """Modelled seconds of each call's share of a batch, [calls]; NaN where its model's shape is unknown."""
        return (
            self._seconds(accelerator.hardware, accelerator.batch, shapes, self.prefilled) / accelerator.batch
        )

    def alone(self, accelerator: Accelerator, shapes: Shapes) -> Floats:
        """Modelled seconds of each call by itself, [calls], on a machine that holds what was there before all that are
        asked for together.
        """
        keys = [self.problem, self.depth]
        for words in (self.part, self.maker, self.path, self.kind):
            known = {word: i for i, word in enumerate(dict.fromkeys(words))}
            keys.append(np.array([known[word] for word in words], dtype=np.int64))
        sizes = [int(key.max(initial=0)) + 1 for key in keys]
        _, group = np.unique(np.ravel_multi_index(keys, sizes), return_inverse=True)
        least = np.full(int(group.max(initial=-1)) + 1, np.inf)
        np.minimum.at(least, group, self.cached)
        new = self.context - least[group]
        return self._seconds(accelerator.hardware, 1, shapes, new)

    def heads(self, accelerator: Accelerator, shapes: Shapes) -> Floats:
        """The part of `batch_seconds` that is paid for once, however many samples of a pool are drawn, [calls].

        It is what the first call of each part reads and all others find in the cache.
        """
        new = self.prefilled.copy()
        for rows in self._by_part():
            cached = self.cached[rows]
            # Who came first has recorded that it found nothing there, also where the journal answers in another order.
            payer = rows[np.where(cached == 0, self.prefilled[rows], -1.0).argmax()]
            if self.cached[payer] == 0 and (cached > 0).any():
                new[payer] -= min(new[payer], cached[cached > 0].min())
        less = self._seconds(accelerator.hardware, accelerator.batch, shapes, new) / accelerator.batch
        return np.where(new == self.prefilled, 0.0, self.batch_seconds(accelerator, shapes) - less)

    def _by_part(self) -> Iterator[Ints]:
        groups: dict[tuple[int, str], list[int]] = {}
        for i, key in enumerate(zip(self.problem.tolist(), self.part, strict=True)):
            groups.setdefault(key, []).append(i)
        return (np.array(rows) for rows in groups.values())

    def _seconds(self, hardware: Hardware, batch: int, shapes: Shapes, prefilled: Floats) -> Floats:
        """Seconds of a batch of calls like each."""
        # What reads and writes no token takes no time, whoever does it.
        found = np.where((self.context == 0) & (self.generated == 0), 0.0, np.nan)
        for maker in set(self.maker):
            if (shape := shape_of(shapes, maker)) is not None:
                rows = self.maker == maker
                found[rows] = seconds(
                    shape, hardware, prefilled[rows], self.generated[rows], self.context[rows], batch
                )
        return found


def shape_of(shapes: Shapes, maker: str) -> ModelShape | None:
    """The shape of a maker's model; of one that has several names, of the first that is known."""
    return next((s for one in (maker, *maker.split(", ")) if (s := shapes.get(one)) is not None), None)


def known_places(directory: RunDirectory) -> Ints:
    """The places of a run's problems in its task, ascending: a problem's column in arrays is where its place stands."""
    return np.sort(integers(read(directory.table("problems"), ["place"])["place"]))
