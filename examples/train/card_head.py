"""The beginning of every model card: what the model is, of which family, and its shape."""

from __future__ import annotations

import json
from pathlib import Path

from llama import load

HEAD = """---
license: apache-2.0
library_name: transformers
tags: [metagen, {topic}, {kind}]
---
# {name}

{what}

{family}

| | |
|---|---|
| architecture | `LlamaForCausalLM`, {layers} layers, hidden {hidden}, {heads} heads of 32, feed-forward {inner} |
| parameters | {parameters:,} (bfloat16, tied embeddings) |
| context | 2,048 |
| tokenizer | {tokenizer} |
"""


def head(folder: Path, *, topic: str, what: str, family: str, tokenizer: str) -> str:
    """The beginning of the card of the model in a folder."""
    config = json.loads((folder / "config.json").read_text())
    return HEAD.format(
        topic=topic,
        kind=config["metagen"]["kind"],
        name=folder.name,
        what=what,
        family=family,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        inner=config["intermediate_size"],
        parameters=load(folder).parameter_count,
        tokenizer=tokenizer,
    )
