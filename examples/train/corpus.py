"""Training text for the generators: problems of a wider distribution than any level, with worked solutions.

Written once as shards of JSON lines, `[prompt, completion]`; shard i depends on the seed and on i alone.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import parts
from metagen.tasks.arithmetic import Difficulty, Form, Split, draw, prompt, reference_solution

SHARD = 10_000
"""Examples of a whole shard."""
DIRECT_SHARE = 0.1


def wide(rng: random.Random) -> Difficulty:
    """A random difficulty that covers all levels and more, so that levels can be set after training."""
    denominators = rng.choices(((), (2,), (2, 4), (2, 4, 5)), weights=(15, 25, 30, 30))[0]
    return Difficulty(
        definitions=(rng.choices(range(1, 9), weights=(4, 5, 6, 6, 5, 4, 1, 1))[0],),
        negatives=rng.random() < 0.85,
        denominators=denominators,
        decimals=rng.random() < 0.7,
        fractions=rng.choice((0.2, 0.45)),
        branching=rng.choice((0.0, 0.2, 0.4, 0.5)),
        shuffled=rng.random() < 0.45,
    )


def shard(seed: int, size: int, index: int) -> list[tuple[str, str]]:
    """One shard of training examples."""
    rng = random.Random(f"corpus/{seed}/{index}")
    examples = []
    for _ in range(size):
        problem = draw(wide(rng), rng, Split.TRAIN)
        form = Form.DIRECT if rng.random() < DIRECT_SHARE else Form.STEPS
        examples.append((prompt(problem, form), reference_solution(problem, form, rng)))
    return examples


def write(folder: Path, seed: int, shards: int, size: int = SHARD, workers: int = 2) -> list[Path]:
    """The first `shards` shards of the corpus, `size` examples each."""
    paths = [folder / f"corpus-{seed}-{index:03d}.jsonl" for index in range(shards)]
    parts.make(paths, partial(shard, seed, size), "corpus", workers)
    return paths


def read(paths: list[Path]) -> list[tuple[str, str]]:
    return [(prompt, completion) for prompt, completion in parts.read(paths)]
