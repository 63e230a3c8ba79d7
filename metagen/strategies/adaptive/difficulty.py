"""How hard a problem is, by what its first samples say: one number for each, larger for easier.

Pure functions over rows of samples, as stopping rules take them, so that what is learned on a recorded pool is what a
strategy sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from metagen.strategies.adaptive.stopping import Floats, Ints, leaders, totals

#: (classes, weights), [rows, k] each → [rows].
Predictor = Callable[[Ints, Floats], Floats]


def agreement(classes: Ints, weights: Floats) -> Floats:
    """The share of the samples that give the most frequent answer; those without an answer count as dissent."""
    first, _ = leaders(totals(classes, np.ones(classes.shape)))
    return np.asarray(first / classes.shape[1])


def mean_score(classes: Ints, weights: Floats) -> Floats:
    """The verifier's mean score; a sample without one counts as 0."""
    return np.asarray(np.nan_to_num(weights).mean(axis=1))


#: By the name that fingerprints and files know them under.
PREDICTORS: Final[Mapping[str, Predictor]] = {"agreement": agreement, "mean_score": mean_score}
