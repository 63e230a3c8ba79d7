"""Exact answer: 1 for the same answer, else 0. Minimum Bayes risk with it is voting."""

from __future__ import annotations

from collections import abc
from dataclasses import field

import numpy as np

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.utility.base import Matrix, Utility


@part
class ExactAnswer(Utility):
    """u(y, y') = 1[answer of y = answer of y'], by the keys of an answer rule.

    What has no answer agrees with nothing, itself included: it doesn't vote, and gets no votes. With scores as the
    weights, the expected utility is the share of a candidate's class in a weighted vote (Bertsch et al. 2023).
    """

    name = "exact"
    symmetric = True
    spends = False

    answer: AnswerRule = field(kw_only=False)

    @property
    def fingerprint(self) -> str:
        return digest("exact answer", self.answer.fingerprint).hex()

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        numbers: dict[str, int] = {}
        ours = await self._classes(candidates, numbers)
        theirs = ours if references is None else await self._classes(references, numbers)
        return np.array((ours[:, None] == theirs) & (ours[:, None] >= 0), dtype=np.float64)

    async def _classes(self, sequences: abc.Sequence[Sequence], numbers: dict[str, int]) -> np.ndarray:
        keys = [answer.key for answer in await self.answer.read(sequences)]
        return np.array([-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys])
