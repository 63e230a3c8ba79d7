"""Adapters as peft saves them, of random matrices: `tests/generators/models/test_lora.py` holds the form to peft."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from metagen.generators.models import lora, sources
from metagen.generators.torch.models.checkpoint import read_config

#: The matrices that an adapter may change.
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make_adapter(
    directory: Path,
    base: str | Path,
    seed: int,
    *,
    size: float = 0.05,
    rank: int = 4,
    matrices: Iterable[str] = MATRICES,
    layers: Iterable[int] | None = None,
    outputs: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """An adapter of a base. size: of the numbers in its matrices. more: fields of its configuration.

    outputs: of a head that it brings, which scores each token.
    """
    c = read_config(sources.resolve(base) / "config.json")
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes = {
        "q_proj": (queries, c.width), "k_proj": (keys, c.width), "v_proj": (keys, c.width),
        "o_proj": (c.width, queries), "gate_proj": (c.ff, c.width), "up_proj": (c.ff, c.width),
        "down_proj": (c.width, c.ff),
    }  # fmt: skip
    drawn = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(c.layers) if layers is None else layers:
        for name in matrices:
            part = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
            module = f"base_model.model.model.layers.{layer}.{part}.{name}"
            rows, columns = shapes[name]
            weights[f"{module}.lora_A.weight"] = size * torch.randn(rank, columns, generator=drawn)
            weights[f"{module}.lora_B.weight"] = size * torch.randn(rows, rank, generator=drawn)
    said: dict[str, Any] = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 16,
        "base_model_name_or_path": str(base),
    }
    if outputs is not None:
        said |= {"task_type": "TOKEN_CLS", "modules_to_save": ["classifier", "score"]}
        weights["base_model.model.score.weight"] = torch.randn(outputs, c.width, generator=drawn)
        weights["base_model.model.score.bias"] = torch.randn(outputs, generator=drawn)
    directory.mkdir(parents=True)
    save_file(weights, directory / lora.WEIGHTS)
    (directory / lora.CONFIG).write_text(json.dumps({**said, **(more or {})}))
    return directory
