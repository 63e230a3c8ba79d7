"""The reward model of Wu et al. 2024 as metagen reads reward models: a value for `+`, and 0 for every other token.

    python examples/papers/llemma_reward.py published/Llemma-reward-model --local-dir models/Llemma-reward-model

The published model is a language model in form. Its head has two rows, repeated over the vocabulary, and a step is
worth the sigmoid of the mean of all logits at its tag ` ки` (hf_score.py of thu-wyz/inference_scaling).
Labels of such a head say nothing: `+` and `-` are rows of one pair. Here the mean row stands at `+`, and zeros
elsewhere, so that p(+) / (p(+) + p(-)) is the sigmoid of that mean.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from metagen.generators.tokenizer import Tokenizer

HEAD = "lm_head.weight"


def shard_of_head(directory: Path) -> Path:
    """The file of weights that has the head."""
    for index in directory.glob("*.index.json"):
        name = json.loads(index.read_text("utf-8"))["weight_map"].get(HEAD)
        if name and (directory / name).exists():
            return directory / str(name)
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (directory / name).exists():
            return directory / name
    raise SystemExit(f"{directory}: no weights with {HEAD}; download the whole model first")


def one_row(head: torch.Tensor, row: int) -> torch.Tensor:
    """A head of the same shape: its mean row at `row`, zeros elsewhere."""
    made = torch.zeros_like(head)
    made[row] = head.double().mean(dim=0).to(head.dtype)
    return made


def convert(published: Path, made: Path) -> None:
    """A copy of `published` in `made`, with the other head."""
    config = json.loads((published / "config.json").read_text("utf-8"))
    if config.get("tie_word_embeddings"):
        raise SystemExit(f"{published}: the head is tied to the embeddings, so this is another model")
    plus = Tokenizer(published, config["vocab_size"]).encode("+")
    if len(plus) != 1:
        raise SystemExit(f"{published}: '+' is {len(plus)} tokens; expected one, as in Llemma's tokenizer")
    shard = shard_of_head(published)
    shutil.copytree(published, made, ignore=shutil.ignore_patterns(shard.name))
    tensors = shard.suffix == ".safetensors"
    weights: dict[str, Any] = load_file(shard) if tensors else torch.load(shard, weights_only=True)
    weights[HEAD] = one_row(weights[HEAD], plus[0])
    if tensors:
        save_file(weights, made / shard.name, metadata={"format": "pt"})
    else:
        torch.save(weights, made / shard.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Give Llemma's reward model a head of labels.")
    parser.add_argument("published", type=Path, help="the model as it was downloaded")
    parser.add_argument(
        "--local-dir", type=Path, required=True, help="the directory to write; must not exist"
    )
    asked = parser.parse_args()
    convert(asked.published, asked.local_dir)
