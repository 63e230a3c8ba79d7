"""Candidates: sequences with what is known of them. They are drawn in waves, where a limit binds scores too."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.verifiers.base import UNSCORED, Answer, AnswerRule, Verifier


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence with what is known of it. `answer` is None without an answer rule, `score` without a verifier."""

    sequence: Sequence
    answer: Answer | None = None
    score: Score | None = None

    @property
    def eligible(self) -> bool:
        """Ended by itself, and with a readable answer where one is needed."""
        ended = self.sequence.finish in ("eos", "stop")
        return ended and (self.answer is None or self.answer.key is not None or not self.answer.needed)

    @property
    def value(self) -> float | None:
        """Its score in [0, 1]; None without a verifier, and where the verifier gave a verdict alone."""
        return self.score.value if self.score else None

    @property
    def key(self) -> str | None:
        """The class of its answer."""
        return self.answer.key if self.answer else None


async def judge(
    sequences: abc.Sequence[Sequence],
    scope: Scope,
    *,
    answer: AnswerRule | None = None,
    verifier: Verifier | None = None,
    scoring: Scope | None = None,
    known: dict[bytes, Score] | None = None,
) -> list[Candidate]:
    """Candidates with answers and scores, in order. Each is offered before it is scored, then again with its value.

    scoring: where the verifier runs; the child `score` of `scope` by default. known: scores by digest, which are not
    asked, nor paid for, again; new ones are added.
    """
    answers = await answer.read(sequences) if answer else [None] * len(sequences)
    already = len(scope.offers)
    for sequence, read in zip(sequences, answers, strict=True):
        offer(Candidate(sequence, read), scope)
    scores: Iterable[Score | None] = [None] * len(sequences)
    if verifier is not None:
        scores = await _score(
            sequences, verifier, scoring or scope.child("score"), {} if known is None else known
        )
    candidates = [Candidate(*parts) for parts in zip(sequences, answers, scores, strict=True)]
    del scope.offers[already:]
    for one in candidates:
        offer(one, scope)
    return candidates


async def _score(
    sequences: abc.Sequence[Sequence], verifier: Verifier, scope: Scope, known: dict[bytes, Score]
) -> list[Score]:
    if verifier.by_sample:
        return await verifier.score(sequences, scope=scope)
    fresh = [s for s in sequences if s.digest not in known]
    scores = await verifier.score(fresh, scope=scope) if fresh else []
    new = {s.digest: score for s, score in zip(fresh, scores, strict=True)}
    # What a budget left out may be asked for once more.
    known |= {name: score for name, score in new.items() if score.verdict != UNSCORED.verdict}
    return [known.get(s.digest) or new[s.digest] for s in sequences]


def offer(candidate: Candidate, scope: Scope) -> None:
    """Offer a candidate; what cannot be chosen has no value."""
    scope.offer(candidate.sequence, candidate.value if candidate.eligible else None, candidate.key)


async def conclude(
    sequence: Sequence, scope: Scope, answer: AnswerRule | None = None, score: Score | None = None
) -> Sequence:
    """The sequence that a strategy ends with, offered with its answer and score in place of all before it."""
    (read,) = await answer.read([sequence]) if answer else (None,)
    scope.offers.clear()
    scope.votes = None
    offer(Candidate(sequence, read, score), scope)
    return sequence


class Drawing:
    """The candidates of one call, as they are drawn, read and scored. They are offered in `scope`.

    sampling, scoring: the scopes in which the generator and the verifier run. Equal texts are scored, and paid for,
    once. `candidates` are those that there are so far.
    """

    def __init__(
        self,
        generator: Generator,
        prefix: Sequence,
        scope: Scope,
        sampling: Scope,
        scoring: Scope,
        *,
        answer: AnswerRule | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.generator, self.prefix, self.answer, self.verifier = generator, prefix, answer, verifier
        self.scope, self.sampling, self.scoring = scope, sampling, scoring
        self.candidates: list[Candidate] = []
        self._known: dict[bytes, Score] = {}
        self._pace = sampling.pace(generates=verifier is not None and verifier.generates)

    async def to(
        self,
        n: int,
        *,
        step: int | None = None,
        enough: Callable[[abc.Sequence[Candidate]], bool] | None = None,
    ) -> list[Candidate]:
        """All candidates, once there are n, or fewer: if a budget ends, or `enough` says so.

        enough: asked after every `step` candidates, also where a limit makes the waves smaller. The refusal is raised
        if there is not even one.
        """
        step = step or n
        while (start := len(self.candidates)) < n and (
            start % step or not start or enough is None or not enough(self.candidates)
        ):
            wave = n if self.verifier is None else self._pace.wave(start, n)
            size = min(wave, n - start, step - start % step)
            drawing = self._draw(size, start)
            drawn = await (self.scope.attempt(drawing) if start else drawing)
            self.candidates += drawn or []
            if drawn is None or len(drawn) < size:
                break
        return self.candidates

    async def _draw(self, n: int, start: int) -> list[Candidate]:
        drawn = await self.generator.generate(self.prefix, n=n, start=start, scope=self.sampling)
        return await self._judge(drawn)

    async def _judge(self, drawn: list[Sequence]) -> list[Candidate]:
        return await judge(
            drawn,
            self.scope,
            answer=self.answer,
            verifier=self.verifier,
            scoring=self.scoring,
            known=self._known,
        )
