"""Training text for the proposer: problems of Countdown, each with solutions drawn from all that there are.

Shards of JSON lines, `[prompt, completion]`; shard i depends on the seed and on i alone.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from functools import partial
from pathlib import Path

import parts
from metagen.tasks.countdown.problems import Problem, random_problem, solution, split_of
from metagen.tasks.split import Split

SHARD = 5_000
"""Problems of a whole shard."""
SHARDS = 12
NUMBERS = {2: 5, 3: 20, 4: 45, 5: 30}
"""How many numbers a problem has, and how often it has so many."""
SOLUTIONS = 2


def any_problem(rng: random.Random) -> Problem:
    """A problem of the training space, of whatever level."""
    while True:
        (count,) = rng.choices(list(NUMBERS), list(NUMBERS.values()))
        problem = random_problem(rng, count)
        if problem is not None and split_of(problem) is Split.TRAIN:
            return problem


def shard(seed: int, size: int, index: int) -> list[tuple[str, str]]:
    """One shard of training examples: a problem comes as often as it has solutions here."""
    rng = random.Random(f"countdown/corpus/{seed}/{index}")
    problems = [any_problem(rng) for _ in range(size)]
    return [(problem.prompt, solution(problem, rng)) for problem in problems for _ in range(SOLUTIONS)]


def write(folder: Path, seed: int, shards: int, size: int = SHARD, workers: int = 2) -> list[Path]:
    """The first `shards` shards of the corpus, `size` problems each."""
    paths = [folder / f"countdown-{seed}-{index:03d}.jsonl" for index in range(shards)]
    parts.make(paths, partial(shard, seed, size), "corpus", workers)
    return paths
