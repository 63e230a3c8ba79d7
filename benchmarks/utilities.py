"""Utilities for minimum Bayes risk: chrF beside fastchrf, and what pruning saves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import fastchrf
import numpy as np

from benchmarks.row import Row, seconds
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.utility.base import Utility, Vector
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.pruning import ConfidencePruning

N, PAIRWISE, PROBLEMS, POOL = 1024, 256, 12, 256
TEXT = [
    "Janet",
    "has",
    "16",
    "eggs",
    "a",
    "day.",
    "She",
    "eats",
    "three",
    "for",
    "breakfast",
    "and",
    "bakes",
    "muffins",
    "with",
    "four,",
    "so",
    "16",
    "-",
    "3",
    "-",
    "4",
    "=",
    "9",
    "eggs",
    "are",
    "left.",
    "She",
    "sells",
    "them",
    "at",
    "the",
    "market",
    "for",
    "two",
    "dollars",
    "each:",
    "9",
    "*",
    "2",
    "=",
    "18.",
    "Every",
    "day",
    "she",
    "therefore",
    "makes",
    "18",
    "dollars,",
    "which",
    "is",
    "more",
    "than",
    "the",
    "12",
    "dollars",
    "that",
    "her",
    "neighbour",
    "makes",
    "with",
    "bread.",
]
OTHER = [
    "hens",
    "lays",
    "buys",
    "17",
    "then",
    "14",
    "(roughly)",
    "her",
    "brother's",
    "six;",
    "3.5",
    "about",
    "$2",
    "because",
    "maybe",
    "fewer",
    "the",
    "tomorrow",
]


def rows() -> Iterator[Row]:
    """Both sides run in one process, on the same distinct texts."""
    texts = pool(N, seed=0)
    length = round(sum(map(len, texts)) / N)
    how = f"{N} distinct candidates of about {length} characters that are their own references, median of 3"
    candidates = sequences(texts)
    theirs = seconds(lambda: fastchrf.aggregate_chrf([texts], [texts]), 3)
    ours = seconds(lambda: expected(ChrF(aggregate=True), candidates), 3)
    exact = seconds(lambda: expected(ChrF(), candidates), 3)
    yield Row("chrF with reference aggregation, metagen over fastchrf", ours / theirs, "×", how, "≤ 2")
    yield Row("chrF of all pairs, metagen over fastchrf's aggregation", exact / theirs, "×", how)
    yield Row("chrF with reference aggregation", ours, "s", how)
    yield Row("chrF of all pairs", exact, "s", how)
    some = texts[:PAIRWISE]
    theirs = seconds(lambda: fastchrf.pairwise_chrf([some], [some]), 1)
    ours = seconds(lambda: expected(ChrF(), sequences(some)), 3)
    how = f"{PAIRWISE} of these candidates"
    yield Row("chrF of all pairs, fastchrf over metagen", theirs / ours, "×", how, "≥ 1")
    yield from pruned()


def pruned() -> Iterator[Row]:
    share, same = [], 0
    for seed in range(PROBLEMS):
        texts = pool(POOL, seed)
        full = expected(ChrF(), sequences(texts))
        found = asyncio.run(
            ConfidencePruning(ChrF()).prune(sequences(texts), scope=Scope.root("p", seed=seed))
        )
        share.append(found.pairs / found.full)
        same += texts[np.nanargmax(found.expected)] == texts[full.argmax()]
    how = f"{PROBLEMS} pools of {POOL}, alpha 0.99, first round of 8 references"
    yield Row(
        "confidence pruning, share of the pairs that are compared", 100 * float(np.mean(share)), "%", how
    )
    yield Row("confidence pruning, same choice as all pairs", 100 * same / PROBLEMS, "%", how, "≥ 90")


def pool(n: int, seed: int) -> list[str]:
    """Distinct variations on a text, some nearer to it than others."""
    draw = random.Random(seed)
    texts: set[str] = set()
    while len(texts) < n:
        words = list(TEXT)
        for _ in range(draw.randrange(4, 24)):
            words[draw.randrange(len(words))] = draw.choice(OTHER)
        texts.add(" ".join(words))
    return sorted(texts, key=lambda text: draw.random())


def sequences(texts: list[str]) -> list[Sequence]:
    return [Sequence(Prompt("p", text="?"), text, finish="eos") for text in texts]


def expected(utility: Utility, candidates: list[Sequence]) -> Vector:
    return asyncio.run(_expected(utility, candidates))


async def _expected(utility: Utility, candidates: list[Sequence]) -> Vector:
    return await utility.expected(candidates, scope=Scope.root("p"))
