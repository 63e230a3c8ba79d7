"""More samples, a larger model or a deeper search: a table chooses, by how hard the first samples show a problem."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import replace
from typing import Literal

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.adaptive.adaptive import ballots
from metagen.strategies.adaptive.difficulty import PREDICTORS
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate
from metagen.strategies.drawing import Drawing


class ByDifficulty(Strategy):
    """Draws `first` samples, and goes on as the table says for problems that look like this one.

    edges: ascending values of the predictor; options: one for each group between them, hardest first, len(edges) + 1.
    An option is the number of samples in all (at least `first`, which are part of them), or a generator: a larger
    model, a tree search, any strategy. It falls back on the first samples if what it returns did not end by itself.
    `metagen.experiments.allocation.choose` learns edges and options on held-out problems.

    Raises InputError for a table that does not fit, UnsupportedError for a generator whose draws are joint.
    """

    def __init__(
        self,
        generator: Generator,
        first: int,
        aggregator: Aggregator,
        *,
        edges: Iterable[float],
        options: Iterable[int | Generator],
        predictor: Literal["agreement", "mean_score"] = "agreement",
    ) -> None:
        self.edges, self.options = tuple(float(edge) for edge in edges), tuple(options)
        _check(first, self.edges, self.options, predictor, aggregator)
        if not generator.independent:
            raise UnsupportedError(f"ByDifficulty pools independent draws; {generator!r} draws jointly")
        self.generator, self.first, self.aggregator, self.predictor = generator, first, aggregator, predictor
        self.answer, self.verifier = aggregator.answer, aggregator.verifier

    @property
    def fingerprint(self) -> str:
        table = [repr(self.edges), *(str(o) if isinstance(o, int) else o.fingerprint for o in self.options)]
        parts = [self.generator.fingerprint, str(self.first), self.aggregator.fingerprint, self.predictor]
        return digest("by difficulty", *parts, *table).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        sampling, scoring = scope.child("sample"), scope.child("score")
        drawing = Drawing(
            self.generator, prefix, scope, sampling, scoring, answer=self.answer, verifier=self.verifier
        )
        candidates = await drawing.to(self.first)
        if len(candidates) == self.first and not (sampling.exhausted or scoring.exhausted):
            option = self.options[self.group(candidates)]
            if isinstance(option, int):
                candidates = await drawing.to(option)
            else:
                found = await scope.attempt(option.generate(prefix, scope=scope.child("harder")))
                if found and found[0].finish in ("eos", "stop"):
                    return found[0]
        chosen = await self.aggregator.aggregate(candidates, prefix, scope)
        return replace(chosen, exhausted=True) if scope.exhausted else chosen

    def group(self, candidates: Ordered[Candidate]) -> int:
        """Which row of the table a problem with these first samples belongs to."""
        value = PREDICTORS[self.predictor](*ballots(candidates, self.verifier is not None))[0]
        return bisect_right(self.edges, float(value))


def _check(
    first: int,
    edges: tuple[float, ...],
    options: tuple[int | Generator, ...],
    predictor: str,
    aggregator: Aggregator,
) -> None:
    if aggregator.verifier is not None and aggregator.verifier.relative:
        raise UnsupportedError(
            f"ByDifficulty: {aggregator.verifier.name!r} scores candidates relative to each other; "
            "take a verifier that scores one alone"
        )
    if not is_count(first, 1):
        raise InputError(f"ByDifficulty: first={first!r}; expected the number of first samples, at least 1")
    if list(edges) != sorted(edges) or len(options) != len(edges) + 1:
        raise InputError(
            f"ByDifficulty: {len(options)} options for edges={edges!r}; expected ascending edges and one option more "
            "than edges"
        )
    few = [option for option in options if isinstance(option, int) and option < first]
    if few:
        raise InputError(
            f"ByDifficulty: an option of {few[0]} samples, after first={first}; expected at least {first}"
        )
    if predictor not in PREDICTORS:
        raise InputError(f"predictor={predictor!r}: expected one of {', '.join(PREDICTORS)}")
    needs = aggregator.verifier if predictor == "mean_score" else aggregator.answer
    if needs is None:
        part = "a verifier" if predictor == "mean_score" else "an answer rule"
        raise InputError(
            f"predictor={predictor!r} needs an aggregator with {part}; {type(aggregator).__name__} has none"
        )
