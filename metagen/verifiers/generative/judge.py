"""A language model as a judge: a verifier of single sequences, on any engine."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.question import CORRECT, RUBRIC, Question
from metagen.verifiers.generative.respondent import Asked, Respondent, Way
from metagen.verifiers.generative.way import By, own_wording, respondent, worded

ASKS: Final[Mapping[str, Question]] = {"correct": CORRECT, "rubric": RUBRIC}


class Judge(Verifier):
    """Scores a sequence by what a model says of it, asked alone: correct or not, or a rubric.

    engine, or generator: who is asked. ask: `correct`, `rubric` or a Question; wording: fields of `Question` in place
    of those that it has. A model that was trained as a judge is asked as its config.json says, where nothing else is
    given. by, samples, critiques, temperature, max_tokens, normalise: as of `way.respondent`; where `by` is `auto`, the
    labels' probabilities are read if the engine tells them, and else verdicts are written: `way` says which.

    A sequence that writes what is the judge's alone (its cue, control tokens of its chat) is not shown to it; it
    scores 0, with the verdict `forged`. One of which nothing can be read has no value, and the verdict `unparsable`.
    What the judge reads and writes is recorded and charged in the scope given. Raises InputError for a question
    about two answers, and for what is not known.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        generator: Generator | None = None,
        ask: str | Question = "correct",
        by: By = "auto",
        samples: int | None = None,
        critiques: int = 0,
        temperature: float = 1.0,
        max_tokens: int | None = None,
        normalise: bool = True,
        name: str = "judge",
        **wording: Any,
    ) -> None:
        own = own_wording(engine or generator) if ask == "correct" else {}
        longest = own.pop("max_tokens", None)
        if not isinstance(ask, Question) and ask not in ASKS:
            raise InputError(
                f"{name}: ask={ask!r}: expected one of {', '.join(ASKS)}; word it with template=, labels=, cue="
            )
        question = ask if isinstance(ask, Question) else ASKS[ask]
        self._options: dict[str, Any] = {
            "by": by, "samples": samples, "critiques": critiques, "temperature": temperature,
            "max_tokens": longest if max_tokens is None else max_tokens, "normalise": normalise,
        }  # fmt: skip
        self._engine, self._generator = engine, generator
        made = respondent(
            engine, generator, worded(question, {**own, **wording}, name), name=name, **self._options
        )
        self._ask(made, name)

    @classmethod
    def of(cls, respondent: Respondent, *, name: str = "judge") -> Self:
        """A judge whose respondent is there already."""
        judge = cls.__new__(cls)
        judge._engine, judge._generator, judge._options = None, None, {}
        judge._ask(respondent, name)
        return judge

    def _ask(self, respondent: Respondent, name: str) -> None:
        if respondent.question.compares:
            raise InputError(
                f"{name}: the judge's question compares two answers; use PairwiseJudge, or ask about one"
            )
        self.respondent, self.name = respondent, name

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, by {self.respondent!r})"

    @property
    def way(self) -> Way:
        """`labels`: probabilities are read. `samples`: verdicts are written."""
        return self.respondent.way

    def about_pairs(self, question: Question) -> Respondent:
        """The same model, asked in the same way about two answers. Raises InputError for a judge made by `of`."""
        if self._engine is None and self._generator is None:
            raise InputError(
                f"{self.name}: its respondent has a question already; make one with a question about two"
            )
        return respondent(self._engine, self._generator, question, name=self.name, **self._options)

    @property
    def fingerprint(self) -> str:
        return digest("generative verifier", self.respondent.fingerprint).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        question = self.respondent.question
        sequences = [s.answered for s in sequences]
        distinct = {s.digest: s for s in sequences if not self.respondent.forged(s.text)}
        asked = [Asked(name, question.prompt(s.prompt, candidate=s.text)) for name, s in distinct.items()]
        scores = dict(zip(distinct, await self.respondent.ask(asked, scope), strict=True))
        forged = Score(0.0, verdict="forged")
        return [replace(scores.get(s.digest, forged), oracle=self.oracle) for s in sequences]
