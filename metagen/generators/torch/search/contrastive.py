"""Contrastive search: the probable token whose hidden state is least like those before it."""

from __future__ import annotations

import torch
from torch import Tensor

from metagen.errors import UnsupportedError
from metagen.generators.decoding.search import ContrastiveSearch
from metagen.generators.engine import Sample
from metagen.generators.torch.search.beam import choose
from metagen.generators.torch.search.step import OVER, Chosen, Step, best


class Contrastive:
    """A contrastive search under way.

    The k candidates are run before one is chosen, each in a row of its own: the row of the chosen one then has the next
    logits already, so that a token takes one step of k rows.
    """

    wants_hidden = True

    def __init__(self, spec: ContrastiveSearch) -> None:
        self.rows = spec.rows
        self._spec = spec
        self._history: _Directions | None = None
        self._logprobs: list[float] = []
        self._samples: list[Sample | None] = []
        self._total = 0.0
        self._found: Sample | None = None

    def select(self, step: Step) -> Chosen:
        row = self._settle(step)
        if self._found is not None:
            return OVER
        found, tokens = best(step.values()[row : row + 1], self._spec.k)
        there = found[0] > -torch.inf
        self._logprobs = found[0, there].tolist()
        candidates = tokens[0, there].tolist()
        if not candidates:
            return OVER
        self._samples = [step.ends(row, token) for token in candidates]
        if len(candidates) == 1 and self._samples[0] is not None:
            self._end(0)
            return OVER
        return choose((row, token) for token in candidates)

    def results(self) -> list[tuple[Sample, float]]:
        return [] if self._found is None else [(self._found, self._total)]

    def _settle(self, step: Step) -> int:
        """Choose among the candidates, which have been run; the row of the chosen one."""
        if step.hidden is None:
            raise UnsupportedError(
                "a contrastive search reads the model's hidden states, and this model gives none; use one that does, "
                "or a beam search"
            )
        directions = torch.nn.functional.normalize(step.hidden.float(), dim=-1)
        if self._history is None:
            self._history = _Directions(directions)
            return 0
        likeness = (self._history.all @ directions.T).amax(0)
        alpha = self._spec.alpha
        p = torch.tensor(self._logprobs, dtype=torch.float64).exp()
        # The most probable one of those that tie.
        chosen_row = int(torch.argmax((1 - alpha) * p - alpha * likeness.double().cpu()))
        self._history.add(directions[chosen_row])
        if self._samples[chosen_row] is not None:
            self._end(chosen_row)
        else:
            self._total += self._logprobs[chosen_row]
        return chosen_row

    def _end(self, candidate: int) -> None:
        self._found = self._samples[candidate]
        self._total += self._logprobs[candidate]


class _Directions:
    """Unit vectors of all tokens so far, in memory that doubles."""

    def __init__(self, first: Tensor) -> None:
        self._held, self._count = first, len(first)

    @property
    def all(self) -> Tensor:
        return self._held[: self._count]

    def add(self, direction: Tensor) -> None:
        if self._count == len(self._held):
            self._held = torch.cat([self._held, torch.empty_like(self._held)])
        self._held[self._count] = direction
        self._count += 1
