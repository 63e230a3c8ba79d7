"""Adapters by row: a batch is multiplied by the base once, and each row gets what its own adapter adds.

The rows of one adapter are multiplied by its two small matrices together. Rows without an adapter pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.models.linear import Linear
from metagen.generators.torch.models.low_rank import LowRank
from metagen.generators.torch.send import send

#: Flat tokens of a batch: all of them, those between two places, or those of these numbers.
Where = slice | Tensor | None


class Wearers:
    """The adapter of each row, by number; 0: none. groups: of the newest batch, each adapter with its flat tokens."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.of = np.zeros(rows, np.int64)
        self.groups: tuple[tuple[int, Where], ...] = ()
        self._device = device

    def begin(self, rows: Ints, counts: Ints | None, order: Ints | None) -> None:
        """A batch of `counts` [n] tokens of `rows` [n] (None: one each). order: [N] which flat token stands where."""
        of = self.of[rows]
        if not of.any():
            self.groups = ()
            return
        if counts is not None:
            of = np.repeat(of, counts)
        if order is not None:
            of = of[order]
        self.groups = tuple((int(one), self._where(of == one)) for one in np.unique(of) if one)

    def _where(self, ours: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Where:
        places = np.flatnonzero(ours)
        if len(places) == len(ours):
            return None
        first, last = int(places[0]), int(places[-1])
        if last - first + 1 == len(places):
            return slice(first, last + 1)
        return send(places, self._device)


@dataclass(frozen=True, slots=True)
class ByRow:
    """A map of a model, and what each adapter adds to it, by number."""

    base: Linear
    wearers: Wearers
    adapters: Mapping[int, LowRank] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.base(x)
        for number, where in self.wearers.groups:
            if (adapter := self.adapters.get(number)) is None:
                continue
            if where is None:
                y += adapter.more(x)
            elif isinstance(where, slice):
                y[where] += adapter.more(x[where])
            else:
                y.index_add_(0, where, adapter.more(x[where]))
        return y


def add(held: Linear, adapted: Linear, number: int, wearers: Wearers) -> Linear:
    """A map with one adapter more. adapted: the map under that adapter alone; itself where it changes nothing."""
    if not isinstance(adapted, LowRank):
        return held
    if isinstance(held, ByRow):
        return replace(held, adapters={**held.adapters, number: adapted})
    return ByRow(held, wearers, {number: adapted})
