"""Aggregators: how a pool of candidates becomes the one sequence that is returned.

Parallel strategies use them after sampling, tree searches for their finished leaves. What they compute are the
pure functions of `strategies/aggregate.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from metagen.border import Part, call, promises
from metagen.call import Item
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.aggregate import (
    Rule,
    Selection,
    best_of,
    borda_weights,
    highest_expected_utility,
    in_order,
    majority_vote,
    ranked_vote,
    soft_best_of,
    weighted_vote,
)
from metagen.strategies.candidates import Candidate
from metagen.values import Positive, Quantity
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.utility.base import Utility


def _place(selection: Selection, given: Mapping[str, Any]) -> str | None:
    size = len(given["pool"])
    return None if 0 <= selection.index < size else f"its index is none of {size} candidates, from 0"


class Aggregator(Part, ABC):
    """Chooses among candidates. It does not depend on their order; ties are broken by a salted digest.

    answer: the rule by which answers are read, where there is one. verifier: what scores the candidates, where there is
    one. spends: `choose` calls models itself, so that a part of a budget is kept for it.
    """

    answer: AnswerRule | None = None
    verifier: Verifier | None = None
    #: Whether the choice depends on which answers are the same.
    groups: bool = True

    @property
    def spends(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        """Names the rule with its parts: equal fingerprints promise equal choices."""
        return fingerprint(self)

    async def aggregate(
        self, candidates: abc.Sequence[Candidate], prefix: Sequence, scope: Scope
    ) -> Sequence:
        """The chosen candidate's sequence, with its score. What is cut or has no answer loses to whatever has one.

        Where nothing is known of any (scores that are missing, a utility that is NaN throughout), the tie rule
        chooses, and the sequence is marked `exhausted`.
        Raises InputError for no candidates.
        """
        pool = [c for c in candidates if c.eligible] or list(candidates)
        selection = await self.choose(pool, prefix.prompt.digest.hex(), scope)
        scope.votes = selection.totals if selection.votes else None
        chosen = pool[selection.index]
        sequence = replace(chosen.sequence, exhausted=chosen.sequence.exhausted or selection.blind)
        if self.verifier is not None and chosen.score is not None:
            return sequence.with_score(self.verifier.name, chosen.score)
        return sequence

    @abstractmethod
    @promises(_place)
    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        """The place of one candidate in `pool`. Either all of these candidates are eligible, or none is.

        pool: one candidate or more, with its answer if there is a rule, and its score if there is a verifier. salt: a
        text that names the problem, to break ties by. scope: for calls of models, if `spends`.
        """


@part
class Best(Aggregator):
    """The candidate with the highest score: argmax_i v(y_i); by raw scores where values in [0, 1] are equal.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import Best
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index % 4], name="digits")
        >>> digit = mg.FunctionVerifier(lambda s: int(s.text) / 10, name="digit")
        >>> mg.Parallel(draw, 4, aggregator=Best(digit)).solve("A digit?").text
        '7'
    """

    groups = False

    verifier: Verifier = field(kw_only=False)
    answer: AnswerRule | None = None

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return best_of(ranks(pool), texts(pool), salt)


@part
class Majority(Aggregator):
    """The most frequent answer (self-consistency, Wang et al. 2023)."""

    answer: AnswerRule = field(kw_only=False)

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return majority_vote([c.key for c in pool], texts(pool), salt)


@part
class Weighted(Aggregator):
    """The answer with the largest total score: argmax_a Σ_i v(y_i) 1[a_i = a] (Li et al. 2023).

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import Weighted
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index % 4], name="digits")
        >>> digit = mg.FunctionVerifier(lambda s: int(s.text) / 10, name="digit")
        >>> vote = Weighted(digit, mg.NumberRule(prose=True))
        >>> mg.Parallel(draw, 5, aggregator=vote).solve("A digit?").text  # 0.7 against 0.2 + 0.2
        '7'
    """

    verifier: Verifier = field(kw_only=False)
    answer: AnswerRule = field(kw_only=False)

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return weighted_vote([c.key for c in pool], [c.value for c in pool], texts(pool), salt)


@part
class SoftBest(Aggregator):
    """Candidate i with probability ∝ exp(v(y_i)/β) (soft best-of-n, Verdun et al. 2025).

    β → 0 is `Best`, β → ∞ one at random. raw: the verifier's raw scores r_i in place of values in [0, 1], where
    it gives any. beta: β > 0; the smaller, the closer to the best.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import SoftBest
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index % 4], name="digits")
        >>> digit = mg.FunctionVerifier(lambda s: int(s.text) / 10, name="digit")
        >>> mg.Parallel(draw, 4, aggregator=SoftBest(digit, beta=0.001)).solve("A digit?").text  # nearly the best
        '7'
    """

    groups = False

    verifier: Verifier = field(kw_only=False)
    beta: Positive
    raw: bool = False
    answer: AnswerRule | None = None

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        seed = scope.seed(Item(digest("soft best")))
        return soft_best_of(scores(pool, raw=self.raw), texts(pool), salt, beta=self.beta, seed=seed)


@part
class Borda(Aggregator):
    """The answer with the most votes; the candidate of rank r among n, by score, has (n − r + 1)^p (Kang et al. 2025).

    p = 0 is `Majority` over what has a score; p → ∞ tends to `Best`. power: p; 0 is a plain vote.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import Borda
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index % 4], name="digits")
        >>> digit = mg.FunctionVerifier(lambda s: int(s.text) / 10, name="digit")
        >>> mg.Parallel(draw, 4, aggregator=Borda(digit, mg.NumberRule(prose=True), power=2)).solve("A digit?").text
        '7'
    """

    verifier: Verifier = field(kw_only=False)
    answer: AnswerRule = field(kw_only=False)
    power: Quantity = 1.0

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        # What has no answer has no vote, and takes no rank from what has one.
        voting = any(c.key is not None for c in pool)
        order = [
            None if voting and c.key is None else rank for c, rank in zip(pool, ranks(pool), strict=True)
        ]
        weights = borda_weights(order, power=self.power)
        return weighted_vote([c.key for c in pool], weights, texts(pool), salt)


@part
class Ranked(Aggregator):
    """A vote in which each candidate ranks several answers (ranked voting, Wang et al. 2025): see `ranked_vote`.

    ballot: reads the answers that a completion names, best first, in its own words; `answer` gives their classes.
    What cannot be read is left out of a ballot. rule: how ballots are counted.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import Ranked
        >>> votes = ["3 5", "5 7", "5 3"]
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: votes[index], name="votes")
        >>> ranked = Ranked(mg.NumberRule(prose=True), ballot=str.split)
        >>> mg.Parallel(draw, 3, aggregator=ranked).solve("Two digits?").text
        '5 3'
    """

    answer: AnswerRule = field(kw_only=False)
    ballot: Callable[[str], abc.Sequence[str]]
    rule: Rule = "borda"

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        ballots = [
            [await self.answer.key(said) for said in call(self, self.ballot, text, hint=list[str])]
            for text in texts(pool)
        ]
        classes = [[key for key in ballot if key is not None] for ballot in ballots]
        return ranked_vote(classes, texts(pool), salt, rule=self.rule)


@part
class MinimumBayesRisk(Aggregator):
    """argmax_i Σ_j w_j u(y_i, y_j) over the candidates themselves (Bertsch et al. 2023; Eikema & Aziz 2022).

    utility: such as chrF, ROUGE-L, execution agreement or a judge. verifier: its scores are the weights w_j; 1 each
    without one. With `ExactAnswer(answer)` it is a vote, weighted with a verifier. A candidate whose expected utility
    is not known (NaN: a budget ended, a judge said nothing) loses to any other; where none is known, the choice is
    marked `exhausted`.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.aggregators import MinimumBayesRisk
        >>> from metagen.verifiers.utility.token_f1 import TokenF1
        >>> texts = ["a cat sleeps", "a cat sleeps here", "a black cat"]
        >>> write = mg.FunctionGenerator(lambda prefix, seed, index: texts[index], name="texts")
        >>> mg.Parallel(write, 3, aggregator=MinimumBayesRisk(TokenF1())).solve("Describe it.").text
        'a cat sleeps'
    """

    utility: Utility = field(kw_only=False)
    verifier: Verifier | None = None
    answer: AnswerRule | None = None

    @property
    def spends(self) -> bool:
        return self.utility.spends

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        weights = [c.value for c in pool] if self.verifier else [1.0] * len(pool)
        sequences = [c.sequence for c in pool]
        comparing = self.utility.expected(sequences, weights=weights, scope=scope.child("utility"))
        found = await scope.attempt(comparing)
        expected = [math.nan] * len(pool) if found is None else found.tolist()
        return highest_expected_utility(expected, weights, [c.key for c in pool], texts(pool), salt)


def scores(pool: abc.Sequence[Candidate], *, raw: bool) -> list[float | None]:
    """Values in [0, 1], or the raw scores before they were mapped there; a value without one stands for itself."""
    return [c.score.raw if raw and c.score and c.score.raw is not None else c.value for c in pool]


def ranks(pool: abc.Sequence[Candidate]) -> list[float | None]:
    """Numbers in the order of the candidates' scores: see `in_order`."""
    return in_order([c.value for c in pool], [c.score.raw if c.score else None for c in pool])


def texts(pool: abc.Sequence[Candidate]) -> list[str]:
    """What tells candidates apart where they tie."""
    return [c.sequence.text for c in pool]
