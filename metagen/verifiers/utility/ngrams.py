"""Bags of n-grams of many texts, and how much they share: the one operation behind chrF, BLEU and token F1.

The clipped matches of two bags, Σ_g min(c(g), c'(g)), are the size of an intersection once the second occurrence
of an n-gram is told from the first. So all pairs of texts are one product of sparse 0-1 matrices.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metagen.verifiers.utility.base import Matrix, Vector

Ids = NDArray[np.int64]
#: An occurrence that more than this share of the texts has goes through a dense product, which is faster then.
COMMON = 1 / 12
#: Columns of a dense product, and rows of a sparse one, that are multiplied at a time.
BLOCK = 512
#: Keys below this bound are numbered by a table, others by sorting.
TABLE = 1 << 23


@dataclass(frozen=True, slots=True)
class Bags:
    """The n-grams of `documents` texts for one n: text `owner[k]` has n-gram `gram[k]` `count[k]` times.

    N-grams are numbered from 0 to grams − 1, for all texts alike; each (owner, gram) occurs once, in this order.
    """

    owner: Ids
    gram: Ids
    count: Ids
    documents: int
    grams: int

    @classmethod
    def of(cls, owner: Ids, gram: Ids, documents: int, grams: int) -> Bags:
        """From single occurrences."""
        keys, count = np.unique(owner * max(grams, 1) + gram, return_counts=True)
        return cls(keys // max(grams, 1), keys % max(grams, 1), count, documents, grams)

    @property
    def sizes(self) -> Vector:
        """How many n-grams each text has, repetitions included, [texts]."""
        return _sums(self.owner, self.count, self.documents)

    def matches(self, first: int | None = None) -> Matrix:
        """Σ_g min(c_i(g), c_j(g)), [first, others]: of the first texts with the others.

        Without `first`, of all with all: [texts, texts].
        """
        rare, common = self._occurrences()
        start = first or 0
        result = np.zeros((self.documents if first is None else first, self.documents - start))
        for c in range(0, common.shape[1], BLOCK):
            columns = common[:, c : c + BLOCK].toarray()
            result += columns[:first] @ columns[start:].T
        if first is not None:
            return np.asarray(result + (rare[:first] @ rare[first:].T).toarray())
        for a in range(0, self.documents, BLOCK):
            # One half; the other is its mirror image.
            rows = (rare[a : a + BLOCK] @ rare[a:].T).toarray()
            result[a : a + BLOCK, a:] += rows
            result[a + BLOCK :, a : a + BLOCK] += rows[:, BLOCK:].T
        return result

    def _occurrences(self) -> tuple[sparse.csr_matrix, sparse.csc_matrix]:
        """0-1 matrices (texts × occurrences): column (g, k) says that the text has n-gram g at least k times.

        The second holds the columns of what is common. All sums are exact: they stay far below 2^24.
        """
        most = np.zeros(self.grams, dtype=np.int64)
        np.maximum.at(most, self.gram, self.count)
        first = np.cumsum(most) - most
        row = np.repeat(self.owner, self.count)
        kth = np.arange(len(row)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        column = np.repeat(first[self.gram], self.count) + kth
        often = np.bincount(column, minlength=int(most.sum())) > COMMON * self.documents
        ones, shape = np.ones(len(row), dtype=np.float32), (self.documents, len(often))
        every = sparse.csc_matrix((ones, (row, column)), shape=shape)
        return every[:, ~often].tocsr(), every[:, often]

    def mean(self, weights: Vector, start: int) -> Vector:
        """Of each n-gram, its mean count in the texts from number `start` on: Σ_j w_j c_j(g) / Σ_j w_j, [n-grams]."""
        begin = np.searchsorted(self.owner, start)
        shares = (weights / weights.sum())[self.owner[begin:] - start]
        return _sums(self.gram[begin:], shares * self.count[begin:], self.grams)

    def matches_with(self, counts: Vector, first: int) -> Vector:
        """Σ_g min(c_i(g), counts(g)) of each of the first texts, [first]; counts: [n-grams]."""
        end = np.searchsorted(self.owner, first)
        clipped = np.minimum(self.count[:end], counts[self.gram[:end]])
        return _sums(self.owner[:end], clipped, first)


def _sums(place: Ids, values: Ids | Vector, places: int) -> Vector:
    return np.bincount(place, weights=values, minlength=places).astype(np.float64)


def _number(keys: Ids, bound: int) -> tuple[Ids, int]:
    """The rank of each key among the distinct ones, and how many these are. bound: above all keys."""
    if bound > TABLE:
        names, inverse = np.unique(keys, return_inverse=True)
        return inverse.astype(np.int64), len(names)
    present = np.zeros(bound, dtype=bool)
    present[keys] = True
    rank = np.cumsum(present, dtype=np.int64)
    return rank[keys] - 1, int(rank[-1]) if bound else 0


def ngrams(documents: abc.Sequence[Ids], order: int) -> Iterator[Bags]:
    """The bags for n = 1 … order. documents: symbols of each text, as integers ≥ 0."""
    lengths = np.array([len(d) for d in documents], dtype=np.int64)
    flat = np.concatenate([*documents, np.empty(0, np.int64)]).astype(np.int64)
    owner = np.repeat(np.arange(len(documents)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(flat))
    alphabet, symbols = np.unique(flat, return_inverse=True)
    grams, known = symbols.astype(np.int64), len(alphabet)
    for n in range(1, order + 1):
        start = np.flatnonzero(left >= n)
        if n > 1:
            # An n-gram is the shorter one that begins where it does, and one symbol more.
            pairs = grams[start] * len(alphabet) + symbols[start + n - 1]
            inverse, more = _number(pairs, known * len(alphabet))
            grams, known = np.zeros_like(grams), more
            grams[start] = inverse
        yield Bags.of(owner[start], grams[start], len(documents), known)


def characters(text: str) -> Ids:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def words(texts: Iterable[abc.Sequence[str]]) -> list[Ids]:
    """The words of each text, numbered over all texts."""
    numbers: dict[str, int] = {}
    return [
        np.array([numbers.setdefault(word, len(numbers)) for word in text], dtype=np.int64) for text in texts
    ]
