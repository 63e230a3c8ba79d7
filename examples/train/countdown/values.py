"""The value model: after each step, can the target still be reached? On the way it says what can be.

At each tag the last layer but one is asked for the whole set of targets that the table can reach, a question of 90
bits in place of one; the layer above has to look the problem's own target up in it.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
from dataclasses import dataclass

import arrays
import numpy as np
import torch
import torch.nn.functional as F
import vocabulary
from tables import Row
from torch import Tensor

from llama import Llama
from loop import pad
from metagen.tasks.countdown.problems import TARGETS
from tokenizer import NEGATIVE, POSITIVE, STEP

AFTER = 0.3
"""Weight of the tags after the first at which the target was out of reach."""
SETS = 2.0
"""Weight of the sets."""
LANGUAGE = 0.3
"""Weight of writing the steps that are right, so that the proposer's layers keep what they know."""


@dataclass(frozen=True)
class Batch:
    """Rows side by side. row, place: of each tag; known: those whose table has a set, and the sets as 0 and 1.

    written: the tokens to be written, each foreseen one place before.
    """

    ids: Tensor
    row: Tensor
    place: Tensor
    labels: Tensor
    weights: Tensor
    known: Tensor
    sets: Tensor
    written: Tensor


def batch(rows: list[Row]) -> Batch:
    counts = [len(row.tags) for row in rows]
    labels = np.concatenate([row.labels for row in rows])
    lost = [np.cumsum(row.labels == 0) > 1 for row in rows]
    known = np.concatenate([np.arange(len(row.tags)) < len(row.sets) for row in rows])
    ids = torch.from_numpy(pad([row.ids for row in rows]))
    written = torch.zeros_like(ids, dtype=torch.bool)
    for line, row in zip(written, rows, strict=True):
        line[row.written] = True
    return Batch(
        ids,
        torch.from_numpy(np.repeat(np.arange(len(rows)), counts)),
        torch.from_numpy(np.concatenate([row.tags for row in rows])),
        torch.from_numpy(labels),
        torch.from_numpy(np.where(np.concatenate(lost), AFTER, 1.0).astype(np.float32)),
        torch.from_numpy(known),
        torch.from_numpy(arrays.members(np.concatenate([row.sets for row in rows])).astype(np.float32)),
        written & (ids != STEP),
    )


def targets() -> Tensor:
    """The tokens of all targets."""
    text = vocabulary.numbers()
    return torch.tensor([text.token_to_id(str(target)) for target in TARGETS])


def loss_of(model: Llama, rows: list[Row], extra: int) -> Tensor:
    """Of the labels, of the sets, and of writing with the layers below the `extra` ones.

    The token after a tag is foreseen at the tag.
    """
    table = batch(rows)
    states = model.states(table.ids)
    tagged = table.row, table.place
    value = F.binary_cross_entropy_with_logits(
        logits(model, states[-1][tagged]), table.labels, table.weights, reduction="sum"
    )
    there = F.linear(states[-2][tagged][table.known], model.model.embed_tokens.weight[targets()])
    sets = F.binary_cross_entropy_with_logits(there.float(), table.sets, reduction="sum") / len(targets())
    following = table.written[:, 1:]
    guesses = model.logits(states[-1 - extra][:, :-1][following]).float()
    language = F.cross_entropy(guesses, table.ids[:, 1:][following], reduction="sum")
    # A batch may have nothing to write, and no tables.
    language = language / max(1, len(guesses))
    return value / table.weights.sum() + SETS * sets / max(1, len(there)) + LANGUAGE * language


def logits(model: Llama, hidden: Tensor) -> Tensor:
    """Log-odds of reach at tags."""
    pair = F.linear(hidden, model.model.embed_tokens.weight[[POSITIVE, NEGATIVE]]).float()
    return pair[..., 0] - pair[..., 1]


@torch.inference_mode()
def said(model: Llama, rows: list[Row], at_once: int = 512) -> list[np.ndarray]:
    """The probabilities at the tags of each row."""
    model = model.to(torch.bfloat16).eval()
    found: list[np.ndarray] = []
    for begin in range(0, len(rows), at_once):
        some = rows[begin : begin + at_once]
        table = batch(some)
        p = torch.sigmoid(logits(model, model.states(table.ids)[-1][table.row, table.place]))
        found += np.split(p.numpy(), np.cumsum([len(row.tags) for row in some])[:-1])
    return found
