"""What a search sees of its rows at each step, and what it chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.errors import NumericsError
from metagen.generators.decoding.search import Scored
from metagen.generators.engine import Sample
from metagen.generators.torch.models.language_model import Ints

Floats = NDArray[np.float64]

#: ends(row, token): the sample of a row if it ended with that token, None if it goes on.
Ends = Callable[[int, int], Sample | None]


@dataclass(slots=True, eq=False)
class Step:
    """The k rows that live, in the order in which they were chosen; the first step has one, the prefix.

    logprobs: [k, V], log-softmax of the adapted logits; −inf (or, in a row that has no token at all, NaN) where a token
    may not follow. raw: [k, V], log-softmax of the model's own. hidden: [k, D], the model's last normed hidden states,
    for searches that want them; at the first step [L, D], of all tokens of the prefix in their order.
    """

    logprobs: Tensor
    raw: Tensor
    ends: Ends
    hidden: Tensor | None = None

    def values(self, score: Scored = "adapted") -> Tensor:
        """[k, V]: the log-probabilities to rank by; −inf where a token may not follow.

        NumericsError if the model's are no numbers.
        """
        if bool(self.raw[:, 0].isnan().any()):
            raise NumericsError(
                "the model returned NaN or infinite logits to a search; check its weights, or choose dtype='float32'"
            )
        adapted = self.logprobs.nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        return adapted if score == "adapted" else self.raw.masked_fill(adapted.isneginf(), -torch.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The rows that go on: parents[i] (a row of the step) followed by tokens[i]; no two are equal. None: it is over."""

    parents: Ints
    tokens: Ints

    def __len__(self) -> int:
        return len(self.parents)


#: The search is over.
OVER = Chosen(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Search(Protocol):
    """Chooses for all rows of one request together. Used from one thread.

    rows: of the model that it takes at most. wants_hidden: it reads `Step.hidden`; it may then choose a token that ends
    its row, to see what the model makes of it, and drops the row at the next step.
    """

    rows: int
    wants_hidden: bool

    def select(self, step: Step) -> Chosen:
        """What goes on; it is over where nothing can. NumericsError as `Step.values` raises it."""
        ...

    def results(self) -> list[tuple[Sample, float]]:
        """Once it is over: what ended, the best first, with the score that ranks it; empty if nothing did."""
        ...


def best(values: Tensor, count: int) -> tuple[Floats, Ints]:
    """Of each row of `values` [k, V] the `count` largest (all, if there are fewer), and where they are.

    The largest first, and of equals the lowest place.
    """
    size = values.shape[-1]
    count = min(count, size)
    if size <= 4 * count:
        ordered = torch.sort(values, dim=-1, descending=True, stable=True)
        return ordered.values[:, :count].double().cpu().numpy(), ordered.indices[:, :count].cpu().numpy()
    top = torch.topk(values, count + 1, -1)
    found, places = top.values.double().cpu().numpy(), top.indices.cpu().numpy()
    # How torch orders those that tie, and which of them at the edge are in, is up to it.
    tied = (found[:, 1:] == found[:, :-1]) & (found[:, 1:] > -np.inf)
    for row in np.flatnonzero(tied.any(1)).tolist():
        ordered = torch.sort(values[row], descending=True, stable=True)
        places[row] = ordered.indices[: count + 1].cpu().numpy()
    return found[:, :count], places[:, :count]


class Tops:
    """The best of each row of `values`, looked up once for all that ask for no more of them than one before."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._found: tuple[Floats, Ints] | None = None

    def __call__(self, count: int) -> tuple[Floats, Ints]:
        """`count` of each row at least (all, if there are fewer), as `best` gives them."""
        count = min(count, self._values.shape[-1])
        if self._found is None or self._found[0].shape[1] < count:
            self._found = best(self._values, count)
        return self._found


def rank(totals: Floats, count: int) -> tuple[Ints, Ints]:
    """The `count` largest of `totals` [k, m] as rows and columns; those that tie in their order; no −inf."""
    flat = totals.ravel()
    order = np.argsort(-flat, kind="stable")[:count]
    order = order[flat[order] > -np.inf]
    return order // totals.shape[1], order % totals.shape[1]
