"""The random numbers of a block.

A place may be drafted in several blocks: what one has rejected, the next drafts anew. So numbers are keyed by the place
*and* by its index in the block, which together name the block; a number keyed by the place alone would be used again
after a rejection that it has caused, and bias what follows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
