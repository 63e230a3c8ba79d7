"""More samples, a larger model or a deeper search: a table chooses, by how hard the first samples show a problem."""

from __future__ import annotations

from bisect import bisect_right
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final, Literal

import numpy as np

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.adaptive.adaptive import ballots
from metagen.strategies.adaptive.stopping import Floats, Ints, leaders, totals
from metagen.strategies.aggregators import Aggregator, Majority, Weighted
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, Drawing, conclude
from metagen.values import Count
from metagen.verifiers.base import AnswerRule, Verifier

#: How to go on: with so many samples in all, or with another generator.
Option = Count | Generator
#: (classes, weights), [rows, k] each → [rows].
Predictor = Callable[[Ints, Floats], Floats]


def agreement(classes: Ints, weights: Floats) -> Floats:
    """The share of the samples that give the most frequent answer, [problems]; no answer counts as dissent.

    classes, weights: [problems, samples].
    """
    first, _ = leaders(totals(classes, np.ones(classes.shape)))
    return np.asarray(first / classes.shape[1])


def mean_score(classes: Ints, weights: Floats) -> Floats:
    """The verifier's mean score, [problems]; a sample without one counts as 0. weights: [problems, samples]."""
    return np.asarray(np.nan_to_num(weights).mean(axis=1))


#: By the name that fingerprints and files know them under.
PREDICTORS: Final[Mapping[str, Predictor]] = {"agreement": agreement, "mean_score": mean_score}


@part
class ByDifficulty(Strategy):
    """Draws `first` samples, and goes on as the table says for problems that look like this one.

    edges: ascending values of the predictor; options: one for each group between them, hardest first, len(edges) + 1.
    An option is the number of samples in all (at least `first`, which are part of them), or a generator: a larger
    model, a tree search, any strategy. It falls back on the first samples if what it returns did not end by itself.
    `examples/learned_tables` learns edges and options on held-out problems.

    Raises InputError for a table that does not fit, UnsupportedError for a generator whose draws are joint.
    """

    generator: Generator = field(kw_only=False)
    first: Count = field(kw_only=False)
    aggregator: Aggregator = field(kw_only=False)
    edges: abc.Sequence[float]
    options: abc.Sequence[Option]
    predictor: Literal["agreement", "mean_score"] = "agreement"

    def __post_init__(self) -> None:
        self.edges = tuple(float(edge) for edge in self.edges)
        self.options = tuple(self.options)
        _check(self.first, self.edges, self.options, self.predictor, self.aggregator)
        if not self.generator.independent:
            raise UnsupportedError(f"ByDifficulty pools independent draws; {self.generator!r} draws jointly")
        self.answer, self.verifier = self.aggregator.answer, self.aggregator.verifier

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
                    return await conclude(found[0], scope, self.answer)
        chosen = await self.aggregator.aggregate(candidates, prefix, scope)
        return replace(chosen, exhausted=True) if scope.exhausted else chosen

    def group(self, candidates: abc.Sequence[Candidate]) -> int:
        """Which row of the table a problem with these first samples belongs to."""
        value = PREDICTORS[self.predictor](*ballots(candidates, self.verifier is not None))[0]
        return bisect_right(self.edges, float(value))


def by_difficulty(
    generator: Generator,
    *,
    first: Count = 4,
    edges: abc.Sequence[float] = (),
    then: abc.Sequence[Option],
    predictor: Literal["agreement", "mean_score"] = "agreement",
    verifier: Verifier | None = None,
    answer: AnswerRule,
) -> ByDifficulty:
    """The agreement of the first samples, or the verifier's mean score, says how to go on.

    then: one more than edges, hardest first; each is a number of samples in all, or something else that answers.
    first: samples that tell how hard a problem is. predictor: what is read from them. verifier: of `mean_score`.
    """
    aggregator = Majority(answer) if verifier is None else Weighted(verifier, answer)
    return ByDifficulty(generator, first, aggregator, edges=edges, options=then, predictor=predictor)


#: Files of earlier versions named what to learn a table from.
_LEARNED = (
    "examples/learned_tables/write_table.py learns a table from a run, and writes it out as edges and then"
)
vars(by_difficulty).update(adaptive=True, former={"held_out": _LEARNED, "mean": _LEARNED, "groups": None})


def _check(
    first: int,
    edges: tuple[float, ...],
    options: tuple[Option, ...],
    predictor: str,
    aggregator: Aggregator,
) -> None:
    if aggregator.verifier is not None and aggregator.verifier.relative:
        raise UnsupportedError(
            f"ByDifficulty: {aggregator.verifier.name!r} scores candidates relative to each other; "
            "take a verifier that scores one alone"
        )
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
    needs = aggregator.verifier if predictor == "mean_score" else aggregator.answer
    if needs is None:
        part = "a verifier" if predictor == "mean_score" else "an answer rule"
        raise InputError(
            f"predictor={predictor!r} needs an aggregator with {part}; {type(aggregator).__name__} has none"
        )
