"""Searches of the torch engine: functions of the rows' log-probabilities, one object per request.

`make_search` makes it; the decoder asks it what goes on, step by step, until nothing does, and then for the results.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable

from metagen.generators.decoding.phrases import phrase_ids
from metagen.generators.decoding.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    SearchSpec,
    StochasticBeamSearch,
)
from metagen.generators.torch.search.beam import Beam
from metagen.generators.torch.search.constrained import Constrained
from metagen.generators.torch.search.contrastive import Contrastive
from metagen.generators.torch.search.diverse import Diverse
from metagen.generators.torch.search.step import OVER, Chosen, Search, Step
from metagen.generators.torch.search.stochastic import Stochastic

__all__ = ["OVER", "Chosen", "Search", "Step", "make_search"]


def make_search(
    spec: SearchSpec,
    encode: Callable[[str], abc.Sequence[int]],
    decode: Callable[[list[int]], str],
    vocabulary: int,
    limit: int,
    seed: int,
    before: abc.Sequence[int] = (),
) -> Search:
    """The search of one request.

    encode, decode: ids of a text, and back. limit: new tokens that a text may have. seed: of what a search draws.
    before: ids of the completion so far. Raises InputError for phrases that this model or this request cannot write.
    """
    match spec:
        case ConstrainedBeamSearch():
            return Constrained(spec, limit, phrase_ids(spec, encode, decode, vocabulary), before)
        case DiverseBeamSearch():
            return Diverse(spec, limit)
        case BeamSearch():
            return Beam(spec, limit)
        case StochasticBeamSearch():
            return Stochastic(spec, seed, len(before))
        case ContrastiveSearch():
            return Contrastive(spec)
