"""How the logits of several models become those of one: the papers' formulas, as pure functions over rows.

Each takes float32 logits [N, V] of one vocabulary and returns logits [N, V], up to a constant for each row. A token to
which the leading model gives no probability has none in the result. What another model gives no probability counts
as e^−10000, so that differences stay numbers. What a formula leaves out has the leading model's log-probability less
10000, below what is kept: it is never drawn, but where a grammar allows nothing else, the leading model chooses among
it (`ruled_out`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = -1e4


def _log_probabilities(logits: Tensor) -> Tensor:
    """Finite, whatever has probability 0; NaN stays NaN."""
    return torch.log_softmax(logits, -1).clamp(min=LEAST)


def left_out(log_probabilities: Tensor, best: Tensor) -> Tensor:
    """[N, V]: logits of tokens that a formula leaves out: far below the others, in the order of the leading model.

    best: [N, 1], the largest of the logits that are kept.
    """
    # Twice, for beside a large number 10000 is lost in rounding.
    return log_probabilities + LEAST + 2 * best.clamp(max=0.0)


def ruled_out(logits: Tensor) -> Tensor:
    """[N, V]: what a formula has left out, which no temperature may bring back, unless it is all there is.

    Logits before any temperature. What is e^5000 times less probable than the best counts as left out.
    """
    return logits < logits.amax(-1, keepdim=True) + LEAST / 2


def without_ruled_out(logits: Tensor, of: Tensor) -> Tensor:
    """[N, V]: `of`, in which −inf stands for what is left out of `logits`; on a CPU `of` itself if that is nothing.

    To look first is cheaper on a CPU. Elsewhere it would wait for all that is under way.
    """
    if logits.device.type == "cpu":
        least, best = torch.aminmax(logits, dim=-1)
        if not (least < best + LEAST / 2).any():
            return of
    return of.masked_fill(ruled_out(logits), -torch.inf)


def contrastive(
    expert: Tensor,
    amateur: Tensor,
    *,
    alpha: float = 0.1,
    temperature: float = 1.0,
    beta: float | None = None,
    sure: float | None = None,
) -> Tensor:
    """Contrastive decoding (Li et al. 2023, §3): log p_exp − log p_ama within the head, none elsewhere.

    alpha: the head is {x: p_exp(x) ≥ α max p_exp}. temperature: of the amateur. beta: (1 + β) log p_exp − β log p_ama
    instead (O'Brien & Lewis 2023, §2). sure: where the expert gives its best token at least so much, its own
    distribution stays as it is.
    """
    own = torch.log_softmax(expert, -1)
    weak = _log_probabilities(amateur / temperature)
    score = own - weak if beta is None else (1 + beta) * own - beta * weak
    best = own.amax(-1, keepdim=True)
    outside = own < best + math.log(alpha)
    kept = score.masked_fill(outside, -torch.inf).amax(-1, keepdim=True)
    score = torch.where(outside, left_out(own, kept), score)
    return score if sure is None else torch.where(best >= math.log(sure), own, score)


def experts(base: Tensor, expert: Tensor, anti: Tensor, *, alpha: float) -> Tensor:
    """Experts and anti-experts: z = z_base + α (z_expert − z_anti) (Liu et al. 2021, §2).

    Proxy tuning is the same with a large base, and a small model before and after its tuning (Liu et al. 2024, §2).
    """
    return torch.log_softmax(base, -1) + alpha * (_log_probabilities(expert) - _log_probabilities(anti))


def mixture(logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The mean of probabilities: log Σ w_i p_i, with weights that sum to 1."""
    parts = [torch.log_softmax(z, -1) + math.log(w) for z, w in zip(logits, weights, strict=True)]
    return torch.logsumexp(torch.stack(parts), 0)


def product(logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The product of probabilities: Σ w_i log p_i. Weights that sum to 1 give the geometric mean."""
    parts = [w * torch.log_softmax(z, -1) for z, w in zip(logits, weights, strict=True)]
    return torch.stack(parts).sum(0)


#: How a number that a model gives is read as a value.
READINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "raw": lambda x: x,
    "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
}


def tilt(base: Tensor, values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Token-wise control: log p + Σ λ_i V_i (Mudgal et al. 2024, theorem 2.1). A value of −∞ counts as −10000."""
    result = torch.log_softmax(base, -1)
    for value, weight in zip(values, weights, strict=True):
        if weight:
            result = result + weight * value.masked_fill(value.isneginf(), LEAST)
    return result
