"""The oracle: a verifier that looks the answer up. For upper bounds only, and marked in every result."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import ClassVar

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier

#: Acceptability A(y) in [0, 1], from the task's grader.
Grade = Callable[[Sequence], Awaitable[float]]


@part
class OracleVerifier(Verifier):
    """Scores by the task's grader. Costs nothing, and every score says `oracle`."""

    oracle: ClassVar[bool] = True
    by_sample: ClassVar[bool] = True
    spends: ClassVar[bool] = False
    name = "oracle"

    grade: Grade = field(kw_only=False)

    @property
    def fingerprint(self) -> str:
        return digest("oracle").hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        # Equal samples of a recorded pool are one object.
        each = {id(sequence): sequence for sequence in sequences}
        scores = {key: _score(await self.grade(sequence)) for key, sequence in each.items()}
        return [scores[id(sequence)] for sequence in sequences]


def _score(grade: float) -> Score:
    """Of a grade, which is NaN where the grader cannot tell."""
    return Score(None, verdict="ungraded", oracle=True) if math.isnan(grade) else Score(grade, oracle=True)
