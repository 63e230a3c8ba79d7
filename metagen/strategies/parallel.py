"""Parallel strategies: sample n candidates, then aggregate them.

All draw under the role `sample` and score under `score`, so that single samples, majority, best-of-n
and weighted voting of one generator share the same candidates and scores.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest
from metagen.strategies.aggregate import Selection, best_of, weighted_vote
from metagen.strategies.base import Strategy
from metagen.verifiers.base import Answer, AnswerRule, Verifier

#: What generating and scoring spend alike.
SHARED = ("prefilled", "calls", "flops", "money")


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


class Sample(Strategy):
    """One sample of a generator, as it comes; greedy if the generator's temperature is 0."""

    def __init__(self, generator: Generator, *, answer: AnswerRule | None = None) -> None:
        self.generator, self.answer = generator, answer
        self.accepts_until = generator.accepts_until

    @property
    def fingerprint(self) -> str:
        rule = self.answer.fingerprint if self.answer else ""
        return digest("sample", self.generator.fingerprint, rule).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        (sequence,) = await self.generator.generate(prefix, until=until, scope=scope.child("sample"))
        (answer,) = await self.answer.read([sequence]) if self.answer else (None,)
        scope.offer(sequence, key=answer.key if answer else None)
        return sequence


class Parallel(Strategy):
    """Sample n candidates, score them if there is a verifier, and let `choose` pick one.

    Raises InputError for n < 1, UnsupportedError for a generator whose draws are joint.
    """

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        answer: AnswerRule | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        if n < 1:
            raise InputError(f"{type(self).__name__}: n={n!r}; expected the number of candidates, at least 1")
        if not generator.independent:
            raise UnsupportedError(
                f"{type(self).__name__} pools independent draws; {generator!r} draws jointly"
            )
        self.generator, self.n, self.answer, self.verifier = generator, n, answer, verifier

    @property
    def fingerprint(self) -> str:
        judges = [part.fingerprint if part else "" for part in (self.verifier, self.answer)]
        return digest(type(self).__name__, str(self.n), self.generator.fingerprint, *judges).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        candidates: list[Candidate] = []
        sampling, scoring = scope.child("sample"), scope.child("score")
        before = scope.left()
        while len(candidates) < self.n:
            start = len(candidates)
            n = min(self._wave(before, scope.left(), start), self.n - start)
            try:
                sequences = await self.generator.generate(prefix, n=n, start=start, scope=sampling)
                candidates += await self._judge(sequences, scope, scoring)
            except BudgetExhausted:
                if not candidates:
                    raise
                break
            if len(sequences) < n:
                break
        return self.select(candidates, prefix, scope)

    def _wave(self, before: Budget, left: Budget, done: int) -> int:
        """How many to draw before scoring: half of what the rest affords, going by the candidates so far.

        So a limit that binds generating and scoring alike never ends with a pool that nobody judged.
        """
        limits = [d for d in SHARED if getattr(left, d) is not None] if self.verifier else []
        timed = self.verifier is not None and left.seconds is not None
        if not limits and not timed:
            return self.n
        if not done:
            return 1
        spent = {d: (getattr(before, d) - getattr(left, d)) / done for d in limits}
        affords = [getattr(left, d) / spent[d] for d in limits if spent[d] > 0]
        half = max(1, int(min(affords, default=self.n) / 2))
        return min(half, done) if timed else half

    async def _judge(self, sequences: list[Sequence], scope: Scope, scoring: Scope) -> list[Candidate]:
        """Candidates with answers and scores; each is offered before it is scored."""
        answers = await self.answer.read(sequences) if self.answer else [None] * len(sequences)
        for sequence in sequences:
            scope.offer(sequence)
        scores = (
            await self.verifier.score(sequences, scope=scoring) if self.verifier else [None] * len(sequences)
        )
        judged = [Candidate(*parts) for parts in zip(sequences, answers, scores, strict=True)]
        del scope.offers[len(scope.offers) - len(judged) :]
        for one in judged:
            scope.offer(
                one.sequence, one.value if one.eligible else None, one.answer.key if one.answer else None
            )
        return judged

    def select(self, candidates: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        """The chosen candidate's sequence. What is cut or has no answer loses to whatever has one."""
        pool = [c for c in candidates if c.eligible] or candidates
        salt = prefix.prompt.digest.hex()
        chosen = pool[self.choose(pool, salt).index]
        if self.verifier is not None and chosen.score is not None:
            return chosen.sequence.scored(self.verifier.name, chosen.score)
        return chosen.sequence

    @abstractmethod
    def choose(self, candidates: list[Candidate], salt: str) -> Selection:
        """Pick one of the candidates."""


class BestOfN(Parallel):
    """The candidate with the highest score: argmax_i v(y_i)."""

    def __init__(
        self, generator: Generator, n: int, *, verifier: Verifier, answer: AnswerRule | None = None
    ) -> None:
        super().__init__(generator, n, answer=answer, verifier=verifier)

    def choose(self, candidates: list[Candidate], salt: str) -> Selection:
        return best_of([c.value for c in candidates], [c.sequence.text for c in candidates], salt)


class MajorityVote(Parallel):
    """The most frequent answer (self-consistency, Wang et al. 2023)."""

    def __init__(self, generator: Generator, n: int, *, answer: AnswerRule) -> None:
        super().__init__(generator, n, answer=answer)

    def choose(self, candidates: list[Candidate], salt: str) -> Selection:
        keys = [c.answer.key if c.answer else None for c in candidates]
        return weighted_vote(keys, [1.0] * len(keys), [c.sequence.text for c in candidates], salt)


class WeightedVote(Parallel):
    """The answer with the largest total score: argmax_a Σ_i v(y_i) 1[a_i = a] (Li et al. 2023)."""

    def __init__(self, generator: Generator, n: int, *, verifier: Verifier, answer: AnswerRule) -> None:
        super().__init__(generator, n, answer=answer, verifier=verifier)

    def choose(self, candidates: list[Candidate], salt: str) -> Selection:
        keys = [c.answer.key if c.answer else None for c in candidates]
        values = [c.value for c in candidates]
        return weighted_vote(keys, values, [c.sequence.text for c in candidates], salt)
