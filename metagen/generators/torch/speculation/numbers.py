"""The random numbers of a block, and draws by them.

A place may be drafted in several blocks: what one has rejected, the next drafts anew. So numbers are keyed by the place
*and* by its index in the block, which together name the block; a number keyed by the place alone would be used again
after a rejection that it has caused, and bias what follows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.decoding.draft import MOST_DRAFTS
from metagen.generators.randomness import U64, Purpose, uniform
from metagen.generators.torch.language_model import Ints


def numbers(
    seeds: U64, positions: Ints, index: Ints, purpose: Purpose, candidates: Ints | int = 0
) -> NDArray[np.float64]:
    """Uniform in [0, 1) for the token `index` (from 1) of blocks that begin at `positions`; arguments broadcast.

    Numbers for drafts have the purpose SAMPLE; plain draws, whose index is 0, share none with them.
    """
    return uniform(seeds, positions + index - 1, purpose, index * MOST_DRAFTS + candidates)


def pick(weights: Tensor, u: NDArray[np.float64], near: float) -> tuple[Tensor, Tensor]:
    """By inverse CDF a token [N] of each row of `weights` [N, V], and whether u is within `near` of its edge."""
    cdf = weights.cumsum(-1, dtype=torch.float64)
    total = cdf[:, -1:]
    goal = torch.from_numpy(u).to(weights.device)[:, None] * total
    # u < 1, but rounding may lift the product to the total, beyond the last token.
    goal = torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cdf, goal, right=True).clamp_(max=weights.shape[-1] - 1)
    upper = cdf.gather(1, tokens)
    lower = cdf.gather(1, (tokens - 1).clamp_(min=0)).masked_fill_(tokens == 0, 0.0)
    close = (goal - lower < near * total) & (lower > 0) | (upper - goal < near * total) & (upper < total)
    return tokens[:, 0], close[:, 0]
