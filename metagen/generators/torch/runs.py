"""The tokens that rows take in one step: one that is drawn, and before it those that were proposed and stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.torch.history import History
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.parameters import Floats, RowParams
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.sampling import Allowed, Draw, adapt, confidence
from metagen.generators.torch.send import send


@dataclass(frozen=True, slots=True)
class Runs:
    """tokens, logprobs (of the raw model), confidences (None if no row asks): [rows, most], padded on the right.

    counts: [rows], tokens of each: the last is drawn; 0 where nothing was left to draw. forced: [rows], how many of
    the others a grammar forced. near: [rows], draws that rounding could have flipped. bad: [rows], the logits were no
    numbers. masses: [rows, most], the log of what masks left at each token; None if no row asks.
    """

    tokens: Ints
    counts: Ints
    logprobs: Floats
    forced: Ints
    near: Ints
    bad: NDArray[np.bool_]
    confidences: Floats | None = None
    masses: Floats | None = None

    @property
    def plain(self) -> bool:
        """Whether nothing is known of tokens but their log-probabilities, and none is forced."""
        return self.confidences is None and self.masses is None and not self.forced.any()


def run_on(
    drawn: Draw, logits: Tensor, first: Ints, behind: Ints, known: Ints | None, params: RowParams
) -> Runs:
    """Runs of what is known to come, `behind` tokens of each row of `known` [rows, most], and of what is drawn then.

    The logits that follow each row's newest token are `logits[first]`, and those of its known tokens come behind.
    """
    n = len(drawn.tokens)
    near, bad, confidences = drawn.near.astype(np.int64), drawn.bad & ~drawn.none, drawn.confidences
    counts = np.where(drawn.none, 0, 1 + behind)
    if known is None or not behind.any():
        columns = None if confidences is None else confidences[:, None]
        return Runs(drawn.tokens[:, None], counts, drawn.logprobs[:, None], 0 * behind, near, bad, columns)
    most = int(behind.max())
    row, place = np.nonzero(np.arange(most) < behind[:, None])
    tokens, logprobs = np.zeros((n, most + 1), np.int64), np.zeros((n, most + 1))
    raw = torch.log_softmax(logits[send(first[row] + place, logits.device)], -1)
    tokens[row, place] = known[row, place]
    read = raw.gather(1, send(tokens[row, place][:, None], raw.device))[:, 0].double()
    logprobs[row, place] = read.cpu().numpy()
    bad = bad | (np.bincount(row, np.isnan(logprobs[row, place]), n) > 0)
    every = np.arange(n)
    tokens[every, behind], logprobs[every, behind] = drawn.tokens, drawn.logprobs
    columns = None
    if confidences is not None:
        columns = np.zeros((n, most + 1))
        columns[row, place] = confidence(raw, params.take(row))[:, 0].cpu().numpy()
        columns[every, behind] = confidences
    return Runs(tokens, counts, logprobs, behind, near, bad, columns)


def masses(logits: Tensor, params: RowParams, history: History | None, allowed: Tensor) -> Floats:
    """[N]: log Σ_{x allowed} p(x), at most 0; p behind all adapters of each row of `logits` [N, V].

    history: as in `sampling.draw`. allowed: [N, V].
    """
    free = torch.log_softmax(adapt(logits, params, history), -1)
    left = torch.logsumexp(free.masked_fill(~allowed, -torch.inf), -1)
    found: Floats = left.double().clamp(max=0.0).cpu().numpy()
    return found


def weigh(
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
    of `run_on`.
    """
    numbers, mask = allowed[0].cpu().numpy(), allowed[1]
    held = np.flatnonzero(np.isin(numbers, asked))
    counts = behind[numbers[held]] + 1
    line = np.repeat(held, counts)
    row = numbers[line]
    place = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
    left = mask[send(line, mask.device)]
    early = np.flatnonzero(place < behind[row])
    if known is not None and len(early):
        left[early] = False
        left[early, known[row[early], place[early]]] = True
    history = columns.history(rows[row], None if known is None else known[row], place)
    at = send(first[row] + place, logits.device)
    found = np.zeros((len(rows), int(behind.max(initial=0)) + 1))
    found[row, place] = masses(logits[at], columns.params.take(rows[row]), history, left)
    return found
