"""How the engine sees a model: rows that grow, and segments that keep what rows have computed.

A *row* is a token sequence being extended; a *segment* is the frozen state (keys and values) of a run of
tokens at a fixed place, owned by the prefix tree and shared by every row opened over it. Models made of
models (contrastive, proxy-tuned, …) implement the same verbs over pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from metagen.errors import MetagenError, NumericsError
from metagen.generators.randomness import U64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rules:
    """What shapes draws: seeds [n], positions [n] of the next tokens, temperatures [n].

    near, out: as in `compiled.draw`. flags: [n, V] of tokens, of which `ends` end a row.
    """

    seeds: U64
    positions: Ints
    temperatures: Floats
    near: float
    out: float
    flags: NDArray[np.uint8]
    ends: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """What rows have drafted: tokens [n, G], of which counts [n] are meant, drawn from q [n, G, V].

    near: [n] draws near an edge. bad: [n] the logits behind the tokens meant were no distribution.
    """

    tokens: Ints
    counts: Ints
    near: Ints
    bad: NDArray[np.bool_]
    q: Tensor

    @property
    def runs(self) -> Ints:
        """[n]: how often each row was run: once for each token, and once where there was no distribution."""
        return self.counts + self.bad


class Segment(Protocol):
    """Frozen state of `len(segment)` consecutive tokens."""

    def __len__(self) -> int: ...

    def split(self, at: int) -> tuple[Self, Self]:
        """The first `at` tokens and the rest, each in memory of its own.

        Rows that were opened over the whole read on, and hold no more than the two.
        """
        ...


S = TypeVar("S", bound=Segment)


class LanguageModel(Protocol[S]):
    """Next-token logits for many rows at once. Used from one thread.

    Rows are numbers in [0, rows) that the caller picks; 0 … R-1 without gaps extend the fastest. Some models have
    hidden states too (`HasHidden`), or adapters by row (`HasAdapters`).
    """

    vocab_size: int
    max_context: int
    rows: int
    chunk: int
    """Tokens that one row may take in one `extend`, at most."""
    token_bytes: int
    """Bytes of state of one token in a segment."""

    def open(self, rows: Ints, chain: Sequence[S]) -> None:
        """Let each of `rows` [n] hold the tokens of `chain`, in order."""
        ...

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        """Append `counts[i]` of the concatenated `tokens` to `rows[i]` (None: one each).

        Returns float32 logits [len(wanted), vocab] that follow the tokens numbered `wanted` in
        `tokens` (None: the last of each row).
        """
        ...

    def fork(self, sources: Ints, targets: Ints) -> None:
        """Let each of `targets` [n] hold the tokens of its source [n]; no row is both."""
        ...

    def move(self, sources: Ints, targets: Ints) -> None:
        """Let each of `targets` [n], which hold nothing, take the tokens of its source [n], which keeps none."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of the row."""
        ...

    def save(self, row: int, start: int, stop: int) -> S:
        """The state of the row's tokens start … stop-1 as a segment of its own."""
        ...

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        """Forget the `rows` [n]. `poisoned`: they hold NaN, which must not reach rows opened later."""
        ...

    def spill(self, tokens: int) -> int:
        """Tokens of segment memory that a row of `tokens` tokens may need while it runs."""
        ...


class HasHidden(Protocol):
    """A language model whose last hidden states can be read."""

    keeps_hidden: bool
    """Whether `extend` is to leave them; the caller says so before."""
    hidden: Tensor | None
    """Behind each token wanted of the newest `extend`, [len(wanted), width] in float32, normed."""


class HasAdapters(Protocol):
    """A language model whose rows may have adapters, each its own. Rows open without, and forks have their source's."""

    def assign(self, rows: Ints, adapter: int) -> None:
        """Let `rows` [n], which were just opened, have the adapter of this number; 0: none."""
        ...


class HasDrafts(Protocol):
    """A language model that may draft several tokens of each row in one call."""

    def draft(self, rows: Ints, tokens: Ints, counts: Ints, wanted: Ints, rules: Rules) -> Drafted | None:
        """At most wanted [n] ≥ 1 tokens of `rows` [n], up to one that ends it, behind the concatenated `tokens`.

        counts: [n] of `tokens`, which rows do not hold yet. All but the newest token is then held.
        None, and nothing is done, where the model cannot.
        """
        ...


class HasFaults(Protocol):
    """A language model that can say why it gave NaN: then that, and only what asked for it, fails."""

    def fault(self, ids: Sequence[int]) -> MetagenError | None:
        """The newest of what a text of these ids met, be it longer or shorter; None if nothing is known of it."""
        ...


def explain(model: Any, ids: Sequence[int], otherwise: NumericsError) -> MetagenError:
    """Why a model gives no numbers for a text of these ids, if it knows (`HasFaults`)."""
    known = model.fault(ids) if hasattr(model, "fault") else None
    return known or otherwise
