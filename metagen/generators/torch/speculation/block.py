"""The tokens that are drafted in one step, and their random numbers.

A place may be drafted in several blocks: what one has rejected, the next drafts anew. So numbers are keyed by the place
*and* by its index in the block, which together name the block; a number keyed by the place alone would be used again
after a rejection that it has caused, and bias what follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.decoding.draft import MOST_DRAFTS
from metagen.generators.randomness import U64, Purpose, uniform
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.sampling import Allowed
from metagen.generators.torch.send import send

Flags = NDArray[np.bool_]


@dataclass(slots=True)
class Block:
    """Lines of drafted tokens: line i drafts for row i, and line n + i is that row's second draft, and so on.

    rows: [n]. homes: [lines] the row of the model that each line is run in; the first of a row is its own state.
    tokens: [lines, G], of which counts [lines] are meant. q: [lines, G, V] what they were drawn from; None if they were
    looked up. masks: by line and place, what the row's grammar allows there. near: [lines] draws that rounding could
    have flipped. bad: [lines] the draft's logits were no numbers.
    """

    rows: Ints
    homes: Ints
    tokens: Ints
    counts: Ints
    q: Tensor | None
    masks: dict[tuple[int, int], Flags] = field(default_factory=dict)
    near: Ints = field(init=False)
    bad: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.near = np.zeros(len(self.tokens), np.int64)
        self.bad = np.zeros(len(self.tokens), np.bool_)

    @property
    def drafts(self) -> int:
        """Of each row."""
        return len(self.tokens) // len(self.rows)

    @property
    def owners(self) -> Ints:
        """[lines]: the row that each line drafts for."""
        return np.tile(self.rows, self.drafts)

    def allowed_tokens(self, lines: Ints, places: Ints, device: torch.device) -> Allowed | None:
        """Which of the lines [n] and places [n] a grammar holds, [K], and the tokens that it allows there, [K, V]."""
        if not self.masks:
            return None
        keys = list(zip(lines.tolist(), places.tolist(), strict=True))
        held = [i for i, key in enumerate(keys) if key in self.masks]
        if not held:
            return None
        masks = np.stack([self.masks[keys[i]] for i in held])
        return send(np.array(held, np.int64), device), send(masks, device)

    def take(self, some: Ints) -> Block:
        """The lines of `some` [m] of its rows."""
        n = len(self.rows)
        lines = (np.arange(self.drafts)[:, None] * n + some).ravel()
        new = {old: i for i, old in enumerate(lines.tolist())}
        q = None if self.q is None else self.q[send(lines, self.q.device)]
        taken = Block(self.rows[some], self.homes[lines], self.tokens[lines], self.counts[lines], q)
        taken.masks = {(new[i], place): mask for (i, place), mask in self.masks.items() if i in new}
        taken.near, taken.bad = self.near[lines], self.bad[lines]
        return taken


def numbers(
    seeds: U64, positions: Ints, index: Ints, purpose: Purpose, candidates: Ints | int = 0
) -> NDArray[np.float64]:
    """Uniform in [0, 1) for the token `index` (from 1) of blocks that begin at `positions`; arguments broadcast.

    Numbers for drafts have the purpose SAMPLE; plain draws, whose index is 0, share none with them.
    """
    return uniform(seeds, positions + index - 1, purpose, index * MOST_DRAFTS + candidates)
