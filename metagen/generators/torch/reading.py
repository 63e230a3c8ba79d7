"""What Evaluate requests read from the outputs of a model's head, raw or behind the adapters of decoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.decoding.words import Words, nothing_left
from metagen.generators.engine import EvaluateRequest, SamplingParams
from metagen.generators.torch.history import History
from metagen.generators.torch.models.formulas import without_ruled_out
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import adapt, distribution
from metagen.generators.torch.send import send

#: Values by position, and entropies if they were asked for.
Reading = tuple[tuple[tuple[float, ...], ...], tuple[float, ...] | None]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the distributions of a request are adapted.

    words: what is said of certain tokens. masks: [positions, V] that the grammar allows; None without one.
    """

    params: SamplingParams
    words: Words
    masks: NDArray[np.bool_] | None = None


def read(
    request: EvaluateRequest, wanted: tuple[int, ...], logits: Tensor, decoding: Decoding | None
) -> Reading:
    """What the request asks for, of `logits` [wanted, V].

    Raises InputError where all that restricts a token together leaves none.
    """
    place = {p: i for i, p in enumerate(wanted)}
    at = [place[p] for p in request.positions]
    if request.outputs:
        return tuple(map(tuple, logits[at].tolist())), None
    logprobs = _raw(logits)[at] if decoding is None else _adapt(request, logits[at], decoding)
    entropies = None
    if request.entropies:
        # −p log p is 0 where p is.
        entropies = tuple(torch.special.entr(logprobs.exp()).sum(-1, dtype=torch.float64).tolist())
    if request.labels is None:
        following = [request.ids[p + 1] for p in request.positions]
        return tuple((v,) for v in logprobs[range(len(at)), following].tolist()), entropies
    return tuple(map(tuple, logprobs[:, list(request.labels)].tolist())), entropies


def _raw(logits: Tensor) -> Tensor:
    """[positions, V]: the model's own log-probabilities; −inf of what it leaves out."""
    return without_ruled_out(logits, torch.log_softmax(logits, -1))


def _adapt(request: EvaluateRequest, logits: Tensor, decoding: Decoding) -> Tensor:
    """[positions, V]: log-probabilities behind all adapters."""
    n, device = len(request.positions), logits.device
    params = RowParams.of([decoding.params] * n, [decoding.words] * n, device)
    heads = [request.ids[: p + 1] for p in request.positions]
    history = History.of(heads, [request.start] * n, device=device)
    allowed = None
    if decoding.masks is not None:
        allowed = torch.arange(n, device=device), send(decoding.masks, device)
    if decoding.params.temperature == 0:
        found = distribution(logits, params, history, allowed).log()
    else:
        found = torch.log_softmax(adapt(logits, params, history, allowed), -1)
    if bool((none := found.isnan().any(-1)).any()):
        row = int(none.nonzero()[0])
        raise nothing_left(decoding.params, "", len(heads[row]) - request.start)
    return found
