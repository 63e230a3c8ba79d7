"""A language model made of several, side by side: the same rows hold the same tokens in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from metagen.errors import MetagenError
from metagen.generators.torch.models.language_model import Ints, LanguageModel, Segment

Combine = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True, slots=True)
class Joined:
    """The state of the same tokens in every model."""

    parts: tuple[Segment, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def split(self, at: int) -> tuple[Self, Self]:
        heads, tails = zip(*(part.split(at) for part in self.parts), strict=True)
        return type(self)(heads), type(self)(tails)


def first(logits: Sequence[Tensor]) -> Tensor:
    """[N, V]: the first model's logits; the others run beside it."""
    return logits[0]


class Combined:
    """A LanguageModel over `models` of one vocabulary.

    combine: a pure function of the logits [N, V] of each, in their order, to those of the whole. A model with more
    logits than the least has only ids behind them that no text has (padding); these are left out.

    A row holds as many tokens as the model with the least context does, and a token takes the memory of all.
    """

    def __init__(self, models: Sequence[LanguageModel[Any]], combine: Combine) -> None:
        self.models = tuple(models)
        self._first: Any = models[0]
        self.combine = combine
        self.vocab_size = min(model.vocab_size for model in models)
        self.max_context = min(model.max_context for model in models)
        self.rows = min(model.rows for model in models)
        self.chunk = min(model.chunk for model in models)
        self.token_bytes = sum(model.token_bytes for model in models)

    @property
    def keeps_hidden(self) -> bool:
        """Hidden states are those of the first model, if it has any (`HasHidden`)."""
        keeps: bool = self._first.keeps_hidden
        return keeps

    @keeps_hidden.setter
    def keeps_hidden(self, keeps: bool) -> None:
        self._first.keeps_hidden = keeps

    @property
    def hidden(self) -> Tensor | None:
        """[wanted, width], as the first model left them."""
        hidden: Tensor | None = self._first.hidden
        return hidden

    def fault(self, ids: Sequence[int]) -> MetagenError | None:
        """That of the first model that knows one (`HasFaults`)."""
        found = (model.fault(ids) for model in self.models if hasattr(model, "fault"))
        return next((error for error in found if error is not None), None)

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        logits = [model.extend(rows, tokens, counts, wanted) for model in self.models]
        combined = self.combine([z[:, : self.vocab_size] for z in logits])
        # A mask of one model must not hide that another has no numbers.
        sound = torch.stack([torch.logsumexp(z, -1).isfinite() for z in logits]).all(0)
        return combined.masked_fill(~sound[:, None], torch.nan)

    def open(self, rows: Ints, chain: Sequence[Joined]) -> None:
        for i, model in enumerate(self.models):
            model.open(rows, [segment.parts[i] for segment in chain])

    def fork(self, sources: Ints, targets: Ints) -> None:
        for model in self.models:
            model.fork(sources, targets)

    def move(self, sources: Ints, targets: Ints) -> None:
        for model in self.models:
            model.move(sources, targets)

    def truncate(self, row: int, length: int) -> None:
        for model in self.models:
            model.truncate(row, length)

    def save(self, row: int, start: int, stop: int) -> Joined:
        return Joined(tuple(model.save(row, start, stop) for model in self.models))

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        for model in self.models:
            model.close(rows, poisoned=poisoned)

    def spill(self, tokens: int) -> int:
        return max(model.spill(tokens) for model in self.models)
