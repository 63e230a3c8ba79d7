"""Models whose state is the token ids themselves: they read what a row holds, and keep nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from torch import Tensor

from metagen.generators.torch.language_model import Ints

#: Tokens that a row takes at once; there is nothing to be gained by more.
CHUNK = 1024
#: Context of a model that has no bound of its own.
UNBOUNDED = 1 << 24


class IdSegment:
    """Token ids."""

    def __init__(self, ids: Ints) -> None:
        self.ids = ids.copy()

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, at: int) -> tuple[Self, Self]:
        return type(self)(self.ids[:at]), type(self)(self.ids[at:])


class IdsModel(ABC):
    """A LanguageModel that is a function of the ids so far; `read` is what a kind of it says."""

    token_bytes = 8

    def __init__(self, vocab_size: int, *, rows: int, max_context: int = UNBOUNDED) -> None:
        self.vocab_size, self.max_context, self.rows = vocab_size, max_context, rows
        self.chunk = min(CHUNK, max_context)
        self._ids = np.zeros((rows, 64), np.int64)
        self._length = np.zeros(rows, np.int64)

    @abstractmethod
    def read(self, rows: Ints, lengths: Ints) -> Tensor:
        """float32 logits [n, vocab] that follow the first lengths[i] ids of rows[i]; a row may occur more than once."""

    def ids(self, row: int, length: int) -> Ints:
        """The first `length` ids of a row."""
        return self._ids[row, :length]

    def last(self, rows: Ints, lengths: Ints, k: int) -> Ints:
        """[n, k]: the last k of the first lengths[i] ids of rows[i], −1 before their beginning."""
        places = lengths[:, None] + np.arange(-k, 0)
        found = self._ids[rows[:, None], places.clip(min=0)]
        return np.where(places < 0, -1, found)

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        owner = np.repeat(rows, counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self._length[owner] + within
        self._reach(int(places.max(initial=0)) + 1)
        self._ids[owner, places] = tokens
        self._length[rows] += counts
        wanted = np.cumsum(counts) - 1 if wanted is None else wanted
        return self.read(owner[wanted], places[wanted] + 1)

    def _reach(self, length: int) -> None:
        """Room for rows of this length."""
        while length > self._ids.shape[1]:
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)], axis=1)

    def open(self, rows: Ints, chain: Sequence[IdSegment]) -> None:
        ids = np.concatenate([segment.ids for segment in chain]) if chain else np.zeros(0, np.int64)
        self._reach(len(ids))
        self._ids[rows, : len(ids)] = ids
        self._length[rows] = len(ids)

    def fork(self, sources: Ints, targets: Ints) -> None:
        self._ids[targets] = self._ids[sources]
        self._length[targets] = self._length[sources]

    def move(self, sources: Ints, targets: Ints) -> None:
        self.fork(sources, targets)
        self._length[sources] = 0

    def truncate(self, row: int, length: int) -> None:
        self._length[row] = length

    def save(self, row: int, start: int, stop: int) -> IdSegment:
        return IdSegment(self._ids[row, start:stop])

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        self._length[rows] = 0

    def spill(self, tokens: int) -> int:
        return 0
