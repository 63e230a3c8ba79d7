"""Searches by the embedded models: real steps, real scores, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from metagen.cost import Usage
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal, Row
from metagen.sequence import Sequence, Step
from metagen.strategies.base import Result
from metagen.strategies.tree.node import Node, Tree
from metagen.strategies.tree.rebase import AsyncRebase, Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

TASK = ArithmeticTask("validation", levels=(3, 5), per_level=1)
PROMPTS = [problem.prompt for problem in TASK.problems()]


@pytest.fixture
def engines() -> Iterator[tuple[TorchEngine, TorchEngine]]:
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        yield model, judge


def searched(strategy: TreeSearch) -> tuple[list[Result], list[Tree]]:
    """All problems side by side; and their trees, from the records."""
    journal = MemoryJournal()

    async def main() -> list[Result]:
        work = (strategy.asolve(prompt, seed=1, journal=journal) for prompt in PROMPTS)
        return list(await asyncio.gather(*work))

    results = asyncio.run(main())
    return results, [strategy.tree(prompt, seed=1, journal=journal) for prompt in PROMPTS]


@pytest.mark.parametrize("rule", [Rebase, AsyncRebase])
def test_nothing_is_computed_twice(rule: type[Rebase], engines: tuple[TorchEngine, TorchEngine]) -> None:
    model, judge = engines
    strategy = rule(
        model.generator(max_tokens=250),
        8,
        verifier=ProcessRewardModel(judge),
        answer=TASK.answer,
        until=Step("\n"),
    )
    before = model.stats.prefilled + int(model.stats.extra["decoded"])
    results, trees = searched(strategy)
    drawn, scored = (rows(results, kind) for kind in ("generate", "score"))

    # Generating: the prompt once, and what draws begin with alike once. What is drawn last, the end too, is not run.
    prompts = sum(len(model.render(Sequence(prompt))) for prompt in PROMPTS)
    generated, physical = Usage.sum(r.usage for r in drawn).generated, Usage.sum(r.physical for r in drawn)
    assert generated is not None and physical.generated is not None
    assert sum(len(n.draws) for tree in trees for n in tree) == len(drawn)
    written = [(p, n.sequence.tokens.ids) for p, tree in enumerate(trees) for n in tree if n.sequence.tokens]
    grown = {(p, ids[: i + 1]) for p, ids in written for i in range(len(ids))}
    run = model.stats.prefilled + int(model.stats.extra["decoded"]) - before
    assert run <= 1.02 * (prompts + len(grown)) and physical.generated < generated

    # Scoring: what two steps begin with alike once, and each step's tag; equal draws once.
    inputs = [
        (p, read_of(n, judge)) for p, tree in enumerate(trees) for n in tree if n.parent and not n.empty
    ]
    distinct = len({(p, ids[: i + 1]) for p, ids in inputs for i in range(len(ids))})
    read = Usage.sum(r.physical for r in scored).prefilled
    assert read is not None and read <= 1.05 * distinct
    if rule is Rebase:
        assert (len(scored), Usage.sum(r.usage for r in scored).prefilled) == (len(inputs), distinct)


def read_of(node: Node, judge: TorchEngine) -> tuple[int, ...]:
    """What the judge reads of a node: the prompt, and each step with its tag."""
    prompt = judge.render(Sequence(node.sequence.prompt))
    steps = [n.step for n in node.path() if n.parent and not n.empty]
    return prompt + tuple(i for step in steps for i in (*judge.encode(step), *judge.encode("<step>")))


def test_a_search_of_steps_ends_in_an_answer(engines: tuple[TorchEngine, TorchEngine]) -> None:
    model, judge = engines
    strategy = Rebase(
        model.generator(max_tokens=250),
        4,
        verifier=ProcessRewardModel(judge),
        answer=TASK.answer,
        until=Step("\n", 64),
    )
    results, trees = searched(strategy)
    for result, tree in zip(results, trees, strict=True):
        assert result.answer is not None and result.sequence.finish == "eos"
        assert tree.chosen is not None and tree.chosen.text == result.text
        assert sum(leaf.multiplicity for leaf in tree.finished_leaves()) == 4 == len(result.candidates)
        for node in tree:
            assert node.empty or node.step.endswith("\n")
            assert node.parent is None or node.value is not None
            ended = node.parent is not None and node.empty
            assert not ended or (node.parent is not None and node.score == node.parent.score)


def rows(results: list[Result], kind: str) -> list[Row]:
    return [row for result in results for row in result.trace.rows if row.kind == kind]
