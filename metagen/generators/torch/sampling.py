"""The next token of every row at once: adapters, inverse CDF, and the log-probability of what was drawn.

Order: biases, penalties, bans and other packages' adapters on raw logits; then temperature and the truncations, in the
order of `parameters.ORDER`, and mirostat last, with the masks that transformers makes. A temperature of 0 takes the
best of the penalised, allowed logits, the lowest id among equals; the adapters behind do not touch such a row.

Adapters compute in the number format of the logits, which engines give in float32: a model in bfloat16 has its logits
rounded, which makes ties, and nothing else is. Ties at the edge of a mask: top_k keeps all tokens that tie with the
k-th; top_p drops the higher ids first, and top_h keeps the lower ones first; the others treat equals alike. The draw
walks the vocabulary in order of ids: the first token whose cumulative probability exceeds u. It is summed in float64;
a large vocabulary is summed in blocks, and token by token only in the block that u falls into.
Nearly equal logits and equal u therefore give the same token, except within rounding of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from metagen.generators.torch.adapters import mirostat, surprise, truncate
from metagen.generators.torch.gpu.steps import drawn_at_once
from metagen.generators.torch.history import History, apply_own_, bias_, forbid_, penalise_
from metagen.generators.torch.models.formulas import LEAST, without_ruled_out
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.send import send
from metagen.sequence import MOST_CONFIDENT

Allowed = tuple[Tensor, Tensor]

#: A draw closer than this to the edge of its interval of the CDF, or a greedy choice whose two best
#: log-probabilities are closer, may flip under another order of rounding in float32. In bfloat16 more draws may flip.
NEAR = 1e-5
#: Temperatures so low that logits divided by them may be more than float32 holds.
COLD = 1e-6
#: Tokens of a block, and the size from which a vocabulary is cut into blocks.
BLOCK, LARGE = 256, 4096
#: Rows up to which the calls of torch in a draw take longer than its arithmetic.
FEW = 4
#: Logits that a CPU takes through all stages at once: a few megabytes, which its caches hold.
CACHED = 1 << 20


@dataclass(frozen=True, slots=True)
class Draw:
    """What was drawn, by row.

    logprobs: of the tokens, under the raw model. bad: nothing could be drawn: the logits were no distribution (NaN,
    +inf, or all -inf), or, where `none` says so, all that restricts the row leaves no token. near: rounding could have
    flipped the choice. confidences: see `confidence`; None if no row asks. mu: for mirostat, the surprise to cut at
    next (`Parameters.follow`); None if no row uses it.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    bad: NDArray[np.bool_]
    near: NDArray[np.bool_]
    none: NDArray[np.bool_]
    confidences: NDArray[np.float64] | None = None
    mu: NDArray[np.float64] | None = None


def draw(
    logits: Tensor,
    u: NDArray[np.float64],
    params: RowParams,
    allowed: Allowed | None = None,
    history: History | None = None,
) -> Draw:
    """One token per row of `logits` [R, V] (float32) with the random numbers `u` [R].

    allowed: row numbers [K], and which tokens [K, V] these may draw; the adapters see no others. history: what came
    before, needed where `params.remembers`.
    """
    if allowed is None and history is None and params.nearly_plain:
        found = drawn_at_once(logits, u, params.own("temperature"), params.cuts, NEAR, -LEAST / 2)
        if found is not None:
            tokens, logprobs, near, bad = found
            none = np.zeros(len(tokens), np.bool_)
            return Draw(tokens.astype(np.int64), logprobs, bad != 0, near != 0, none)
    at_once = max(1, CACHED // logits.shape[1])
    together = allowed is not None or history is not None or params.mirostat
    if len(logits) > at_once and logits.device.type == "cpu" and not together:
        blocks = [np.arange(a, min(a + at_once, len(logits))) for a in range(0, len(logits), at_once)]
        return _joined([draw(logits[b[0] : b[-1] + 1], u[b], params.take(b)) for b in blocks])
    raw = torch.log_softmax(logits, -1)
    kept = restrict(logits, params, history, allowed)
    adapted = raw if kept is logits and not params.shapes else _shape(kept, params)
    bits = surprise(adapted) if params.mirostat else None
    if bits is not None:
        adapted = mirostat(adapted, bits, params)
    tokens, near, total = pick(torch.softmax(adapted, -1) if adapted is not raw else torch.exp(raw), u)
    if params.any_greedy:
        greedy = params.column("temperature", logits) == 0
        best = torch.topk(raw if kept is logits else kept, min(2, raw.shape[-1]), -1).values
        tokens = torch.where(greedy, torch.argmax(kept, -1, keepdim=True), tokens)
        near = torch.where(greedy, best[:, :1] - best[:, -1:] < NEAR, near)
    logprobs = raw.gather(1, tokens)
    parts = [tokens.double(), logprobs.double(), total.isnan().double(), near.double()]
    if kept is not logits:
        # Numbers all of them, and yet nothing left.
        parts.append((kept.isneginf().all(-1, keepdim=True) & ~raw.isnan().any(-1, keepdim=True)).double())
    if params.most_logprobs:
        parts.append(confidence(raw, params))
    if bits is not None:
        parts.append(_follow(bits.gather(1, tokens).double(), params))
    columns = iter(torch.cat(parts, 1).cpu().numpy().T)
    drawn, logprob, lost, edge = (next(columns) for _ in range(4))
    none = next(columns) != 0 if kept is not logits else np.zeros(len(drawn), np.bool_)
    return Draw(
        drawn.astype(np.int64),
        logprob,
        (lost != 0) | np.isnan(logprob) | none,
        edge != 0,
        none,
        next(columns) if params.most_logprobs else None,
        next(columns) if bits is not None else None,
    )


def _joined(draws: list[Draw]) -> Draw:
    """The draws of consecutive rows as one."""

    def column(name: str) -> Any:
        return np.concatenate([getattr(one, name) for one in draws])

    asked = any(one.confidences is not None for one in draws)
    confidences = [
        np.zeros(len(one.tokens)) if one.confidences is None else one.confidences for one in draws if asked
    ]
    return Draw(
        column("tokens"),
        column("logprobs"),
        column("bad"),
        column("near"),
        column("none"),
        np.concatenate(confidences) if asked else None,
    )


def pick(weights: Tensor, u: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
    """By inverse CDF a token of each row of `weights` [R, V], whether u [R] is near its edge, the sum: [R, 1] each."""
    share = send(u, weights.device)[:, None]
    if weights.shape[-1] < LARGE:
        tokens, lower, upper, goal, total = _place(weights, share)
    else:
        missing = -weights.shape[-1] % BLOCK
        whole = (F.pad(weights, (0, missing)) if missing else weights).view(len(weights), -1, BLOCK)
        if 0 < len(whole) <= FEW and whole.device.type == "cpu":
            return _pick_few(whole, u, weights.shape[-1])
        block, before, _, goal, total = _place(whole.sum(-1), share)
        own = whole.gather(1, block[..., None].expand(-1, -1, BLOCK))[:, 0]
        place, lower, upper, *_ = _place(own, goal - before, of_all=False)
        # Where there are no numbers, any token will do, but no padding.
        tokens = (block * BLOCK + place).clamp_(max=weights.shape[-1] - 1)
        lower, upper = lower + before, upper + before
    # The ends of the unit interval are the edges of no neighbour.
    reach = NEAR * total
    near = (goal - lower < reach) & (lower > 0) | (upper - goal < reach) & (upper < total)
    return tokens, near, total


def _pick_few(whole: Tensor, u: NDArray[np.float64], vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same of few rows in blocks [R, blocks, BLOCK]: on a CPU numpy gives equal results in a third of the time."""
    found = []
    for sums, blocks, share in zip(whole.sum(-1).numpy(), whole.numpy(), u, strict=True):
        cdf = np.cumsum(sums, dtype=np.float64)
        total = cdf[-1]
        goal = np.minimum(share * total, np.nextafter(total, 0.0))
        block = min(int(np.searchsorted(cdf, goal, side="right")), len(cdf) - 1)
        before = cdf[block - 1] if block else 0.0
        cdf = np.cumsum(blocks[block], dtype=np.float64)
        inside = np.minimum(goal - before, np.nextafter(cdf[-1], 0.0))
        place = min(int(np.searchsorted(cdf, inside, side="right")), BLOCK - 1)
        lower, upper = (cdf[place - 1] if place else 0.0) + before, cdf[place] + before
        reach = NEAR * total
        near = (goal - lower < reach and lower > 0) or (upper - goal < reach and upper < total)
        found.append((min(block * BLOCK + place, vocab - 1), near, total))
    tokens, edges, totals = (np.array(column)[:, None] for column in zip(*found, strict=True))
    return torch.from_numpy(tokens), torch.from_numpy(edges), torch.from_numpy(totals)


def _place(weights: Tensor, goal: Tensor, *, of_all: bool = True) -> tuple[Tensor, ...]:
    """Of `weights` [R, V] the one whose interval of the sums holds `goal`, a share of all or itself a sum; [R, 1] each.

    Returns its number, where its interval begins and ends, the goal as a sum, and the sum of all.
    """
    cdf = torch.cumsum(weights, -1, dtype=torch.float64)
    total = cdf[:, -1:]
    if of_all:
        goal = goal * total
    # u < 1, but rounding may lift the goal to the total, beyond the last that has any weight.
    goal = torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
    found = torch.searchsorted(cdf, goal, right=True).clamp_(max=weights.shape[-1] - 1)
    lower = torch.where(found > 0, cdf.gather(1, (found - 1).clamp_(min=0)), 0.0)
    return found, lower, cdf.gather(1, found), goal, total


def confidence(raw: Tensor, params: RowParams) -> Tensor:
    """[R, 1]: −(1/k) Σ_j log p_j over the k = top_logprobs largest of `raw` [R, V], of rows that ask; 0 of the others.

    No log-probability counts less than −100. Summed in float64.
    """
    k = params.column("top_logprobs", raw).long()
    best = torch.topk(raw, params.most_logprobs, -1).values.double().clamp(min=-MOST_CONFIDENT)
    asked = torch.arange(params.most_logprobs, device=raw.device) < k
    return torch.where(asked, -best, 0.0).sum(-1, keepdim=True) / k.clamp(min=1)


def adapt(
    logits: Tensor, params: RowParams, history: History | None = None, allowed: Allowed | None = None
) -> Tensor:
    """[N, V]: logits after all adapters of each row, −inf where a token cannot be drawn.

    history: needed where `params.remembers`. allowed: as in `draw`. A row of which no token is left is all −inf.
    """
    return _cut(restrict(logits, params, history, allowed), params)


def distribution(
    logits: Tensor, params: RowParams, history: History | None = None, allowed: Allowed | None = None
) -> Tensor:
    """[N, V]: the probabilities that `draw` draws with, in the number format of the logits; NaN where no token is left.

    A greedy row has all of it on the lowest id of the best.
    """
    kept = restrict(logits, params, history, allowed)
    p = torch.softmax(_cut(kept, params), -1)
    if not params.any_greedy:
        return p
    best = torch.zeros_like(p).scatter_(1, torch.argmax(kept, -1, keepdim=True), 1.0)
    return torch.where((params.column("temperature", p) == 0) & ~p[:, :1].isnan(), best, p)


def surprises(
    logits: Tensor, params: RowParams, history: History | None = None, allowed: Allowed | None = None
) -> Tensor:
    """[N, V]: in bits, of each token under the distribution that mirostat cuts."""
    return surprise(_shape(restrict(logits, params, history, allowed), params))


def restrict(
    logits: Tensor, params: RowParams, history: History | None = None, allowed: Allowed | None = None
) -> Tensor:
    """[N, V]: raw logits after biases, penalties and bans; `logits` itself where there are none of these.

    Raises ValueError without a history where parameters look at one.
    """
    bias, alone = params.bias, params.banned.get(1)
    if bias is None and alone is None and not params.remembers and allowed is None:
        return logits
    z = logits.clone()
    if bias is not None:
        rows, ids, values = bias
        z.index_put_((rows, ids), values.to(z.dtype), accumulate=True)
    if params.remembers:
        if history is None:
            raise ValueError("some rows' adapters look at what came before; give a history")
        bias_(z, params, history)
        penalise_(z, params, history)
        forbid_(z, params, history)
    if alone is not None:
        z[alone[0], alone[1][:, 0]] = -torch.inf
    if history is not None:
        apply_own_(z, params, history)
    if allowed is not None:
        rows, mask = allowed
        z[rows] = z[rows].masked_fill(~mask, -torch.inf)
    return z


def _cut(kept: Tensor, params: RowParams) -> Tensor:
    shaped = _shape(kept, params)
    return mirostat(shaped, surprise(shaped), params) if params.mirostat else shaped


def _shape(z: Tensor, params: RowParams) -> Tensor:
    """Logits after temperature and the truncations, which leave greedy rows as they are.

    However hot it is, what the model leaves out stays out.
    """
    shaped = _divide(z, params) if "temperature" in params.used else z
    # As that looks, but ten times as fast: `aminmax` along a row is slow on a CPU.
    if z.device.type != "cpu" or (z.amin(-1) < z.amax(-1) + LEAST / 2).any():
        shaped = without_ruled_out(z, shaped)
    return truncate(shaped, params)


def _divide(z: Tensor, params: RowParams) -> Tensor:
    """Logits by T, where it is not 0; those of a cold row below its best, which keeps them finite."""
    t, own = params.column("temperature", z), params.own("temperature")
    if ((own > 0) & (own < COLD)).any():
        top = z.amax(-1, keepdim=True)
        z = z - torch.where((t > 0) & (t < COLD) & top.isfinite(), top, 0.0)
    return z / torch.where(t > 0, t, 1.0)


def _follow(bits: Tensor, params: RowParams) -> Tensor:
    """[R, 1]: mirostat's next cut, μ − η(surprise − τ), of what was drawn."""
    tau, eta, mu = (params.column(name, bits) for name in ("tau", "eta", "mu"))
    return torch.where(tau > 0, mu - eta * (bits - tau), mu)
