"""Chains on an embedded model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.errors import MetagenError
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.strategies.chain.patterns import chain_of_thought, direct
from metagen.strategies.parallel import BestOfN, Sample
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import numbers, run
from metagen.verifiers.function import FunctionVerifier


@pytest.fixture(scope="module")
def small() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        yield engine


def test_thought_then_answer_on_the_embedded_model(small: TorchEngine) -> None:
    """Greedy decoding that is cut before the answer, and gone on with, is greedy decoding in one go."""
    task = ArithmeticTask("validation", levels=(1, 2), per_level=4)
    greedy = small.generator(temperature=0.0, max_tokens=120)
    thinking = chain_of_thought(greedy, cue="A:", answer=task.answer)
    at_once = direct(greedy, cue="A:", answer=task.answer)

    async def both(scope: Scope) -> list[int]:
        problems = list(task.problems())
        right = []
        for chain in (thinking, at_once):
            work: list[Coroutine[Any, Any, Any]] = [chain.asolve(problem.prompt) for problem in problems]
            results = await asyncio.gather(*work)
            grades = [(await task.grade(p, [r.sequence]))[0] for p, r in zip(problems, results, strict=True)]
            right.append(int(sum(grades)))
            if chain is thinking:
                whole = await asyncio.gather(*(Sample(greedy).asolve(p.prompt) for p in problems))
                assert [r.text for r in results] == [w.text for w in whole]
                assert all(r.sequence.finish == "eos" for r in results)
        return right

    (stepwise, straight), _ = run(both)
    cut = chain_of_thought(greedy, cue="A:", thought=8).solve(next(task.problems()).prompt)
    assert cut.text.index("A:") == 8 and cut.sequence.finish == "eos", (
        "a thought that is cut is answered all the same"
    )
    assert stepwise >= 5 > straight


def test_a_stop_that_cuts_a_token_loses_nothing() -> None:
    """Tokens of this model span characters, and the cue begins inside of some: the text is read anew behind it."""
    problems = [p.prompt for p in ArithmeticTask("validation", levels=(1, 3), per_level=3).problems()]
    with TorchEngine("tiny-bpe", threads=1) as engine:
        greedy = engine.generator(temperature=0.0, max_tokens=120)
        chain = chain_of_thought(greedy, cue="A:")
        for prompt in problems:
            assert chain.solve(prompt).text == Sample(greedy).solve(prompt).text


def test_best_of_chains_on_the_embedded_model(small: TorchEngine) -> None:
    task = ArithmeticTask("validation", levels=(1,), per_level=1)
    (problem,) = task.problems()
    chain = chain_of_thought(small.generator(max_tokens=120), cue="A:", answer=task.answer)
    verifier = FunctionVerifier(lambda s: min(1.0, len(s.text) / 100))
    result = BestOfN(chain, 3, verifier=verifier, answer=task.answer).solve(
        problem.prompt, budget=Budget(calls=7)
    )
    assert result.usage.calls <= 7 and result.text
    with pytest.raises(MetagenError):
        chain_of_thought(numbers(), cue="A:")
