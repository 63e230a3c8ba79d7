"""The gain of speculation: tokens of a pass, and the roofline of drafting and verifying against plain decoding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.cost import Hardware, ModelShape, roofline_seconds
from metagen.errors import InputError


def tokens_per_pass(alpha: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """(1 − α^(γ+1))/(1 − α): tokens of one pass of the target, the one that it draws itself included.

    alpha: E Σ min(p, q), in [0, 1]; acceptances are independent (Leviathan et al. 2023, eq. 1). gamma: drafted tokens.
    Both: any shapes that broadcast. Raises InputError for alpha outside [0, 1] and gamma < 0.
    """
    a, g = np.broadcast_arrays(np.asarray(alpha, np.float64), np.asarray(gamma, np.int64))
    if ((a < 0) | (a > 1)).any() or (g < 0).any():
        raise InputError(f"alpha={alpha!r}, gamma={gamma!r}: expected alpha in [0, 1] and gamma ≥ 0")
    # As a sum, which is exact at α = 1 too.
    powers = np.arange(int(g.max(initial=0)) + 1)
    found: NDArray[np.float64] = np.where(powers <= g[..., None], a[..., None] ** powers, 0.0).sum(-1)
    return found


def speedup(
    target: ModelShape,
    draft: ModelShape | None,
    hardware: Hardware,
    *,
    alpha: float,
    gamma: int,
    context: int,
    batch: int = 1,
) -> float:
    """Tokens per second with drafts over those without, at best: by rooflines, without overheads.

    A block takes γ steps of the draft, one after another, and one pass of the target over γ + 1 tokens of each of
    `batch` rows behind `context` tokens. draft: None costs nothing (lookup).
    """
    plain = _pass(target, hardware, 1, context, batch)
    drafting = 0.0 if draft is None else gamma * _pass(draft, hardware, 1, context, batch)
    block = drafting + _pass(target, hardware, gamma + 1, context, batch)
    return float(tokens_per_pass(alpha, gamma)) * plain / block


def best_gamma(
    target: ModelShape,
    draft: ModelShape | None,
    hardware: Hardware,
    *,
    alpha: float,
    context: int,
    batch: int = 1,
    most: int = 16,
) -> tuple[int, float]:
    """The γ ≤ most with the largest speedup, and that; γ = 0, 1.0 where every draft harms."""
    found = [
        (speedup(target, draft, hardware, alpha=alpha, gamma=g, context=context, batch=batch), -g)
        for g in range(most + 1)
    ]
    value, gamma = max(found)
    return -gamma, value


def _pass(shape: ModelShape, hardware: Hardware, tokens: int, context: int, batch: int) -> float:
    """Seconds of one pass over so many new tokens of each row."""
    return roofline_seconds(shape, hardware, tokens, 0, context + tokens, batch)
