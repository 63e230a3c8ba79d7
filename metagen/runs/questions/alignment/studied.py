"""Which pools of a study say what a reward wins: one of each model, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import StudyResult, Votes
from metagen.runs.note import Note
from metagen.runs.questions.alignment.pools import (
    DRAWN,
    Best,
    Reach,
    Rewarded,
    best,
    ladder,
    reaches,
    read_rewards,
)

if TYPE_CHECKING:
    from metagen.runs.declare.study import AlignmentSpec

#: The largest n.
MOST = 64


@dataclass(frozen=True, slots=True, eq=False)
class Studied:
    """One model's pool under one reward. bests: by n, over subsets. reached: policies on the pool as a model."""

    pool: Rewarded
    bests: tuple[Best, ...]
    reached: tuple[Reach, ...]

    @property
    def few(self) -> bool:
        """Whether there are too few problems for intervals and tests."""
        return len(self.pool.reward) < FEW


def study_pools(result: StudyResult, spec: AlignmentSpec | None) -> Iterator[Studied | Note]:
    """The test pool of each model, under `proxy`, or the first verifier that does not know the answers.

    spec: None for all models. Of several pools of a model, as settings were tuned, it is the first.
    """
    knowing = {curve.verifier for curve in result.curves if curve.oracle}
    gold = "correct" if spec is None else spec.gold
    for model in result.models:
        if spec is not None and model.name not in spec.models:
            continue
        votes = next((v for v in result.votes if (v.model, v.role) == (model.name, "test")), None)
        if votes is None:
            yield Note(model.name, "reward against KL is not measured, because there is no pool of samples")
            continue
        proxies = [name for name in votes.scores if name not in knowing and name != gold]
        proxy = spec.proxy if spec is not None and spec.proxy else next(iter(proxies), None)
        if proxy is None or proxy not in votes.scores:
            yield Note(
                model.name,
                f"reward against KL is not measured, because there are no scores of {proxy or 'any verifier'}",
            )
        elif gold not in ("correct", *votes.scores):
            yield Note(
                model.name, f"nothing is measured against the true goal, {gold}, because it has no scores"
            )
        else:
            at = result.facts.get("temperatures", {}).get(votes.generator, model.temperature)
            adapters = result.facts.get("adapters", {}).get(votes.generator, "")
            one = _measure(votes, proxy, gold, tuple(proxies), at, adapters)
            yield (
                one
                if one.bests
                else Note(f"{model.name} by {proxy}", "no problem has all its samples scored")
            )


@lru_cache(maxsize=8)
def _measure(
    votes: Votes, proxy: str, gold: str, proxies: tuple[str, ...], temperature: float | None, adapters: str
) -> Studied:
    pool = read_rewards(votes, proxy, gold, proxies, temperature, adapters)
    if not len(pool.reward):
        return Studied(pool, (), ())
    few = ladder(pool.samples // DRAWN, MOST)
    return Studied(pool, tuple(best(pool, ladder(pool.samples, MOST))), tuple(reaches(pool, few)))
