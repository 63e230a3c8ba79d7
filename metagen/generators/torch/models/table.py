"""A language model that is a function of the ids so far: a small one can be enumerated, for exact tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from metagen.errors import InputError
from metagen.generators.torch.language_model import Ints
from metagen.generators.torch.models.ids import UNBOUNDED, IdsModel

#: ids so far -> a number for each token.
Function = Callable[[tuple[int, ...]], ArrayLike]
#: Faults that are remembered until they are asked for: as many as one step has, and more.
FAULTS = 1024


class FunctionModel(IdsModel):
    """A LanguageModel whose logits are `function(ids)`, V numbers; NaN where it gives none, and `fault` says why."""

    def __init__(
        self,
        vocab_size: int,
        function: Function,
        *,
        rows: int = 64,
        max_context: int = UNBOUNDED,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(vocab_size, rows=rows, max_context=max_context)
        self._function, self._device = function, device
        self._faults: deque[tuple[tuple[int, ...], Exception]] = deque(maxlen=FAULTS)

    def row(self, ids: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """What the function gives; InputError if these are not V numbers."""
        row = np.asarray(self._function(ids), np.float64)
        if row.shape != (self.vocab_size,):
            raise InputError(
                f"after the ids {ids!r} the function gives an array of shape {row.shape}; expected one number for "
                f"each of the {self.vocab_size} tokens"
            )
        return row

    def read(self, rows: Ints, lengths: Ints) -> Tensor:
        found = np.zeros((len(rows), self.vocab_size))
        for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            ids = tuple(self.ids(row, length).tolist())
            try:
                found[i] = self.row(ids)
            except Exception as error:  # noqa: BLE001 - whoever asked hears of it, by `fault`, and nobody else
                found[i] = np.nan
                self._faults.append((ids, error))
        return torch.from_numpy(found).float().to(self._device)

    def fault(self, ids: Sequence[int]) -> InputError | None:
        """What the function did instead of giving numbers (`HasFaults`)."""
        for known, error in reversed(self._faults):
            if all(a == b for a, b in zip(known, ids, strict=False)):
                said = (
                    str(error)
                    if isinstance(error, InputError)
                    else f"after the ids {known!r} it raises {error!r}"
                )
                found = InputError(f"a model that is a function gives no numbers: {said}")
                found.__cause__ = error
                return found
        return None


class TableModel(FunctionModel):
    """A LanguageModel whose probabilities are `function(ids)`: V of them that sum to 1.

    Its logits are their logarithms. NaN is let through, to be found where any model's would be.
    """

    def row(self, ids: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        p = super().row(ids)
        if (p < 0).any() or abs(p.sum() - 1) > 1e-9:
            raise InputError(
                f"after the ids {ids!r} the table gives {p.tolist()!r:.200}; expected probabilities that sum to 1"
            )
        with np.errstate(divide="ignore"):
            logs: np.ndarray[tuple[int], np.dtype[np.float64]] = np.log(p)
        return logs
