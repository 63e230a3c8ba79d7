"""Learning to write: from pairs of prompt and completion to a model directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import tokenizer as tokenizers_
from llama import Llama, export
from loop import Recipe, pad, train
from setting import Setting

CHUNK = 10_000
"""Examples that are encoded at a time."""


@dataclass(frozen=True)
class Lesson:
    """Pairs of prompt and completion, and how they are learned."""

    examples: list[tuple[str, str]]
    recipe: Recipe


def learn(
    name: str,
    model: Llama,
    tokenizer: Tokenizer,
    lessons: list[Lesson],
    run: Setting,
    metagen: dict[str, Any],
) -> None:
    """Train on the completions, one lesson after another, or go on from a checkpoint; write the model directory.

    metagen: what its config.json says of itself.
    """
    for number, lesson in enumerate(lessons, 1):
        rows, starts = encoded(tokenizer, lesson.examples)

        def loss(batch: np.ndarray, rows: list[np.ndarray] = rows, starts: np.ndarray = starts) -> Tensor:
            ids = torch.from_numpy(pad([rows[i] for i in batch]))
            places = torch.arange(ids.shape[1] - 1)
            # Of the following token: it belongs to the completion, and is no padding.
            learned = (ids[:, 1:] != tokenizers_.PAD) & (places >= torch.from_numpy(starts[batch])[:, None])
            hidden = model.hidden(ids)[:, :-1][learned]
            return F.cross_entropy(model.logits(hidden).float(), ids[:, 1:][learned])

        lengths = np.array([len(row) for row in rows])
        train(model, lesson.recipe, lengths, loss, run.checkpoints / f"{name}-{number}.pt", run.save_every)
    export(model, tokenizer, run.models / name, metagen)


def encoded(tokenizer: Tokenizer, examples: list[tuple[str, str]]) -> tuple[list[np.ndarray], np.ndarray]:
    """Token ids of each example, and the position whose next token is the first to be learned."""
    rows, starts = [], []
    for begin in range(0, len(examples), CHUNK):  # the encodings of all at once would take gigabytes
        chunk = examples[begin : begin + CHUNK]
        prompts = tokenizers_.encode(tokenizer, [p for p, _ in chunk])
        completions = tokenizers_.encode(tokenizer, [c for _, c in chunk])
        for p, c in zip(prompts, completions, strict=True):
            rows.append(np.array([tokenizers_.BOS, *p, *c, tokenizers_.EOS], np.uint16))
            starts.append(len(p))
    return rows, np.array(starts)
