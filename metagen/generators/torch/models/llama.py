"""Llama-like decoders (Llama, Mistral, Qwen 2 and 3) over ragged batches of rows.

Two rewritings of the published weights, neither of which changes what is computed: projections that read
the same input are one matrix, and the dimensions of a head are reordered so that the two numbers that a
rotation mixes lie side by side and rotate as one complex product.

Weights are in memory once, however many models of a process are made of them: those with adapters, too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from metagen.errors import InputError, ModelError
from metagen.generators.models.describe import weight_files
from metagen.generators.models.lora import Adapter, adapter_of
from metagen.generators.torch.compiled import Blocks, fits
from metagen.generators.torch.gpu.steps import Steps, there
from metagen.generators.torch.kv.segments import KVLayout, KVSegment
from metagen.generators.torch.kv.store import Batch, KVStore, Located, store_tokens
from metagen.generators.torch.models.by_row import Wearers, add, read_by_row
from metagen.generators.torch.models.checkpoint import LlamaConfig, Weights, read_config
from metagen.generators.torch.models.compression import linear
from metagen.generators.torch.models.heads import Head, LanguageHead, read_head
from metagen.generators.torch.models.language_model import Drafted, Ints, Rules
from metagen.generators.torch.models.layer import Layer
from metagen.generators.torch.models.linear import Linear
from metagen.generators.torch.models.low_rank import Update, Updates
from metagen.generators.torch.send import send

#: Rows beyond those that decode, for prompts being prefilled and texts being evaluated.
PREFILL_ROWS = 64
#: Tokens of a tail at most: on a CPU, and elsewhere, where a segment beside it costs products of its own.
TAIL, LONG_TAIL = 256, 4096
#: Tokens of a row in one pass at most.
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Base:
    """The weights of a directory as they are read here, without an adapter's. turns: rotations of every position."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Head
    turns: Tensor


#: Weights in memory, for as long as a model holds them.
_READ: WeakValueDictionary[tuple[object, ...], Base] = WeakValueDictionary()
_READING = threading.Lock()


class LlamaModel:
    """A LanguageModel over a model directory, with the adapter that it may have; or with several, by row.

    batch: rows that decode at once. kv_bytes: memory of keys and values, at most three quarters of it of rows.
    quantization: of the matrices of the layers (`compression`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        batch: int,
        kv_bytes: int,
        quantization: str | None = None,
    ) -> None:
        adapter = adapter_of(directory)
        self.config = config = read_config((adapter.base if adapter else directory) / "config.json")
        self.dtype, self.device = dtype, device
        self.vocab_size, self.max_context = config.vocab, config.context
        self._base = base = _base(directory, config, dtype, device, quantization)
        self._embedding, self._norm, self._turns, self.head = base.embedding, base.norm, base.turns, base.head
        self._layers: Sequence[Layer] = base.layers
        if adapter is not None:
            self._layers, head = self._adapted(adapter)
            self.head = head or base.head
        self.rows = batch + min(PREFILL_ROWS, batch)
        layout = KVLayout(config.layers, config.heads, config.kv_heads, config.head_dim, dtype, device)
        self.token_bytes = layout.token_bytes
        capacities = _capacities(self.rows, batch, self.token_bytes, kv_bytes, config.context, device)
        self.chunk = min(capacities[-1], CHUNK)
        self.segment_tokens = kv_bytes // self.token_bytes - store_tokens(self.rows, batch, capacities)
        self._kv = kv = KVStore(layout, self.rows, batch, capacities)
        self.truncate, self.save, self.close, self.spill = kv.truncate, kv.save, kv.close, kv.spill
        self._blocks = Blocks(config, self._layers, self._turns, self._norm)
        self._wearers = Wearers(self.rows, device)
        self._steps = self._make_steps(batch)
        #: Of each adapter that was adopted, by number; that of the model itself is number 0.
        self.heads = [self.head]
        self.keeps_hidden = False
        self.hidden: Tensor | None = None

    def _make_steps(self, batch: int) -> Steps | None:
        if not there(self.device):
            return None
        steps = Steps(
            self.config, self._embedding, self._layers, self._norm, self.head, self._turns, self._kv.tails, batch
        )  # fmt: skip
        steps.begin()
        return steps

    # -- adapters by row -------------------------------------------------------------------------

    def adopt(self, directory: Path) -> int:
        """Load the adapter of a directory, in any thread; its number, from 1. ModelError if it does not fit."""
        adapter = adapter_of(directory)
        assert adapter is not None
        (adapted, head), number = self._adapted(adapter), len(self.heads)
        # A batch that runs meanwhile goes on with the layers and blocks that it began with.
        self._layers = [
            _with(held, own, number, self._wearers) for held, own in zip(self._layers, adapted, strict=True)
        ]
        self._blocks = Blocks(self.config, self._layers, self._turns, self._norm)
        self.heads.append(head or self.head)
        return number

    def _adapted(self, adapter: Adapter) -> tuple[list[Layer], Head | None]:
        """The base's layers with an adapter, and the head that it brings, if it does."""
        with torch.inference_mode():
            updates = Updates(adapter, self.dtype, self.device)
            layers = [_adapt(layer, i, self.config, updates) for i, layer in enumerate(self._base.layers)]
            updates.finish()
            head = updates.head(self.config.width)
        return layers, head

    def assign(self, rows: Ints, adapter: int) -> None:
        self._wearers.of[rows] = adapter

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        self._wearers.of[rows] = 0
        self._kv.open(rows, chain)

    def fork(self, sources: Ints, targets: Ints) -> None:
        self._wearers.of[targets] = self._wearers.of[sources]
        self._kv.fork(sources, targets)

    def move(self, sources: Ints, targets: Ints) -> None:
        self._wearers.of[targets] = self._wearers.of[sources]
        self._kv.move(sources, targets)

    # -- a batch ---------------------------------------------------------------------------------

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        """As `LanguageModel.extend`: float32 [len(wanted), vocab]."""
        if wanted is None and counts is not None:
            wanted = counts.cumsum() - 1
        if (blocks := self._blocks.ready()) is not None:
            x = self._embedding[send(tokens, self.device)]
            at = self._kv.locate(rows, counts)
            self._wearers.begin(rows, counts, None)
            x = blocks.run(x, self._kv.tails, at.table, at.order, at.groups, at.pieces, self._wearers.groups)
        elif (located := self._at_once(rows, counts)) is not None:
            assert self._steps is not None
            if counts is None and wanted is None:
                x, logits = self._steps.logits(tokens, located)
                self.hidden = x.to(torch.float32, copy=True) if self.keeps_hidden else None
                return logits
            x = self._steps.hidden(tokens, located)
        else:
            x, wanted = self._by_layers(rows, tokens, counts, wanted)
        if wanted is not None:
            x = x[send(wanted, self.device)]
        self.hidden = x.float() if self.keeps_hidden else None
        of = self._wearers.tokens
        if of is None:
            return self.head(x)
        return read_by_row(x, of if wanted is None else of[wanted], self.heads)

    def draft(self, rows: Ints, tokens: Ints, counts: Ints, wanted: Ints, rules: Rules) -> Drafted | None:
        """As `HasDrafts.draft`; by the compiled steps, where these are there."""
        head = self.head
        if not isinstance(head, LanguageHead) or not fits(head.map) or self._blocks.ready() is None:
            return None
        at = self._kv.locate(rows, counts, wanted - 1)
        found = self._blocks.draft(self._embedding, head.map, self._kv.tails, at, tokens, wanted, rules)
        self._kv.advance(rows, found.runs - 1)
        return found

    def _at_once(self, rows: Ints, counts: Ints | None) -> Located | None:
        """Where things are for the steps on a GPU; None where these do not fit, or a row has an adapter of its own."""
        steps = self._steps
        if steps is None or self._wearers.of[rows].any() or not steps.fit(self._kv.held(rows), counts):
            return None
        self._wearers.begin(rows, None, None)
        return self._kv.locate(rows, counts)

    def _by_layers(
        self, rows: Ints, tokens: Ints, counts: Ints | None, wanted: Ints | None
    ) -> tuple[Tensor, Ints | None]:
        """The tokens [N, width] behind blocks and norm, in the order of the batch; and which of them are wanted."""
        batch = self._kv.begin(rows, counts)
        self._wearers.begin(rows, counts, batch.order)
        if batch.order is not None:
            tokens, back = tokens[batch.order], np.argsort(batch.order)
            wanted = back if wanted is None else back[wanted]
        x = self._embedding[send(tokens, self.device)]
        turns = self._turns[batch.position][:, None]
        for i, layer in enumerate(self._layers):
            x = self._block(x, i, layer, turns, batch)
        return self._norm_by(x, self._norm), wanted

    def _block(self, x: Tensor, i: int, layer: Layer, turns: Tensor, batch: Batch) -> Tensor:
        c = self.config
        rotated = c.heads + c.kv_heads
        qkv = layer.qkv(self._norm_by(x, layer.norm))
        qkv = qkv.view(len(x), -1, c.head_dim)
        qk, v = qkv[:, :rotated], qkv[:, rotated:]
        if layer.qk_norm is not None:
            qk = F.rms_norm(qk, (c.head_dim,), eps=c.eps) * layer.qk_norm
        pairs = torch.view_as_complex(qk.float().reshape(len(x), rotated, -1, 2))
        qk = torch.view_as_real(pairs * turns).reshape(len(x), rotated, -1).to(self.dtype)
        read = self._kv.attend(batch, i, qk[:, : c.heads], qk[:, c.heads :], v)
        x = x + layer.out(read)
        gate, up = layer.up(self._norm_by(x, layer.mlp_norm)).chunk(2, -1)
        return x + layer.down(F.silu(gate) * up)

    def _norm_by(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root mean square normalisation of x [N, width]."""
        return F.rms_norm(x, (self.config.width,), weight, self.config.eps)


def _capacities(
    rows: int, batch: int, token_bytes: int, kv_bytes: int, context: int, device: torch.device
) -> tuple[int, ...]:
    """Capacities of tails: as long as useful, while rows take at most three quarters of the memory.

    A CPU reads little memory a second, so it has short tails for young rows; elsewhere fewer, larger products win, and
    tails are longer while rows take at most half of the memory.
    """
    on_cpu = device.type == "cpu"
    tail = min(TAIL if on_cpu else LONG_TAIL, 1 << (context - 1).bit_length())
    while True:
        young = (tail // 8, tail * 3 // 8) if on_cpu and tail >= 64 else ()
        capacities = (*young, tail)
        taken = store_tokens(rows, batch, capacities) * token_bytes
        if tail > TAIL and 2 * taken > kv_bytes:
            tail //= 2
            continue
        least = -(-taken * 4 // 3)
        if least <= kv_bytes:
            return capacities
        if tail <= 16:
            raise InputError(
                f"kv_memory_bytes={kv_bytes}: {batch} rows at once need at least {least} bytes; "
                f"give kv_memory_bytes={least} or a smaller max_batch"
            )
        tail //= 2


def _base(
    directory: Path, config: LlamaConfig, dtype: torch.dtype, device: torch.device, quantization: str | None
) -> Base:
    """The weights of a directory: those in memory, if a model has them already."""
    files = [file.resolve() for file in weight_files(directory)]
    read = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    key = (read, config, dtype, device, quantization)
    with _READING:
        found = _READ.get(key)
        if found is None:
            found = _READ[key] = _read(directory, config, dtype, device, quantization)
        return found


def _read(
    directory: Path, config: LlamaConfig, dtype: torch.dtype, device: torch.device, quantization: str | None
) -> Base:
    weights = Weights(directory, dtype, device)
    with torch.inference_mode():
        embedding = weights.take("model.embed_tokens.weight", config.vocab, config.width)
        layers = tuple(_read_layer(weights, i, config, quantization) for i in range(config.layers))
        norm = weights.take("model.norm.weight", config.width)
        head = read_head(weights, config, embedding)
        weights.finish()
        turns = torch.outer(
            torch.arange(config.context, dtype=torch.float64),
            torch.tensor(config.frequencies, dtype=torch.float64),
        )
        rotations = torch.polar(torch.ones_like(turns), turns).to(torch.complex64).to(device)
    return Base(embedding, layers, norm, head, rotations)


def _adapt(layer: Layer, i: int, c: LlamaConfig, updates: Updates) -> Layer:
    """The layer with an adapter's updates of its matrices."""
    attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def turned(name: str, rows: int) -> Update | None:
        update = updates.take(f"{attention}{name}_proj", rows, c.width)
        return update and Update(update.down, _side_by_side(update.up, c.head_dim))

    qkv = [turned("q", q), turned("k", kv), updates.take(attention + "v_proj", kv, c.width)]
    up = [updates.take(f"{mlp}{name}_proj", c.ff, c.width) for name in ("gate", "up")]
    return replace(
        layer,
        qkv=updates.adapt(layer.qkv, qkv, [q, kv, kv]),
        out=updates.adapt(layer.out, [updates.take(attention + "o_proj", c.width, q)], [c.width]),
        up=updates.adapt(layer.up, up, [c.ff, c.ff]),
        down=updates.adapt(layer.down, [updates.take(mlp + "down_proj", c.width, c.ff)], [c.width]),
    )


def _with(held: Layer, own: Layer, number: int, wearers: Wearers) -> Layer:
    """A layer with one adapter more. own: the layer under that adapter alone."""
    return replace(
        held,
        qkv=add(held.qkv, own.qkv, number, wearers),
        out=add(held.out, own.out, number, wearers),
        up=add(held.up, own.up, number, wearers),
        down=add(held.down, own.down, number, wearers),
    )


def _read_layer(weights: Weights, i: int, c: LlamaConfig, quantization: str | None) -> Layer:
    base = f"model.layers.{i}."
    attention, mlp = base + "self_attn.", base + "mlp."
    sizes = {"q": c.heads * c.head_dim, "k": c.kv_heads * c.head_dim, "v": c.kv_heads * c.head_dim}
    parts, biases = [], []
    for name, size in sizes.items():
        weight = weights.take(f"{attention}{name}_proj.weight", size, c.width)
        bias = weights.maybe(f"{attention}{name}_proj.bias", size)
        if name != "v":
            weight = _side_by_side(weight, c.head_dim)
            bias = bias if bias is None else _side_by_side(bias, c.head_dim)
        parts.append(weight)
        biases.append(bias)

    def norm(name: str, heads: int) -> Tensor | None:
        """Of queries or keys: a line for each of their heads."""
        found = weights.maybe(f"{attention}{name}_norm.weight", c.head_dim)
        return None if found is None else _side_by_side(found, c.head_dim).expand(heads, -1)

    def mapped(names: str, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Linear:
        """Projections that are one matrix here; a matrix alone stays as it was read."""
        weight = parts[0] if len(parts) == 1 else torch.cat(list(parts))
        return linear(
            f"{names}.weight", weight, _all_or_none("biases", biases, f"{names}.bias"), quantization
        )

    def alone(name: str, rows: int, columns: int) -> Linear:
        return mapped(
            name,
            [weights.take(f"{name}.weight", rows, columns)],
            [weights.maybe(f"{name}.bias", rows)],
        )

    both = [f"{mlp}{name}_proj" for name in ("gate", "up")]
    return Layer(
        norm=weights.take(base + "input_layernorm.weight", c.width),
        qkv=mapped(f"{attention}{{q,k,v}}_proj", parts, biases),
        qk_norm=_all_or_none(
            "norms", [norm("q", c.heads), norm("k", c.kv_heads)], f"{attention}{{q,k}}_norm.weight"
        ),
        out=alone(attention + "o_proj", c.width, sizes["q"]),
        mlp_norm=weights.take(base + "post_attention_layernorm.weight", c.width),
        up=mapped(
            f"{mlp}{{gate,up}}_proj",
            [weights.take(f"{name}.weight", c.ff, c.width) for name in both],
            [weights.maybe(f"{name}.bias", c.ff) for name in both],
        ),
        down=alone(mlp + "down_proj", c.width, c.ff),
    )


def _all_or_none(kind: str, parts: Sequence[Tensor | None], names: str) -> Tensor | None:
    """Biases of projections that are one matrix here, or the norms of queries and keys: one tensor of them."""
    found = [part for part in parts if part is not None]
    if found and len(found) < len(parts):
        raise ModelError(
            f"{names}: {len(found)} of these {len(parts)} {kind} are in the weights; "
            "a model of this kind has all of them or none: check that the file is complete"
        )
    return torch.cat(found) if found else None


def _side_by_side(weight: Tensor, head_dim: int) -> Tensor:
    """Dimension j and j + d/2 of each head, which rotate together, become 2j and 2j + 1."""
    heads = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape)
