"""Parallel strategies: sample n candidates, then aggregate them.

All draw under the role `sample` and score under `score`, so that single samples, majority, best-of-n
and weighted voting of one generator share the same candidates and scores.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import replace

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, at_most, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.aggregate import Rule
from metagen.strategies.aggregators import (
    Aggregator,
    Best,
    Borda,
    Majority,
    MinimumBayesRisk,
    Ranked,
    SoftBest,
    Weighted,
)
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, judged
from metagen.strategies.drawing import Drawing
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.utility.base import Utility


class Sample(Strategy):
    """One sample of a generator, as it comes; greedy if the generator's temperature is 0."""

    groups = False

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

    A verifier that scores candidates relative to each other sees all of them at once. Equal texts are scored, and
    paid for, once. Raises InputError for n < 1, UnsupportedError for a generator whose draws are joint.
    """

    #: The aggregator says so.
    groups = False
    #: How many are drawn at a time; None: as many as there are, and a budget affords.
    batch: int | None = None

    def __init__(self, generator: Generator, n: int, aggregator: Aggregator) -> None:
        if not is_count(n, 1):
            raise InputError(f"{type(self).__name__}: n={n!r}; expected the number of candidates, at least 1")
        at_most(type(self).__name__, n=n)
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
        relative = self.verifier is not None and self.verifier.relative
        # A choice that calls models, and scores that compare, come after sampling: they have their part of the limits.
        later = self.aggregator.spends or relative
        roles = ["sample"] if self.verifier is None else ["sample", "score"]
        if later and self.n > 1:
            places = scope.parts(*roles, later=int(self.aggregator.spends))
        else:
            places = [scope.child(role) for role in roles]
        sampling, scoring = places[0], places[-1]
        verifier = None if relative else self.verifier
        drawing = Drawing(
            self.generator, prefix, scope, sampling, scoring, answer=self.answer, verifier=verifier
        )
        candidates = await drawing.to(self.n, step=self.batch, enough=self.enough)
        if relative:
            candidates = await self._together(candidates, scope, scoring)
        chosen = await self.chosen(candidates, prefix, scope)
        return replace(chosen, exhausted=True) if sampling.exhausted or scoring.exhausted else chosen

    async def _together(self, drawn: list[Candidate], scope: Scope, scoring: Scope) -> list[Candidate]:
        """The same candidates, scored against each other; as they are where the budget is spent."""
        sequences = [one.sequence for one in drawn]
        scope.offers.clear()
        scored = judged(sequences, scope, answer=self.answer, verifier=self.verifier, scoring=scoring)
        return await scope.attempt(scored) or drawn

    def enough(self, candidates: Ordered[Candidate]) -> bool:
        """Whether no more are needed, before n are drawn."""
        return False

    async def chosen(self, candidates: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        """Which of the candidates is returned."""
        return await self.aggregator.aggregate(candidates, prefix, scope)


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


class SoftBestOfN(Parallel):
    """Candidate i with probability ∝ exp(v(y_i)/β) (Verdun et al. 2025): see `SoftBest`."""

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        verifier: Verifier,
        beta: float,
        raw: bool = False,
        answer: AnswerRule | None = None,
    ) -> None:
        super().__init__(generator, n, SoftBest(verifier, beta=beta, raw=raw, answer=answer))


class PessimisticBestOfN(Parallel):
    """The candidate whose score has the highest lower bound: argmax_i mean_k v_k(y_i) − penalty · std_k v_k(y_i).

    verifiers: at least two; where they differ, the score is less to be trusted. Penalising by the variance instead is
    Coste et al. (2023): `BestOfN` with an `Ensemble` that combines by `uncertainty`.
    """

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        verifiers: Ordered[Verifier],
        penalty: float = 1.0,
        answer: AnswerRule | None = None,
    ) -> None:
        bound = Ensemble(verifiers, "lower-bound", penalty=penalty, name="pessimistic")
        super().__init__(generator, n, Best(bound, answer=answer))


class BordaVote(Parallel):
    """A vote in which a candidate of rank r among n by its score has (n − r + 1)^p votes: see `Borda`."""

    def __init__(
        self, generator: Generator, n: int, *, verifier: Verifier, answer: AnswerRule, power: float = 1.0
    ) -> None:
        super().__init__(generator, n, Borda(verifier, answer, power=power))


class RankedVote(Parallel):
    """A vote in which each candidate ranks several answers: see `Ranked`."""

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        answer: AnswerRule,
        ballot: Callable[[str], Ordered[str]],
        rule: Rule = "borda",
    ) -> None:
        super().__init__(generator, n, Ranked(answer, ballot=ballot, rule=rule))


class MBR(Parallel):
    """Minimum Bayes risk: argmax_i Σ_j w_j u(y_i, y_j) over the candidates: see `MinimumBayesRisk`."""

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        utility: Utility,
        verifier: Verifier | None = None,
        answer: AnswerRule | None = None,
    ) -> None:
        super().__init__(generator, n, MinimumBayesRisk(utility, verifier=verifier, answer=answer))
