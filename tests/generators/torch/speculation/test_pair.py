"""A target with its draft: what the rows of both hold."""

import numpy as np
import pytest
import torch

from metagen.generators.torch.models.ids import IdsModel
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.speculation.drafter import look_up
from metagen.generators.torch.speculation.pair import Pair


class Echo(IdsModel):
    """Logits that tell what the row holds."""

    def read(self, rows: Ints, lengths: Ints) -> torch.Tensor:
        out = torch.zeros(len(rows), self.vocab_size)
        for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            out[i, hash(tuple(self.ids(row, length).tolist())) % self.vocab_size] = 1.0
        return out


@pytest.mark.parametrize("seed", range(4))
def test_both_hold_the_same_tokens(seed: int) -> None:
    """Whatever is extended, drafted, cut, forked and moved: what is saved of a row is the same in both."""
    rng = np.random.default_rng(seed)
    size, rows = 50, 6
    pair = Pair(Echo(size, rows=rows), Echo(size, rows=rows))
    text: dict[int, list[int]] = {0: [], 1: [], 2: []}
    pair.open(np.arange(3), [])
    for _ in range(60):
        live = np.array(
            sorted(rng.choice(list(text), rng.integers(1, len(text) + 1), replace=False)), np.int64
        )
        counts = rng.integers(1, 4, len(live))
        runs = [rng.integers(0, size, count).tolist() for count in counts.tolist()]
        if rng.random() < 0.6:
            # The draft goes ahead, by all of these tokens but the last, or all.
            for place in range(int(counts.max())):
                going = counts > place + int(rng.random() < 0.5)
                if not going.any():
                    break
                counts_there = [
                    text[row] + run[: place + 1] for row, run in zip(live.tolist(), runs, strict=True)
                ]
                logits = pair.ahead(
                    live[going], np.array([run[place] for run, g in zip(runs, going, strict=True) if g])
                )
                expected = [
                    hash(tuple(held)) % size for held, g in zip(counts_there, going, strict=True) if g
                ]
                assert logits.argmax(-1).tolist() == expected
                if not going.all():
                    break
        pair.extend(live, np.concatenate([np.array(run) for run in runs]), counts)
        for row, run in zip(live.tolist(), runs, strict=True):
            text[row] += run
            keep = len(text[row]) - int(rng.integers(0, len(run)))
            pair.truncate(row, keep)
            text[row] = text[row][:keep]
        source = int(live[0])
        if rng.random() < 0.3:
            pair.fork(np.array([source]), np.array([3]))
            text[3] = list(text[source])
            pair.close(np.array([4]))
            pair.move(np.array([3]), np.array([4]))
            text[4] = text.pop(3)
        for row, ids in text.items():
            if ids and rng.random() < 0.3:
                saved = pair.save(row, 0, len(ids))
                assert [part.ids.tolist() for part in saved.parts] == [ids, ids]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ids", "ngram", "found"),
    [
        ([1, 2, 3, 9, 1, 2], 3, [3, 9, 1]),
        ([5, 2, 7, 1, 2, 8, 1, 2], 2, [8, 1, 2]),
        ([5, 2, 7, 1, 2, 8, 6, 2], 2, [8, 6, 2]),
        ([1, 1, 1], 3, [1]),
        ([1, 2, 3], 3, []),
        ([4], 3, []),
    ],
)
def test_the_longest_end_that_occurred_and_the_last_place(
    ids: list[int], ngram: int, found: list[int]
) -> None:
    assert look_up(np.array(ids), ngram, 3).tolist() == found
