"""Aggregators: how a pool of candidates becomes the one sequence that is returned.

Parallel strategies use them after sampling, tree searches for their finished leaves. What they compute are the
pure functions of `strategies/aggregate.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Ordered

from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.aggregate import Selection, best_of, weighted_vote
from metagen.strategies.candidates import Candidate
from metagen.verifiers.base import AnswerRule, Verifier


class Aggregator(ABC):
    """Chooses among candidates. It does not depend on their order; ties are broken by a salted digest.

    answer, verifier: whoever makes the pool reads answers by `answer` and scores by `verifier`, where there is one.
    spends: `choose` calls models itself, so that a part of a budget is kept for it.
    """

    answer: AnswerRule | None = None
    verifier: Verifier | None = None
    spends: bool = False

    @property
    def fingerprint(self) -> str:
        """Names the rule with its parts: equal fingerprints promise equal choices."""
        parts = [part.fingerprint if part else "" for part in (self.verifier, self.answer)]
        return digest(type(self).__qualname__, self.options(), *parts).hex()

    def options(self) -> str:
        """What tells two aggregators of this class apart, beside answer rule and verifier."""
        return ""

    @property
    def oracle(self) -> bool:
        """Whether a part knows the reference answer."""
        return any(getattr(part, "oracle", False) for part in vars(self).values())

    async def aggregate(self, candidates: Ordered[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        """The chosen candidate's sequence, with its score. What is cut or has no answer loses to whatever has one.

        Raises InputError for no candidates.
        """
        pool = [c for c in candidates if c.eligible] or list(candidates)
        selection = await self.choose(pool, prefix.prompt.digest.hex(), scope)
        chosen = pool[selection.index]
        if self.verifier is not None and chosen.score is not None:
            return chosen.sequence.scored(self.verifier.name, chosen.score)
        return chosen.sequence

    @abstractmethod
    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        """Pick one of the candidates, which are all eligible, or none of them is."""


class Best(Aggregator):
    """The candidate with the highest score: argmax_i v(y_i)."""

    def __init__(self, verifier: Verifier, *, answer: AnswerRule | None = None) -> None:
        self.verifier, self.answer = verifier, answer

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return best_of([c.value for c in pool], texts(pool), salt)


class Majority(Aggregator):
    """The most frequent answer (self-consistency, Wang et al. 2023)."""

    def __init__(self, answer: AnswerRule) -> None:
        self.answer = answer

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return weighted_vote([c.key for c in pool], [1.0] * len(pool), texts(pool), salt)


class Weighted(Aggregator):
    """The answer with the largest total score: argmax_a Σ_i v(y_i) 1[a_i = a] (Li et al. 2023)."""

    def __init__(self, verifier: Verifier, answer: AnswerRule) -> None:
        self.verifier, self.answer = verifier, answer

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return weighted_vote([c.key for c in pool], [c.value for c in pool], texts(pool), salt)


def texts(pool: Ordered[Candidate]) -> list[str]:
    """What tells candidates apart where they tie."""
    return [c.sequence.text for c in pool]
