"""Tree searches from an experiment file: what ends a step and a sequence is the task's, unless the file says it."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.runs.declare.specs.strategies import StepSpec
from metagen.sequence import Step, Tokens
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.search import MAX_DEPTH, STEP
from metagen.strategies.tree.split import Steps
from metagen.values import Amount, Count
from metagen.verifiers.base import AnswerRule, Verifier


def until(step: StepSpec, delimiter: str, mark: str | None) -> Step | Tokens:
    """What a step is. delimiter, mark: of the task, where the file says nothing."""
    if step.tokens is not None:
        return Tokens(step.tokens)
    return Step(
        step.delimiter or delimiter, step.max_tokens, (mark if step.mark is None else step.mark) or None
    )


def lookahead(
    generator: Generator,
    n: int,
    *,
    verifier: Verifier,
    m: Count = 4,
    ahead: Amount = 1,
    greedy: bool = False,
    until: Steps = STEP,
    answer: AnswerRule | None = None,
    max_depth: Count = MAX_DEPTH,
) -> Lookahead:
    """Beams, by what a few steps more are worth. greedy: these steps are decoded greedily."""
    rollout = generator.replace(temperature=0.0) if greedy else None
    return Lookahead(
        generator, n, verifier=verifier, m=m, ahead=ahead, rollout=rollout, until=until, answer=answer,
        max_depth=max_depth,
    )  # fmt: skip


vars(lookahead).update(narrows=Lookahead.narrows, searches=True)
