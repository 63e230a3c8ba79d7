"""Training text for the proposer: problems of Countdown, each with the random game that made its target.

Shards of JSON lines, `[prompt, completion]`; shard i depends on the seed and on i alone.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from functools import partial
from pathlib import Path

import arrays
import numpy as np

import parts
from metagen.tasks.countdown.problems import NUMBERS, TARGETS, Problem, random_problem, split_of
from metagen.tasks.split import Split

SHARD = 25_000
"""Problems of a whole shard."""
SHARDS = 12
COUNTS = {2: 0.05, 3: 0.2, 4: 0.45, 5: 0.3}
"""How many numbers a problem has, and the share that has so many."""
AT_ONCE = 8192
"""Games played at a time."""


def any_problem(rng: random.Random) -> Problem:
    """A problem of the training space, of whatever level."""
    while True:
        (count,) = rng.choices(list(COUNTS), list(COUNTS.values()))
        problem = random_problem(rng, count)
        if problem is not None and split_of(problem) is Split.TRAIN:
            return problem


def tables(rng: np.random.Generator, rows: int, count: int) -> arrays.Ints:
    """Numbers as problems have them."""
    return rng.integers(NUMBERS.start, NUMBERS.stop, (rows, count))


def shard(seed: int, size: int, index: int) -> list[tuple[str, str]]:
    """One shard of training examples: random games that ended at a target, told as solutions of what they reached."""
    rng = np.random.default_rng([seed, index])
    found: list[tuple[str, str]] = []
    for count, share in COUNTS.items():
        some: list[tuple[str, str]] = []
        while len(some) < round(size * share):
            some += _solved(rng, count)
        found += some[: round(size * share)]
    return [found[i] for i in rng.permutation(len(found))]


def _solved(rng: np.random.Generator, count: int) -> list[tuple[str, str]]:
    drawn = tables(rng, AT_ONCE, count)
    played = arrays.play(drawn, rng)
    lines = zip(*(step.lines() for step in played), strict=True)
    ends = played[-1].table[:, 0].tolist()
    every = (
        (Problem(tuple(numbers), end), "".join(game))
        for numbers, end, game in zip(drawn.tolist(), ends, lines, strict=True)
        if end in TARGETS
    )
    return [(problem.prompt, game) for problem, game in every if split_of(problem) is Split.TRAIN]


def write(folder: Path, seed: int, shards: int, size: int = SHARD, workers: int = 2) -> list[Path]:
    """The first `shards` shards of the corpus, `size` problems each."""
    paths = [folder / f"countdown-{seed}-{index:03d}.jsonl" for index in range(shards)]
    parts.make(paths, partial(shard, seed, size), "corpus", workers)
    return paths
