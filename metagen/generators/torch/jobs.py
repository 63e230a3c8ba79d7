"""What the scheduler works on: the requests of coroutines, and the prefills that serve them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.continuation import Continuation
from metagen.generators.decoding.constraint import Held
from metagen.generators.decoding.words import Words
from metagen.generators.engine import EvaluateRequest, GenerateRequest, Sample
from metagen.generators.torch.prefix_tree import Node
from metagen.generators.torch.reading import Decoding
from metagen.generators.torch.search.step import Search


@dataclass(slots=True, eq=False)
class Ticket:
    """Where an answer goes: a future of some event loop. done: nothing is owed any more."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    done: bool = False


@dataclass(slots=True, eq=False)
class Generation:
    """A Generate request: one prefix, one row per seed.

    limit: new tokens after which a row ends. spill: segment memory that one row may need. ends: by token,
    whether it ends a row (`Endings`). matchers: where each sample, or row of a search, stands in the grammar, if
    any. search: what chooses for all rows together, if anything does. words: what is said of certain tokens. hidden:
    the hidden states of the prefix [tokens, width], if the search wants them. adapter: of its rows, by number; 0: none.
    opened, running: samples that got a row
    so far, and that have one; of a search, all its rows. decoded: tokens that a search has looked behind.
    """

    ticket: Ticket
    request: GenerateRequest
    ids: tuple[int, ...]
    start: int
    limit: int
    spill: int
    ends: bytes
    continuation: Continuation
    samples: list[Sample | None]
    matchers: list[Held] | None = None
    search: Search | None = None
    words: Words | None = None
    adapter: int = 0
    node: Node[Any] | None = None
    logits: Tensor | None = None
    hidden: Tensor | None = None
    reserved: int = 0
    opened: int = 0
    running: int = 0
    finished: int = 0
    prefilled: int = 0
    decoded: int = 0
    _head: NDArray[np.int64] | None = None

    @property
    def head(self) -> NDArray[np.int64]:
        """[tokens]: `ids` as an array."""
        if self._head is None:
            self._head = np.array(self.ids, np.int64)
        return self._head

    @property
    def wanted(self) -> int:
        """Rows that there must be room for."""
        return len(self.samples) if self.search is None else self.search.rows


@dataclass(slots=True, eq=False)
class Evaluation:
    """Evaluate requests of one call, each with how it is adapted, if it is; answered when the last of them is.

    adapter: of their rows, by number; 0: none. outputs: how many numbers the model's head gives, if it scores.
    """

    ticket: Ticket
    requests: list[EvaluateRequest]
    decodings: list[Decoding | None]
    answers: list[Any]
    left: int
    adapter: int = 0
    outputs: int | None = None


@dataclass(slots=True, eq=False)
class Prefill:
    """Tokens to run through the model: `ids`, of which the first `cached` are in the tree under `node`.

    reuse: prefix tokens that may be read from the tree at most, so that all wanted logits are computed.
    wanted: positions whose logits are needed, ascending. at: tokens that the row holds. sound: its logits are numbers.
    found: what is kept of them, some positions at a time.
    """

    owner: Generation | Evaluation
    index: int
    ids: tuple[int, ...]
    reuse: int
    wanted: tuple[int, ...]
    spill: int = 0
    node: Node[Any] | None = None
    cached: int = 0
    row: int = -1
    at: int = 0
    need: int = 0
    sound: bool = True
    found: list[Tensor] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)

    @property
    def ticket(self) -> Ticket:
        return self.owner.ticket

    @property
    def adapter(self) -> int:
        return self.owner.adapter

    @property
    def outputs(self) -> int | None:
        """How many numbers the model's head gives it, if it scores; None: logits over the vocabulary."""
        return self.owner.outputs if isinstance(self.owner, Evaluation) else None

    @property
    def wants_hidden(self) -> bool:
        """Whether the hidden states at the wanted positions are kept in `hidden`."""
        search = self.owner.search if isinstance(self.owner, Generation) else None
        return search is not None and search.wants_hidden

    @property
    def key(self) -> tuple[int, int]:
        """Two prefills with one key would compute at least one token twice."""
        return id(self.node), self.ids[self.cached]
