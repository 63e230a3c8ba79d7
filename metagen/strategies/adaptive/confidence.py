"""How confident a model was while it wrote: DeepConf's measures, from log-probabilities of tokens (Fu et al. 2025).

A group is a window of consecutive tokens; its confidence is the mean over it. The paper's token confidence is the
negative mean log-probability of the k most probable tokens. Engines here give the log-probability of the token they
chose, which stands in, and exp of its mean is the geometric mean probability of the tokens: a number in (0, 1], larger
for more confident, which is what weighs a vote.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.sequence import Sequence

Floats = NDArray[np.float64]
Measure = Literal["mean", "lowest", "bottom", "tail"]


@dataclass(frozen=True)
class Confidence:
    """One number for a sequence of log-probabilities, in [0, 1].

    measure: `mean` over all tokens; `lowest` group; `bottom`, the mean of the lowest `share` of the groups, one at
    least; `tail`, the last group. window: tokens of a group; a shorter sequence is one group.
    """

    measure: Measure = "bottom"
    window: int = 16
    share: float = 0.1

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise InputError(f"measure={self.measure!r}: expected one of {', '.join(get_args(Measure))}")
        if not is_count(self.window, 1):
            raise InputError(f"window={self.window!r}: expected the tokens of a group, at least 1")
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"share={self.share!r}: expected a share of the groups in (0, 1]")

    def __call__(self, logprobs: ArrayLike) -> float:
        """0 for no tokens, and where a token had no probability. Raises InputError for what is no log-probability."""
        values = np.asarray(logprobs, dtype=np.float64)
        if values.ndim != 1 or np.isnan(values).any() or (values > 1e-6).any():
            raise InputError(
                f"log-probabilities {values.tolist()!r:.80}: expected one number ≤ 0 for each token"
            )
        return math.exp(min(self._log(values), 0.0)) if len(values) else 0.0

    def _log(self, values: Floats) -> float:
        match self.measure:
            case "mean":
                return float(values.mean())
            case "tail":
                return float(values[-self.window :].mean())
            case "lowest":
                return float(groups(values, self.window).min())
            case "bottom":
                means = np.sort(groups(values, self.window))
                return float(means[: max(1, round(self.share * len(means)))].mean())


def groups(values: Floats, window: int) -> Floats:
    """Means over all windows of `window` consecutive values; over all of them, if there are fewer."""
    if len(values) <= window:
        return np.array([values.mean()])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1))


def logprobs_of(sequence: Sequence, prefix: Sequence | None = None) -> tuple[float, ...]:
    """Of the tokens that a sequence adds to a prefix. UnsupportedError if they are not known."""
    known = sequence.token_logprobs
    before = prefix.token_logprobs if prefix is not None else None
    if known is None or (prefix is not None and prefix.text and before is None):
        raise UnsupportedError(
            f"confidence needs the log-probability of each token, and {sequence.text[-40:]!r} of problem "
            f"{sequence.prompt.problem_id!r} has none; sample with logprobs=True"
        )
    return known[len(before or ()) :]


def check_logprobs(generator: Generator, name: str) -> None:
    """UnsupportedError for a generator that is known not to keep log-probabilities."""
    params: Any = getattr(generator, "params", None)
    if params is not None and not getattr(params, "logprobs", True):
        raise UnsupportedError(
            f"{name} needs the log-probability of each token; sample with generator.replace(logprobs=True), "
            "in a file with logprobs: true"
        )
