"""Writers and judges that the tests of refinement are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.prompts import FollowUp
from metagen.strategies.refine.feedback import ToolFeedback
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import Trajectory
from metagen.strategies.tools import Tool
from metagen.testing import run
from metagen.verifiers.function import FunctionVerifier

PROMPT = Prompt("p", text="Count:")


#: What a corrector of these tests is asked: all that it has to know, on one line.
LINE = FollowUp("|{feedback}", "|?")


def writes(*texts: str | Drawn, name: str = "draft") -> FunctionGenerator:
    """Writes one text after the other, whatever it is asked."""
    at = iter(texts)
    return FunctionGenerator(lambda p, s, i: next(at), name=name, count=len, max_tokens=8)


def values(scores: dict[str, float | Score]) -> FunctionVerifier:
    return FunctionVerifier(lambda s: scores[s.text])


def chain_of(strategy: Refinement, prefix: Sequence | None = None, **options: Any) -> Trajectory:
    chain, _ = run(lambda s: strategy.trajectory(prefix or Sequence.of(PROMPT), s), **options)
    return chain


def tool(
    function: Callable[..., Any], *, name: str = "t", ends: bool = False, **options: Any
) -> ToolFeedback:
    return ToolFeedback(Tool(function, name=name, **options), ends=ends)


def texts(chain: Trajectory) -> list[str]:
    return [one.candidate.sequence.text for one in chain.rounds]
