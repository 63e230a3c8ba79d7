"""The models of the programs task that ship: near the figures of their cards, on few problems."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

import metagen as mg
from metagen.generators.engine import SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.tasks.base import Problem
from metagen.tasks.programs import grammar
from metagen.tasks.programs.problems import problems
from metagen.tasks.programs.task import ProgramTask
from metagen.tasks.programs.verifier import PublicExamples, corrector_prompt
from metagen.tasks.split import Split

PARAMS = SamplingParams(max_tokens=192)


async def right(
    generator: EngineGenerator, task: ProgramTask, asked: list[Problem], n: int
) -> list[list[float]]:
    """Of each problem, which of n samples pass the hidden tests. All are drawn together, which costs far less."""

    async def of(problem: Problem) -> list[float]:
        scope = Scope.root(problem.id)
        return await task.grade(
            problem, await generator.generate(Sequence.of(problem.prompt), n=n, scope=scope)
        )

    return await asyncio.gather(*map(of, asked))


@pytest.mark.parametrize("name", ["tiny-code-0.5m", "tiny-code-2m"])
def test_a_generator_writes_one_operation_often_and_two_seldom(name: str) -> None:
    """At level 1 half of the samples at least, at level 4 less than a quarter of that; any of 8 far more than one."""

    async def of_level(level: int) -> list[list[float]]:
        task = ProgramTask("validation", levels=[level], per_level=20)
        return await right(EngineGenerator(engine, PARAMS), task, list(task.problems()), 8)

    with mg.TorchEngine(name, threads=1) as engine:
        easy, hard = asyncio.run(of_level(1)), asyncio.run(of_level(4))
    assert 0.4 < np.mean(easy) < 0.9 and np.mean(hard) < np.mean(easy) / 4
    assert np.mean([max(each) for each in easy]) > np.mean(easy) + 0.1


def test_the_corrector_mends_programs_that_are_nearly_right() -> None:
    """Programs with another operation of the same kind than the right one."""
    rng, task = random.Random(0), ProgramTask("validation", levels=[1, 2], per_level=30)
    drawn = {level: problems(Split.VALIDATION, level, 30, 0) for level in task.levels}

    async def mended(generator: EngineGenerator, told: bool) -> float:
        examples, mendings = PublicExamples(), []

        async def mend(problem: Problem, prompt: mg.Prompt) -> float:
            repairs = await generator.generate(Sequence.of(prompt), n=4, scope=Scope.root(problem.id))
            again = [Sequence.of(problem.prompt).extend(one.text, finish="eos") for one in repairs]
            return float(np.mean(await task.grade(problem, again)))

        for place, problem in enumerate(task.problems()):
            program = drawn[problem.level or 0][place // 2].program
            near = [str(other) for other in grammar.siblings(program)]
            if not near:
                continue
            candidate = Sequence.of(problem.prompt).extend(rng.choice(near), finish="eos")
            (score,) = await examples.score([candidate], scope=Scope.root(problem.id))
            prompt = corrector_prompt(problem.prompt, candidate.text, score.feedback if told else None)
            mendings.append(mend(problem, prompt))
        return float(np.mean(await asyncio.gather(*mendings)))

    with mg.TorchEngine("tiny-code-corrector", threads=1) as engine:
        generator = EngineGenerator(engine, PARAMS)
        told, blind = (asyncio.run(mended(generator, how)) for how in (True, False))
    assert told > 0.25 and blind > 0.15, (told, blind)
