"""Ensembles of verifiers: one that is fooled is seldom fooled alone (Coste et al. 2023)."""

from __future__ import annotations

import math
from collections import abc
from dataclasses import field
from typing import Any, Literal

from metagen.batch import Stage
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.values import Quantity
from metagen.verifiers.base import Verifier

Combine = Literal["mean", "worst", "uncertainty", "lower-bound"]


@part
class Ensemble(Verifier):
    """Combines what its members v_1 … v_k say of each sequence.

    combine: `mean`, Σ_i w_i v_i; `worst`, min_i v_i; `uncertainty`, mean less penalty × variance, Σ_i w_i (v_i
    − mean)²; `lower-bound`, mean less penalty × standard deviation. raw keeps that number; the value is 0 where it
    falls below, which `uncertainty` cannot for a penalty ≤ 1.
    weights: of the members, 1 each by default; they are divided by their sum. `worst` has none.

    Steps are combined one by one where all members have as many. A sequence without a value from some member has
    none, and the verdict of the first such member; a verdict beside a value (`forged`) is kept. Members record and
    charge themselves, in the scope given: what one of them has scored there by itself is not paid for again. members:
    what is combined. penalty: the weight of variance or deviation. Raises InputError for too few members (an
    uncertainty needs two), and for weights and a penalty that do not fit them or would do nothing.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.ensemble import Ensemble
        >>> strict, mild = (mg.FunctionVerifier(lambda s, v=v: v, name=f"v{v}") for v in (0.2, 0.8))
        >>> text = mg.Sequence(mg.Prompt("1", text="?"), "7", finish="eos")
        >>> (score,) = asyncio.run(Ensemble([strict, mild], "worst").score([text], scope=mg.Scope.root("1")))
        >>> score.value
        0.2
    """

    members: abc.Sequence[Verifier] = field(kw_only=False)
    combine: Combine = field(default="mean", kw_only=False)
    penalty: Quantity = 1.0
    weights: abc.Sequence[Quantity] | None = None
    name: str = "ensemble"

    def __post_init__(self) -> None:
        weights = [1.0] * len(self.members) if self.weights is None else self.weights
        self.shares = tuple(w / math.fsum(weights) for w in weights)
        self.members = tuple(self.members)

    @classmethod
    def conflict(cls, given: abc.Mapping[str, Any]) -> str | None:
        """What its fields cannot be to each other: see `Strategy.conflict`."""
        members, combine, weights = len(given["members"]), given["combine"], given["weights"]
        if not members or (combine in ("uncertainty", "lower-bound") and members < 2):
            return f"{members} members; expected at least one, and two for an uncertainty"
        if combine in ("mean", "worst") and given["penalty"] != 1.0:
            return (
                f"penalty={given['penalty']!r}: combine={combine!r} has no use for a penalty; leave it out, or give "
                "combine='lower-bound' or 'uncertainty'"
            )
        if weights is None:
            return None
        if combine == "worst":
            return f"weights={list(weights)!r}: the worst of the members has no use for weights"
        if len(weights) != members or not sum(weights):
            return f"weights={list(weights)!r}: expected {members} numbers ≥ 0, not all of them 0"
        return None

    @property
    def fingerprint(self) -> str:
        how = (self.combine, repr(self.penalty), repr(self.shares))
        return digest("ensemble", *how, *(member.fingerprint for member in self.members)).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        if not sequences:
            return []

        async def ask(member: Verifier) -> list[Score]:
            return await member.score(sequences, scope=scope)

        found = await scope.batch(self.members, Stage(ask, generates=self.generates), whole=True)
        return [self._combine(scores) for scores in zip(*found.whole(), strict=True)]

    def _combine(self, scores: tuple[Score, ...]) -> Score:
        words = [score.feedback for score in scores if score.feedback]
        feedback = "\n\n".join(dict.fromkeys(words)) or None
        unread = sum(score.unread for score in scores)
        missing = next((score for score in scores if score.value is None), None)
        if missing is not None:
            return Score(None, verdict=missing.verdict, feedback=feedback, oracle=self.oracle, unread=unread)
        raw = self._value([score.value or 0.0 for score in scores])
        columns = [score.steps for score in scores if score.steps is not None]
        steps = None
        if len(columns) == len(scores) and len({len(column) for column in columns}) == 1:
            steps = tuple(_unit(self._value(values)) for values in zip(*columns, strict=True))
        verdict = next((score.verdict for score in scores if score.verdict is not None), None)
        return Score(_unit(raw), raw, steps, feedback, verdict, self.oracle, unread)

    def _value(self, values: abc.Sequence[float]) -> float:
        if self.combine == "worst":
            return min(values)
        mean = math.fsum(w * v for w, v in zip(self.shares, values, strict=True))
        if self.combine == "mean":
            return mean
        variance = math.fsum(w * (v - mean) ** 2 for w, v in zip(self.shares, values, strict=True))
        return mean - self.penalty * (math.sqrt(variance) if self.combine == "lower-bound" else variance)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
