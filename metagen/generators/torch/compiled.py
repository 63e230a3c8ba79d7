"""The blocks of a model, draws and speculation, by the compiled steps, where these are there and fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from metagen.generators.compiled.build import begin, extension
from metagen.generators.randomness import U64
from metagen.generators.torch.kv.store import Located
from metagen.generators.torch.models.by_row import ByRow
from metagen.generators.torch.models.checkpoint import LlamaConfig
from metagen.generators.torch.models.language_model import Drafted, Ints, Rules
from metagen.generators.torch.models.layer import Layer
from metagen.generators.torch.models.linear import Linear, Packed, Plain
from metagen.generators.torch.models.low_rank import LowRank

#: Dimensions of a head that are compiled, and numbers that are computed side by side.
HEADS, LANES = frozenset((16, 32, 64, 80, 96, 128, 256)), 16

Floats = NDArray[np.float64]


class Blocks:
    """The blocks of a Llama-like model; what fits is compiled in the background, if it is not yet.

    turns: [context, head_dim / 2] complex, the rotation of each position. norm: [width], behind the last block.
    """

    def __init__(self, config: LlamaConfig, layers: Sequence[Layer], turns: Tensor, norm: Tensor) -> None:
        self._config, self._layers, self._turns, self._norm = config, layers, turns, norm
        self._made: Any = None
        self._module: Any = None
        self._head: Any = None
        first = layers[0].norm
        sizes = config.width % LANES or config.ff % LANES
        self._fits = (
            first.device.type == "cpu"
            and first.dtype in (torch.float32, torch.bfloat16)
            and config.head_dim in HEADS
            and not sizes
            and all(fits(one) for layer in layers for one in (layer.qkv, layer.out, layer.up, layer.down))
        )
        if self._fits:
            begin()

    def ready(self) -> Any | None:
        """The compiled blocks, as soon as they are there."""
        if self._made is None and self._fits and (module := extension()) is not None:
            c = self._config
            layers = [
                module.Layer(
                    one.norm, _matrix(module, one.qkv), one.qk_norm, _matrix(module, one.out), one.mlp_norm,
                    _matrix(module, one.up), _matrix(module, one.down),
                )
                for one in self._layers
            ]  # fmt: skip
            self._module = module
            turns = torch.view_as_real(self._turns).flatten(1).contiguous()
            self._made = module.Blocks(
                c.heads, c.kv_heads, c.head_dim, c.eps, turns, layers, self._norm, c.ff
            )
        return self._made

    def draft(
        self,
        embedding: Tensor,
        head: Linear,
        kv: Tensor,
        at: Located,
        tokens: Ints,
        wanted: Ints,
        rules: Rules,
    ) -> Drafted:
        """Up to wanted [n] tokens of each row behind `tokens`, all in one call. Only where the steps are `ready`.

        at: room for all that is run.
        """
        if self._head is None:
            self._head = _matrix(self._module, head)
        drafted, told, q = self._module.draft(
            self._made, embedding, self._head, kv, at.table, at.order, at.groups, at.pieces, torch.from_numpy(tokens),
            torch.from_numpy(wanted), _whole(rules.seeds), torch.from_numpy(rules.positions),
            torch.from_numpy(np.ascontiguousarray(rules.temperatures)), torch.from_numpy(rules.flags), rules.near,
            rules.out, rules.ends,
        )  # fmt: skip
        counts, near, bad = told.numpy().T
        return Drafted(drafted.numpy(), counts.copy(), near.copy(), bad != 0, q)


def fits(one: Linear) -> bool:
    """Whether the compiled steps multiply by a map."""
    base = one.base if isinstance(one, LowRank | ByRow) else one
    return isinstance(base, Packed) or (isinstance(base, Plain) and type(base.weight) is Tensor)


def _matrix(module: Any, one: Linear) -> Any:
    adapter = _wide(one) if isinstance(one, LowRank) else (None, None)
    held = one.adapters if isinstance(one, ByRow) else {}
    by_row = {number: _wide(low) for number, low in held.items()}
    base = one.base if isinstance(one, LowRank | ByRow) else one
    if isinstance(base, Packed):
        plain = None if base.plain is None else base.plain.weight
        return module.Matrix(plain, base.weight, base.bias, base.few, *adapter, by_row)
    assert isinstance(base, Plain)
    return module.Matrix(base.weight, None, base.bias, 0, *adapter, by_row)


def _wide(low: LowRank) -> tuple[Tensor, Tensor]:
    """Its matrices, of a rank that is a multiple of LANES: what is more is zeros."""
    more = -len(low.down) % LANES
    return F.pad(low.down, (0, 0, 0, more)).contiguous(), F.pad(low.up, (0, more)).contiguous()


def draw(
    logits: Tensor, u: Floats, temperatures: Floats, cuts: Floats | None, near: float, out: float
) -> Floats | None:
    """Tokens of `logits` [R, V] (float32) by inverse CDF at `u` [R], or the best where a temperature [R] is 0.

    cuts: [R, 3], as `RowParams.cuts`; None cuts nothing off. near: how close to the edge of its interval a draw is
    noted as near. out: how far below the best logit nothing is drawn, whatever the temperature. Returns [4, R]: tokens,
    their log-probabilities under the logits, whether they are near an edge, and whether nothing could be drawn. None
    where the compiled steps are not there.
    """
    if logits.device.type != "cpu" or logits.dtype != torch.float32 or (module := extension()) is None:
        return None
    found: Tensor = module.draw(
        logits.contiguous(),
        torch.from_numpy(u),
        torch.from_numpy(np.ascontiguousarray(temperatures)),
        None if cuts is None else torch.from_numpy(np.ascontiguousarray(cuts)),
        near,
        out,
    )
    return found.numpy().T


@dataclass(frozen=True, slots=True)
class Judged:
    """What rows keep of what they drafted: tokens [n, G + 1], of which kept [n] are drafted and one comes behind.

    logprobs: [n, G + 1], in the raw model. near: [n] decisions near an edge. bad, none: [n] the logits were no
    distribution; no token is left. tested, overlap: as in `verify.Kept`, summed over rows.
    """

    tokens: Ints
    logprobs: Floats
    kept: Ints
    near: Ints
    bad: NDArray[np.bool_]
    none: NDArray[np.bool_]
    tested: float
    overlap: float


def judge(
    logits: Tensor,
    first: Ints,
    tokens: Ints,
    counts: Ints,
    q: Tensor | None,
    seeds: U64,
    positions: Ints,
    temperatures: Floats,
    by_block: bool,
    near: float,
    out: float,
) -> Judged | None:
    """Verify tokens [n, G], of which counts [n] are meant; None where the compiled steps are not there.

    logits: [N, V] in float32; those that follow the tokens before a row's drafted ones are logits[first]. q: what they
    were drawn from [n, G, V], None if the draft was sure. positions: [n] of the first drafted tokens. near, out: as in
    `draw`.
    """
    if logits.device.type != "cpu" or logits.dtype != torch.float32 or (module := extension()) is None:
        return None
    known = (torch.from_numpy(np.ascontiguousarray(a)) for a in (first, tokens, counts))
    rules = _whole(seeds), torch.from_numpy(positions), torch.from_numpy(np.ascontiguousarray(temperatures))
    chosen, logprobs, told = module.judge(logits, *known, q, *rules, by_block, near, out)
    kept, close, bad, none, *sums = told.numpy().T
    tested, overlap = (float(column.sum()) for column in sums)
    return Judged(
        chosen.numpy(), logprobs.numpy(), kept.astype(np.int64), close.astype(np.int64), bad != 0, none != 0, tested,
        overlap,
    )  # fmt: skip


def _whole(numbers: U64) -> Tensor:
    """The same bits as signed numbers, for torch has few operations on unsigned ones."""
    return torch.from_numpy(numbers.view(np.int64))
