"""Stochastic beam search: texts drawn without replacement, by Gumbel noise that is drawn from the root down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from metagen.generators.decoding.search import StochasticBeamSearch, inclusion
from metagen.generators.engine import Sample
from metagen.generators.randomness import Purpose, seed_array, uniform
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.search.beam import choose
from metagen.generators.torch.search.step import OVER, Chosen, Floats, Step, best

#: Numbers the root's random number, beyond those of all rows and tokens.
ROOT = 1 << 40


class Leaf(NamedTuple):
    """A text: its log-probability under the adapted distribution, and that perturbed."""

    logprob: float
    perturbed: float
    sample: Sample


class Stochastic:
    """A stochastic beam search under way. position: of the first new token, counted from the prompt."""

    wants_hidden = False

    def __init__(self, spec: StochasticBeamSearch, seed: int, position: int = 0) -> None:
        self.rows = self._width = spec.width
        self._seed, self._start, self._length = seed_array([seed]), position, 0
        self._logprobs = np.zeros(1)
        self._perturbed = _gumbel(uniform(self._seed, position, Purpose.SEARCH, ROOT))
        self.leaves: list[Leaf] = []
        #: The largest perturbed log-probability of what was left out: of the text that would have come next.
        self.threshold = -np.inf

    def select(self, step: Step) -> Chosen:
        logprobs, perturbed, tokens = self._children(step)
        texts = np.array([leaf.perturbed for leaf in self.leaves])
        every = np.concatenate([texts, perturbed.ravel()])
        keep = np.argsort(-every, kind="stable")[: self._width + 1]
        keep = keep[every[keep] > -np.inf]
        if len(keep) > self._width:
            self.threshold = max(self.threshold, float(every[keep[-1]]))
            keep = keep[:-1]
        self.leaves, old = [self.leaves[i] for i in sorted(keep[keep < len(texts)].tolist())], self.leaves
        live = []
        for flat in (keep[keep >= len(old)] - len(old)).tolist():
            row, place = divmod(flat, perturbed.shape[1])
            sample = step.ends(row, int(tokens[row, place]))
            if sample is None:
                live.append((row, place))
            else:
                self.leaves.append(Leaf(float(logprobs[row, place]), float(perturbed[row, place]), sample))
        self._length += 1
        if not live:
            return OVER
        rows, places = np.array(live).T
        self._logprobs, self._perturbed = logprobs[rows, places], perturbed[rows, places]
        return choose(zip(rows.tolist(), tokens[rows, places].tolist(), strict=True))

    def results(self) -> list[tuple[Sample, float]]:
        return [(leaf.sample, leaf.perturbed) for leaf in self._rank()]

    def inclusion(self) -> list[float]:
        """Of each result, how probable it was to be drawn."""
        return [inclusion(leaf.logprob, self.threshold) for leaf in self._rank()]

    def _rank(self) -> list[Leaf]:
        return sorted(self.leaves, key=lambda leaf: -leaf.perturbed)

    def _children(self, step: Step) -> tuple[Floats, Floats, Ints]:
        """Of each row the children that may be kept: log-probabilities, those perturbed, and tokens.

        The largest perturbed value of a row is that of its parent.
        """
        every = step.values().double().cpu().numpy() + self._logprobs[:, None]
        k, size = every.shape
        numbers = uniform(self._seed, self._start + self._length, Purpose.SEARCH, np.arange(k * size))
        # The condition keeps their order.
        free, tokens = best(torch.from_numpy(every + _gumbel(numbers).reshape(k, size)), self._width + 1)
        top, goal = free[:, :1], self._perturbed[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            # −log(e^−goal − e^−top + e^−free), without the cancellation (Kool et al. 2019, appendix).
            v = goal - free + np.log1p(-np.exp(free - top))
            perturbed = goal - np.maximum(0.0, v) - np.log1p(np.exp(-np.abs(v)))
        perturbed[:, :1] = goal
        perturbed[free == -np.inf] = -np.inf
        return np.take_along_axis(every, tokens, 1), perturbed, tokens


def _gumbel(u: Floats) -> Floats:
    """Standard Gumbel noise from numbers of [0, 1); 0 counts as half of the least other."""
    return -np.log(-np.log(np.maximum(u, 2.0**-54)))
