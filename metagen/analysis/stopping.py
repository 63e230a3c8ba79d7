"""The savings of adaptive sampling: stopping rules replayed over a recorded pool.

A pool has N samples for each problem, drawn independently; the full vote is over all of them, or the first `most`. A
replay in several random orders counts, by problem, the samples that a rule draws, how often the vote over these agrees
with the full vote, and how often either is right. Estimates are per problem, so that the interval over problems stays a
separate step. Arrays are those of `metagen.analysis.estimators`; ties are split evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.intervals import Interval, interval
from metagen.analysis.paired import Difference, paired_difference
from metagen.analysis.subset_votes import TIE, Ballots
from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Rule(Protocol):
    """A stopping rule, such as those of `metagen.strategies.adaptive`."""

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        """Whether the first k samples are enough, [rows]; classes, weights: [rows, k]."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """By problem, the mean over orders; all arrays are [problems].

    drawn, tokens: of the samples that the rule draws. accuracy: of the vote over them. full_…: of the full vote, over
    `most` samples. agreement: how often both votes choose the same answer.
    """

    most: int
    drawn: Floats
    tokens: Floats
    accuracy: Floats
    full_tokens: Floats
    full_accuracy: Floats
    agreement: Floats

    @property
    def fewer(self) -> float:
        """The factor by which samples are fewer, on average over problems."""
        return float(self.most / self.drawn.mean())

    @property
    def cheaper(self) -> float:
        """The factor by which tokens are fewer."""
        return float(self.full_tokens.mean() / self.tokens.mean())

    def gain(self) -> Difference:
        """Accuracy against the full vote, over the same problems and orders."""
        return paired_difference(self.accuracy, self.full_accuracy)

    def fewer_interval(self) -> Interval:
        """Of `fewer`, over problems; its error by the delta method."""
        drawn = interval(self.drawn, support=(0.0, float(self.most)))
        fewer = self.most / drawn.estimate
        return Interval(
            fewer, self.most / drawn.high, self.most / drawn.low, fewer * drawn.error / drawn.estimate
        )


def replay(
    rule: Rule,
    classes: ArrayLike,
    correct: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    tokens: ArrayLike | None = None,
    most: int | None = None,
    batch: int = 1,
    orders: int = 20,
    seed: int = 0,
) -> Replayed:
    """Sample in batches until the rule stops, at most `most`, in random orders of the pool.

    classes, correct: [problems, samples]. tokens: the same shape, of each sample; 1 each by default. weights: the same
    shape, of the votes, NaN for none. With orders=0 the pool is taken in the order of the record, once. Raises
    InputError for shapes that differ, `most` or `batch` outside of 1 … N.
    """
    pool = _pool(classes, correct, weights, tokens)
    size = pool.classes.shape[1]
    most = size if most is None else most
    if not (1 <= most <= size and 1 <= batch <= size and orders >= 0):
        raise InputError(
            f"most={most!r}, batch={batch!r}, orders={orders!r}: expected 1 … {size}, 1 … {size} and ≥ 0"
        )
    rng = np.random.default_rng(seed)
    runs = [_once(rule, pool.shuffle(rng if orders else None), most, batch) for _ in range(max(orders, 1))]
    return Replayed(most, *np.mean(runs, axis=0))


def stopping_points(rule: Rule, classes: Ints, weights: Floats, *, batch: int = 1) -> Ints:
    """The number of samples that the rule draws of each row, [rows]; all where it never stops.

    classes, weights: [rows, samples].
    """
    rows, size = classes.shape
    drawn = np.full(rows, size)
    running = np.arange(rows)
    for k in range(batch, size, batch):
        stops = rule.stops(classes[running, :k], weights[running, :k])
        drawn[running[stops]] = k
        running = running[~stops]
        if not len(running):
            break
    return drawn


def running_vote(classes: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Accuracy of the vote over the first n samples, [rows, N], column n − 1; ties are split evenly.

    classes, correct, weights: [rows, N]. A class is as right as its members are on average; a vote of nobody is wrong.
    """
    pool = _pool(classes, correct, weights, None)
    columns = [(won * pool.right).sum(axis=1) / np.maximum(won.sum(axis=1), 1) for won in _winners(pool)]
    return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class _Pool:
    """classes: 0, 1, … of each row, −1 for no vote. right: [rows, classes], the accuracy of each class."""

    classes: Ints
    weights: Floats
    tokens: Floats
    right: Floats

    def shuffle(self, rng: np.random.Generator | None) -> _Pool:
        """In a random order, the same for all of its arrays."""
        if rng is None:
            return self
        order = rng.permuted(np.broadcast_to(np.arange(self.classes.shape[1]), self.classes.shape), axis=1)
        classes = np.take_along_axis(self.classes, order, axis=1)
        weights = np.take_along_axis(self.weights, order, axis=1)
        return _Pool(classes, weights, np.take_along_axis(self.tokens, order, axis=1), self.right)


def _pool(
    classes: ArrayLike, correct: ArrayLike, weights: ArrayLike | None, tokens: ArrayLike | None
) -> _Pool:
    ids, hits = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=np.float64)
    heavy = np.ones(ids.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    paid = np.ones(ids.shape) if tokens is None else np.asarray(tokens, dtype=np.float64)
    shapes = {ids.shape, hits.shape, heavy.shape, paid.shape}
    if len(shapes) != 1 or ids.ndim != 2 or not ids.size:
        raise InputError(
            f"expected arrays of one shape [problems, samples], none empty; got {sorted(shapes)}"
        )
    ballots = Ballots.of(ids, hits)
    return _Pool(np.where(ballots.ids < ballots.none, ballots.ids, -1), heavy, paid, ballots.right)


def _winners(pool: _Pool) -> Iterator[Bools]:
    """After each sample, the classes that lead: [rows, classes]."""
    rows = np.arange(len(pool.classes))
    gathered, named = np.zeros(pool.right.shape), np.zeros(pool.right.shape, dtype=bool)
    votes = np.nan_to_num(pool.weights)
    for n in range(pool.classes.shape[1]):
        cast = pool.classes[:, n] >= 0
        gathered[rows[cast], pool.classes[cast, n]] += votes[cast, n]
        named[rows[cast], pool.classes[cast, n]] = True
        # Where no vote has any weight, all classes with a vote tie.
        yield named & (gathered >= gathered.max(axis=1, keepdims=True) * (1.0 - TIE))


def _once(rule: Rule, pool: _Pool, most: int, batch: int) -> Floats:
    """drawn, tokens, accuracy, full tokens, full accuracy, agreement: [6, rows]."""
    pool = _Pool(pool.classes[:, :most], pool.weights[:, :most], pool.tokens[:, :most], pool.right)
    drawn = stopping_points(rule, pool.classes, pool.weights, batch=batch)
    stopped = np.zeros(pool.right.shape, dtype=bool)
    full = stopped
    for n, won in enumerate(_winners(pool), 1):
        stopped[drawn == n] = won[drawn == n]
        full = won
    accuracy, whole = (
        (won * pool.right).sum(axis=1) / np.maximum(won.sum(axis=1), 1) for won in (stopped, full)
    )
    # One order of preference breaks the ties of both votes: they agree if its favourite among all leaders leads both.
    either = (stopped | full).sum(axis=1)
    agreement = np.where(either > 0, (stopped & full).sum(axis=1) / np.maximum(either, 1), 1.0)
    spent = np.cumsum(pool.tokens, axis=1)
    paid = spent[np.arange(len(drawn)), drawn - 1]
    return np.stack([drawn.astype(np.float64), paid, accuracy, spent[:, -1], whole, agreement])
