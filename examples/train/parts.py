"""Work in numbered parts, each kept on disk once it is done, two parts at a time.

Part i depends on its number alone, so that a run which was stopped goes on with the parts that are missing, and a
longer run begins with the parts of a shorter one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

WORKERS = 2

Record = dict[str, Any]
Make = Callable[[int], Sequence[Any]]


def make(paths: Sequence[Path], part: Make, what: str, workers: int = WORKERS) -> None:
    """Write part i, `part(i)`, to paths[i] unless it is there: as JSON lines, or pickled where the name says `.pkl`.

    Two processes with one thread each: two samplers side by side are faster than one with two threads. A single part,
    and with one worker all, are made in this process, with one thread as well: a part is the same, bit for bit,
    wherever it is made.
    """
    missing = [(index, path) for index, path in enumerate(paths) if not path.exists()]
    if not missing:
        return
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    if len(missing) == 1 or workers == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for each in track(missing, what):
                _keep(part, *each)
        finally:
            torch.set_num_threads(threads)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as workers:
        futures = [workers.submit(_keep, part, *each) for each in missing]
        for future in track(futures, what):
            future.result()


def read(paths: Sequence[Path]) -> list[Any]:
    """The records of all parts."""
    return [record for path in paths for record in _records(path)]


def made(paths: Sequence[Path], part: Make, what: str, workers: int = WORKERS) -> list[Any]:
    """The records of all parts, those that are missing made before."""
    make(paths, part, what, workers)
    return read(paths)


def complete(folder: Path, count: int, each: int) -> bool:
    """Whether all parts of `made_for` are there."""
    return all((folder / f"{index:03d}.pkl").exists() for index in range(-(-count // each)))


def made_for(
    count: int, each: int, folder: Path, part: Callable[[int, int], Sequence[Any]], workers: int = WORKERS
) -> list[Any]:
    """The records for `count` problems, in pickled parts for `each` of them; part i is `part(i, its problems)`."""
    sizes = [min(each, count - start) for start in range(0, count, each)]
    paths = [folder / f"{index:03d}.pkl" for index in range(len(sizes))]
    return made(paths, partial(_sized, part, sizes), folder.name, workers)


def _sized(part: Callable[[int, int], Sequence[Any]], sizes: list[int], index: int) -> Sequence[Any]:
    return part(index, sizes[index])


def _keep(part: Make, index: int, path: Path) -> None:
    records = part(index)
    if path.suffix == ".pkl":
        content = pickle.dumps(list(records))
    else:
        content = "".join(json.dumps(record) + "\n" for record in records).encode()
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _records(path: Path) -> list[Any]:
    if path.suffix == ".pkl":
        return list(pickle.loads(path.read_bytes()))
    return [json.loads(line) for line in path.read_text().splitlines()]
