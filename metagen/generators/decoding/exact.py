"""Adapters on one row of probabilities in float64: temperature, top_k and top_p without torch, the others with it."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metagen.errors import UnsupportedError, install
from metagen.generators.decoding.words import Words, nothing_left
from metagen.generators.engine import SamplingParams
from metagen.sequence import MOST_CONFIDENT

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(slots=True)
class Row:
    """A sample on its way. cut: of mirostat, for the next token. log_mass: what masks left of it so far."""

    cut: float
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    log_mass: float = 0.0


class Adapters:
    """All adapters of some parameters, for completions of one prompt. start: its tokens.

    Raises UnsupportedError where an adapter needs torch, which is not installed.
    """

    def __init__(self, params: SamplingParams, words: Words, start: int, problem: str = "") -> None:
        self.params, self._start, self._problem = params, start, problem
        self._torch = _Torch(params, words, start) if params.on else None
        #: Where the cut of mirostat begins.
        self.mu = 2 * params.mirostat.tau if params.mirostat else 0.0

    def __call__(
        self, p: Floats, ids: abc.Sequence[int], mu: float, allowed: Flags | None = None
    ) -> tuple[Floats, Floats]:
        """Probabilities [V] of the token behind `ids`, prompt and completion, from those that the model gives and what
        a grammar allows [V]; and the cut of mirostat behind each token. InputError if no token is left.
        """
        if self._torch is None:
            held = p if allowed is None else np.where(allowed, p, 0.0)
            return adapt(held, self.params), np.full(len(p), mu)
        q, cuts = self._torch(p, ids, mu, allowed)
        if np.isnan(q).any():
            raise nothing_left(self.params, self._problem, len(ids) - self._start)
        return q, cuts


class _Torch:
    def __init__(self, params: SamplingParams, words: Words, start: int) -> None:
        try:
            import torch

            from metagen.generators.torch import adapters, history, parameters, sampling
        except ImportError as error:
            name = params.on[0]
            raise UnsupportedError(
                f"{name}={getattr(params, name)!r}: this adapter needs torch, which cannot be imported ({error}); "
                + install("torch")
            ) from error
        self._library, self._history, self._adapters, self._sampling = torch, history, adapters, sampling
        self._row = parameters.RowParams.of([params], [words])
        self._start, self._mirostat = start, params.mirostat

    def __call__(
        self, p: Floats, ids: abc.Sequence[int], mu: float, allowed: Flags | None
    ) -> tuple[Floats, Floats]:
        torch, row = self._library, self._row
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(p))[None]
        before = self._history.History.of([ids], [self._start]) if row.remembers else None
        held = None if allowed is None else (torch.tensor([0]), torch.tensor(allowed)[None])
        if self._mirostat is None:
            return self._numbers(self._sampling.distribution(logits, row, before, held)), np.full(len(p), mu)
        row = row.at(np.array([mu]))
        q = self._sampling.distribution(logits, row, before, held)
        every = self._sampling.surprises(logits, row, before, held)
        return self._numbers(q), mu - self._mirostat.eta * (self._numbers(every) - self._mirostat.tau)

    @staticmethod
    def _numbers(row: Any) -> Floats:
        found: Floats = row[0].numpy()
        return found


def adapt(p: Floats, params: SamplingParams) -> Floats:
    """[V]: probabilities after temperature, top_k and top_p, in float64; temperature 0 keeps the first of the best."""
    if params.temperature == 0:
        best: Floats = np.eye(len(p))[int(np.argmax(p))]
        return best
    with np.errstate(divide="ignore"):
        z = np.log(p)
        q: Floats = np.exp((z - z.max()) / params.temperature)
    if 0 < params.top_k < len(p):
        q = np.where(q >= np.sort(q)[-params.top_k], q, 0.0)
    q /= q.sum()
    if params.top_p < 1:
        order = np.argsort(-q, kind="stable")[::-1]
        remove = np.cumsum(q[order]) <= 1.0 - params.top_p
        remove[-1] = False
        q = q.copy()
        q[order[remove]] = 0.0
    total = float(q.sum())
    return q / total


def confidence(p: Floats, k: int) -> float:
    """Of p [V]: −(1/k) Σ_j log p_j over the k most probable tokens; none of these logarithms counts less than −100."""
    with np.errstate(divide="ignore"):
        return float(-np.log(np.sort(p)[-k:]).clip(min=-MOST_CONFIDENT).mean())


def draw(p: Floats, u: float) -> int:
    """Of p [V] the first token, in order of ids, whose cumulative probability exceeds u."""
    cdf = np.cumsum(p)
    goal = min(u * cdf[-1], float(np.nextafter(cdf[-1], 0.0)))
    return int(np.searchsorted(cdf, goal, side="right"))
