"""A language model as a judge: a verifier of single sequences, on any engine."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, Self

from metagen.errors import InputError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.generative.question import CORRECT, RUBRIC, Question
from metagen.verifiers.generative.respondent import Asked, Respondent
from metagen.verifiers.generative.way import GenerativeVerifier, own_wording, with_wording

ASKS: Final[Mapping[str, Question]] = {"correct": CORRECT, "rubric": RUBRIC}


@part
class Judge(GenerativeVerifier):
    """Scores a sequence by what a model says of it, asked alone: correct or not, or a rubric.

    ask: `correct`, `rubric` or a Question; the other fields are those of `GenerativeVerifier`. A model that was trained
    as a judge is asked as its config.json says, where nothing else is given.

    A sequence that writes what is the judge's alone (its cue, control tokens of its chat) is not shown to it; it
    scores 0, with the verdict `forged`. One of which nothing can be read has no value, and the verdict `unparsable`.
    What the judge reads and writes is recorded and charged in the scope given. temperature: of what the model writes.
    max_tokens: of one sample that it writes; 512 by default. Raises InputError for a question about two answers.
    """

    ask: Literal["correct", "rubric"] | Question = "correct"
    name: str = "judge"

    def __post_init__(self) -> None:
        own = own_wording(self.engine or self.generator) if self.ask == "correct" else {}
        self.longest = own.pop("max_tokens", self.longest)
        question = self.ask if isinstance(self.ask, Question) else ASKS[self.ask]
        self._hold(self.ask_about(with_wording(question, {**own, **self.wording})), self.name)

    @classmethod
    def of(cls, respondent: Respondent, *, name: str = "judge") -> Self:
        """A judge whose respondent is there already."""
        judge = cls.__new__(cls)
        judge._hold(respondent, name)
        return judge

    def _hold(self, respondent: Respondent, name: str) -> None:
        if respondent.question.compares:
            raise InputError(
                f"{name}: the judge's question compares two answers; use PairwiseJudge, or ask about one"
            )
        self.respondent, self.name = respondent, name

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, by {self.respondent!r})"

    def about_pairs(self, question: Question) -> Respondent:
        """The same model, asked in the same way about two answers. Raises InputError for a judge made by `of`."""
        if self.engine is None and self.generator is None:
            raise InputError(
                f"{self.name}: its respondent has a question already; make one with a question about two"
            )
        return self.ask_about(question)

    @property
    def fingerprint(self) -> str:
        return digest("generative verifier", self.respondent.fingerprint).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        question = self.respondent.question
        sequences = [s.answered for s in sequences]
        distinct = {s.digest: s for s in sequences if not self.respondent.is_forged(s.text)}
        asked = [Asked(name, question.prompt(s.prompt, candidate=s.text)) for name, s in distinct.items()]
        scores = dict(zip(distinct, await self.respondent.ask(asked, scope), strict=True))
        forged = Score(0.0, verdict="forged")
        return [replace(scores.get(s.digest, forged), oracle=self.oracle) for s in sequences]
