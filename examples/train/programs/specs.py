"""Training text for the generators: examples of what a program does, then the program, which shows its work.

Shards of JSON lines, `[prompt, completion]`; shard i depends on the seed and on i alone.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from functools import partial
from pathlib import Path

import parts
from metagen.tasks.programs.problems import Problem, draw

SHARD = 10_000
"""Examples of a whole shard."""
SINGLES, MIXED = 20, 24
"""Shards of the first lesson, which is of single operations, and of the second."""
LENGTHS = {1: 45, 2: 55}
"""Operations of a program, and how often they are drawn."""
EASY = 0.5
"""Share of the programs that have operations of the easy kinds only."""


def any_problem(rng: random.Random) -> Problem:
    """A problem as all levels have them, and simpler ones."""
    (length,) = rng.choices(list(LENGTHS), list(LENGTHS.values()))
    return draw(rng, length, easy=rng.random() < EASY)


def shard(seed: int, size: int, index: int) -> list[tuple[str, str]]:
    """One shard of training examples. A model that can't tell single operations learns little from several."""
    rng = random.Random(f"programs/corpus/{seed}/{index}")
    problems = [draw(rng, 1) if index < SINGLES else any_problem(rng) for _ in range(size)]
    return [(problem.prompt, problem.solution) for problem in problems]


def write(folder: Path, seed: int, size: int = SHARD, workers: int = 2) -> tuple[list[Path], list[Path]]:
    """The shards of both lessons, `size` examples each."""
    paths = [folder / f"programs-{seed}-{index:03d}.jsonl" for index in range(SINGLES + MIXED)]
    parts.make(paths, partial(shard, seed, size), "corpus", workers)
    return paths[:SINGLES], paths[SINGLES:]
