"""Stopping rules: when the samples drawn so far are enough.

A rule is a pure function of what the samples have said, over many problems at once, so that a strategy asks it while
it samples, and a study replays it over a recorded pool (`metagen.analysis.stopping`). Rules combine: `a | b` stops when
either does, `a & b` when both do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metagen.border import Part, checked
from metagen.values import Certainty, Count

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class StoppingRule(Part, ABC):
    """Says of each row of samples whether it is enough. A rule is a value: its repr names all of it."""

    #: The input without which the rule decides nothing; None: the rule does not say.
    needs: ClassVar[Literal["answers", "scores"] | None] = None

    @abstractmethod
    def stops(self, classes: Ints, weights: Floats) -> Bools:
        """[rows], for the first k samples of each row, in the order in which they were drawn.

        classes: [rows, k], the class of the answer; negative ids have no vote. weights: [rows, k], what the vote counts
        a sample for: its score, or 1 without a verifier; NaN where there is none.
        """

    def __or__(self, other: StoppingRule) -> StoppingRule:
        return AnyOf((*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return AllOf((*_parts(self, AllOf), *_parts(other, AllOf)))


@dataclass(frozen=True)
class AnyOf(StoppingRule):
    """Stops when one of its rules does. rules: two or more of them.

    Examples:
        >>> import numpy as np
        >>> from metagen.strategies.adaptive.stopping import AnyOf, Decided
        >>> from metagen.strategies.adaptive.sure import Sure
        >>> either = AnyOf((Decided(8), Sure(0.9)))  # the same as Decided(8) | Sure(0.9)
        >>> either.stops(np.array([[0, 0], [0, 1]]), np.array([[0.4, 0.95], [0.4, 0.5]])).tolist()
        [True, False]
    """

    rules: tuple[StoppingRule, ...]

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        return np.asarray(np.any([rule.stops(classes, weights) for rule in self.rules], axis=0))


@dataclass(frozen=True)
class AllOf(StoppingRule):
    """Stops when all of its rules do. rules: two or more of them.

    Examples:
        >>> import numpy as np
        >>> from metagen.strategies.adaptive.stopping import AllOf, Decided
        >>> from metagen.strategies.adaptive.sure import Sure
        >>> both = AllOf((Decided(3), Sure(0.9)))  # the same as Decided(3) & Sure(0.9)
        >>> both.stops(np.array([[0, 0], [0, 0]]), np.array([[1.0, 0.95], [0.8, 0.85]])).tolist()
        [True, False]
    """

    rules: tuple[StoppingRule, ...]

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        return np.asarray(np.all([rule.stops(classes, weights) for rule in self.rules], axis=0))


@checked
@dataclass(frozen=True)
class Decided(StoppingRule):
    """Stops when the samples that are left, n in all, cannot overtake the leader: the vote over n is known.

    Lossless for votes whose weights are at most 1 each. n: samples in all; in a file those of the strategy by default.
    """

    needs = "answers"

    n: Count

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        first, second = leaders(totals(classes, weights))
        return np.asarray(first - second > max(0, self.n - classes.shape[1]))


def totals(classes: Ints, weights: Floats) -> Floats:
    """What each class has gathered, [rows, classes]; at least two columns, so that a leader has someone behind it."""
    rows, width = len(classes), max(2, int(classes.max(initial=-1)) + 1)
    # One column more gathers those without a vote.
    cells = np.where(classes < 0, width, classes) + np.arange(rows)[:, None] * (width + 1)
    counted = np.bincount(cells.ravel(), np.nan_to_num(weights).ravel(), rows * (width + 1))
    return np.asarray(counted, dtype=np.float64).reshape(rows, width + 1)[:, :width]


def leaders(gathered: Floats) -> tuple[Floats, Floats]:
    """The two largest totals of each row of [rows, classes], [rows] each."""
    top = np.partition(gathered, -2, axis=1)
    return top[:, -1], top[:, -2]


def simple_rules(rule: StoppingRule) -> Iterator[StoppingRule]:
    """The rules that a rule combines, however deep; itself, if it combines none."""
    if not isinstance(rule, AnyOf | AllOf):
        yield rule
        return
    for one in rule.rules:
        yield from simple_rules(one)


def _parts(rule: StoppingRule, kind: type[AnyOf] | type[AllOf]) -> tuple[StoppingRule, ...]:
    """The members of a combination of this kind, so that a | b | c is flat."""
    return rule.rules if isinstance(rule, kind) else (rule,)


@checked
@dataclass(frozen=True)
class Predictive(StoppingRule):
    """Stops when the leader after k samples leads after n with this probability. Never later than `Decided`.

    With counts v₁ ≥ v₂ and r samples left, the leader gets X ~ BetaBin(r, v₁ + 1, v₂ + 1) votes more, if all of them go
    to one of the two. The rule stops when P(v₁ + X > v₂ + r − X) ≥ confidence, ties counting half. Sequential trials
    know it as the predictive probability; it is not from a paper on adaptive voting. n: samples in all; in a file those
    of the strategy by default. confidence: the probability.
    """

    needs = "answers"

    n: Count
    confidence: Certainty = 0.97

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        left = max(0, self.n - classes.shape[1])
        return predictive_confidence(*leaders(totals(classes, weights)), left) >= self.confidence


def predictive_confidence(first: Floats, second: Floats, left: int) -> Floats:
    """P(v₁ + X > v₂ + r − X) + ½ P(=), X ~ BetaBin(r, v₁ + 1, v₂ + 1): arrays of counts of one shape, and r."""
    from scipy.special import betaln  # which every run would wait for

    first, second = np.asarray(first, float), np.asarray(second, float)
    # Few pairs of counts differ, however many rows there are.
    pairs, which = np.unique(np.stack([first.ravel(), second.ravel()], 1), axis=0, return_inverse=True)
    shape, first, second = first.shape, pairs[:, :1], pairs[:, 1:]
    needed, drawn = (second - first + left) / 2.0, np.arange(left + 1)
    ways = betaln(drawn + first + 1.0, left - drawn + second + 1.0) - betaln(first + 1.0, second + 1.0)
    chances = np.exp(ways - betaln(drawn + 1.0, left - drawn + 1.0)) / (left + 1)
    found = (chances * ((drawn > needed) + (drawn == needed) / 2.0)).sum(axis=1)
    return np.asarray(found[which.ravel()].reshape(shape))
