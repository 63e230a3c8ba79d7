"""A judge as a verifier of single sequences."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import replace

from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.judge import Asked, Judge


class GenerativeVerifier(Verifier):
    """Scores a sequence by what a judge says of it, asked alone: correct or not, or a rubric.

    A sequence that writes what is the judge's alone (its cue, control tokens of its chat) is not shown to it; it
    scores 0, with the verdict `forged`.
    The judge's evaluations and critiques are recorded and charged in the scope given.
    Raises InputError for a judge that compares pairs.
    """

    def __init__(self, judge: Judge, *, name: str = "judge") -> None:
        if "candidate" not in judge.question.places:
            raise InputError(
                f"{name}: the judge's question compares two answers; use PairwiseJudge, or ask about one"
            )
        self.judge, self.name = judge, name

    @property
    def oracle(self) -> bool:
        """Whether the judge has a part that knows the reference answer."""
        return self.judge.oracle

    @property
    def fingerprint(self) -> str:
        return digest("generative verifier", self.judge.fingerprint).hex()

    async def score(self, sequences: Ordered[Sequence], *, scope: Scope) -> list[Score]:
        question = self.judge.question
        distinct = {s.digest: s for s in sequences if not self.judge.forged(s.text)}
        asked = [Asked(name, question.prompt(s.prompt, candidate=s.text)) for name, s in distinct.items()]
        scores = dict(zip(distinct, await self.judge.ask(asked, scope), strict=True))
        forged = Score(0.0, verdict="forged")
        return [replace(scores.get(s.digest, forged), oracle=self.oracle) for s in sequences]
