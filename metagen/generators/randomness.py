"""Random numbers by counting: the draw of a token is a hash of where it stands, not of what came before.

`uniform(seed, position, purpose, draft)` depends on its four arguments and on nothing else, so a sample is
the same whatever shares its batch, and no row needs a generator object. The torch engine and the
enumerable engine draw the same numbers for the same sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

U64 = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S11 = (np.uint64(s) for s in (27, 30, 31, 11))
_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number decides; numbers of different purposes are independent."""

    SAMPLE = 0
    ACCEPT = 1
    RESIDUAL = 2
    SEARCH = 3


def _mix(x: U64) -> U64:
    """The finaliser of splitmix64: a bijection of 64 bits with full avalanche."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


def seed_array(seeds: Sequence[int]) -> U64:
    """Seeds of any size as unsigned 64-bit words (higher bits are dropped)."""
    return np.array([seed & _MASK for seed in seeds], dtype=np.uint64)


def uniform(
    seeds: U64, positions: ArrayLike, purpose: int = Purpose.SAMPLE, drafts: ArrayLike = 0
) -> NDArray[np.float64]:
    """Float64 in [0, 1), one per row; arguments broadcast.

    seeds: the sample's seed, uint64. positions: index of the completion token, counted from the prompt.
    drafts: which of several candidates for the position. Two rounds of mixing separate the seed from
    the counter, so that neighbouring seeds and positions share nothing.
    """
    # Arrays, never scalars: their arithmetic wraps without a warning.
    place = np.atleast_1d(np.asarray(positions, dtype=np.uint64)) * np.uint64(2) + np.uint64(1)
    detail = np.atleast_1d(np.asarray(drafts, dtype=np.uint64)) * np.uint64(8) + np.uint64(purpose)
    state = _mix(np.atleast_1d(np.asarray(seeds, dtype=np.uint64)) + _GOLDEN)
    state = _mix(state ^ _mix(place * _GOLDEN + _mix(detail + _GOLDEN)))
    return (state >> _S11).astype(np.float64) * 2.0**-53
