"""The generative verifier that ships: near the figures of its card, on few problems."""

from __future__ import annotations

import asyncio

import numpy as np

import metagen as mg
from metagen.analysis.selection import problem_aucs
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.generative.judge import Judge

#: Well below the card's figures, so that chance does not fail it.
AREA = 0.75


def test_at_once_and_with_critiques_it_tells_right_from_wrong() -> None:
    """Worded by its config.json alone."""
    task = ArithmeticTask("validation", levels=[2, 3, 4], per_level=12)
    problems = list(task.problems())

    async def sampled() -> list[list[Sequence]]:
        each = (
            writer.generator(max_tokens=200).generate(Sequence.of(p.prompt), n=6, scope=Scope.root(p.id))
            for p in problems
        )
        return list(await asyncio.gather(*each))

    async def scored(critiques: int) -> list[list[Score]]:
        judge = Judge(critic, critiques=critiques)
        each = (judge.score(s, scope=Scope.root(p.id)) for p, s in zip(problems, pool, strict=True))
        return list(await asyncio.gather(*each))

    async def graded() -> list[list[float]]:
        return [await task.grade(p, s) for p, s in zip(problems, pool, strict=True)]

    with mg.TorchEngine("tiny-0.5m", threads=1) as writer:
        pool = asyncio.run(sampled())
    right = np.array(asyncio.run(graded()))
    with mg.TorchEngine("tiny-critic", threads=1) as critic:
        for critiques in (0, 4):
            values = np.array([[s.value or 0.0 for s in row] for row in asyncio.run(scored(critiques))])
            assert np.nanmean(problem_aucs(values, right)) > AREA
