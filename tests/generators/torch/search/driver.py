"""Runs a search over a model that is a function of what was written so far: the plainest decoder there is."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metagen.generators.engine import Sample
from metagen.generators.torch.search import Search, Step

Ids = tuple[int, ...]
#: Log-probabilities, or logits, [k, V] that follow each of k prefixes.
Model = Callable[[Sequence[Ids]], Tensor]


def run(
    search: Search,
    model: Model,
    limit: int,
    *,
    eos: int | None = None,
    allowed: Callable[[Ids], Sequence[int]] | None = None,
    hidden: Callable[[Sequence[Ids]], Tensor] | None = None,
    widths: list[int] | None = None,
) -> list[tuple[Sample, float]]:
    """What the search finds. ids of a sample do not hold the end token; finish says how it ended.

    hidden: the states of the prompt's tokens for [()], else of the last token of each row.
    """
    rows: list[Ids] = [()]
    while rows:
        logits = model(rows)
        raw = torch.log_softmax(logits, -1)
        if allowed is not None:
            for i, row in enumerate(rows):
                barred = torch.ones(logits.shape[-1], dtype=torch.bool)
                barred[list(allowed(row))] = False
                logits[i, barred] = -torch.inf
        before = list(rows)

        def ends(i: int, token: int, before: list[Ids] = before, raw: Tensor = raw) -> Sample | None:
            if token == eos:
                return Sample("", before[i], len(before[i]) + 1, float(raw[i, token]), finish="eos")
            if len(before[i]) + 1 >= limit:
                return Sample("", (*before[i], token), len(before[i]) + 1, finish="length")
            return None

        states = hidden(rows) if hidden is not None and search.wants_hidden else None
        chosen = search.select(Step(torch.log_softmax(logits, -1), raw, ends, states))
        pairs = list(zip(chosen.parents.tolist(), chosen.tokens.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs) <= search.rows, "rows are different, and no more than promised"
        rows = [(*before[parent], token) for parent, token in pairs]
        if widths is not None and rows:
            widths.append(len(rows))
    return search.results()


def ids(found: list[tuple[Sample, float]]) -> list[Ids]:
    return [sample.ids or () for sample, _ in found]


def table(vocabulary: int, seed: int, sharpness: float = 2.0) -> Model:
    """A model whose logits are random numbers that depend on the whole prefix."""
    known: dict[Ids, Tensor] = {}

    def row(prefix: Ids) -> Tensor:
        if prefix not in known:
            mixed = seed
            for token in prefix:
                mixed = (mixed * 1_000_003 + token + 17) % (1 << 61)
            generator = torch.Generator().manual_seed(mixed)
            known[prefix] = sharpness * torch.randn(vocabulary, generator=generator)
        return known[prefix]

    return lambda rows: torch.stack([row(prefix) for prefix in rows])


def every(model: Model, limit: int, eos: int, vocabulary: int) -> dict[tuple[Ids, bool], float]:
    """The log-probability of every text: ids, whether an end token follows."""
    texts: dict[tuple[Ids, bool], float] = {}
    stack: list[tuple[Ids, float]] = [((), 0.0)]
    while stack:
        prefix, total = stack.pop()
        logprobs = torch.log_softmax(model([prefix]), -1)[0].double().tolist()
        for token in range(vocabulary):
            mass = total + logprobs[token]
            if token == eos:
                texts[prefix, True] = mass
            elif len(prefix) + 1 == limit:
                texts[(*prefix, token), False] = mass
            else:
                stack.append(((*prefix, token), mass))
    return texts
