"""Train one generator: `python examples/train/train_generator.py tiny-0.5m`."""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import corpus
import tokenizer as tokenizers_
from learn import encoded
from llama import Llama, Shape, export
from loop import Recipe, pad, train
from setting import Setting

IGNORE = -100
SHARDS = 24
"""Shards of the corpus."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides a generator."""

    hidden: int
    layers: int
    feed_forward: int
    recipe: Recipe
    merges: int | None = None
    """Byte-pair merges; `None` for one token a character."""


PLANS = {
    "tiny-0.1m": Plan(64, 2, 192, Recipe(3000, tokens=4096)),
    "tiny-0.5m": Plan(128, 3, 256, Recipe(1900, tokens=6144)),
    "tiny-2m": Plan(192, 4, 512, Recipe(1950, rate=3e-3, tokens=8192)),
    "tiny-bpe": Plan(128, 2, 256, Recipe(1200, tokens=4096), merges=300),
}


def vocabulary(plan: Plan, examples: list[tuple[str, str]]) -> Tokenizer:
    if plan.merges is None:
        return tokenizers_.characters()
    return tokenizers_.byte_pairs((a + b for a, b in examples[:4000]), plan.merges)


def generator(name: str, plan: Plan, run: Setting) -> None:
    """Train from the corpus (or go on) and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    recipe = run.recipe(plan.recipe)
    examples = corpus.read(corpus.write(run.corpus, run.seed, SHARDS, run.share(corpus.SHARD), run.workers))
    tokenizer = vocabulary(plan, examples)
    rows, starts = encoded(tokenizer, examples)
    torch.manual_seed(recipe.seed)
    model = Llama(Shape(tokenizer.get_vocab_size(), plan.hidden, plan.layers, plan.feed_forward))

    def loss(batch: np.ndarray) -> Tensor:
        ids = pad([rows[i] for i in batch])
        following = np.roll(ids, -1, 1)
        following[:, -1] = 0
        following[(following == 0) | (np.arange(ids.shape[1]) < starts[batch][:, None])] = IGNORE
        logits = model(torch.from_numpy(ids)).float()
        return F.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(following).flatten(), ignore_index=IGNORE
        )

    lengths = np.array([len(row) for row in rows])
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    export(model, tokenizer, run.models / name, {"kind": "generator", "steps_delimiter": "\n"})


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    generator(arguments.name, PLANS[arguments.name], setting.begin(arguments))
