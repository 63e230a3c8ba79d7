"""Candidates: sequences with what is known of them, the pool that an aggregator chooses from."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.verifiers.base import Answer, AnswerRule, Verifier


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence with what is known of it. `answer` is None without an answer rule, `score` without a verifier."""

    sequence: Sequence
    answer: Answer | None = None
    score: Score | None = None

    @property
    def eligible(self) -> bool:
        """Ended by itself, and with a readable answer where answers are read."""
        ended = self.sequence.finish in ("eos", "stop")
        return ended and (self.answer is None or self.answer.key is not None)

    @property
    def value(self) -> float | None:
        return self.score.value if self.score else None

    @property
    def key(self) -> str | None:
        """The class of its answer."""
        return self.answer.key if self.answer else None


async def judged(
    sequences: Ordered[Sequence],
    scope: Scope,
    *,
    answer: AnswerRule | None = None,
    verifier: Verifier | None = None,
    scoring: Scope | None = None,
) -> list[Candidate]:
    """Candidates with answers and scores, in order. Each is offered before it is scored, then again with its value.

    scoring: where the verifier runs; the child `score` of `scope` by default.
    """
    answers = await answer.read(sequences) if answer else [None] * len(sequences)
    already = len(scope.offers)
    for sequence in sequences:
        scope.offer(sequence)
    scores: Iterable[Score | None] = [None] * len(sequences)
    if verifier is not None:
        scores = await verifier.score(sequences, scope=scoring or scope.child("score"))
    candidates = [Candidate(*parts) for parts in zip(sequences, answers, scores, strict=True)]
    del scope.offers[already:]
    for one in candidates:
        offered(one, scope)
    return candidates


def offered(candidate: Candidate, scope: Scope) -> None:
    """Offer a candidate; what cannot be chosen has no value."""
    scope.offer(candidate.sequence, candidate.value if candidate.eligible else None, candidate.key)
