"""Answers that nothing but recorded verdicts tell apart."""

from __future__ import annotations

from collections import abc
from typing import Final, Literal

from metagen.parts import part
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.recorded_answers import read_recorded

#: The key of what is right.
RIGHT: Final = "right"

Wrong = Literal["texts", "one"]


@part
class VerdictRule(AnswerRule):
    """Makes classes of recorded verdicts, for samples whose texts cannot be compared, such as programs or proofs.

    All right samples of a problem are one class. What wrong ones would agree on, verdicts do not say.

    wrong: one of the two ends of what is possible.

    - `texts`: they agree where their texts are equal. No rule that goes with the verdicts gives a majority vote more,
      so its accuracy is an **upper bound**.
    - `one`: they all agree. A vote is right where more than half of the samples are: a **lower bound** for classes
      in which right answers agree.

    Either knows the verdicts, so what votes by it is marked as an oracle. score: the recorded score with the verdict.
    A sample without a verdict abstains: `missing`. Raises InputError where samples
    carry no such score.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.verdict_classes import VerdictRule
        >>> proof = mg.Sequence(mg.Prompt("1", text="?"), "q.e.d.", finish="eos").with_score("verdict", mg.Score(1.0))
        >>> asyncio.run(VerdictRule().read([proof]))[0].key
        'right'
    """

    #: Made with the verdicts: what votes by it is marked in every result.
    oracle = True

    score: str = "verdict"
    wrong: Wrong = "texts"

    @property
    def fingerprint(self) -> str:
        return digest("verdict rule", self.score, self.wrong).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [self._answer(sequence) for sequence in sequences]

    async def key(self, answer: str) -> str | None:
        """None: only a sample has a verdict."""
        return None

    def _answer(self, sequence: Sequence) -> Answer:
        verdict = read_recorded(sequence, self.score, f"{{scores.{self.score}: FIELD}}").value
        if verdict is None:
            return Answer(verdict="missing")
        if verdict > 0.5:
            return Answer(sequence.text, RIGHT)
        return Answer(
            sequence.text, "wrong" if self.wrong == "one" else f"wrong {digest(sequence.text.strip()).hex()}"
        )
