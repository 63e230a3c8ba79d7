"""What reward models learn from: labelled solutions, hard ones, and solutions whose steps have Monte Carlo values.

All on problems of the train split, in parts that are kept on disk.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import parts
import pools
import rollouts
import tokenizer as tokenizers_
from llama import load
from pools import Solution
from rollouts import Valued
from scoring import scores
from setting import Setting

GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m")
CHUNK = 1000
"""Problems of one part, which one process makes at once."""
PROBLEMS, SAMPLES = 8000, 4
HARD_PROBLEMS, HARD_SAMPLES, KEEP = 3000, 8, 2

VALUED_PROBLEMS, VALUED_SAMPLES, VALUED_CHUNK = 1600, 3, 200
ROLLOUTS = 4
"""Completions of each prefix."""
COMPLETER = "tiny-2m"


def labelled(run: Setting) -> list[Solution]:
    """`SAMPLES` of all generators for each of `PROBLEMS` problems, some cut off, and near misses."""
    part = partial(_labelled, run)
    found: list[Solution] = parts.made_for(
        run.share(PROBLEMS), CHUNK, run.solutions / "labelled", part, run.workers
    )
    random.Random(run.seed).shuffle(found)
    return found


def _labelled(run: Setting, index: int, count: int) -> list[Solution]:
    rng = random.Random(f"rewards/{run.seed}/{index}")
    folders, seed = [run.trained(name) for name in GENERATORS], f"{run.seed}/{index}"
    sampled = [
        s
        for pool in pools.sampled(folders, count, run.samples(SAMPLES), seed, run.longest(pools.LONGEST))
        for s in pool
    ]
    written = [s for s in sampled if s.steps]  # a model may end before it begins
    cut = [pools.cut_off(s, rng) for s in rng.sample(written, len(written) // 14)]
    return sampled + cut + pools.near_misses(len(sampled) // 5, seed)


def mined(folder: Path, run: Setting, *, outcome: bool) -> list[Solution]:
    """New solutions that mislead the model in `folder`.

    `HARD_SAMPLES` of the two larger generators for each of `HARD_PROBLEMS` new training problems; from each pool that
    holds both, the `KEEP` wrong solutions with the best scores and the `KEEP` right ones with the worst.
    """
    part = partial(_mined, run, folder, outcome)
    return parts.made_for(
        run.share(HARD_PROBLEMS), CHUNK, run.solutions / f"hard-for-{folder.name}", part, run.workers
    )


def _mined(run: Setting, folder: Path, outcome: bool, index: int, count: int) -> list[Solution]:
    folders = [run.trained(name) for name in GENERATORS[1:]]
    found = pools.sampled(
        folders, count, run.samples(HARD_SAMPLES), f"{run.seed}/hard/{index}", run.longest(pools.LONGEST)
    )
    # In order of appearance: the order of a set differs from one process to the next.
    distinct = list(dict.fromkeys(s for pool in found for s in pool))
    steps = scores(load(folder), tokenizers_.characters(), distinct, outcome)
    value = {s: min(each, default=0.0) for s, each in zip(distinct, steps, strict=True)}
    hard = []
    for pool in found:
        candidates = sorted(dict.fromkeys(pool), key=lambda s: value[s])
        right = [s for s in candidates if s.correct and all(s.labels)]
        wrong = [s for s in candidates if not s.correct]
        if right and wrong:
            hard += right[:KEEP] + wrong[-KEEP:]
    return hard


def valued(run: Setting) -> list[Valued]:
    """`VALUED_SAMPLES` of the two larger generators for each of `VALUED_PROBLEMS` new problems, with step values."""
    part = partial(_valued, run)
    count = run.share(VALUED_PROBLEMS)
    found: list[Valued] = parts.made_for(count, VALUED_CHUNK, run.solutions / "valued", part, run.workers)
    random.Random(run.seed).shuffle(found)
    return found


def _valued(run: Setting, index: int, count: int) -> list[Valued]:
    folders, seed = [run.trained(name) for name in GENERATORS[1:]], f"{run.seed}/valued/{index}"
    found = pools.sampled(folders, count, run.samples(VALUED_SAMPLES), seed, run.longest(pools.LONGEST))
    written = list(dict.fromkeys(s for pool in found for s in pool if s.steps))
    return rollouts.valued(
        load(run.trained(COMPLETER)), tokenizers_.characters(), written, run.samples(ROLLOUTS), seed
    )
