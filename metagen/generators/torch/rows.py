"""The rows that decode: one column of arrays per property, dense from 0 to `count`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metagen.generators.torch.history import History
from metagen.generators.torch.jobs import Generation
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.parameters import Parameters, RowParams

Floats = NDArray[np.float64]


class Rows:
    """Struct of arrays over at most `capacity` rows.

    token: the last drawn, not yet run through the model. held: to a grammar. joint: chosen together with the other
    rows of their request. length: tokens drawn. position: index of the next token, counted from the prompt. ids,
    logprobs: what was drawn, by row. confidences: at what was drawn, of the rows that ask for them. state: the row of
    the model that it reads. computed: tokens that were decoded for it, and not for another row that reads the same.
    forced: tokens that a grammar forced. log_mass: what masks left, where it is asked for. drafts: tokens to be drafted
    next; 0: as many as at first. parameters: how each row decodes.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity, self.count = capacity, 0
        self.owner: list[Generation | None] = [None] * capacity
        self.sample = np.zeros(capacity, np.int64)
        self.state = np.zeros(capacity, np.int64)
        self.computed = np.zeros(capacity, np.int64)
        self.forced = np.zeros(capacity, np.int64)
        self.log_mass = np.zeros(capacity)
        self.drafts = np.zeros(capacity, np.int64)
        self.seed = np.zeros(capacity, np.uint64)
        self.position = np.zeros(capacity, np.int64)
        self.length = np.zeros(capacity, np.int64)
        self.limit = np.zeros(capacity, np.int64)
        self.held = np.zeros(capacity, np.bool_)
        self.joint = np.zeros(capacity, np.bool_)
        self.token = np.zeros(capacity, np.int64)
        self.ids = np.zeros((capacity, 64), np.int64)
        self.logprobs = np.zeros((capacity, 64))
        self.confidences = np.zeros((capacity, 64))
        self.device = device
        self.parameters = Parameters(capacity, device)

    @property
    def params(self) -> RowParams:
        """Sampling parameters of the rows in use."""
        return self.parameters.rows

    def params_of(self, rows: Ints) -> RowParams:
        """Sampling parameters of these rows [n]; those of all rows are at hand."""
        params = self.params
        return params if len(rows) == len(params) and _in_order(rows) else params.take(rows)

    def generation(self, row: int) -> Generation:
        """The request that a row in use belongs to."""
        owner = self.owner[row]
        assert owner is not None
        return owner

    def flags(self, rows: Ints, tokens: Ints) -> NDArray[np.uint8]:
        """[n]: whether each token ends its row (`Endings`)."""
        both = zip(rows.tolist(), tokens.tolist(), strict=True)
        return np.fromiter((self.generation(row).ends[token] for row, token in both), np.uint8, len(rows))

    def table_of_flags(self, rows: Ints, size: int) -> NDArray[np.uint8] | None:
        """[n, size]: the flags of the first `size` tokens for each of `rows` [n]; None if some have none."""
        ends = [self.generation(row).ends for row in rows.tolist()]
        if len(ends[0]) < size:
            return None
        return np.ascontiguousarray(
            np.frombuffer(bytearray().join(ends), np.uint8).reshape(len(rows), -1)[:, :size]
        )

    def history(self, rows: Ints, known: Ints | None = None, behind: Ints | None = None) -> History | None:
        """The tokens before the next one of `rows` [n], `behind` [n] tokens of `known` [n, most] included.

        None if no row's parameters look at it.
        """
        if not self.params.remembers:
            return None
        owners = [self.generation(row) for row in rows.tolist()]
        heads = [owner.head for owner in owners]
        starts = [len(owner.ids) - owner.start for owner in owners]
        drawn, lengths = self.ids[rows], self.length[rows]
        if known is not None and behind is not None:
            row, place = np.nonzero(np.arange(known.shape[1]) < behind[:, None])
            drawn = np.concatenate([drawn, np.zeros_like(known)], 1)
            drawn[row, lengths[row] + place] = known[row, place]
            lengths = lengths + behind
        return History.of(heads, starts, drawn, lengths, self.device)

    def add(self, owner: Generation, first: int, seeds: NDArray[np.uint64]) -> Ints:
        """Rows for the owner's samples first, first + 1, … of `seeds` [n]; returns their numbers [n]."""
        rows = np.arange(self.count, self.count + len(seeds))
        self.count += len(seeds)
        for row in rows.tolist():
            self.owner[row] = owner
        self.sample[rows] = np.arange(first, first + len(seeds))
        self.seed[rows] = seeds
        self.position[rows] = owner.start
        self.length[rows] = self.computed[rows] = self.forced[rows] = self.drafts[rows] = 0
        self.log_mass[rows] = 0.0
        self.limit[rows] = owner.limit
        self.held[rows] = owner.matchers is not None
        self.joint[rows] = owner.search is not None
        self.parameters.add(rows, owner.request.params, owner.words)
        return rows

    def push_runs(self, rows: Ints, tokens: Ints, logprobs: Floats, counts: Ints) -> None:
        """For each of `rows` [n] counts [n] ≥ 1 more tokens, which it computed; tokens, logprobs: [n, most]."""
        at = self.length[rows]
        while len(rows) and int((at + counts).max()) > self.ids.shape[1]:
            self._widen()
        row, place = np.nonzero(np.arange(tokens.shape[1]) < counts[:, None])
        self.ids[rows[row], at[row] + place] = tokens[row, place]
        self.logprobs[rows[row], at[row] + place] = logprobs[row, place]
        self.token[rows] = tokens[np.arange(len(rows)), counts - 1]
        for column in (self.length, self.position, self.computed):
            column[rows] += counts

    def _widen(self) -> None:
        self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)], axis=1)
        self.logprobs = np.concatenate([self.logprobs, np.zeros_like(self.logprobs)], axis=1)
        self.confidences = np.concatenate([self.confidences, np.zeros_like(self.confidences)], axis=1)

    def push(self, rows: Ints, tokens: Ints, logprobs: Floats, confidences: Floats | None) -> None:
        """One more token for each of `rows` [n]; tokens, logprobs, confidences: [n]."""
        at = self.length[rows]
        if len(rows) and int(at.max()) >= self.ids.shape[1]:
            self._widen()
        self.ids[rows, at] = tokens
        self.logprobs[rows, at] = logprobs
        if confidences is not None:
            self.confidences[rows, at] = confidences
        self.token[rows] = tokens
        self.length[rows] += 1
        self.position[rows] += 1

    def branch(self, rows: Ints, parents: Ints) -> tuple[Ints, list[int]]:
        """Let copies of `parents` [m], some of `rows` [n], take the place of these rows, in order.

        Returns where they are [m], and which of `rows` are left over, to be removed. There must be room for more.
        """
        more = max(0, len(parents) - len(rows))
        new = np.arange(self.count, self.count + more)
        targets = np.concatenate([rows, new])[: len(parents)]
        self.count += more
        for column in self._columns():
            column[targets] = column[parents]
        for row in new.tolist():
            self.owner[row] = self.owner[int(parents[0])]
        self.sample[targets] = np.arange(len(targets))
        self.parameters.grow(more)
        self.parameters.fork(rows[:1].repeat(more), new)
        return targets, rows[len(parents) :].tolist()

    def remove(self, gone: list[int]) -> None:
        """Drop rows and close the gaps."""
        left = self.count - len(gone)
        dropped = set(gone)
        holes = np.array([r for r in gone if r < left], np.int64)
        movers = np.array([r for r in range(left, self.count) if r not in dropped], np.int64)
        for source, target in zip(movers.tolist(), holes.tolist(), strict=True):
            self.owner[target] = self.owner[source]
        for column in self._columns():
            column[holes] = column[movers]
        self.owner[left : self.count] = [None] * (self.count - left)
        self.count = left
        self.parameters.remove(holes, movers, left)

    def _columns(self) -> tuple[np.ndarray[Any, Any], ...]:
        return (
            self.sample, self.state, self.computed, self.forced, self.log_mass, self.drafts, self.seed, self.position,
            self.length, self.limit, self.held, self.joint, self.token, self.ids, self.logprobs,
            self.confidences,
        )  # fmt: skip


def _in_order(rows: Ints) -> bool:
    return bool((rows == np.arange(len(rows))).all())
