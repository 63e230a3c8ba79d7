"""A language model guided by one that scores prefixes: candidates are tried, and weighed by what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.models.combined import Combined, Joined, first
from metagen.generators.torch.models.formulas import left_out
from metagen.generators.torch.models.language_model import Ints, LanguageModel


class Guided(Combined):
    """log p(x) + λ s(prefix, x) for the best candidates x of each row, and no others (FUDGE, Yang & Klein 2021, §3).

    scorer: a model whose "logits" are the numbers of a head that scores; its rows beyond those of `base` are where
    candidates are tried, as forks of the rows that they would extend. value: [n, outputs] -> [n], s.
    candidates: how many; None: all tokens. vocab_size: logits of the base that count; None: all.
    """

    def __init__(
        self,
        base: LanguageModel[Any],
        scorer: LanguageModel[Any],
        *,
        value: Callable[[Tensor], Tensor],
        weight: float,
        candidates: int | None,
        vocab_size: int | None = None,
    ) -> None:
        super().__init__((base, scorer), first)
        self.vocab_size = vocab_size or base.vocab_size
        assert scorer.rows > base.rows
        self._base, self._scorer, self._value, self._weight = base, scorer, value, weight
        self._candidates = min(candidates or self.vocab_size, self.vocab_size)
        # A candidate stands behind the last place that it is asked for.
        self.max_context = min(base.max_context, scorer.max_context - 1)
        self._spare = np.arange(base.rows, scorer.rows)
        self._length = np.zeros(base.rows, np.int64)

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        each = np.ones(len(rows), np.int64) if counts is None else counts
        wanted = np.cumsum(each) - 1 if wanted is None else wanted
        logits = self._base.extend(rows, tokens, counts, wanted)[:, : self.vocab_size]
        self._scorer.extend(rows, tokens, counts, np.zeros(0, np.int64))
        owner = np.repeat(np.arange(len(rows)), each)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each)
        lengths = self._length[rows[owner]] + within + 1
        self._length[rows] += each
        own = torch.log_softmax(logits, -1)
        best, ids = torch.topk(own, self._candidates, -1)
        values = self._try(rows[owner[wanted]], lengths[wanted], ids.cpu().numpy())
        scores = best + self._weight * values.to(best)
        return left_out(own, scores.amax(-1, keepdim=True)).scatter_(1, ids, scores)

    def _try(self, rows: Ints, lengths: Ints, candidates: Ints) -> Tensor:
        """[n, k]: s of every candidate behind the first lengths[i] tokens of rows[i]."""
        n, k = candidates.shape
        tokens, sources, at = candidates.ravel(), np.repeat(rows, k), np.repeat(lengths, k)
        found = []
        for i in range(0, n * k, len(self._spare)):
            stop = min(i + len(self._spare), n * k)
            spare = self._spare[: stop - i]
            self._scorer.fork(sources[i:stop], spare)
            for row, source, length in zip(
                spare.tolist(), sources[i:stop].tolist(), at[i:stop].tolist(), strict=True
            ):
                if length < self._length[source]:
                    self._scorer.truncate(row, length)
            outputs = self._scorer.extend(spare, tokens[i:stop])
            self._scorer.close(spare, poisoned=not bool(outputs.isfinite().all()))
            found.append(self._value(outputs))
        return torch.cat(found).view(n, k) if found else torch.zeros(0, k)

    # -- the lengths of rows, which models do not tell ---------------------------------------------

    def open(self, rows: Ints, chain: Sequence[Joined]) -> None:
        super().open(rows, chain)
        self._length[rows] = sum(map(len, chain))

    def fork(self, sources: Ints, targets: Ints) -> None:
        super().fork(sources, targets)
        self._length[targets] = self._length[sources]

    def move(self, sources: Ints, targets: Ints) -> None:
        super().move(sources, targets)
        self._length[targets] = self._length[sources]
        self._length[sources] = 0

    def truncate(self, row: int, length: int) -> None:
        super().truncate(row, length)
        self._length[row] = length

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        super().close(rows, poisoned=poisoned)
        self._length[rows] = 0
