"""The table of calls, read configuration by configuration.

A run writes it problem by problem, and has millions of calls. They are dealt out to a file aside, once, so that no more
than a block of them is in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metagen.runs.directory import Aside
from metagen.runs.table.tables import blocks

#: Calls that are dealt out at once.
BLOCK: Final = 1 << 18
#: Words that many calls share.
_WORDS = ("part", "kind", "maker", "path")


def read_calls(path: Path, configuration: str) -> Iterator[pa.Table]:
    """The calls of a configuration, block by block; each has whole problems, sorted by place and index.

    `part`, `kind`, `maker` and `path` are dictionary-encoded.
    """
    return _dealt(path, path.stat().st_mtime_ns).blocks(configuration)


def count_calls(path: Path) -> dict[str, int]:
    """How many calls each configuration made, by its name."""
    return dict(_dealt(path, path.stat().st_mtime_ns).counts)


class _Dealt:
    """A copy of a table of calls in a file aside, in which blocks of one configuration lie together."""

    def __init__(self, path: Path) -> None:
        self._file, self.counts = Aside(), defaultdict[str, int](int)
        self._at: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._options = pa.ipc.IpcWriteOptions(compression="lz4")
        waiting: list[pa.Table] = []
        names = pa.parquet.read_schema(path).names
        for part in blocks(path, names, "configuration"):
            waiting.append(part)
            if sum(map(len, waiting)) >= BLOCK:
                self._deal(waiting)
                waiting = []
        self._deal(waiting)

    def _deal(self, tables: list[pa.Table]) -> None:
        if not tables:
            return
        table = pa.concat_tables(tables).combine_chunks()
        named = table["configuration"].chunk(0).dictionary_encode()
        codes = named.indices.to_numpy()
        order = np.lexsort((table["index"].to_numpy(), table["place"].to_numpy(), codes))
        sorted_, starts = (
            table.take(order),
            np.searchsorted(codes[order], np.arange(len(named.dictionary) + 1)),
        )
        for name, low, high in zip(named.dictionary.to_pylist(), starts, starts[1:], strict=False):
            self._write(name, sorted_.slice(int(low), int(high - low)))

    def _write(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=self._options) as stream:
            stream.write_table(table)
        data = sink.getvalue()
        self._at[name].append((self._file.write(data), data.size))
        self.counts[name] += len(table)

    def blocks(self, configuration: str) -> Iterator[pa.Table]:
        for at, size in self._at.get(configuration, ()):
            with pa.ipc.open_stream(self._file.read(at, size)) as stream:
                table = stream.read_all().combine_chunks()
            for word in _WORDS:
                table = table.set_column(
                    table.schema.get_field_index(word), word, pc.dictionary_encode(table[word])
                )
            yield table


@lru_cache(maxsize=1)
def _dealt(path: Path, changed: int) -> _Dealt:
    """Kept until another table is asked for: who reads the calls of one configuration reads those of all."""
    return _Dealt(path)
