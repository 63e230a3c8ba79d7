"""A target with its draft: one LanguageModel whose rows hold the same tokens in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.models.combined import Combined, Joined, first
from metagen.generators.torch.models.language_model import Drafted, Ints, LanguageModel, Rules


class Pair(Combined):
    """The target's logits; the draft follows, and may run ahead of it (`ahead`).

    The draft runs one token less often than it might: what it lacks of a row, one token at most, it runs with the next.
    """

    def __init__(self, target: LanguageModel[Any], draft: LanguageModel[Any]) -> None:
        super().__init__((target, draft), first)
        self.target: Any = target
        self.draft = draft
        #: Tokens of each row that the target holds, and the draft; and the one that the draft lacks, if it does.
        self._length = np.zeros(self.rows, np.int64)
        self._held = np.zeros(self.rows, np.int64)
        self._due = np.zeros(self.rows, np.int64)

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        """Where the draft is ahead of a row, the row's tokens begin with those that it has run."""
        logits: Tensor = self.target.extend(rows, tokens, counts, wanted)[:, : self.vocab_size]
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        last = counts.cumsum() - 1
        # What the draft lacks: of these tokens the last so many, or all of them and one more that was due before.
        lacks = counts + self._length[rows] - self._held[rows]
        self._length[rows] += counts
        behind = lacks >= 2
        if behind.any():
            runs = [
                np.concatenate([self._due[row : row + 1], tokens[end + 1 - count : end + 1]])
                if lack > count
                else tokens[end + 1 - lack : end + 1]
                for row, end, lack, count in zip(
                    rows[behind], last[behind], lacks[behind], counts[behind], strict=True
                )
            ]
            self._run(rows[behind], runs)
        self._due[rows[lacks == 1]] = tokens[last[lacks == 1]]
        return logits

    def ahead(self, rows: Ints, tokens: Ints) -> Tensor:
        """The draft's logits [rows, vocab] behind one more token of each row, which the target has not run yet."""
        late = self._held[rows] < self._length[rows]
        if not late.any():
            self._held[rows] += 1
            return self.draft.extend(rows, tokens)[:, : self.vocab_size]
        counts = 1 + late
        both = np.stack([self._due[rows], tokens], 1)
        self._held[rows] += counts
        return self.draft.extend(rows, both[np.stack([late, np.ones_like(late)], 1)], counts)[
            :, : self.vocab_size
        ]

    def draft_ahead(self, rows: Ints, tokens: Ints, wanted: Ints, rules: Rules) -> Drafted | None:
        """As `ahead`, at most wanted [n] tokens of each row in one call, if the draft can (`HasDrafts`)."""
        draft: Any = self.draft
        if not hasattr(draft, "draft"):
            return None
        late = self._held[rows] < self._length[rows]
        both = np.stack([self._due[rows], tokens], 1)[np.stack([late, np.ones_like(late)], 1)]
        found: Drafted | None = draft.draft(rows, both, 1 + late, wanted, rules)
        if found is not None:
            self._held[rows] += late + found.runs
        return found

    def _run(self, rows: Ints, runs: Sequence[Ints]) -> None:
        counts = np.array([len(run) for run in runs], np.int64)
        self._held[rows] += counts
        longest = self.draft.chunk
        if counts.max() <= longest:
            # Nobody reads what follows.
            self.draft.extend(rows, np.concatenate(runs), counts, np.zeros(1, np.int64))
            return
        for row, run in zip(rows, runs, strict=True):
            for at in range(0, len(run), longest):
                part = run[at : at + longest]
                self.draft.extend(
                    np.array([row]), part, np.array([len(part)], np.int64), np.zeros(1, np.int64)
                )

    # -- rows and segments -----------------------------------------------------------------------

    def assign(self, rows: Ints, adapter: int) -> None:
        """An adapter changes the target, and the draft stays as it is."""
        self.target.assign(rows, adapter)

    def open(self, rows: Ints, chain: Sequence[Joined]) -> None:
        super().open(rows, chain)
        self._length[rows] = self._held[rows] = sum(map(len, chain))

    def fork(self, sources: Ints, targets: Ints) -> None:
        super().fork(sources, targets)
        for column in (self._length, self._held, self._due):
            column[targets] = column[sources]

    def move(self, sources: Ints, targets: Ints) -> None:
        super().move(sources, targets)
        for column in (self._length, self._held, self._due):
            column[targets] = column[sources]
        self._length[sources] = self._held[sources] = 0

    def truncate(self, row: int, length: int) -> None:
        if self._length[row] > length:
            self.target.truncate(row, length)
            self._length[row] = length
        if self._held[row] > length:
            self.draft.truncate(row, length)
            self._held[row] = length

    def save(self, row: int, start: int, stop: int) -> Joined:
        if self._held[row] < stop:
            self._run(np.array([row]), [self._due[row : row + 1]])
        return super().save(row, start, stop)

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        super().close(rows, poisoned=poisoned)
        self._length[rows] = self._held[rows] = 0


def sound(logits: Tensor) -> Tensor:
    """[N]: whether logits [N, V] are numbers that a distribution can be made of."""
    return torch.logsumexp(logits, -1).isfinite()
