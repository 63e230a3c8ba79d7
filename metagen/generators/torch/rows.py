"""The rows that decode: one column of arrays per property, dense from 0 to `count`."""

from __future__ import annotations

import numpy as np
import torch

from metagen.generators.torch.jobs import Generation
from metagen.generators.torch.language_model import Ints
from metagen.generators.torch.sampling import RowParams

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class Rows:
    """Struct of arrays over at most `capacity` rows.

    token: the last drawn, not yet run through the model. held: to a grammar. length: tokens drawn. position: index of
    the next token, counted from the prompt. ids, logprobs: what was drawn, by row. confidences: at what was drawn, of
    the rows that ask for them. state: the row of the model that it reads. computed: tokens that were decoded for it,
    and not for another row that reads the same.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity, self.count = capacity, 0
        self.owner: list[Generation | None] = [None] * capacity
        self.sample = np.zeros(capacity, np.int64)
        self.state = np.zeros(capacity, np.int64)
        self.computed = np.zeros(capacity, np.int64)
        self.seed = np.zeros(capacity, np.uint64)
        self.position = np.zeros(capacity, np.int64)
        self.length = np.zeros(capacity, np.int64)
        self.limit = np.zeros(capacity, np.int64)
        self.kind = np.zeros(capacity, np.int64)
        self.held = np.zeros(capacity, np.bool_)
        self.token = np.zeros(capacity, np.int64)
        self.temperature = np.ones(capacity)
        self.top_k = np.zeros(capacity, np.int64)
        self.top_p = np.ones(capacity)
        self.top_logprobs = np.zeros(capacity, np.int64)
        self.ids = np.zeros((capacity, 64), np.int64)
        self.logprobs = np.zeros((capacity, 64))
        self.confidences = np.zeros((capacity, 64))
        self.device = device
        self._params: RowParams | None = None

    @property
    def params(self) -> RowParams:
        """Sampling parameters of the rows in use."""
        if self._params is None:
            n = self.count
            self._params = RowParams.of(
                self.temperature[:n], self.top_k[:n], self.top_p[:n], self.top_logprobs[:n], self.device
            )
        return self._params

    def add(self, owner: Generation, first: int, seeds: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Ints:
        """Rows for the owner's samples first, first + 1, …; returns their numbers."""
        rows = np.arange(self.count, self.count + len(seeds))
        self.count += len(seeds)
        self._params = None
        for row in rows.tolist():
            self.owner[row] = owner
        params = owner.request.params
        self.sample[rows] = np.arange(first, first + len(seeds))
        self.seed[rows] = seeds
        self.position[rows] = owner.start
        self.length[rows] = self.computed[rows] = 0
        self.limit[rows] = owner.limit
        self.kind[rows] = owner.kind
        self.held[rows] = owner.matchers is not None
        self.temperature[rows], self.top_k[rows], self.top_p[rows], self.top_logprobs[rows] = (
            params.temperature, params.top_k, params.top_p, params.top_logprobs,
        )  # fmt: skip
        return rows

    def push(self, tokens: Ints, logprobs: Floats, confidences: Floats | None) -> None:
        """One more token for every row."""
        n = self.count
        longest = int(self.length[:n].max(initial=0))
        if longest >= self.ids.shape[1]:
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)], axis=1)
            self.logprobs = np.concatenate([self.logprobs, np.zeros_like(self.logprobs)], axis=1)
            self.confidences = np.concatenate([self.confidences, np.zeros_like(self.confidences)], axis=1)
        every = np.arange(n)
        self.ids[every, self.length[:n]] = tokens
        self.logprobs[every, self.length[:n]] = logprobs
        if confidences is not None:
            self.confidences[every, self.length[:n]] = confidences
        self.token[:n] = tokens
        self.length[:n] += 1
        self.position[:n] += 1

    def remove(self, gone: list[int]) -> None:
        """Drop rows and close the gaps."""
        left = self.count - len(gone)
        dropped = set(gone)
        holes = np.array([r for r in gone if r < left], np.int64)
        movers = np.array([r for r in range(left, self.count) if r not in dropped], np.int64)
        for source, target in zip(movers.tolist(), holes.tolist(), strict=True):
            self.owner[target] = self.owner[source]
        for column in (
            self.sample, self.state, self.computed, self.seed, self.position, self.length, self.limit, self.kind,
            self.held, self.token, self.temperature, self.top_k, self.top_p, self.top_logprobs, self.ids, self.logprobs,
            self.confidences,
        ):  # fmt: skip
            column[holes] = column[movers]
        self.owner[left : self.count] = [None] * (self.count - left)
        self.count = left
        self._params = None
