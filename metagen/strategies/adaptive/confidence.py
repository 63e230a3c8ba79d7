"""How confident a model was while it wrote: DeepConf's measures (Fu et al. 2025, section 3.1).

A group is a window of consecutive tokens; its confidence is the mean over it. What is averaged is one of two:

- `top`, the paper's token confidence C_i = −(1/k) Σ_j log p_j, over the k most probable tokens at place i. The other
  tokens of a sure model are improbable, so that C is large. It is at least log k.
- `chosen`, the log-probability of the token that was drawn, which every engine has. exp of its mean is the geometric
  mean probability of the tokens, in (0, 1].

Both are larger for more confident, and weigh a vote as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.border import checked
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import unused
from metagen.sequence import MOST_CONFIDENT, Score, Sequence
from metagen.values import Count, Fraction

Floats = NDArray[np.float64]
Measure = Literal["mean", "lowest", "bottom", "tail"]
Source = Literal["chosen", "top"]


@checked
@dataclass(frozen=True)
class Confidence:
    """One number for the tokens of a sequence: in [0, 1] of `chosen` tokens, in [0, 100] of the `top` ones.

    measure: `mean` over all tokens; `lowest` group; `bottom`, the mean of the lowest `share` of the groups, one at
    least; `tail`, the last group. window: tokens of a group; a shorter sequence is one group. of: what is averaged.
    """

    measure: Measure = "bottom"
    window: Count = 16
    share: Fraction = 0.1
    of: Source = "chosen"

    def __post_init__(self) -> None:
        if odd := beside(Confidence, vars(self)):
            raise InputError(f"Confidence: {odd}")

    def __call__(self, tokens: ArrayLike) -> float:
        """Of one number a token, as `of_tokens` gives them. 0 for no tokens, and where a chosen one had no probability.

        Raises InputError for what is no log-probability, or no confidence.
        """
        values = np.asarray(tokens, dtype=np.float64)
        least, most = (-math.inf, 0.0) if self.of == "chosen" else (0.0, MOST_CONFIDENT)
        if values.ndim != 1 or not ((values >= least - 1e-6) & (values <= most + 1e-6)).all():
            what = "log-probabilities" if self.of == "chosen" else "confidences"
            raise InputError(
                f"{what} {values.tolist()!r:.80}: expected one number for each token, from {least:g} to {most:g}"
            )
        if not len(values):
            return 0.0
        mean = min(max(self._mean(values), least), most)
        return math.exp(mean) if self.of == "chosen" else mean

    def score(self, tokens: ArrayLike) -> Score:
        """The same as a score: its raw is the confidence, its value the share of the largest that there is."""
        raw = self(tokens)
        return Score(raw if self.of == "chosen" else raw / MOST_CONFIDENT, raw=raw)

    def of_tokens(self, sequence: Sequence, prefix: Sequence | None = None) -> tuple[float, ...]:
        """What is averaged, of the tokens that a sequence adds to a prefix. UnsupportedError if it is not known."""
        field = "token_logprobs" if self.of == "chosen" else "token_confidences"
        known: tuple[float, ...] | None = getattr(sequence, field)
        before = getattr(prefix, field) if prefix is not None else None
        if known is None or (prefix is not None and prefix.text and before is None):
            raise UnsupportedError(
                f"confidence of={self.of!r} needs {field}, and {sequence.text[-40:]!r} of problem "
                f"{sequence.prompt.problem_id!r} has none; sample with {self._parameter}"
            )
        return known[len(before or ()) :]

    def check(self, generator: Generator, name: str) -> None:
        """UnsupportedError for a generator that is known not to keep what is averaged."""
        params: Any = getattr(generator, "params", None)
        parameter = self._parameter
        if params is not None and not getattr(params, parameter.split("=")[0], True):
            raise UnsupportedError(
                f"{name} needs numbers of each token; sample with generator.replace({parameter}), "
                f"in a file {parameter.replace('=', ': ').lower()}"
            )

    @property
    def _parameter(self) -> str:
        """What a generator is given; k as in the paper's code."""
        return "logprobs=True" if self.of == "chosen" else "top_logprobs=20"

    def _mean(self, values: Floats) -> float:
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


def beside(cls: Any, given: Mapping[str, Any]) -> str | None:
    """The first field that does nothing beside a measure, and why: see `unused`."""
    measure = given.get("measure")
    return unused(
        cls, given,
        ("window", measure == "mean", "is of groups, and measure='mean' has none; leave it out"),
        ("share", measure != "bottom", f"is of measure='bottom', and measure={measure!r}; leave it out"),
    )  # fmt: skip


def groups(values: Floats, window: int) -> Floats:
    """Means over all windows of `window` consecutive values, [tokens − window + 1]; of all, [1], if there are fewer."""
    if len(values) <= window:
        return np.array([values.mean()])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1))
