"""Adapters by row: a batch is multiplied by the base once, and each row gets what its own adapter adds.

The rows of one adapter are multiplied by its two small matrices together. Rows without an adapter pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.models.heads import Head
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.models.linear import Linear
from metagen.generators.torch.models.low_rank import LowRank
from metagen.generators.torch.send import send


class Wearers:
    """The adapter of each row, by number; 0: none.

    Of the newest batch, groups: each adapter with its flat tokens, None where all have it; tokens: [N] the adapter of
    each, or None where no row has any.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.of = np.zeros(rows, np.int64)
        self.groups: tuple[tuple[int, Tensor | None], ...] = ()
        self.tokens: Ints | None = None
        self._device = device

    def begin(self, rows: Ints, counts: Ints | None, order: Ints | None) -> None:
        """A batch of `counts` [n] tokens of `rows` [n] (None: one each). order: [N] which flat token stands where."""
        of = self.of[rows]
        if not of.any():
            self.groups, self.tokens = (), None
            return
        if counts is not None:
            of = np.repeat(of, counts)
        if order is not None:
            of = of[order]
        self.tokens = of
        self.groups = tuple((int(one), self._where(of == one)) for one in np.unique(of) if one)

    def _where(self, ours: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Tensor | None:
        return None if ours.all() else send(np.flatnonzero(ours), self._device)


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


def read_by_row(x: Tensor, of: Ints, heads: Sequence[Head]) -> Tensor:
    """What the head of each row's adapter makes of normed hidden states x [n, width]; of: [n] the adapters, by number.

    float32 [n, most]: as many numbers as the widest of these heads gives, and −∞ behind those of a narrower one.
    """
    names = {id(heads[number]): heads[number] for number in np.unique(of).tolist()}
    if len(names) <= 1:
        return next(iter(names.values()), heads[0])(x)
    which = np.array([id(head) for head in heads])[of]
    parts = [(np.flatnonzero(which == name), head) for name, head in names.items()]
    read = [(send(places, x.device), head) for places, head in parts]
    found = [(places, head(x[places])) for places, head in read]
    most = max(numbers.shape[1] for _, numbers in found)
    whole = torch.full((len(x), most), -torch.inf, device=x.device)
    for places, numbers in found:
        whole[places, : numbers.shape[1]] = numbers
    return whole
