"""A language model that sees the last tokens only, as if the text began there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metagen.errors import MetagenError
from metagen.generators.torch.language_model import Ints, LanguageModel
from metagen.generators.torch.models.ids import IdsModel


class Windowed(IdsModel):
    """A LanguageModel that reads the last `window` tokens anew wherever its logits are asked for.

    No state can be kept: with every token the window moves, and with it the place of each token in it.
    """

    def __init__(
        self, model: LanguageModel[Any], window: int, *, rows: int, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(model.vocab_size, rows=rows)
        self.model, self.window, self._device = model, window, device

    def read(self, rows: Ints, lengths: Ints) -> Tensor:
        batch = self.model.rows
        parts = [self._anew(rows[i : i + batch], lengths[i : i + batch]) for i in range(0, len(rows), batch)]
        return torch.cat(parts) if parts else torch.zeros(0, self.vocab_size, device=self._device)

    def fault(self, ids: Sequence[int]) -> MetagenError | None:
        """The newest: the model saw the ends of texts only (`HasFaults`)."""
        found: MetagenError | None = self.model.fault(()) if hasattr(self.model, "fault") else None
        return found

    def _anew(self, rows: Ints, lengths: Ints) -> Tensor:
        """Of at most as many rows as the model has."""
        model, window = self.model, self.last(rows, lengths, self.window)
        here, n = np.arange(len(rows)), np.minimum(lengths, self.window)
        model.open(here, [])
        logits: list[Tensor | None] = [None] * len(rows)
        for at in range(0, int(n.max()), model.chunk):
            counts = np.clip(n - at, 0, model.chunk)
            mine = np.flatnonzero(counts)
            tokens = np.concatenate([window[i, self.window - n[i] + at :][: counts[i]] for i in mine])
            found = model.extend(mine, tokens, counts[mine])
            for i, row in zip(mine.tolist(), found, strict=True):
                logits[i] = row
        read = torch.stack([row for row in logits if row is not None])
        model.close(here, poisoned=bool(read.isnan().any()))
        return read
