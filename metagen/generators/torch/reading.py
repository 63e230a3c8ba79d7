"""What Evaluate requests read from the outputs of a model's head, raw or behind the adapters of decoding."""

from __future__ import annotations

from collections import abc
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
    request: EvaluateRequest, positions: abc.Sequence[int], logits: Tensor, decoding: Decoding | None
) -> Tensor:
    """[positions, K] in float64: what the request asks of some of its positions, by the `logits` [positions, V] there.

    These are the outputs of a head that scores, or log-probabilities, with the entropy behind them if it is asked for.

    Raises InputError where all that restricts a token together leaves none.
    """
    if request.outputs:
        return logits.double()
    logprobs = _raw(logits) if decoding is None else _adapt(request, positions, logits, decoding)
    if request.labels is None:
        following = np.array([request.ids[p + 1] for p in positions], np.int64)
        found = logprobs.gather(1, send(following[:, None], logits.device)).double()
    else:
        found = logprobs[:, list(request.labels)].double()
    if not request.entropies:
        return found
    # −p log p is 0 where p is.
    entropies = torch.special.entr(logprobs.exp()).sum(-1, keepdim=True, dtype=torch.float64)
    return torch.cat([found, entropies], 1)


def collect(request: EvaluateRequest, wanted: tuple[int, ...], found: Tensor) -> Reading:
    """What was read of the positions `wanted`, `found` [wanted, K], in the order in which it was asked for."""
    place = {p: i for i, p in enumerate(wanted)}
    rows = found[[place[p] for p in request.positions]].tolist()
    if request.outputs or not request.entropies:
        return tuple(map(tuple, rows)), None
    return tuple(tuple(row[:-1]) for row in rows), tuple(row[-1] for row in rows)


def _raw(logits: Tensor) -> Tensor:
    """[positions, V]: the model's own log-probabilities; −inf of what it leaves out."""
    return without_ruled_out(logits, torch.log_softmax(logits, -1))


def _adapt(
    request: EvaluateRequest, positions: abc.Sequence[int], logits: Tensor, decoding: Decoding
) -> Tensor:
    """[positions, V]: log-probabilities behind all adapters."""
    n, device = len(positions), logits.device
    params = RowParams.of([decoding.params] * n, [decoding.words] * n, device)
    heads = [request.ids[: p + 1] for p in positions]
    history = History.of(heads, [request.start] * n, device=device)
    allowed = None
    if decoding.masks is not None:
        place = {p: i for i, p in enumerate(request.positions)}
        masks = decoding.masks[[place[p] for p in positions]]
        allowed = torch.arange(n, device=device), send(masks, device)
    if decoding.params.temperature == 0:
        found = distribution(logits, params, history, allowed).log()
    else:
        found = torch.log_softmax(adapt(logits, params, history, allowed), -1)
    if bool((none := found.isnan().any(-1)).any()):
        row = int(none.nonzero()[0])
        raise nothing_left(decoding.params, "", len(heads[row]) - request.start)
    return found
