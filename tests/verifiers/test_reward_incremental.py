"""What scoring costs in a tree search: the tokens of each new step, its tag included, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from metagen.cost import Usage
from metagen.generators.engine import Evaluated, EvaluateRequest
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.base import PrimitiveVerifier
from metagen.verifiers.implicit import ImplicitProcessRewardModel
from metagen.verifiers.layouts import ChatSteps, Layout, SeparatorSteps
from metagen.verifiers.reward import ProcessRewardModel
from tests.generators.torch.scored_models import make_language_model, make_mlp, save_tokenizer

CHILDREN, DEPTHS, WIDTH, PROBLEMS = 8, 5, 2, 3


class Watched(TorchEngine):
    """Notes what is asked for."""

    asked: list[EvaluateRequest]

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        self.__dict__.setdefault("asked", []).extend(requests)
        return await super().evaluate(requests)


def problems() -> list[Prompt]:
    return [p.prompt for p in ArithmeticTask("validation", levels=(6,), per_level=PROBLEMS).problems()]


async def search(generator: TorchEngine, verifier: PrimitiveVerifier, prompt: Prompt) -> tuple[Scope, int]:
    """Beam search by the verifier, of width 2, in which every new node is scored; and how many nodes there were."""
    scope, g = Scope.root(prompt.problem_id, seed=3), generator.generator(temperature=1.2, max_tokens=300)
    beam, nodes = [Sequence(prompt)], 0
    for depth in range(DEPTHS):
        grown = await scope.gather(
            *(
                g.generate(parent, n=CHILDREN, until=Step("\n"), scope=scope.child(f"grow/{depth}.{i}"))
                for i, parent in enumerate(beam)
            )
        )
        # As children arrive: the children of each parent are scored by themselves, side by side.
        scores = await scope.gather(
            *(
                verifier.score(children, scope=scope.child(f"score/{depth}.{i}"))
                for i, children in enumerate(grown)
            )
        )
        flat = {
            c.text: (s.value or 0.0, c)
            for cs, ss in zip(grown, scores, strict=True)
            for c, s in zip(cs, ss, strict=True)
        }
        nodes += len(flat)
        alive = sorted((v, t) for t, (v, c) in flat.items() if c.finish is None)
        beam = [flat[t][1] for _, t in alive[-WIDTH:]]
        if not beam:
            break
    return scope, nodes


def searched(generator: TorchEngine, verifier: PrimitiveVerifier) -> tuple[Usage, Usage, int]:
    """Logical and physical usage of all scores, over problems side by side; and the number of nodes."""

    async def all_problems() -> list[tuple[Scope, int]]:
        return await asyncio.gather(*(search(generator, verifier, prompt) for prompt in problems()))

    done = asyncio.run(all_problems())
    rows = [row for scope, _ in done for row in scope.trace.rows if row.kind == "score"]
    logical, physical = Usage.sum(r.usage for r in rows), Usage.sum(r.physical for r in rows)
    return logical, physical, sum(nodes for _, nodes in done)


def distinct(inputs: Iterable[tuple[int, ...]]) -> int:
    """Tokens that a cache which forgets nothing has to compute: the nodes of the inputs' prefix tree."""
    return len({ids[: i + 1] for ids in inputs for i in range(len(ids))})


def holds(ids: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1))


def by_problem(asked: list[EvaluateRequest], prompts: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """The inputs of each problem, told apart by the prompt that they hold."""
    inputs = [request.ids for request in asked]
    groups = [[ids for ids in inputs if holds(ids, prompt)] for prompt in prompts]
    assert sum(map(len, groups)) == len(inputs)
    return groups


def test_a_step_costs_its_own_tokens_and_nothing_is_read_twice() -> None:
    with TorchEngine("tiny-0.5m", threads=1) as generator, Watched("tiny-prm", threads=1) as judge:
        logical, physical, nodes = searched(generator, ProcessRewardModel(judge))
        stats, asked = judge.stats, judge.asked
        groups = by_problem(asked, [judge.render(Sequence(prompt)) for prompt in problems()])
    assert nodes > PROBLEMS * CHILDREN, "a tree, however often siblings are equal"
    new = sum(map(distinct, groups))
    assert logical.prefilled == new, "within a problem, tags count as new and shared prefixes do not"
    assert stats.prefilled == physical.prefilled
    assert 0.9 < (physical.prefilled or 0) / new <= 1.05
    read = [request.ids[: p + 1] for request in asked for p in request.positions]
    assert len(read) == len(set(read)) >= nodes - PROBLEMS
    # What it would cost to read every input from its first tag on, as scores of whole inputs do.
    whole = sum(len(request.ids) for request in asked)
    assert whole > 3 * new


@pytest.mark.parametrize("layout", [SeparatorSteps("<extra_0>", "\n", chat=True), ChatSteps(delimiter="\n")])
def test_published_layouts_are_as_incremental(layout: Layout, tmp_path: Path) -> None:
    """With a separator and a classifier, as Qwen2.5-Math-PRM; with a turn for each step, as RLHFlow."""
    if layout.labels is None:
        make_mlp(tmp_path, 2)
    else:
        make_language_model(tmp_path, save_tokenizer(tmp_path))
    with TorchEngine("tiny-0.5m", threads=1) as generator, Watched(tmp_path, threads=1) as judge:
        verifier = ProcessRewardModel(judge, layout=layout)
        logical, physical, _ = searched(generator, verifier)
        starts = [judge.encode(prompt.text or "") for prompt in problems()]
        new = sum(map(distinct, by_problem(judge.asked, starts)))
    read = [request.ids[: p + 1] for request in judge.asked for p in request.positions]
    assert len(read) == len(set(read))
    assert logical.prefilled == new and (physical.prefilled or 0) / new <= 1.05


@pytest.mark.parametrize("cumulative", [False, True])
def test_both_models_of_an_implicit_reward_read_each_token_once(cumulative: bool) -> None:
    with ExitStack() as stack:
        generator, ours, theirs = (
            stack.enter_context(Watched(name, threads=1)) for name in ("tiny-0.5m", "tiny-2m", "tiny-0.1m")
        )
        verifier = ImplicitProcessRewardModel(ours, theirs, beta=0.5, cumulative=cumulative)
        logical, physical, _ = searched(generator, verifier)
        new = sum(map(distinct, by_problem(ours.asked, [ours.render(Sequence(p)) for p in problems()])))
        assert ours.asked == theirs.asked
    assert logical.prefilled == 2 * new
    # The last token of a text is only looked up, and run when the text goes on. Siblings that run side by side may
    # run a few tokens that they share both.
    assert 0.8 < (physical.prefilled or 0) / (2 * new) <= 1.05


def test_scores_are_batched_over_candidates_and_problems() -> None:
    """What many calls ask for at once runs in a fraction of the steps that it takes one after another."""
    texts = [f"a={i}+7={i + 7}\nA:{i + 7}\n" for i in range(10, 18)]

    async def one(model: ProcessRewardModel, prompt: Prompt, text: str) -> None:
        await model.score([Sequence(prompt, text)], scope=Scope.root(prompt.problem_id))

    async def together(model: ProcessRewardModel) -> None:
        await asyncio.gather(*(one(model, prompt, text) for prompt in problems() for text in texts))

    async def apart(model: ProcessRewardModel) -> None:
        for prompt in problems():
            for text in texts:
                await one(model, prompt, text)

    steps = []
    for work in (together, apart):
        with TorchEngine("tiny-prm", threads=1) as judge:
            asyncio.run(work(ProcessRewardModel(judge)))
            steps.append(judge.stats.extra["steps"])
    assert steps[1] == PROBLEMS * len(texts) and steps[0] * 3 <= steps[1]
