"""The next token of every row at once: adapters, inverse CDF, and the log-probability of what was drawn.

Order: temperature, top_k, top_p, with the masks that transformers makes. Ties at the edge of a mask:
top_k keeps all tokens that tie with the k-th; top_p drops the higher ids first. The draw walks the
vocabulary in order of ids: the first token whose cumulative probability (summed in float64) exceeds u.
Nearly equal logits and equal u therefore give the same token, except within rounding of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.sequence import MOST_CONFIDENT

#: A draw closer than this to the edge of its interval of the CDF, or a greedy choice whose two best
#: log-probabilities are closer, may flip under another order of rounding.
NEAR = 1e-5


@dataclass(frozen=True, slots=True)
class RowParams:
    """Sampling parameters by row; a temperature of 0 is greedy. The flags tell which adapters are used at all.

    most_logprobs: the largest of top_logprobs; 0 if no row asks for confidences.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    top_logprobs: Tensor
    most_logprobs: int
    plain: bool
    any_greedy: bool
    any_top_k: bool
    any_top_p: bool

    @classmethod
    def of(
        cls,
        temperature: NDArray[np.float64],
        top_k: NDArray[np.int64],
        top_p: NDArray[np.float64],
        top_logprobs: NDArray[np.int64],
        device: torch.device,
    ) -> RowParams:
        # Thresholds as transformers has them: 1 - p in float64, then compared in float32.
        drop = (1.0 - top_p).astype(np.float32)
        return cls(
            torch.from_numpy(temperature.astype(np.float32)).to(device)[:, None],
            torch.from_numpy(top_k.copy()).to(device),
            torch.from_numpy(drop).to(device)[:, None],
            torch.from_numpy(top_logprobs.copy()).to(device)[:, None],
            int(top_logprobs.max(initial=0)),
            plain=bool((temperature == 1.0).all()),
            any_greedy=bool((temperature == 0.0).any()),
            any_top_k=bool((top_k > 0).any()),
            any_top_p=bool((top_p < 1.0).any()),
        )


@dataclass(frozen=True, slots=True)
class Draw:
    """What was drawn, by row.

    logprobs: of the tokens, under the raw model. bad: the logits were no distribution (NaN, +inf, or all
    -inf). near: rounding could have flipped the choice. confidences: see `confidence`; None if no row asks.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    bad: NDArray[np.bool_]
    near: NDArray[np.bool_]
    confidences: NDArray[np.float64] | None = None


def draw(
    logits: Tensor, u: NDArray[np.float64], params: RowParams, allowed: tuple[Tensor, Tensor] | None = None
) -> Draw:
    """One token per row of `logits` [R, V] (float32) with the random numbers `u` [R].

    allowed: row numbers [K], and which tokens [K, V] these may draw; the adapters see no others.
    """
    raw = torch.log_softmax(logits, -1)
    held = logits
    if allowed is not None:
        rows, mask = allowed
        held = logits.index_copy(0, rows, logits[rows].masked_fill(~mask, -torch.inf))
    untouched = params.plain and not params.any_top_k and not params.any_top_p and allowed is None
    adapted = raw if untouched else adapt(held, params)
    cdf = torch.cumsum(
        torch.softmax(adapted, -1) if adapted is not raw else torch.exp(raw), -1, dtype=torch.float64
    )
    total = cdf[:, -1:]
    goal = torch.from_numpy(u).to(logits.device)[:, None] * total
    # u < 1, but rounding may lift the product to the total, beyond the last token.
    goal = torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cdf, goal, right=True).clamp_(max=logits.shape[-1] - 1)
    upper = cdf.gather(1, tokens)
    lower = cdf.gather(1, (tokens - 1).clamp_(min=0)).masked_fill_(tokens == 0, 0.0)
    # The ends of the unit interval are the edges of no neighbour.
    near = (goal - lower < NEAR * total) & (lower > 0) | (upper - goal < NEAR * total) & (upper < total)
    if params.any_greedy:
        greedy = params.temperature == 0
        best = torch.topk(raw if allowed is None else held, min(2, raw.shape[-1]), -1).values
        tokens = torch.where(greedy, torch.argmax(held, -1, keepdim=True), tokens)
        near = torch.where(greedy, best[:, :1] - best[:, -1:] < NEAR, near)
    logprobs = raw.gather(1, tokens)
    parts = [tokens.double(), logprobs.double(), total.isnan().double(), near.double()]
    if params.most_logprobs:
        parts.append(confidence(raw, params))
    columns = torch.cat(parts, 1).cpu().numpy()
    bad = (columns[:, 2] != 0) | np.isnan(columns[:, 1])
    confidences = columns[:, 4] if params.most_logprobs else None
    return Draw(columns[:, 0].astype(np.int64), columns[:, 1], bad, columns[:, 3] != 0, confidences)


def confidence(raw: Tensor, params: RowParams) -> Tensor:
    """[R, 1]: −(1/k) Σ_j log p_j over the k = top_logprobs largest of `raw` [R, V], of rows that ask; 0 of the others.

    No log-probability counts less than −100. Summed in float64.
    """
    k = params.top_logprobs
    best = torch.topk(raw, params.most_logprobs, -1).values.double().clamp(min=-MOST_CONFIDENT)
    asked = torch.arange(params.most_logprobs, device=raw.device) < k
    return torch.where(asked, -best, 0.0).sum(-1, keepdim=True) / k.clamp(min=1)


def adapt(logits: Tensor, params: RowParams) -> Tensor:
    """Logits after temperature, top_k and top_p of each row; greedy rows are left as they are."""
    t = params.temperature
    z = logits / torch.where(t > 0, t, 1.0)
    if params.any_top_k:
        z = _top_k(z, params.top_k)
    if params.any_top_p:
        z = _top_p(z, params.top_p)
    return z


def _top_k(z: Tensor, k: Tensor) -> Tensor:
    v = z.shape[-1]
    k = torch.where(k > 0, k.clamp(max=v), v)
    most = int(torch.where(k < v, k, 1).max())
    best = torch.topk(z, most, -1).values
    floor = best.gather(1, (k.clamp(max=most) - 1)[:, None])
    floor = torch.where((k < v)[:, None], floor, -torch.inf)
    return z.masked_fill(z < floor, -torch.inf)


def _top_p(z: Tensor, drop: Tensor) -> Tensor:
    """Remove, from the least probable up, while the cumulative probability is at most 1 - p."""
    order = torch.sort(z, dim=-1, descending=True, stable=True).indices.flip(-1)
    cumulative = torch.softmax(z.gather(1, order), -1).cumsum(-1)
    remove = (cumulative <= drop) & (drop > 0)
    remove[:, -1] = False
    return z.masked_fill(torch.zeros_like(remove).scatter_(1, order, remove), -torch.inf)
