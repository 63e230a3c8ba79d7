"""Train one generator: `python examples/train/train_generator.py tiny-0.5m`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import corpus
import tokenizer as tokenizers_
from llama import Llama, Shape, export
from loop import Recipe, pad, train

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "metagen" / "generators" / "tiny"
WORK = ROOT / ".checkpoints"
IGNORE = -100


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


def generator(name: str, plan: Plan, shards: int) -> Llama:
    """Train from the corpus (or go on), write the model directory, return the model."""
    torch.manual_seed(plan.recipe.seed)
    examples = corpus.read(corpus.write(WORK / "corpus", 0, shards))
    tokenizer = vocabulary(plan, examples)
    prompts = tokenizers_.encode(tokenizer, [p for p, _ in examples])
    completions = tokenizers_.encode(tokenizer, [c for _, c in examples])
    rows = [
        np.array([tokenizers_.BOS, *p, *c, tokenizers_.EOS], np.uint16)
        for p, c in zip(prompts, completions, strict=True)
    ]
    starts = np.array([len(p) for p in prompts])  # the position whose next token is the first to be learned
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
    train(model, plan.recipe, lengths, loss, WORK / f"{name}.pt")
    export(model, MODELS / name, {"kind": "generator", "steps_delimiter": "\n"})
    tokenizers_.save(tokenizer, MODELS / name)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PLANS)
    parser.add_argument("--shards", type=int, default=24, help="shards of the corpus, 10,000 problems each")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    generator(arguments.name, PLANS[arguments.name], arguments.shards)
