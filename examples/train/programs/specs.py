"""Training text for the generators: examples of what a program does, then the program.

Shards of JSON lines, `[prompt, completion]`; shard i depends on the seed and on i alone, so that a corpus grows without
changing and an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.progress import track

from metagen.tasks.programs.problems import Problem, draw

SHARD = 10_000
"""Examples of a whole shard."""
SHARDS = 40
LENGTHS = {1: 20, 2: 40, 3: 32, 4: 8}
"""Operations of a program, and how often they are drawn."""
EASY = 0.5
"""Share of the programs that have operations of the easy kinds only."""
SINGLE, PAIRS = 10, 10
"""Shards of the first lesson and of the second; the rest are the third."""


def any_problem(rng: random.Random) -> Problem:
    """A problem as all levels have them, and more, so that levels can be set after training."""
    (length,) = rng.choices(list(LENGTHS), list(LENGTHS.values()))
    return draw(rng, length, easy=rng.random() < EASY)


def lesson(index: int, rng: random.Random) -> Problem:
    """A problem of a shard. A model that can't tell single operations learns next to nothing from several."""
    if index < SINGLE:
        return draw(rng, 1)
    if index < SINGLE + PAIRS:
        return draw(rng, 1) if rng.random() < 0.3 else draw(rng, 2, easy=rng.random() < EASY)
    return any_problem(rng)


def write_shard(folder: Path, seed: int, index: int, size: int) -> Path:
    """One shard of training examples; done already if the file exists."""
    path = folder / f"programs-{seed}-{index:03d}.jsonl"
    if path.exists():
        return path
    rng = random.Random(f"programs/corpus/{seed}/{index}")
    lines = []
    for _ in range(size):
        problem = lesson(index, rng)
        lines.append(json.dumps([problem.prompt, problem.source]))
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text("\n".join(lines) + "\n")
    part.replace(path)
    return path


def write(folder: Path, seed: int, shards: int, size: int = SHARD, workers: int = 2) -> list[Path]:
    """The first `shards` shards of the corpus, `size` examples each."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        futures = [pool.submit(write_shard, folder, seed, index, size) for index in range(shards)]
        return [future.result() for future in track(futures, "corpus")]


def read(paths: list[Path]) -> list[tuple[str, str]]:
    return [tuple(json.loads(line)) for path in paths for line in path.read_text().splitlines()]
