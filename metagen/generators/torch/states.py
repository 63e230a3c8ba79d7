"""The rows of the model: samples of one request that are alike so far share one, and each token is run once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from metagen.generators.torch.models.language_model import Ints, LanguageModel
from metagen.generators.torch.rows import Rows


@dataclass(frozen=True, slots=True)
class Proposed:
    """Tokens that are run behind the newest of each state, before anybody knows whether they stay.

    tokens: [states, most], padded. counts: [states].
    """

    tokens: Ints
    counts: Ints

    @classmethod
    def of(cls, runs: Sequence[Sequence[int]]) -> Proposed | None:
        """By state; None if there are none."""
        counts = np.array([len(run) for run in runs], np.int64)
        if not counts.any():
            return None
        tokens = np.zeros((len(runs), counts.max()), np.int64)
        for row, run in zip(tokens, runs, strict=True):
            row[: len(run)] = run
        return cls(tokens, counts)

    def of_states(self, states: Ints) -> Ints:
        """[states, most]: what is proposed behind each; anything for states that were opened since."""
        return self.tokens[np.minimum(states, len(self.tokens) - 1)]


@dataclass(frozen=True, slots=True)
class Branches:
    """More rows of the model, run beside the states: tokens [rows, most], of which counts [rows]."""

    rows: Ints
    tokens: Ints
    counts: Ints


class States:
    """`rows.state` says which row of the model each sample's row reads: 0 … count-1, without gaps.

    Samples draw for themselves, so they part as soon as they draw differently. Where the model is sure of what follows,
    most of them go on together. apart: every row has a state of its own, as soon as it has drawn.
    """

    def __init__(self, model: LanguageModel[Any], rows: Rows, *, apart: bool = False) -> None:
        self._model, self._rows, self._apart = model, rows, apart
        self.count = 0

    def open(self, rows: Ints, chain: Sequence[Any], adapter: int) -> None:
        """One state behind the chain for all of these new `rows` [n], under the adapter of this number."""
        opened, model = np.array([self.count]), cast(Any, self._model)
        model.open(opened, chain)
        if adapter:
            model.assign(opened, adapter)
        self._rows.state[rows] = self.count
        self.count += 1

    def extend(self, count: int, proposed: Proposed | None, branches: Branches | None = None) -> torch.Tensor:
        """Run the newest token of the first so many states, and what is proposed behind it.

        Returns the logits that follow each of these tokens, [tokens, vocab], state by state, and those of branches.
        """
        newest = np.empty(self.count, np.int64)
        newest[self._mine] = self._rows.token[: self._rows.count]
        if proposed is None:
            return self._model.extend(np.arange(count), newest[:count])
        table = np.concatenate([newest[:count, None], proposed.tokens], 1)
        counts = 1 + proposed.counts
        tokens = table[np.arange(table.shape[1]) < counts[:, None]]
        rows = np.arange(count)
        if branches is not None:
            rows, counts = np.concatenate([rows, branches.rows]), np.concatenate([counts, branches.counts])
            inside = np.arange(branches.tokens.shape[1]) < branches.counts[:, None]
            tokens = np.concatenate([tokens, branches.tokens[inside]])
        return self._model.extend(rows, tokens, counts, np.arange(len(tokens)))

    def places(self, count: int, proposed: Proposed | None) -> tuple[Ints, Ints]:
        """[rows] each: where its logits begin in those of `extend`, new states last, and the tokens proposed."""
        behind = np.zeros(self.count, np.int64)
        if proposed is not None:
            behind[:count] = proposed.counts
        begins = np.cumsum(1 + behind) - (1 + behind)
        return begins[self._mine], behind[self._mine]

    def payers(self, rows: Ints, tokens: Ints) -> Ints:
        """[≤ n] of `rows` [n], which go on by `tokens` [n]: the rows that pay for them.

        Of rows that read one state and go on by one token, one pays.
        """
        if self.count == self._rows.count:
            return rows
        return rows[np.unique(self._mine[rows] * self._model.vocab_size + tokens, return_index=True)[1]]

    def part(self) -> None:
        """Rows that have drawn different tokens go on in states of their own."""
        n = self._rows.count
        if self.count == n:
            return
        newest, size = (np.arange(n), n) if self._apart else (self._rows.token[:n], self._model.vocab_size)
        drawn, which = np.unique(self._mine * size + newest, return_inverse=True)
        states = drawn // size
        # Of each state's tokens the first stays where it is.
        new = np.diff(states, prepend=-1) == 0
        sources, targets = states[new], np.arange(self.count, self.count + int(new.sum()))
        if len(targets):
            self._model.fork(sources, targets)
            states[new] = targets
            self.count += len(targets)
        self._mine[:] = states[which]

    def close(self, rows: Ints, *, poisoned: bool) -> None:
        """Forget the states of these `rows` [n], which hold NaN if they are poisoned; the rows are yet to leave."""
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
    def _mine(self) -> Ints:
        return self._rows.state[: self._rows.count]
