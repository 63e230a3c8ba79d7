"""What masks leave of the distributions that tokens are drawn from: the weight of what is drawn under them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.runs import Floats, Ints
from metagen.generators.torch.sampling import Allowed, adapt


def masses(logits: Tensor, params: RowParams, history: History | None, allowed: Tensor) -> Floats:
    """[N]: log Σ_{x allowed} p(x), at most 0; p behind all adapters of each row of `logits` [N, V].

    history: as in `sampling.draw`. allowed: [N, V].
    """
    free = torch.log_softmax(adapt(logits, params, history), -1)
    left = torch.logsumexp(free.masked_fill(~allowed, -torch.inf), -1)
    found: Floats = left.double().clamp(max=0.0).cpu().numpy()
    return found


def along(
    columns: Rows,
    rows: Ints,
    asked: Ints,
    logits: Tensor,
    first: Ints,
    behind: Ints,
    known: Ints | None,
    allowed: Allowed,
) -> Floats:
    """[rows, most + 1]: of `behind` tokens of each row of `known`, each the only one that may come, and of one behind.

    asked: the places in `rows` that are weighed, of those that `allowed` numbers; the others have 0. The rest is that
    of `runs.forced`.
    """
    numbers, mask = allowed[0].cpu().numpy(), allowed[1]
    held = np.flatnonzero(np.isin(numbers, asked))
    counts = behind[numbers[held]] + 1
    line = np.repeat(held, counts)
    row = numbers[line]
    place = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
    left = mask[torch.from_numpy(line).to(mask.device)]
    early = np.flatnonzero(place < behind[row])
    if known is not None and len(early):
        left[early] = False
        left[early, known[row[early], place[early]]] = True
    history = columns.history(rows[row], None if known is None else known[row], place)
    at = torch.from_numpy(first[row] + place).to(logits.device)
    found = np.zeros((len(rows), int(behind.max(initial=0)) + 1))
    found[row, place] = masses(logits[at], columns.params.take(rows[row]), history, left)
    return found
