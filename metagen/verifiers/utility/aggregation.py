"""Reference aggregation: one comparison with the mean of the references, for measures made of counts."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import abc

import numpy as np

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.verifiers.utility.base import (
    TextUtility,
    Vector,
    Weights,
    distinct,
    merge_weights,
    some,
    weight_array,
)


@part
class AggregatingUtility(TextUtility):
    """A utility of texts whose `expected` may compare with the *mean bag* of n-grams of all references.

    That takes time linear in n (Vamvas & Sennrich 2024, "Linear-time minimum Bayes risk decoding with reference
    aggregation"), and it approximates: the mean of counts, not of scores. `matrix` stays as it is.
    """

    aggregate: bool = False

    @abstractmethod
    def compare_with_mean(self, texts: list[str], first: int, start: int, weights: Vector) -> Vector:
        """Scores of texts[:first] against the weighted mean of texts[start:], whose weights don't sum to zero."""

    async def expected(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        weights: Weights | None = None,
        *,
        scope: Scope,
    ) -> Vector:
        if not self.aggregate:
            return await super().expected(candidates, references, weights, scope=scope)
        others = candidates if references is None else references
        some(len(candidates), len(others))
        w = weight_array(weights, len(others))
        if not w.any():
            return np.zeros(len(candidates))
        texts, rows = distinct(await self.texts(candidates))
        first = len(texts)
        if references is None:
            start, shares = 0, merge_weights(w, rows)
        else:
            theirs, columns = distinct(await self.texts(references))
            texts, start, shares = texts + theirs, first, merge_weights(w, columns)
        return (await asyncio.to_thread(self.compare_with_mean, texts, first, start, shares))[rows]
