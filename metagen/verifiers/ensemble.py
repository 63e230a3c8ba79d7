"""Ensembles of verifiers: one that is fooled is seldom fooled alone (Coste et al. 2023)."""

from __future__ import annotations

import math
from collections import abc
from typing import Literal, get_args

from metagen.batch import Stage
from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import PrimitiveVerifier, Verifier

Combine = Literal["mean", "worst", "uncertainty", "lower-bound"]


class Ensemble(Verifier):
    """Combines what its members v_1 … v_k say of each sequence.

    combine: `mean`, Σ_i w_i v_i; `worst`, min_i v_i; `uncertainty`, mean less penalty × variance, Σ_i w_i (v_i
    − mean)²; `lower-bound`, mean less penalty × standard deviation. raw keeps that number; the value is 0 where it
    falls below, which `uncertainty` cannot for a penalty ≤ 1.
    weights: of the members, 1 each by default; they are divided by their sum. `worst` has none.

    Steps are combined one by one where all members have as many. A sequence without a value from some member
    has none, and the verdict of the first such member; a verdict beside a value (`forged`) is kept. Members
    record and charge themselves, in the scope given: what one of them has scored there by itself is not paid
    for again. Raises InputError for too few members (an uncertainty needs two), an unknown `combine`, a negative
    penalty, and weights that do not fit the members.
    """

    def __init__(
        self,
        members: abc.Sequence[Verifier],
        combine: Combine = "mean",
        *,
        penalty: float = 1.0,
        weights: abc.Sequence[float] | None = None,
        name: str = "ensemble",
    ) -> None:
        if not members or (combine in ("uncertainty", "lower-bound") and len(members) < 2):
            raise InputError(
                f"{name}: {len(members)} members; expected at least one, and two for an uncertainty"
            )
        if combine not in get_args(Combine):
            raise InputError(f"{name}: combine={combine!r}: expected one of {', '.join(get_args(Combine))}")
        if not 0.0 <= penalty < math.inf:
            raise InputError(f"{name}: penalty={penalty!r}: expected a number ≥ 0")
        if weights is not None and combine == "worst":
            raise InputError(
                f"{name}: weights={list(weights)!r}: the worst of the members has no use for weights"
            )
        given = [1.0] * len(members) if weights is None else list(weights)
        if len(given) != len(members) or not all(0.0 <= w < math.inf for w in given) or not sum(given):
            raise InputError(
                f"{name}: weights={given!r}: expected {len(members)} numbers ≥ 0, not all of them 0"
            )
        self.members: tuple[Verifier, ...] = tuple(members)
        self.combine, self.penalty, self.name = combine, penalty, name
        self.weights = tuple(w / math.fsum(given) for w in given)

    @property
    def fingerprint(self) -> str:
        how = (self.combine, repr(self.penalty), repr(self.weights))
        return digest("ensemble", *how, *(member.fingerprint for member in self.members)).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        if not sequences:
            return []
        generates = not all(isinstance(member, PrimitiveVerifier) for member in self.members)

        async def scored(member: Verifier) -> list[Score]:
            return await member.score(sequences, scope=scope)

        found = await scope.batch(self.members, Stage(scored, generates=generates), whole=True)
        return [self._combined(scores) for scores in zip(*found.whole(), strict=True)]

    def _combined(self, scores: tuple[Score, ...]) -> Score:
        words = [score.feedback for score in scores if score.feedback]
        feedback = "\n\n".join(dict.fromkeys(words)) or None
        missing = next((score for score in scores if score.value is None), None)
        if missing is not None:
            return Score(None, verdict=missing.verdict, feedback=feedback, oracle=self.oracle)
        raw = self._one([score.value or 0.0 for score in scores])
        columns = [score.steps for score in scores if score.steps is not None]
        steps = None
        if len(columns) == len(scores) and len({len(column) for column in columns}) == 1:
            steps = tuple(_unit(self._one(values)) for values in zip(*columns, strict=True))
        verdict = next((score.verdict for score in scores if score.verdict is not None), None)
        return Score(_unit(raw), raw=raw, steps=steps, feedback=feedback, verdict=verdict, oracle=self.oracle)

    def _one(self, values: abc.Sequence[float]) -> float:
        if self.combine == "worst":
            return min(values)
        mean = math.fsum(w * v for w, v in zip(self.weights, values, strict=True))
        if self.combine == "mean":
            return mean
        variance = math.fsum(w * (v - mean) ** 2 for w, v in zip(self.weights, values, strict=True))
        return mean - self.penalty * (math.sqrt(variance) if self.combine == "lower-bound" else variance)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
