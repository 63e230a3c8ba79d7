"""The roofline model of `metagen.cost` for many calls at once.

Samuel Williams, Andrew Waterman and David Patterson 2009, Roofline: an insightful visual performance model for
multicore architectures, CACM 52(4).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.cost import Hardware, ModelShape, roofline_seconds
from metagen.errors import InputError
from metagen.runs.curves.study import Floats

#: Tables of steps start at so many places, and double.
PLACES = 1024


def seconds(
    shape: ModelShape,
    hardware: Hardware,
    prefilled: ArrayLike,
    generated: ArrayLike,
    context: ArrayLike,
    batch: int = 1,
) -> Floats:
    """`cost.roofline_seconds` of each call, [...]: the least seconds in which a batch of calls like it can be served.

    prefilled, generated, context: tokens, [...], arrays that broadcast; NaN is unknown, and so is what it makes. Raises
    InputError unless 0 ≤ prefilled ≤ context, generated ≥ 0 and batch ≥ 1.
    """
    new, made, before = (
        np.asarray(a, dtype=np.float64)
        for a in np.broadcast_arrays(
            *(np.asarray(a, dtype=np.float64) for a in (prefilled, generated, context))
        )
    )
    known = np.isfinite(new) & np.isfinite(made) & np.isfinite(before)
    counts = np.stack([a[known] for a in (new, made, before)]).astype(np.int64)
    found = np.full(new.shape, np.nan)
    if counts.size == 0:
        return found
    if batch < 1 or (counts < 0).any() or (counts[0] > counts[2]).any():
        raise InputError(
            f"roofline on {hardware.name!r} with batch={batch!r}: expected 0 ≤ prefilled ≤ context, generated ≥ 0 "
            "and batch ≥ 1 for every call"
        )
    found[known] = _read(shape, hardware, counts[0], counts[2], batch) + _decode_seconds(
        shape, hardware, counts[1], counts[2], batch
    )
    return found


def step(shape: ModelShape, hardware: Hardware, running: int, keys: float) -> float:
    """Seconds of one decode step of `running` sequences that attend to `keys` ≥ 1 tokens each on average."""
    low = max(1, int(keys))
    found = _step(shape, hardware, running, low)
    return found if keys <= low else found + (keys - low) * (_step(shape, hardware, running, low + 1) - found)


def _read(
    shape: ModelShape, hardware: Hardware, new: NDArray[np.int64], context: NDArray[np.int64], batch: int
) -> Floats:
    """Seconds of prefills; equal ones are computed once."""
    pairs, places = np.unique(np.stack([new, context]), axis=1, return_inverse=True)
    each = [roofline_seconds(shape, hardware, int(p), 0, int(c), batch) for p, c in pairs.T]
    return np.asarray(each, dtype=np.float64)[places.reshape(-1)]


def _decode_seconds(
    shape: ModelShape, hardware: Hardware, made: NDArray[np.int64], context: NDArray[np.int64], batch: int
) -> Floats:
    """Seconds of decoding: the first token is the prefill's, and each further one is a step over one key more."""
    last = context + np.maximum(made - 1, 0)
    size = PLACES
    while size <= last.max():
        size *= 2
    table = _steps(shape, hardware, batch, size)
    return np.asarray(table[last] - table[context], dtype=np.float64)


@lru_cache(maxsize=64)
def _steps(shape: ModelShape, hardware: Hardware, batch: int, size: int) -> NDArray[np.longdouble]:
    """Seconds of steps over 1 … k keys, for k = 0 … size − 1. Of long sums small differences are taken."""
    each = [_step(shape, hardware, batch, keys) for keys in range(1, size)]
    return np.concatenate([[np.longdouble(0)], np.cumsum(each, dtype=np.longdouble)])


@lru_cache(maxsize=1 << 18)
def _step(shape: ModelShape, hardware: Hardware, batch: int, keys: int) -> float:
    """Seconds of one token more for each of a batch of sequences, which is then one of `keys`."""
    return roofline_seconds(shape, hardware, 0, 2, keys - 1, batch)
