"""Beam search: of all continuations of the live prefixes by one token, the best go on; the best texts are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from metagen.generators.decoding.search import BeamSearch, EarlyStopping
from metagen.generators.engine import Sample
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.search.step import OVER, Chosen, Ends, Floats, Step, best, rank


class Candidate(NamedTuple):
    """A beam followed by a token; total: what it is ranked by."""

    total: float
    beam: int
    token: int


class Grown(NamedTuple):
    """What the best candidates became: texts that end there, and beams that go on; the best first."""

    ended: list[tuple[Candidate, Sample]]
    live: list[Candidate]


#: pool(m): [k, ≥ m] totals and tokens of each beam's m best candidates (all, where there are fewer), the best first.
Pool = Callable[[int], tuple[Floats, Ints]]


def grow(pool: Pool, ends: Ends, width: int, *, last: bool) -> Grown:
    """The `width` best candidates that go on, and what ends among the `width` best of all.

    A beam that ends thus leaves its place to the next best, and a text counts only where it beats what goes on in its
    place. last: every candidate ends.
    """
    wanted = width if last else 2 * width
    while True:
        totals, tokens = pool(wanted)
        beams, columns = rank(totals, wanted)
        grown = Grown([], [])
        for place, (beam, column) in enumerate(zip(beams.tolist(), columns.tolist(), strict=True)):
            candidate = Candidate(float(totals[beam, column]), beam, int(tokens[beam, column]))
            if (sample := ends(beam, candidate.token)) is None:
                grown.live.append(candidate)
            elif place < width:
                grown.ended.append((candidate, sample))
            if len(grown.live) == width:
                return grown
        if last or len(beams) < wanted:
            return grown
        wanted *= 2  # so many ended that fewer beams go on than could


class Text(NamedTuple):
    """rank: the score that it is kept by. score: the one that it is returned with, without penalties."""

    rank: float
    score: float
    sample: Sample


class Kept:
    """The `size` best texts so far, by Σ log p / |y|^α. limit: tokens that a text may have."""

    def __init__(self, size: int, alpha: float, rule: EarlyStopping, limit: int) -> None:
        self._size, self._alpha, self._rule, self._limit = size, alpha, rule, limit
        self.texts: list[Text] = []

    def add(self, sample: Sample, total: float, length: int, penalty: float = 0.0) -> None:
        """A text of `length` tokens: the sum of its log-probabilities, less the penalty that is in it already."""
        norm = math.pow(length, self._alpha)
        self.texts.append(Text(total / norm, (total + penalty) / norm, sample))
        self.texts.sort(key=lambda text: -text.rank)
        del self.texts[self._size :]

    def is_settled(self, total: float, length: int) -> bool:
        """Whether the best live prefix, of `length` tokens and this total, need not be followed any further."""
        if len(self.texts) < self._size:
            return False
        if self._rule == "filled":
            return True
        reach = self._limit if self._rule == "bound" else length
        return total / math.pow(reach, self._alpha) <= self.texts[-1].rank


class Beam:
    """A beam search under way. limit: new tokens that a text may have."""

    wants_hidden = False

    def __init__(self, spec: BeamSearch, limit: int) -> None:
        self.rows = spec.rows
        self._spec, self._limit = spec, limit
        self._kept = Kept(spec.width, spec.alpha, spec.early_stopping, limit)
        self._totals = np.zeros(1)
        self._length = 0

    def select(self, step: Step) -> Chosen:
        self._length += 1
        values = step.values(self._spec.score)

        def pool(count: int) -> tuple[Floats, Ints]:
            found, tokens = best(values, count)
            return found + self._totals[:, None], tokens

        ended, live = grow(pool, step.ends, self._spec.width, last=self._length == self._limit)
        for candidate, sample in ended:
            self._kept.add(sample, candidate.total, self._length)
        if not live or self._kept.is_settled(live[0].total, self._length):
            return OVER
        self._totals = np.array([c.total for c in live])
        return choose((c.beam, c.token) for c in live)

    def results(self) -> list[tuple[Sample, float]]:
        return [(text.sample, text.score) for text in self._kept.texts]


def choose(pairs: Iterable[tuple[int, int]]) -> Chosen:
    """From rows and tokens."""
    both = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Chosen(both[:, 0].copy(), both[:, 1].copy())
