"""Solutions as reward models read them: tags among the tokens, and what is to be learned at each position."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

import pools
import tokenizer as tokenizers_
from loop import pad
from pools import Solution
from tokenizer import OUTCOME, STEP

AFTER = 0.3
"""Weight of the steps after the first wrong one: they are wrong by definition."""
NOTHING = -1
"""The label of a position that has none."""


@dataclass
class Row:
    """One solution as ids, with what is to be learned at each position."""

    ids: np.ndarray
    labels: np.ndarray
    """1 right, 0 wrong, or a value between them, where there is a tag; -1 elsewhere."""
    weights: np.ndarray
    language: np.ndarray
    """Whether the next token is to be learned."""
    sound: np.ndarray
    """1 for the characters up to the first that no right step could have there, which has 0; -1 elsewhere."""


@dataclass(frozen=True)
class Table:
    """Rows side by side, padded on the right; the fields of `Row` as tensors."""

    ids: Tensor
    labels: Tensor
    weights: Tensor
    language: Tensor
    sound: Tensor


def row(
    solution: Solution,
    tokenizer: Tokenizer,
    rng: random.Random,
    *,
    outcome: bool,
    values: Sequence[float] | None = None,
    slips: bool = True,
) -> Row:
    """Tags after each step (process) or one at the end (outcome).

    Labels are those of the step checker, and half of what follows the first two wrong steps is left out. With `values`
    they are the labels of the steps instead, all of one weight, and nothing is left out. slips: say which character of
    the first wrong step is the first wrong one, which is known of arithmetic alone.
    """
    pieces = tokenizers_.encode(tokenizer, [solution.prompt, *solution.steps])
    ids = [tokenizers_.BOS, *pieces[0]]
    labels, weights, language = [-1.0] * len(ids), [0.0] * len(ids), [False] * len(ids)
    sound = [NOTHING] * len(ids)
    slip = pools.first_wrong(solution) if slips else None
    right_so_far = True
    for place, (piece, right) in enumerate(zip(pieces[1:], solution.labels, strict=True)):
        ids += piece
        language[-1:] = [right]
        language += [right] * (len(piece) - 1) + [False]
        labels += [NOTHING] * len(piece)
        weights += [0.0] * len(piece)
        if right or (right_so_far and slip is None):
            sound += [1] * len(piece)
        elif right_so_far and slip is not None:
            sound += [1] * slip + [0] + [NOTHING] * (len(piece) - slip - 1)
        else:
            sound += [NOTHING] * len(piece)
        if not outcome:
            ids.append(STEP)
            labels.append(float(right) if values is None else values[place])
            weights.append(1.0 if right_so_far or values is not None else AFTER)
            language.append(False)
            sound.append(NOTHING)
        if not (right or right_so_far or outcome or values is not None) and rng.random() < 0.5:
            break
        right_so_far = right
    if outcome:
        ids.append(OUTCOME)
        labels.append(float(solution.correct))
        weights.append(1.0)
        language.append(False)
        sound.append(NOTHING)
    return Row(
        np.array(ids, np.uint16),
        np.array(labels, np.float32),
        np.array(weights, np.float32),
        np.array(language),
        np.array(sound, np.int8),
    )


def table(rows: Sequence[Row]) -> Table:
    ids = torch.from_numpy(pad([r.ids for r in rows]))
    labels = torch.full(ids.shape, float(NOTHING))
    weights = torch.zeros(ids.shape)
    language = torch.zeros(ids.shape, dtype=torch.bool)
    sound = torch.full(ids.shape, NOTHING)
    for i, r in enumerate(rows):
        labels[i, : len(r.ids)] = torch.from_numpy(r.labels)
        weights[i, : len(r.ids)] = torch.from_numpy(r.weights)
        language[i, : len(r.ids)] = torch.from_numpy(r.language)
        sound[i, : len(r.ids)] = torch.from_numpy(r.sound.astype(np.int64))
    return Table(ids, labels, weights, language, sound)
