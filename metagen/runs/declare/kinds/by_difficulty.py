"""`ByDifficulty` from an experiment file: a vote, weighted where there is a verifier."""

from __future__ import annotations

from collections import abc
from typing import Literal

from metagen.generators.base import Generator
from metagen.strategies.adaptive.by_difficulty import ByDifficulty
from metagen.strategies.aggregators import Majority, Weighted
from metagen.verifiers.base import AnswerRule, Verifier


def by_difficulty(
    generator: Generator,
    *,
    first: int,
    edges: abc.Sequence[float],
    options: abc.Sequence[int | Generator],
    answer: AnswerRule,
    verifier: Verifier | None = None,
    predictor: Literal["agreement", "mean_score"] = "agreement",
) -> ByDifficulty:
    """A strategy whose samples vote, by the verifier's scores if there is one."""
    aggregator = Majority(answer) if verifier is None else Weighted(verifier, answer)
    return ByDifficulty(generator, first, aggregator, edges=edges, options=options, predictor=predictor)


vars(by_difficulty).update(adaptive=True)
