"""Sample in batches until a stopping rule says that it is enough, then aggregate."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from dataclasses import field

import numpy as np

from metagen.errors import InputError, UnsupportedError
from metagen.parts import part
from metagen.strategies.adaptive.stopping import Floats, Ints, StoppingRule, simple_rules
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import ParallelStrategy
from metagen.values import Count


@part
class AdaptiveStrategy(ParallelStrategy):
    """Draws `step` samples at a time, at most n, until a rule stops; then the aggregator chooses.

    The samples are those of every other parallel strategy, in the same order: k of them are the first k of the full
    vote. The number drawn is that of the result's candidates. A larger batch keeps engines busy, and draws up to
    batch − 1 samples more than the rule needs. Authors of such strategies write `_aggregator` and `_rule`.
    Raises InputError for n < 1 or batch < 1, and for a rule on answers or scores where the aggregator has none;
    UnsupportedError for a generator whose draws are joint.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verifier is not None and self.verifier.relative:
            raise UnsupportedError(
                f"{type(self).__name__}: {self.verifier.name!r} scores candidates relative to each other, which cannot "
                "be asked before all are drawn; take a verifier that scores one alone"
            )
        self.stopping = self._rule()
        for rule in simple_rules(self.stopping):
            if odd := self._blind(rule):
                raise InputError(f"{type(self).__name__}: rule={rule!r} {odd}")

    def _blind(self, rule: StoppingRule) -> str | None:
        """What a rule needs to see and the aggregator does not show."""
        chooser = type(self.chooser).__name__
        if rule.needs == "scores" and self.verifier is None:
            return (
                f"looks at scores, and {chooser} has no verifier, so that every sample counts 1; give an aggregator "
                "with a verifier, or a rule on answers such as Beta()"
            )
        if rule.needs == "answers" and self.answer is None:
            return (
                f"counts answers, and {chooser} has no answer rule, so that it would never stop; give the aggregator "
                "answer=, or a rule on scores such as Sure(0.9)"
            )
        return None

    @abstractmethod
    def _rule(self) -> StoppingRule:
        """What says that it is enough."""

    def enough(self, candidates: abc.Sequence[Candidate]) -> bool:
        if not candidates:
            return False
        return bool(self.stopping.stops(*ballots(candidates, self.verifier is not None))[0])


@part
class Adaptive(AdaptiveStrategy):
    """Draws `batch` samples at a time until `rule` stops: see `AdaptiveStrategy`.

    aggregator: chooses among what was drawn. rule: says when it is enough. batch: samples between two looks.
    """

    adaptive = True

    aggregator: Aggregator = field(kw_only=False)
    rule: StoppingRule = field(kw_only=False)
    batch: Count = 1

    def _aggregator(self) -> Aggregator:
        return self.aggregator

    def _rule(self) -> StoppingRule:
        return self.rule

    @property
    def step(self) -> int:
        return self.batch


def ballots(candidates: abc.Sequence[Candidate], scored: bool) -> tuple[Ints, Floats]:
    """One row of classes and weights, [1, candidates] each, as stopping rules take them.

    What is not eligible has neither vote nor weight. scored: the vote is weighted by scores.
    """
    names: dict[str, int] = {}
    classes = [
        names.setdefault(c.key, len(names)) if c.eligible and c.key is not None else -1 for c in candidates
    ]
    values = [(c.value if scored else 1.0) if c.eligible else None for c in candidates]
    weights = [np.nan if value is None else value for value in values]
    return np.array([classes], dtype=np.int64), np.array([weights], dtype=np.float64)
