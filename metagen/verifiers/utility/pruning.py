"""Confidence-based pruning (Cheng & Vlachos 2023): fewer references for candidates that cannot win any more."""

from __future__ import annotations

import math
from collections import Counter, abc
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from metagen.call import Item
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.values import Count, Fraction
from metagen.verifiers.utility.base import (
    Matrix,
    Utility,
    Vector,
    Weights,
    expected_utility,
    some,
    weight_array,
)
from metagen.verifiers.utility.pairs import distinct_sequences

#: Why a utility is not pruned that compares with the mean of all.
AGGREGATED: Final = (
    "aggregate = True: pruning compares pair by pair, with no mean of all; leave out aggregate or prune"
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """expected: utility of each candidate over the references it has met; NaN for a candidate that was dropped.

    pairs: how many were compared, equal candidates counting once. full: how many there are without pruning.
    survivors: candidates, counted so, after each round.
    """

    expected: Vector
    pairs: int
    full: int
    survivors: tuple[int, ...]


@part
class ConfidencePruning(Utility):
    """A utility that compares candidates with more and more references, and drops those that will not be the best.

    Rounds t = 1, 2, … add references up to r_t = first · 2^(t−1). With ȳ the best candidate so far, references are
    resampled `resamples` times with replacement; y stays if it is at least as good as ȳ in a share of more than
    1 − alpha of them (alpha = 1: all stay). It ends with one candidate, or with all references.

    `expected` is NaN for the dropped, so only the best is meant to be used; `matrix` is the utility's own.
    The order of references is drawn from the scope's seed and their texts: that of the pool plays no part.
    Raises InputError for a utility that aggregates: it would not.
    """

    utility: Utility = field(kw_only=False)
    #: The paper has 0.99 and 0.9.
    alpha: Fraction = 0.99
    first: Count = 8
    resamples: Count = 500

    @classmethod
    def conflict(cls, given: abc.Mapping[str, Any]) -> str | None:
        """What its fields cannot be to each other: see `Strategy.conflict`."""
        return AGGREGATED if getattr(given["utility"], "aggregate", False) else None

    def __post_init__(self) -> None:
        self.name, self.symmetric = self.utility.name, self.utility.symmetric

    @property
    def spends(self) -> bool:
        return self.utility.spends

    @property
    def fingerprint(self) -> str:
        how = f"{self.alpha} {self.first} {self.resamples}"
        return digest("confidence pruning", self.utility.fingerprint, how).hex()

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        return await self.utility.matrix(candidates, references, scope=scope)

    async def expected(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        weights: Weights | None = None,
        *,
        scope: Scope,
    ) -> Vector:
        return (await self.prune(candidates, references, weights, scope=scope)).expected

    async def prune(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        weights: Weights | None = None,
        *,
        scope: Scope,
    ) -> Pruned:
        """`expected`, with what it took."""
        references = candidates if references is None else references
        some(len(candidates), len(references))
        seed = scope.seed(Item(digest("confidence pruning")))
        w = weight_array(weights, len(references))
        order = _shuffle(references, w, seed)
        references, w = [references[i] for i in order], w[order]
        kept, place = distinct_sequences(candidates)
        met, column = distinct_sequences(references)
        alive, values = np.arange(len(kept)), np.empty((len(kept), 0))
        rng, survivors, pairs, done = np.random.default_rng(seed), list[int](), 0, 0
        while done < len(references) and (len(alive) > 1 or not done):
            end = min(max(self.first, 2 * done), len(references))
            block = met[values.shape[1] : column[:end].max() + 1]
            comparing = self.utility.matrix([kept[i] for i in alive], block, scope=scope)
            new = await (scope.attempt(comparing) if done else comparing)
            if new is None:
                break
            pairs, done, values = pairs + new.size, end, np.hstack([values, new])
            stays = self._stay(values[:, column[:end]], w[:end], rng)
            alive, values = alive[stays], values[stays]
            survivors.append(len(alive))
        expected = np.full(len(kept), math.nan)
        expected[alive] = expected_utility(values[:, column[:done]], list(w[:done]))
        return Pruned(expected[place], pairs, len(kept) * len(met), tuple(survivors))

    def _stay(self, values: Matrix, weights: Vector, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Who stays: enough resamples in which the candidate is at least as good as the best one so far."""
        if self.alpha == 1:
            return np.ones(len(values), dtype=bool)
        known = ~np.isnan(values)
        filled = np.where(known, values, 0.0)
        references = values.shape[1]
        shares = np.full(references, 1 / references)
        counts = rng.multinomial(references, shares, size=self.resamples) * weights
        totals = known @ counts.T
        means = np.divide(filled @ counts.T, totals, out=np.zeros(totals.shape), where=totals > 0)
        now = expected_utility(values, list(weights))
        best = int(np.argmax(np.where(np.isnan(now), -math.inf, now)))
        wins: NDArray[np.float64] = (means >= means[best]).mean(axis=1)
        stays: NDArray[np.bool_] = wins > 1 - self.alpha
        stays[best] = True
        return stays


def _shuffle(references: abc.Sequence[Sequence], weights: Vector, seed: int) -> list[int]:
    """The places of the references in an order that depends on what they are, not on where they stood."""
    seen: Counter[tuple[str, str | None, float]] = Counter()
    keys = []
    for reference, weight in zip(references, weights.tolist(), strict=True):
        what = (reference.text, reference.finish, weight)
        # Equal references are told apart by a number, or they would come in one lump.
        keys.append(digest(str(seed), reference.text, str(reference.finish), repr(weight), str(seen[what])))
        seen[what] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)
