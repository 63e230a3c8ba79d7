"""Hard examples for a reward model, within single problems: the wrong it likes most, the right it likes least."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

import pools
from llama import load
from pools import Solution
from train_reward import scores


def mined(
    reward: Path,
    generators: Sequence[Path],
    count: int,
    each: int,
    seed: int,
    keep: int = 2,
    outcome: bool = False,
) -> list[Solution]:
    """Sample `each` solutions of every generator for `count` new training problems, and keep what misleads `reward`.

    From each pool that holds both: the `keep` wrong solutions scored best and the `keep` right ones scored worst.
    """
    model, tokenizer = load(reward), Tokenizer.from_file(str(reward / "tokenizer.json"))
    found = pools.sampled(generators, count, each, seed)
    distinct = list({s for pool in found for s in pool})
    value = {
        s: min(steps or [0.0])
        for s, steps in zip(distinct, scores(model, tokenizer, distinct, outcome), strict=True)
    }
    hard = []
    for pool in found:
        candidates = sorted(set(pool), key=lambda s: value[s])
        right = [s for s in candidates if s.correct and all(s.labels)]
        wrong = [s for s in candidates if not s.correct]
        if right and wrong:
            hard += right[:keep] + wrong[-keep:]
    return hard
