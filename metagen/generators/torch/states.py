"""The rows of the model: samples of one request that are alike so far share one, and each token is run once for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metagen.generators.torch.language_model import Ints, LanguageModel
from metagen.generators.torch.rows import Rows


class States:
    """`rows.state` says which row of the model each sample's row reads: 0 … count-1, without gaps.

    Samples draw for themselves, so they part as soon as they draw differently. Where the model is sure of what follows,
    most of them go on together.
    """

    def __init__(self, model: LanguageModel[Any], rows: Rows) -> None:
        self._model, self._rows = model, rows
        self.count = 0

    def open(self, rows: Ints, chain: Sequence[Any]) -> None:
        """One state behind the chain for all of these new rows."""
        self._model.open(np.array([self.count]), chain)
        self._rows.state[rows] = self.count
        self.count += 1

    def extend(self, count: int) -> torch.Tensor:
        """Run the newest token of the first so many states; the logits that follow it, [count, vocab]."""
        tokens = np.empty(self.count, np.int64)
        tokens[self._mine] = self._rows.token[: self._rows.count]
        return self._model.extend(np.arange(count), tokens[:count])

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Of every row, from those of every state."""
        n = self._rows.count
        if self.count == n and bool((self._mine == np.arange(n)).all()):
            return states
        return states[torch.from_numpy(self._mine).to(states.device)]

    def payers(self) -> Ints:
        """Of the rows that read one state and have drawn the same token, one: the token counts as that row's."""
        if self.count == self._rows.count:
            return np.arange(self.count)
        return np.unique(self._drawn, return_index=True)[1]

    def part(self) -> None:
        """Rows that have drawn different tokens go on in states of their own."""
        if self.count == self._rows.count:
            return
        drawn, which = np.unique(self._drawn, return_inverse=True)
        states = drawn // self._model.vocab_size
        # Of each state's tokens the first stays where it is.
        new = np.diff(states, prepend=-1) == 0
        sources, targets = states[new], np.arange(self.count, self.count + int(new.sum()))
        if len(targets):
            self._model.fork(sources, targets)
            states[new] = targets
            self.count += len(targets)
        self._mine[:] = states[which]

    def close(self, rows: Ints, *, poisoned: bool) -> None:
        """Forget what these rows read, which holds NaN if it is poisoned; the rows are yet to leave."""
        self._model.close(np.unique(self._rows.state[rows]), poisoned=poisoned)

    def leave(self) -> None:
        """Rows are gone: let go of the states that nobody reads, closing the gaps."""
        read = np.bincount(self._mine, minlength=self.count) > 0
        free = np.flatnonzero(~read)
        if not len(free):
            return
        self._model.close(free)
        left = self.count - len(free)
        targets = free[free < left]
        sources = np.arange(left, self.count)[read[left:]]
        if len(sources):
            self._model.move(sources, targets)
            places = np.arange(self.count)
            places[sources] = targets
            self._mine[:] = places[self._mine]
        self.count = left

    def of(self, row: int) -> int:
        """The row of the model that a row reads."""
        return int(self._rows.state[row])

    @property
    def _drawn(self) -> Ints:
        """A number for each row's state and newest token."""
        return self._mine * self._model.vocab_size + self._rows.token[: self._rows.count]

    @property
    def _mine(self) -> Ints:
        return self._rows.state[: self._rows.count]
