"""What is drafted in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.torch.language_model import Ints
from metagen.generators.torch.sampling import Allowed

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

    def allowed(self, lines: Ints, places: Ints, device: torch.device) -> Allowed | None:
        """For a batch of these lines and places: which of them a grammar holds, and the tokens that it allows there."""
        if not self.masks:
            return None
        keys = list(zip(lines.tolist(), places.tolist(), strict=True))
        held = [i for i, key in enumerate(keys) if key in self.masks]
        if not held:
            return None
        masks = np.stack([self.masks[keys[i]] for i in held])
        return torch.tensor(held, device=device), torch.from_numpy(masks).to(device)

    def taken(self, some: Ints) -> Block:
        """Those of its rows."""
        n = len(self.rows)
        lines = (np.arange(self.drafts)[:, None] * n + some).ravel()
        new = {old: i for i, old in enumerate(lines.tolist())}
        q = None if self.q is None else self.q[torch.from_numpy(lines).to(self.q.device)]
        taken = Block(self.rows[some], self.homes[lines], self.tokens[lines], self.counts[lines], q)
        taken.masks = {(new[i], place): mask for (i, place), mask in self.masks.items() if i in new}
        taken.near, taken.bad = self.near[lines], self.bad[lines]
        return taken
