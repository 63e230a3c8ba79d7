"""Small tables of next-token probabilities, and the exact distribution over sequences that an engine has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from metagen.generators.engine import EvaluateRequest
from metagen.generators.models.recipes import Table
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence

TOKENS = ("a", "b", "ab", "$")
LONGEST = 3
Floats = NDArray[np.float64]
Rule = Callable[[Floats], Floats]


def row(name: str, done: tuple[str, ...]) -> Floats:
    """Probabilities that follow from the name and the completion; after LONGEST tokens the text ends."""
    if len(done) == LONGEST:
        return np.eye(len(TOKENS))[-1]
    seed = [ord(c) for c in name + "|" + ".".join(done)]
    return np.random.default_rng(seed).dirichlet(np.ones(len(TOKENS)))


def table(name: str) -> Table:
    return Table(TOKENS, lambda prompt, done: row(name, done), name)


def uniform() -> Table:
    """The uniform distribution at every place."""
    return Table(TOKENS, lambda prompt, done: np.full(len(TOKENS), 1 / len(TOKENS)), "uniform")


def probabilities(of: Callable[[tuple[str, ...]], Floats]) -> dict[tuple[str, ...], float]:
    """Of every completion, its end included, where `of` gives the next token's."""
    found: dict[tuple[str, ...], float] = {}
    stack: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
    while stack:
        done, mass = stack.pop()
        for token, p in zip(TOKENS, of(done), strict=True):
            if p > 0 and token == TOKENS[-1]:
                found[*done, token] = mass * float(p)
            elif p > 0:
                stack.append(((*done, token), mass * float(p)))
    return found


def next_of(engine: TorchEngine, done: tuple[str, ...]) -> Floats:
    """The probabilities of the next token, as the engine evaluates them."""
    ids = engine.render(Sequence.of("?")) + tuple(TOKENS.index(token) for token in done)
    request = EvaluateRequest(ids, (len(ids) - 1,), tuple(range(len(TOKENS))))
    ((values,),) = (answer.values for answer in asyncio.run(engine.evaluate([request])))
    return np.exp(np.array(values))


def normed(scores: Floats) -> Floats:
    """exp(scores), to sum 1."""
    weights: Floats = np.exp(scores - scores.max())
    return weights / weights.sum()
