"""Value-improving pairs (bad, better) of chains of one problem: what a corrector learns from (Welleck et al. 2023)."""

from __future__ import annotations

from collections import abc
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Prompt
from metagen.strategies.refine.trajectory import Round
from metagen.verifiers.utility.base import Utility


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate, and one of the same problem that the verifier holds better.

    asked: the corrector's prompt for the bad one. values: v(bad) and v(better). similarity: s(better, bad), where it
    is computed. weight: exp(α·Δv + β·s), divided by its sum over all that are better than this bad one: the
    probability with which the bad one is given this correction to learn.
    """

    asked: Prompt
    bad: str
    better: str
    feedback: str | None
    values: tuple[float, float]
    similarity: float | None
    weight: float

    def record(self) -> dict[str, Any]:
        """As trainers read it: `prompt` and `completion`, texts or lists of messages, and what is known beside."""
        chat = self.asked.text is None
        return {
            "prompt": [asdict(message) for message in self.asked.messages] if chat else self.asked.text,
            "completion": [{"role": "assistant", "content": self.better}] if chat else self.better,
            "problem": self.asked.problem_id,
            "bad": self.bad,
            "feedback": self.feedback,
            "values": list(self.values),
            "similarity": self.similarity,
            "weight": self.weight,
        }


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which pairs there are, and how they weigh. utility: s(better, bad), needed for β ≠ 0, and only then.

    most: pairs kept for each bad candidate, the heaviest; None for all.
    """

    alpha: float = 1.0
    beta: float = 0.0
    utility: Utility | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.beta and self.utility is None:
            raise InputError(f"beta={self.beta!r} weighs a similarity, and there is none; give utility")
        if not self.beta and self.utility is not None:
            raise InputError("utility is not asked with beta=0; give beta, or leave utility out")

    async def pairs(self, rounds: abc.Sequence[Round], scope: Scope) -> list[Pair]:
        """All pairs with v(bad) < v(better), grouped by the bad one, the heaviest first.

        rounds: of one problem, from any number of chains. What is cut or has no answer is never a better one. A
        candidate without a prompt for its revision (`Round.asked`) is never a bad one.
        """
        pool = _distinct(rounds)
        near = None
        if self.beta and self.utility is not None and len(pool) > 1:
            sequences = [one.candidate.sequence for one in pool]
            near = await self.utility.matrix(sequences, scope=scope.child("similarity"))
        found: list[Pair] = []
        for i, bad in enumerate(pool):
            better = [j for j, one in enumerate(pool) if one.candidate.eligible and _value(one) > _value(bad)]
            if not better or bad.asked is None:
                continue
            gains = np.array([_value(pool[j]) - _value(bad) for j in better])
            likeness = None if near is None else np.asarray(near[better, i], dtype=np.float64)
            weights = self._weights(gains, likeness)
            said = bad.remark.text if bad.remark else None
            ranked = sorted(range(len(better)), key=lambda k: (-weights[k], _text(pool[better[k]])))
            found += [
                Pair(
                    bad.asked,
                    _text(bad),
                    _text(pool[better[k]]),
                    said,
                    (_value(bad), _value(pool[better[k]])),
                    None if likeness is None else float(likeness[k]),
                    float(weights[k]),
                )
                for k in ranked[: self.most]
            ]
        return found

    def _weights(self, gains: np.ndarray, likeness: np.ndarray | None) -> np.ndarray:
        """exp(α·Δv + β·s) / Z; what is not known to be like (NaN) is taken for unlike."""
        exponents = self.alpha * gains
        if likeness is not None:
            exponents = exponents + self.beta * np.nan_to_num(likeness, nan=0.0)
        shares = np.exp(exponents - exponents.max())
        return np.asarray(shares / shares.sum())


def _distinct(rounds: abc.Sequence[Round]) -> list[Round]:
    """One round for each text that has a value; one with a prompt for its revision, if any has."""
    by_text: dict[str, Round] = {}
    for one in rounds:
        known = by_text.get(_text(one))
        if one.candidate.value is not None and (known is None or known.asked is None):
            by_text[_text(one)] = one
    return list(by_text.values())


def _text(one: Round) -> str:
    return one.candidate.sequence.text


def _value(one: Round) -> float:
    return one.candidate.value or 0.0
