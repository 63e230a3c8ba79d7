"""Models whose state is the token ids themselves: they read what a row holds, and keep nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from metagen.errors import InputError, MetagenError
from metagen.generators.torch.models.language_model import Ints, LanguageModel
from metagen.generators.torch.send import send

#: ids so far -> a number for each token.
Function = Callable[[tuple[int, ...]], ArrayLike]
#: Faults that are remembered until they are asked for: as many as one step has, and more.
FAULTS = 1024

#: Tokens that a row takes at once; there is nothing to be gained by more.
CHUNK = 1024
#: Context of a model that has no bound of its own.
UNBOUNDED = 1 << 24


class IdSegment:
    """Token ids."""

    def __init__(self, ids: Ints) -> None:
        self.ids = ids.copy()

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, at: int) -> tuple[Self, Self]:
        return type(self)(self.ids[:at]), type(self)(self.ids[at:])


class IdsModel(ABC):
    """A LanguageModel that is a function of the ids so far; `read` is what a kind of it says."""

    token_bytes = 8

    def __init__(self, vocab_size: int, *, rows: int, max_context: int = UNBOUNDED) -> None:
        self.vocab_size, self.max_context, self.rows = vocab_size, max_context, rows
        self.chunk = min(CHUNK, max_context)
        self._ids = np.zeros((rows, 64), np.int64)
        self._length = np.zeros(rows, np.int64)

    @abstractmethod
    def read(self, rows: Ints, lengths: Ints) -> Tensor:
        """float32 logits [n, vocab] that follow the first lengths[i] ids of rows[i]; a row may occur more than once."""

    def ids(self, row: int, length: int) -> Ints:
        """[length]: the first ids of a row."""
        return self._ids[row, :length]

    def last(self, rows: Ints, lengths: Ints, k: int) -> Ints:
        """[n, k]: the last k of the first lengths[i] ids of rows[i], −1 before their beginning."""
        places = lengths[:, None] + np.arange(-k, 0)
        found = self._ids[rows[:, None], places.clip(min=0)]
        return np.where(places < 0, -1, found)

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        owner = np.repeat(rows, counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self._length[owner] + within
        self._reach(int(places.max(initial=0)) + 1)
        self._ids[owner, places] = tokens
        self._length[rows] += counts
        wanted = np.cumsum(counts) - 1 if wanted is None else wanted
        return self.read(owner[wanted], places[wanted] + 1)

    def _reach(self, length: int) -> None:
        """Room for rows of this length."""
        while length > self._ids.shape[1]:
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)], axis=1)

    def open(self, rows: Ints, chain: Sequence[IdSegment]) -> None:
        ids = np.concatenate([segment.ids for segment in chain]) if chain else np.zeros(0, np.int64)
        self._reach(len(ids))
        self._ids[rows, : len(ids)] = ids
        self._length[rows] = len(ids)

    def fork(self, sources: Ints, targets: Ints) -> None:
        self._ids[targets] = self._ids[sources]
        self._length[targets] = self._length[sources]

    def move(self, sources: Ints, targets: Ints) -> None:
        self.fork(sources, targets)
        self._length[sources] = 0

    def truncate(self, row: int, length: int) -> None:
        self._length[row] = length

    def save(self, row: int, start: int, stop: int) -> IdSegment:
        return IdSegment(self._ids[row, start:stop])

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        self._length[rows] = 0

    def spill(self, tokens: int) -> int:
        return 0


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
        return send(found.astype(np.float32), torch.device(self._device))

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
