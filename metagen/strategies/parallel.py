"""Parallel strategies: sample n candidates, then aggregate them.

All draw under the role `sample` and score under `score`, so that single samples, majority, best-of-n
and weighted voting of one generator share the same candidates and scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Callable
from dataclasses import field, replace

from metagen.errors import UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
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
from metagen.strategies.candidates import Candidate, Drawing, judge
from metagen.values import Count, Positive, Quantity
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.utility.base import Utility


@part
class Sample(Strategy):
    """One sample of a generator, as it comes; greedy if the generator's temperature is 0."""

    poolable = True

    generator: Generator = field(kw_only=False)
    answer: AnswerRule | None = None
    groups = False

    def __post_init__(self) -> None:
        self.accepts_until = self.generator.accepts_until

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        place = scope.child("sample", speaks=True)
        (sequence,) = await self.generator.generate(prefix, until=until, scope=place)
        (answer,) = await self.answer.read([sequence]) if self.answer else (None,)
        scope.offer(sequence, key=answer.key if answer else None)
        return sequence


def greedy(generator: Generator, *, answer: AnswerRule | None = None) -> Sample:
    """The most likely token at every place: one sample at temperature 0."""
    return Sample(generator.replace(temperature=0.0), answer=answer)


@part
class ParallelStrategy(Strategy):
    """Sample n candidates, score them if the aggregator has a verifier, and let the aggregator choose.

    A verifier that scores candidates relative to each other sees all of them at once. Equal texts are scored, and
    paid for, once. Raises InputError for n < 1, UnsupportedError for a generator whose draws are joint. Authors of
    such strategies write `_aggregator`.
    """

    generator: Generator = field(kw_only=False)
    n: Count = field(kw_only=False)
    #: The aggregator says so.
    groups = False

    def __post_init__(self) -> None:
        if not self.generator.independent:
            raise UnsupportedError(
                f"{type(self).__name__} pools independent draws; {self.generator!r} draws jointly"
            )
        self.chooser = self._aggregator()
        self.answer, self.verifier = self.chooser.answer, self.chooser.verifier

    @abstractmethod
    def _aggregator(self) -> Aggregator:
        """What chooses among the candidates."""

    @property
    def step(self) -> int | None:
        """How many are drawn at a time; None: as many as there are, and a budget affords."""
        return None

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        relative = self.verifier is not None and self.verifier.relative
        # A choice that calls models, and scores that compare, come after sampling: they have their part of the limits.
        later = self.chooser.spends or relative
        roles = ["sample"] if self.verifier is None else ["sample", "score"]
        if later and self.n > 1:
            reads = not self.chooser.spends and not (self.verifier and self.verifier.generates)
            places = scope.parts(*roles, later=int(self.chooser.spends), reads=reads)
        else:
            places = [scope.child(role) for role in roles]
        sampling, scoring = places[0], places[-1]
        verifier = None if relative else self.verifier
        drawing = Drawing(
            self.generator, prefix, scope, sampling, scoring, answer=self.answer, verifier=verifier
        )
        candidates = await drawing.to(self.n, step=self.step, enough=self.enough)
        if relative:
            candidates = await self._together(candidates, scope, scoring)
        chosen = await self.choose(candidates, prefix, scope)
        return replace(chosen, exhausted=True) if sampling.exhausted or scoring.exhausted else chosen

    async def _together(self, drawn: list[Candidate], scope: Scope, scoring: Scope) -> list[Candidate]:
        """The same candidates, scored against each other; as they are where the budget is spent."""
        sequences = [one.sequence for one in drawn]
        scope.offers.clear()
        scored = judge(sequences, scope, answer=self.answer, verifier=self.verifier, scoring=scoring)
        return await scope.attempt(scored) or drawn

    def enough(self, candidates: abc.Sequence[Candidate]) -> bool:
        """Whether no more are needed, before n are drawn."""
        return False

    async def choose(self, candidates: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        """Which of the candidates is returned."""
        return await self.chooser.aggregate(candidates, prefix, scope)


@part
class Parallel(ParallelStrategy):
    """Sample n candidates, and let any aggregator choose.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import Majority
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index % 4], name="digits")
        >>> mg.Parallel(draw, 5, aggregator=Majority(mg.NumberRule(prose=True))).solve("A digit?").answer.key
        '2'
    """

    chooses = True

    aggregator: Aggregator = field(kw_only=False)

    def _aggregator(self) -> Aggregator:
        return self.aggregator


@part
class BestOfN(ParallelStrategy):
    """The candidate with the highest score: argmax_i v(y_i)."""

    poolable = True

    verifier: Verifier
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        return Best(self.verifier, answer=self.answer)


@part
class MajorityVote(ParallelStrategy):
    """The most frequent answer (self-consistency, Wang et al. 2023)."""

    poolable = votes = True

    answer: AnswerRule

    def _aggregator(self) -> Aggregator:
        return Majority(self.answer)


@part
class WeightedVote(ParallelStrategy):
    """The answer with the largest total score: argmax_a Σ_i v(y_i) 1[a_i = a] (Li et al. 2023)."""

    poolable = votes = True

    verifier: Verifier
    answer: AnswerRule

    def _aggregator(self) -> Aggregator:
        return Weighted(self.verifier, self.answer)


@part
class SoftBestOfN(ParallelStrategy):
    """Candidate i with probability ∝ exp(v(y_i)/β) (Verdun et al. 2025): see `SoftBest`."""

    chooses = True

    verifier: Verifier
    beta: Positive
    raw: bool = False
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        return SoftBest(self.verifier, beta=self.beta, raw=self.raw, answer=self.answer)


@part
class PessimisticBestOfN(ParallelStrategy):
    """The candidate whose score has the highest lower bound: argmax_i mean_k v_k(y_i) − penalty · std_k v_k(y_i).

    verifiers: at least two; where they differ, the score is less to be trusted. Penalising by the variance instead is
    Coste et al. (2023): `BestOfN` with an `Ensemble` that combines by `uncertainty`. penalty: the weight of the
    deviation.
    """

    chooses = True

    verifiers: abc.Sequence[Verifier]
    penalty: Quantity = 1.0
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        bound = Ensemble(self.verifiers, "lower-bound", penalty=self.penalty, name="pessimistic")
        return Best(bound, answer=self.answer)


@part
class BordaVote(ParallelStrategy):
    """A vote in which a candidate of rank r among n by its score has (n − r + 1)^p votes: see `Borda`."""

    chooses = True

    verifier: Verifier
    answer: AnswerRule
    power: Quantity = 1.0

    def _aggregator(self) -> Aggregator:
        return Borda(self.verifier, self.answer, power=self.power)


@part
class RankedVote(ParallelStrategy):
    """A vote in which each candidate ranks several answers: see `Ranked`."""

    chooses = True

    answer: AnswerRule
    ballot: Callable[[str], abc.Sequence[str]]
    rule: Rule = "borda"

    def _aggregator(self) -> Aggregator:
        return Ranked(self.answer, ballot=self.ballot, rule=self.rule)


@part
class MBR(ParallelStrategy):
    """Minimum Bayes risk: argmax_i Σ_j w_j u(y_i, y_j) over the candidates: see `MinimumBayesRisk`."""

    utility: Utility
    verifier: Verifier | None = None
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        return MinimumBayesRisk(self.utility, verifier=self.verifier, answer=self.answer)
