"""What the keys and values of a model look like, and arrays of them on its device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.language_model import Ints


@dataclass(frozen=True, slots=True)
class KVLayout:
    """heads: of the queries; kv_heads: of keys and values, each read by heads / kv_heads of the queries."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def zeros(self, *shape: int) -> Tensor:
        """Zeros; on a CPU, memory that is never written is never touched, so that room in reserve costs nothing.

        Zeros, because masked places are multiplied by 0 and memory that was never written may hold NaN.
        """
        if self.device.type != "cpu":
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        size = int(np.prod(shape)) * self.dtype.itemsize
        return torch.from_numpy(np.zeros(max(size, 1), np.uint8))[:size].view(self.dtype).view(shape)

    def index(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, non_blocking=True)

    def mask(self, old: Ints, t: int, s: int) -> Tensor:
        """Additive, [rows * kv_heads, t, s]: token i of a row with `old` tokens before it sees places ≤ old + i."""
        last = self.index(old)[:, None, None] + torch.arange(t, device=self.device)[:, None]
        hidden = torch.arange(s, device=self.device) > last
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(
            hidden, -torch.inf
        )
        return mask[:, None].expand(-1, self.kv_heads, -1, -1).reshape(-1, t, s)
