"""Preference pairs: of two solutions of one problem, the one that is right is preferred to the one that is wrong."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pools
from corpus import wide
from metagen.tasks.arithmetic import Form, Split, draw, reference_solution
from pools import Solution

MOST = 8
"""Pairs of one problem, so that problems with many of them don't outweigh the others."""


@dataclass(frozen=True)
class Pair:
    """Two solutions of one problem."""

    right: Solution
    wrong: Solution


def pairs(solutions: Iterable[Solution], rng: random.Random, most: int = MOST) -> list[Pair]:
    """Up to `most` different pairs of each problem that has both, drawn at random."""
    by_problem: dict[str, tuple[list[Solution], list[Solution]]] = defaultdict(lambda: ([], []))
    for solution in dict.fromkeys(solutions):
        if solution.steps:
            by_problem[solution.prompt][0 if solution.correct else 1].append(solution)
    found = []
    for right, wrong in by_problem.values():
        places = rng.sample(range(len(right) * len(wrong)), min(most, len(right) * len(wrong)))
        found += [Pair(right[p // len(wrong)], wrong[p % len(wrong)]) for p in places]
    return found


def planted(count: int, seed: str) -> list[Pair]:
    """Reference solutions, each with a near miss that comes to a wrong answer: for where no model solves anything."""
    rng = random.Random(f"pairs/{seed}")
    found: list[Pair] = []
    while len(found) < count:
        problem = draw(wide(rng), rng, Split.TRAIN)
        right = pools.judge(problem, Form.STEPS, reference_solution(problem, rng=rng), finished=True)
        wrong = pools.near_miss(problem, rng)
        if not wrong.correct:
            found.append(Pair(right, wrong))
    return found
