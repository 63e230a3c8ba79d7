"""How many blocks blockwise decoding committed to: what the bound on its KL divergence is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.tables import read_calls

_BLOCK = re.compile(r"(?:^|/)block/(\d+)(?:/|$)")


def expected_blocks(directory: RunDirectory, lines: Iterable[Cell]) -> dict[str, float]:
    """The mean over problems of the blocks of each configuration of kind `blockwise`, by its name.

    From the table `calls`; empty for a run that has none.
    """
    path = directory.table("calls")
    if not path.exists():
        return {}
    found: dict[str, float] = {}
    for line in lines:
        if line.kind != "blockwise":
            continue
        table = read_calls(path, line.name)
        last: dict[int, int] = {}
        for place, where in zip(table["place"].to_pylist(), table["path"].to_pylist(), strict=True):
            block = _BLOCK.search(where)
            # The first block's calls stand where those of parallel strategies do.
            last[place] = max(last.get(place, 0), int(block[1]) if block else 0)
        if last:
            found[line.name] = 1.0 + sum(last.values()) / len(last)
    return found
