"""Tree searches from an experiment file: what ends a step and a sequence is the task's, unless the file says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metagen.experiments.specs.strategies import StepSpec
from metagen.generators.base import Generator
from metagen.sequence import Step, Tokens
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.blockwise import Blockwise
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.gibbs import ParticleGibbs
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.particles import ParticleFilter
from metagen.strategies.tree.rebase import AsyncRebase, Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.verifiers.base import AnswerRule, Verifier

Make = Callable[..., TreeSearch]


def until(step: StepSpec, delimiter: str, mark: str | None) -> Step | Tokens:
    """What a step is. delimiter, mark: of the task, where the file says nothing."""
    if step.tokens is not None:
        return Tokens(step.tokens)
    return Step(
        step.delimiter or delimiter, step.max_tokens, (mark if step.mark is None else step.mark) or None
    )


def _search(rule: Make) -> Make:
    def make(
        generator: Generator,
        n: int,
        *,
        verifier: Verifier | None = None,
        step: StepSpec,
        delimiter: str,
        mark: str | None,
        answer: AnswerRule | None = None,
        **options: Any,
    ) -> TreeSearch:
        steps = until(step, delimiter, mark)
        return rule(generator, n, verifier=verifier, answer=answer, until=steps, **options)

    return make


def _fitted(rule: Make) -> Make:
    """At a small n of a grid, a beam is no wider than that."""

    def make(generator: Generator, n: int, *, m: int, **options: Any) -> TreeSearch:
        return rule(generator, n, m=min(m, n), **options)

    return make


def mcts(
    generator: Generator,
    n: int,
    *,
    step: StepSpec,
    delimiter: str,
    mark: str | None,
    verifier: Verifier | None = None,
    outcome: Verifier | None = None,
    answer: AnswerRule | None = None,
    **options: Any,
) -> MCTS:
    """Values come from steps, from rollouts, or from both."""
    steps = until(step, delimiter, mark)
    return MCTS(generator, n, verifier=verifier, outcome=outcome, answer=answer, until=steps, **options)


def blockwise(
    generator: Generator,
    n: int,
    *,
    verifier: Verifier,
    step: StepSpec,
    delimiter: str,
    mark: str | None,
    answer: AnswerRule | None = None,
) -> Blockwise:
    """Blocks are steps of the task, or so many tokens."""
    return Blockwise(generator, n, verifier=verifier, block=until(step, delimiter, mark), answer=answer)


def _ahead(generator: Generator, n: int, *, m: int, greedy: bool, **options: Any) -> TreeSearch:
    rollout = generator.replace(temperature=0.0) if greedy else None
    return Lookahead(generator, n, m=min(m, n), rollout=rollout, **options)


rebase, async_rebase = _search(Rebase), _search(AsyncRebase)
beam, dvts = _search(_fitted(BeamSearch)), _search(_fitted(DVTS))
best_first, depth_first = _search(BestFirst), _search(DepthFirst)
particles, gibbs, lookahead = _search(ParticleFilter), _search(ParticleGibbs), _search(_ahead)
