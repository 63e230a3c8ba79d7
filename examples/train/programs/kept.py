"""Work in numbered parts, each kept on disk as JSON lines once it is done, two parts at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

Record = dict[str, Any]


def made(paths: list[Path], make: Callable[[int], list[Record]], what: str) -> list[Record]:
    """The records of all parts, number i made by `make(i)`, unless its file is there.

    Two processes with one thread each: two samplers side by side are faster than one with two threads.
    """
    if missing := [index for index, path in enumerate(paths) if not path.exists()]:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as workers:
            futures = [workers.submit(_keep, paths[index], make, index) for index in missing]
            for future in track(futures, what):
                future.result()
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def _keep(path: Path, make: Callable[[int], list[Record]], index: int) -> None:
    part = path.with_suffix(".part")
    part.write_text("".join(json.dumps(record) + "\n" for record in make(index)))
    part.replace(path)
