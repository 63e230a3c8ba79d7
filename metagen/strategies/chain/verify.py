"""A step that scores what another has made."""

from __future__ import annotations

from dataclasses import field

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score
from metagen.strategies.chain.step import ChainStep, Inputs, Output
from metagen.verifiers.base import Verifier


@part
class Verify(ChainStep):
    """Scores the output of the step `of`, as an answer to the problem.

    Its text is the verifier's feedback, or its value, or its verdict. If `of` is what the chain returns, the score
    goes into the result.
    """

    verifier: Verifier = field(kw_only=False)
    of: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.of,)

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        (score,) = await self.verifier.score([inputs.sequence(self.of)], scope=scope)
        return Output(said(score), value=score)


def said(score: Score) -> str:
    """A score in words."""
    if score.feedback:
        return score.feedback
    return score.verdict or "" if score.value is None else f"{score.value:.3g}"
