"""The weights of one block of a Llama-like model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from metagen.generators.torch.models.linear import Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """qkv: query, key and value projections in one; up: gate, then up."""

    norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    up: Linear
    down: Linear
