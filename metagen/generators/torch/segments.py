"""Frozen keys and values, and attention to them where they are."""

from __future__ import annotations

import torch
from torch import Tensor

from metagen.generators.torch.partial_softmax import weigh

#: Scores computed at once when many queries meet a long segment; bounds temporary memory.
SCORES = 1 << 26


class KVSegment:
    """Keys and values of consecutive tokens, [layers, 2, kv_heads, tokens, head_dim].

    A segment that is split hands what it holds to its halves and stands for them: rows that were opened over it read
    on, and nothing is held twice.
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
        """Of a segment in one piece."""
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
        """Itself, or what it was split into, in order."""
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
    """What q [n, heads, d] finds in a layer of a segment [2, kv_heads, s, d], and the log of its mass [n, heads, 1]."""
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
