"""Frozen keys and values, and attention in parts: to each segment where it is, joined in proportion to its mass.

With scores s over the keys of one part, its mass is Σ exp(s), kept as a log, and its output is the softmax over these
keys alone. Two parts join to the softmax over both: the sum of their outputs, weighted by their shares of the mass. The
order of parts plays no role, since the keys carry their positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.send import send

#: Scores computed at once when many queries meet a long segment; bounds temporary memory.
SCORES = 1 << 26


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What keys and values look like, and arrays of them on the model's device.

    heads: of the queries; kv_heads: of keys and values, each read by heads / kv_heads of the queries.
    """

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
        """Numbers of any shape, on the device."""
        return send(values, self.device)

    def width(self, tokens: int, capacity: int) -> int:
        """How many of `capacity` places to read for the first `tokens` of them.

        A CPU's products in bfloat16 copy what is cut out of a larger array, which takes longer than to multiply the
        rest of it, once that is the smaller half.
        """
        copies = self.device.type == "cpu" and self.dtype == torch.bfloat16
        return capacity if copies and 2 * tokens >= capacity else tokens

    def mask(self, old: Ints, t: int, s: int) -> Tensor:
        """Additive, [rows * kv_heads, t, s]: token i of a row with `old` tokens before it sees places ≤ old + i."""
        last = self.index(old)[:, None, None] + torch.arange(t, device=self.device)[:, None]
        hidden = torch.arange(s, device=self.device) > last
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(
            hidden, -torch.inf
        )
        return mask[:, None].expand(-1, self.kv_heads, -1, -1).reshape(-1, t, s)


class KVSegment:
    """Keys and values of consecutive tokens, [layers, 2, kv_heads, tokens, head_dim].

    A segment that is split hands its content to its halves and stands for them: rows that were opened over it read on,
    and nothing is held twice.
    """

    __slots__ = ("_halves", "_kv", "_tokens")

    def __init__(self, kv: Tensor) -> None:
        self._kv: Tensor | None = kv
        self._tokens = int(kv.shape[3])
        self._halves: tuple[KVSegment, KVSegment] | None = None

    def __len__(self) -> int:
        return self._tokens

    @property
    def kv(self) -> Tensor:
        """[layers, 2, kv_heads, tokens, head_dim] of a segment in one piece."""
        assert self._kv is not None
        return self._kv

    @property
    def whole(self) -> bool:
        return self._kv is not None

    def split(self, at: int) -> tuple[KVSegment, KVSegment]:
        """The halves, in memory of their own; for as long as this takes, there are two copies."""
        kv = self.kv
        assert 0 < at < self._tokens
        head, tail = KVSegment(kv[:, :, :, :at].clone()), KVSegment(kv[:, :, :, at:].clone())
        self._kv, self._halves = None, (head, tail)
        return head, tail

    def pieces(self) -> list[KVSegment]:
        """Itself, or the parts that it was split into, in order."""
        if self._halves is None:
            return [self]
        found: list[KVSegment] = []
        stack = [self]
        while stack:
            one = stack.pop()
            if one._halves is None:
                found.append(one)
            else:
                stack += one._halves[::-1]
        return found


def read(kv: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of q [n, heads, d] to a layer of a segment [2, kv_heads, s, d]: [n, heads, d].

    Beside it the log of its mass [n, heads, 1], both in float32.
    """
    h, d = kv.shape[1], kv.shape[3]
    n, heads = q.shape[:2]
    most = max(1, SCORES // (heads * kv.shape[2]))
    if n > most:
        pieces = [read(kv, q[i : i + most]) for i in range(0, n, most)]
        return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
    flat = q.reshape(n, h, heads // h, d).transpose(0, 1).reshape(h, -1, d)
    scores = torch.bmm(flat, kv[0].transpose(1, 2)).float().mul_(d**-0.5)
    found, mass = weigh(scores, kv[1])

    def back(x: Tensor) -> Tensor:
        return x.view(h, n, heads // h, -1).transpose(0, 1).reshape(n, heads, -1)

    return back(found.float()), back(mass)


def weigh(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [B, n, d] of `values` [B, s, d] under `scores` [B, n, s], and the log of the mass [B, n, 1].

    Every query sees something. Writes into `scores`.
    """
    share = scores.float()
    top = share.amax(-1, keepdim=True)
    total = share.sub_(top).exp_().sum(-1, keepdim=True)
    return torch.bmm(share.to(values.dtype), values) / total.to(values.dtype), total.log_().add_(top)


def merge(
    out: Tensor, weight: Tensor, found: Tensor, mass: Tensor, tokens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Add what `tokens` (None: all) found in another part to `out` [n, heads, d] of log masses `weight` [n, heads, 1].

    May write into `out` and `weight`.
    """
    mine = weight if tokens is None else weight[tokens]
    both = torch.logaddexp(mine, mass)
    old, new = torch.exp(mine - both), torch.exp(mass - both)
    if tokens is None:
        return out * old + found * new, both
    out.index_copy_(0, tokens, out[tokens] * old + found * new)
    weight.index_copy_(0, tokens, both)
    return out, weight
