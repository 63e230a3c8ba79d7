"""The place of each value among the values of its row, from which best-of-k and the AUC are computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def standing(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each value of [..., m]: how many of its row are lower, and how many equal (itself included), [..., m] each.

    NaN has no place: it is neither counted nor compared, and its own counts are 0.
    """
    m = values.shape[-1]
    order = np.argsort(values, axis=-1, kind="stable")  # NaN last
    ranked = np.take_along_axis(values, order, axis=-1)
    opens = np.ones(values.shape, dtype=bool)
    opens[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    closes = np.ones(values.shape, dtype=bool)
    closes[..., :-1] = opens[..., 1:]
    index = np.arange(m)
    first = np.maximum.accumulate(np.where(opens, index, 0), axis=-1)
    last = np.minimum.accumulate(np.where(closes, index, m)[..., ::-1], axis=-1)[..., ::-1]
    nowhere = np.isnan(ranked)
    lower, equal = np.empty_like(order), np.empty_like(order)
    np.put_along_axis(lower, order, np.where(nowhere, 0, first), axis=-1)
    np.put_along_axis(equal, order, np.where(nowhere, 0, last - first + 1), axis=-1)
    return lower, equal
