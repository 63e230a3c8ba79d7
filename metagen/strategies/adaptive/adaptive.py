"""Sample in batches until a stopping rule says that it is enough, then aggregate."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.sequence import digest
from metagen.strategies.adaptive.stopping import Floats, Ints, StoppingRule
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import Parallel


class Adaptive(Parallel):
    """Draws `batch` samples at a time, at most n, until `rule` stops; then the aggregator chooses.

    The samples are those of every other parallel strategy, in the same order: k of them are the first k of the full
    vote. The number drawn is that of the result's candidates. A larger batch keeps engines busy, and draws up to
    batch − 1 samples more than the rule needs.
    Raises InputError for n < 1 or batch < 1, UnsupportedError for a generator whose draws are joint.
    """

    def __init__(
        self, generator: Generator, n: int, aggregator: Aggregator, rule: StoppingRule, *, batch: int = 1
    ) -> None:
        super().__init__(generator, n, aggregator)
        if aggregator.verifier is not None and aggregator.verifier.relative:
            raise UnsupportedError(
                f"{type(self).__name__}: {aggregator.verifier.name!r} scores candidates relative to each other, which "
                "cannot be asked before all are drawn; take a verifier that scores one alone"
            )
        if not is_count(batch, 1):
            raise InputError(
                f"{type(self).__name__}: batch={batch!r}; expected the number of samples drawn at a time, at least 1"
            )
        self.rule, self.batch = rule, batch

    @property
    def fingerprint(self) -> str:
        return digest("adaptive", super().fingerprint, repr(self.rule), str(self.batch)).hex()

    def enough(self, candidates: Ordered[Candidate]) -> bool:
        return bool(candidates) and bool(self.rule.stops(*ballots(candidates, self.verifier is not None))[0])


def ballots(candidates: Ordered[Candidate], scored: bool) -> tuple[Ints, Floats]:
    """One row of classes and weights, as stopping rules take them; what is not eligible has neither vote nor weight.

    scored: the vote is weighted by scores.
    """
    names: dict[str, int] = {}
    classes = [
        names.setdefault(c.key, len(names)) if c.eligible and c.key is not None else -1 for c in candidates
    ]
    values = [(c.value if scored else 1.0) if c.eligible else None for c in candidates]
    weights = [np.nan if value is None else value for value in values]
    return np.array([classes], dtype=np.int64), np.array([weights], dtype=np.float64)
