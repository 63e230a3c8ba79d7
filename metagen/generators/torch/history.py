"""What came before each row, and the adapters that look at it: penalties, bans, and what a completion begins with.

All of them change raw logits in place, before temperature, and touch no more of them than they must. Tokens that are
not in the vocabulary count for nothing.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.errors import MetagenError
from metagen.generators.decoding.adapters import LARGE
from metagen.generators.decoding.words import Words
from metagen.generators.torch.parameters import Ints, RowParams
from metagen.generators.torch.send import send

_CPU: Final = torch.device("cpu")
#: Tokens of a repetition that are compared, at most.
_FARTHEST: Final = 50


@dataclass(frozen=True, eq=False)
class History:
    """ids [N, L] int64: prompt and completion so far, padded by −1 behind. start [N]: where the completion begins."""

    ids: Tensor
    start: Tensor

    @classmethod
    def of(
        cls,
        heads: abc.Sequence[abc.Sequence[int] | NDArray[np.int64]],
        starts: abc.Sequence[int],
        drawn: NDArray[np.int64] | None = None,
        lengths: NDArray[np.int64] | None = None,
        device: torch.device = _CPU,
    ) -> History:
        """heads: what each row began with, the faster where it is an array. starts: tokens of it that are prompt.
        drawn [N, ≥ longest], lengths [N]: what follows it.
        """
        before = np.array([len(head) for head in heads], np.int64)
        after = np.zeros(len(heads), np.int64) if lengths is None else lengths
        ids = np.full((len(heads), int((before + after).max(initial=0))), -1, np.int64)
        # Rows of one request share their beginning: it is read once.
        read = {id(head): np.asarray(head, np.int64) for head in heads}
        ids[np.arange(ids.shape[1]) < before[:, None]] = np.concatenate([read[id(head)] for head in heads])
        if drawn is not None:
            inside = np.arange(drawn.shape[1]) < after[:, None]
            rows, at = np.nonzero(inside)
            ids[rows, before[rows] + at] = drawn[rows, at]
        return cls(send(ids, device), send(np.array(starts, np.int64), device))

    @cached_property
    def lengths(self) -> Tensor:
        """[N]: of prompt and completion together."""
        return (self.ids >= 0).sum(1)

    @property
    def position(self) -> Tensor:
        """[N]: of the next token, counted from where the completion begins."""
        return self.lengths - self.start

    def tail(self, n: int) -> Tensor:
        """[N, n]: the newest tokens; −1 where there are fewer."""
        at = self.lengths[:, None] - n + torch.arange(n, device=self.ids.device)
        if not self.ids.shape[1]:
            return torch.full_like(at, -1)
        return self.ids.gather(1, at.clamp(min=0)).masked_fill(at < 0, -1)

    def places(self, rows: Tensor, size: int, *, completion: bool = False) -> tuple[Tensor, Tensor]:
        """Row and token [K] of all that these rows hold of the vocabulary, in the completion or altogether."""
        ids = self.ids[rows]
        inside = (ids >= 0) & (ids < size)
        if completion:
            inside &= torch.arange(ids.shape[1], device=ids.device) >= self.start[rows, None]
        row, at = inside.nonzero(as_tuple=True)
        return rows[row], ids[row, at]


def penalise_(z: Tensor, params: RowParams, history: History) -> None:
    """Penalise logits z [N, V], in three steps.

    Once for each token of prompt and completion: score·θ where it is negative, else score/θ (Keskar et al. 2019). Then
    − presence − frequency·count, of the completion alone. Then the penalty of `Dry`.
    """
    if "repetition_penalty" in params.used:
        row, token = history.places(params.on("repetition_penalty"), z.shape[-1])
        theta, score = params.column("repetition_penalty", z)[row, 0], z[row, token]
        z[row, token] = torch.where(score < 0, score * theta, score / theta)
    if params.used & {"presence_penalty", "frequency_penalty"}:
        rows = params.on("presence_penalty", "frequency_penalty")
        row, token = history.places(rows, z.shape[-1], completion=True)
        count = torch.zeros_like(z).index_put_((row, token), z.new_ones(()), accumulate=True)[row, token]
        presence, frequency = (
            params.column(f"{name}_penalty", z)[row, 0] for name in ("presence", "frequency")
        )
        z[row, token] = z[row, token] - frequency * count - presence
    if "dry" in params.used:
        _dry(z, params, history)


def bias_(z: Tensor, params: RowParams, history: History) -> None:
    """Add biases of sequences to z [N, V]: to the last token of each, where the others stand before it."""
    for length, (rows, sequences, bias) in params.sequences.items():
        met = (history.tail(length - 1)[rows] == sequences[:, :-1]).all(-1)
        z.index_put_((rows[met], sequences[met, -1]), bias[met].to(z.dtype), accumulate=True)


def _dry(z: Tensor, params: RowParams, history: History) -> None:
    """− multiplier · base^(m − allowed) for what stood behind the m newest tokens earlier, m ≥ allowed."""
    rows = params.on("dry")
    ids, lengths = history.ids[rows], history.lengths[rows, None]
    size, longest = z.shape[-1], ids.shape[1]
    if longest < 2:
        return
    multiplier, base, allowed, last = (
        params.column(name, z)[rows] for name in ("dry", "dry_base", "dry_allowed", "dry_last")
    )
    breaks = torch.zeros(len(params), size, dtype=torch.bool, device=z.device)
    row, token = params.breakers
    breaks[row, token[:, 0]] = True
    # Beyond the vocabulary, and before the first token, nothing is repeated.
    stops = (ids < 0) | (ids >= size) | breaks[rows].gather(1, ids.clamp(0, size - 1))
    at = torch.arange(longest, device=z.device)[None]
    first = torch.where(last > 0, lengths - last, 0).clamp(min=0)
    behind = ids.roll(-1, 1)
    going = (at < lengths - 1) & ~stops.roll(-1, 1)
    met = torch.zeros_like(ids)
    for back in range(min(_FARTHEST, longest - 1)):
        newest = (lengths - 1 - back).clamp(min=0)
        same = ids.roll(back, 1) == ids.gather(1, newest)
        inside = (at - back >= first) & (lengths - 1 - back >= first)
        going = going & same & inside & ~stops.gather(1, newest)
        if not bool(going.any()):
            break
        met += going
    row, place = (met >= allowed).nonzero(as_tuple=True)
    most = torch.zeros(len(rows), size, dtype=torch.long, device=z.device)
    most.view(-1).scatter_reduce_(0, row * size + behind[row, place], met[row, place], "amax")
    off = (multiplier * base ** (most.to(z.dtype) - allowed)).clamp(max=LARGE)
    z[rows] = torch.where(most >= allowed, z[rows] - off, z[rows])


def forbid_(z: Tensor, params: RowParams, history: History) -> None:
    """Set z [N, V] to −inf where a token may not come next, by the tokens before it."""
    _forbid_repeats(z, params, history)
    for length, (rows, banned) in params.banned.items():
        if length > 1:
            # The last token of a banned sequence, behind the others.
            met = (history.tail(length - 1)[rows] == banned[:, :-1]).all(-1)
            z[rows[met], banned[met, -1]] = -torch.inf
    if "min_tokens" in params.used:
        rows, ends = params.ends
        early = (history.position < params.tensor(params.own("min_tokens")))[rows]
        z[rows[early], ends[early, 0]] = -torch.inf
    if (forced := params.forced) is not None:
        at = history.position
        token = forced.gather(1, at.clamp(max=forced.shape[1] - 1)[:, None])[:, 0]
        rows = ((at < forced.shape[1]) & (token >= 0)).nonzero()[:, 0]
        score = z[rows, token[rows]]
        z[rows] = -torch.inf
        z[rows, token[rows]] = score


def apply_own_(z: Tensor, params: RowParams, history: History) -> None:
    """Let the adapters of other packages work on the rows of z [N, V] that have them, one after another.

    A row for which one fails becomes NaN, and `params.faults` says why; where there is no such place, it raises.
    """
    for words, found in params.words.items():
        if words.adapters:
            _adapt_(z, words, found, params, history)


def _adapt_(z: Tensor, words: Words, found: Ints, params: RowParams, history: History) -> None:
    rows = params.tensor(found)
    ids, start, own = history.ids[rows], history.start[rows], z[rows]
    nothing = own.amax(-1, keepdim=True) == -torch.inf
    try:
        for adapter in words.adapters:
            own = adapter.adapt(own, ids, start)
    except MetagenError as error:
        if params.faults is None:
            raise
        if len(found) > 1:  # rows of several requests, which need not all fail
            for one in np.split(found, len(found)):
                _adapt_(z, words, one, params, history)
            return
        own = torch.full_like(own, torch.nan)
        if bool(z[rows].amax() < torch.inf):  # else the model has failed before
            params.faults[words] = error
    z[rows] = own.to(z.dtype).masked_fill(nothing, -torch.inf)


def _forbid_repeats(z: Tensor, params: RowParams, history: History) -> None:
    """Whatever would complete an n-gram that has occurred."""
    if "no_repeat_ngram" not in params.used:
        return
    orders = params.own("no_repeat_ngram").astype(np.int64)
    for n in np.unique(orders[orders > 0]).tolist():
        if history.ids.shape[1] < n:
            continue
        rows = params.tensor(np.flatnonzero(orders == n))
        windows = history.ids[rows].unfold(1, n, 1)
        last = windows[..., -1]
        again = (windows[..., :-1] == history.tail(n - 1)[rows][:, None]).all(-1)
        row, at = (again & (last >= 0) & (last < z.shape[-1])).nonzero(as_tuple=True)
        z[rows[row], last[row, at]] = -torch.inf
