"""The models of Countdown that ship: near the figures of their cards, on few problems."""

from __future__ import annotations

import asyncio
import random

import numpy as np

import metagen as mg
from metagen.analysis.selection import pooled_auc
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.tasks.countdown.game import after, moves, reachable
from metagen.tasks.countdown.notation import step
from metagen.tasks.countdown.problems import problems
from metagen.tasks.countdown.task import CountdownTask, solves
from metagen.tasks.split import Split
from metagen.verifiers.reward import ProcessRewardModel

#: Well below the card's figure, so that chance does not fail it.
AREA = 0.85


def test_the_proposer_solves_easy_problems_at_times_and_hard_ones_seldom() -> None:
    """Of one sample in four to three in four at level 1; at level 4 less than a quarter of that."""

    async def share(level: int) -> float:
        task = CountdownTask("validation", levels=[level], per_level=20)
        found = []
        for problem in task.problems():
            prefix = Sequence.of(problem.prompt)
            found += await engine.generator(max_tokens=96).generate(prefix, n=8, scope=Scope.root(problem.id))
        return float(np.mean([solves(one) for one in found]))

    with mg.TorchEngine("tiny-countdown", threads=1) as engine:
        easy, hard = asyncio.run(share(1)), asyncio.run(share(4))
    assert 0.3 < easy < 0.85 and hard < easy / 4


def test_the_value_model_knows_what_two_numbers_can_become() -> None:
    """States with two numbers left, half of them dead ends: the area under the curve is far from chance."""
    draw, states = random.Random(0), list[tuple[Sequence, bool]]()
    for problem in problems(Split.VALIDATION, 1, 60):
        prompt = Prompt(problem.prompt, text=problem.prompt)
        after_each = [(m, t) for m in moves(problem.table) if (t := after(problem.table, m)) is not None]
        for good in (True, False):
            some = [one for one in after_each if reachable(one[1], problem.target) is good]
            if some:
                states.append((Sequence.of(prompt).extend(step(*draw.choice(some))), good))
    with mg.TorchEngine("tiny-countdown-value", threads=1) as engine:
        model = ProcessRewardModel(engine)
        scores = asyncio.run(model.score([sequence for sequence, _ in states], scope=Scope.root("states")))
    assert pooled_auc([score.value for score in scores], [good for _, good in states]) > AREA
