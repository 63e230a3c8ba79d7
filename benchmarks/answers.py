"""What it costs to judge whether two mathematical answers are the same, beside math-verify alone."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.row import Row
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.extract import find
from metagen.verifiers.math.keys import attempt, verdict

DATA = Path(__file__).parents[1] / "tests" / "data" / "answers"
#: Rounds; of each figure the median.
ROUNDS = 3
#: Pairs that math-verify is given in each round: a pair costs it a millisecond.
OTHERS = 200

Pairs = list[tuple[str, str]]


def rows() -> Iterator[Row]:
    """Pairs of answer and reference a second, with no answer seen before, and as in a vote; math-verify between."""
    of_models, math = model(), math_500()
    typical = of_models + math
    rng = random.Random(0)
    vote = [(rng.choice(math)[1], gold) for _, gold in math for _ in range(16)]
    others = rng.sample(typical, OTHERS)
    taken = {"new": [], "MATH": [], "vote": [], "other": [], "same": []}  # type: dict[str, list[float]]
    for _ in range(ROUNDS):
        for name, pairs in (("new", typical), ("MATH", math), ("vote", vote), ("same", others)):
            taken[name].append(rate(pairs, partial(judge, MathRule())))
        taken["other"].append(rate(others, verified))
    median = {name: statistics.median(rates) for name, rates in taken.items()}
    yield Row(
        "answer pairs per second, each seen for the first time",
        median["new"],
        "1/s",
        f"{len(typical)} pairs: ends of AIME answers of models, MATH-500",
        "≥ 5000",
    )
    yield Row(
        "answer pairs per second, MATH-500 alone, first time", median["MATH"], "1/s", f"{len(math)} pairs"
    )
    yield Row(
        "answer pairs per second in a vote",
        median["vote"],
        "1/s",
        f"{len(vote)} pairs, 16 answers a problem, drawn from all references: most are seen again",
        "≥ 5000",
    )
    yield Row(
        "answer pairs per second, math-verify", median["other"], "1/s", f"{OTHERS} of the pairs, in turn"
    )
    yield Row(
        "times as fast as math-verify",
        median["same"] / median["other"],
        "×",
        "the same pairs, first time, in the same run",
        "≥ 5",
    )


def model() -> Pairs:
    """What models answered to AIME problems, where an answer is found, and the reference."""
    found = [(find(row["tail"], pattern=None), row["gold"]) for row in _read("tails.jsonl")]
    return [(answer, gold) for answer, gold in found if answer is not None]


def math_500() -> Pairs:
    """What is in the box of each solution of MATH-500, and the reference of one of its neighbours or its own."""
    given = _read("math.jsonl")
    return [
        (find(row["ending"], pattern=None) or "", given[i - i % 2]["answer"]) for i, row in enumerate(given)
    ]


def _read(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def rate(pairs: Pairs, by: Callable[[Pairs], int]) -> float:
    verdict.cache_clear()
    attempt.cache_clear()
    start = time.perf_counter()
    by(pairs)
    return len(pairs) / (time.perf_counter() - start)


def judge(rule: MathRule, pairs: Pairs) -> int:
    answers = asyncio.run(rule.judge([answer for pair in pairs for answer in pair]))
    keys = [answer.key for answer in answers]
    return sum(a is not None and a == b for a, b in zip(keys[::2], keys[1::2], strict=True))


def verified(pairs: Pairs) -> int:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return sum(bool(verify(parse(f"${gold}$"), parse(f"${answer}$"))) for answer, gold in pairs)
