"""Prompt lookup: what followed the newest tokens where they occurred last before."""

from __future__ import annotations

import numpy as np

from metagen.generators.torch.language_model import Ints


def look_up(ids: Ints, ngram: int, most: int) -> Ints:
    """At most `most` tokens that followed the end of `ids` [L] where it occurred last before.

    The end is the longest, of at most `ngram` tokens, that occurred at all; nothing where not even the last token did.
    """
    length = len(ids)
    for n in range(min(ngram, length - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)
        found = np.flatnonzero((windows == ids[length - n :]).all(1))
        if len(found):
            start = int(found[-1]) + n
            return ids[start : start + most]
    return ids[:0]
