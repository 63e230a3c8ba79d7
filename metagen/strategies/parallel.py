"""Parallel strategies: sample n candidates, then aggregate them.

All draw under the role `sample` and score under `score`, so that single samples, majority, best-of-n
and weighted voting of one generator share the same candidates and scores.
"""

from __future__ import annotations

from dataclasses import fields, replace

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.aggregators import Aggregator, Best, Majority, Weighted
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, judged
from metagen.verifiers.base import AnswerRule, Verifier

#: What generating, scoring and choosing spend alike.
SHARED = ("prefilled", "calls", "flops", "money")


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
    """Sample n candidates, score them if the aggregator has a verifier, and let the aggregator choose.

    Raises InputError for n < 1, UnsupportedError for a generator whose draws are joint.
    """

    def __init__(self, generator: Generator, n: int, aggregator: Aggregator) -> None:
        if n < 1:
            raise InputError(f"{type(self).__name__}: n={n!r}; expected the number of candidates, at least 1")
        if not generator.independent:
            raise UnsupportedError(
                f"{type(self).__name__} pools independent draws; {generator!r} draws jointly"
            )
        self.generator, self.n, self.aggregator = generator, n, aggregator
        self.answer, self.verifier = aggregator.answer, aggregator.verifier

    @property
    def fingerprint(self) -> str:
        return digest("parallel", str(self.n), self.generator.fingerprint, self.aggregator.fingerprint).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        candidates: list[Candidate] = []
        share = _share(scope.left(), 3 if self.verifier else 2) if self.aggregator.spends else None
        sampling, scoring = scope.child("sample", budget=share), scope.child("score", budget=share)
        before = sampling.left()
        while len(candidates) < self.n:
            start = len(candidates)
            n = min(self._wave(before, sampling.left(), start), self.n - start)
            try:
                sequences = await self.generator.generate(prefix, n=n, start=start, scope=sampling)
                candidates += await judged(
                    sequences, scope, answer=self.answer, verifier=self.verifier, scoring=scoring
                )
            except BudgetExhausted:
                if not candidates:
                    raise
                break
            if len(sequences) < n:
                break
        chosen = await self.aggregator.aggregate(candidates, prefix, scope)
        return replace(chosen, exhausted=True) if sampling.exhausted or scoring.exhausted else chosen

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


def _share(left: Budget, parts: int) -> Budget:
    """One of `parts` equal parts of what is left; no limit of it is a limit where there was none."""
    limits = {f.name: getattr(left, f.name) for f in fields(left)}
    return Budget(
        **{d: v // parts if isinstance(v, int) else v / parts for d, v in limits.items() if v is not None}
    )


class BestOfN(Parallel):
    """The candidate with the highest score: argmax_i v(y_i)."""

    def __init__(
        self, generator: Generator, n: int, *, verifier: Verifier, answer: AnswerRule | None = None
    ) -> None:
        super().__init__(generator, n, Best(verifier, answer=answer))


class MajorityVote(Parallel):
    """The most frequent answer (self-consistency, Wang et al. 2023)."""

    def __init__(self, generator: Generator, n: int, *, answer: AnswerRule) -> None:
        super().__init__(generator, n, Majority(answer))


class WeightedVote(Parallel):
    """The answer with the largest total score: argmax_a Σ_i v(y_i) 1[a_i = a] (Li et al. 2023)."""

    def __init__(self, generator: Generator, n: int, *, verifier: Verifier, answer: AnswerRule) -> None:
        super().__init__(generator, n, Weighted(verifier, answer))
