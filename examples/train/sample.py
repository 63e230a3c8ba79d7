"""Sample completions of many prompts at once: a batch starts together and shrinks as its rows end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

import tokenizer as tokenizers_
from llama import HEAD, Llama, future, rotary

ROWS = 768
"""Rows of one batch."""


class Batch:
    """Keys and values of rows that each stand at their own position."""

    def __init__(self, model: Llama, rows: int, width: int) -> None:
        self.model = model
        heads = model.shape.hidden // HEAD
        self.keys = [torch.zeros(rows, heads, width, HEAD, dtype=torch.bfloat16) for _ in model.model.layers]
        self.values = [torch.zeros_like(keys) for keys in self.keys]

    def keep(self, rows: Tensor) -> None:
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]

    def prefill(self, ids: Tensor, last: Tensor) -> Tensor:
        """Feed right-padded prompts; the logits at each row's `last` position."""
        x = self.model.model.embed_tokens(ids)
        cos, sin = rotary(torch.arange(ids.shape[1]))
        mask = future(ids.shape[1], x.dtype)
        for layer, keys, values in zip(self.model.model.layers, self.keys, self.values, strict=True):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            keys[:, :, : ids.shape[1]], values[:, :, : ids.shape[1]] = k, v
            x = x + layer.self_attn.attend(q, k, v, mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self._logits(x[torch.arange(len(x)), last])

    def step(self, ids: Tensor, at: Tensor) -> Tensor:
        """Feed one token a row, at position `at` of each; the logits of the next."""
        x = self.model.model.embed_tokens(ids)[:, None]
        cos, sin = rotary(at[:, None, None])
        rows, end = torch.arange(len(ids)), int(at.max()) + 1
        mask = torch.zeros(len(ids), 1, 1, end, dtype=x.dtype)
        mask.masked_fill_(torch.arange(end) > at[:, None, None, None], float("-inf"))
        for layer, keys, values in zip(self.model.model.layers, self.keys, self.values, strict=True):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            keys[rows, :, at], values[rows, :, at] = k[:, :, 0], v[:, :, 0]
            x = x + layer.self_attn.attend(q, keys[:, :, :end], values[:, :, :end], mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self._logits(x[:, 0])

    def _logits(self, x: Tensor) -> Tensor:
        return self.model.logits(self.model.model.norm(x)).float()


@torch.inference_mode()
def sample(
    model: Llama,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    temperature: float = 1.0,
    longest: int = 256,
    seed: int = 0,
) -> list[tuple[str, bool]]:
    """One completion per prompt (repeat a prompt for more) and whether it came to its end."""
    model = model.to(torch.bfloat16)
    generator = torch.Generator().manual_seed(seed)
    encoded = [[tokenizers_.BOS, *ids] for ids in tokenizers_.encode(tokenizer, list(prompts))]
    order = np.argsort([len(ids) for ids in encoded], kind="stable")
    answers: list[tuple[str, bool]] = [("", False)] * len(prompts)
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS].tolist()
        outputs = _batch(model, [encoded[i] for i in rows], temperature, longest, generator)
        texts = tokenizer.decode_batch([ids for ids, _ in outputs], skip_special_tokens=True)
        for row, text, (_, ended) in zip(rows, texts, outputs, strict=True):
            answers[row] = text, ended
    return answers


def _batch(
    model: Llama, prompts: list[list[int]], temperature: float, longest: int, generator: torch.Generator
) -> list[tuple[list[int], bool]]:
    lengths = torch.tensor([len(p) for p in prompts])
    table = torch.from_numpy(np.array([p + [0] * (int(lengths.max()) - len(p)) for p in prompts]))
    batch = Batch(model, len(prompts), table.shape[1] + longest)
    logits = batch.prefill(table, lengths - 1)
    written = torch.full((len(prompts), longest), tokenizers_.EOS)
    rows, alive, at = torch.arange(len(prompts)), torch.ones(len(prompts), dtype=torch.bool), lengths.clone()
    for count in range(longest):
        drawn = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)[:, 0]
        written[rows[alive], count] = drawn[alive]
        alive &= drawn != tokenizers_.EOS
        left = int(alive.sum())
        if not left or count == longest - 1:
            break
        if left < 0.75 * len(rows):  # copying the cache at every end would cost more than the dead rows do
            batch.keep(alive)
            rows, at, drawn, alive = rows[alive], at[alive], drawn[alive], alive[alive]
        logits = batch.step(drawn, at)
        at += 1
    outputs = []
    for row in written.tolist():
        ended = tokenizers_.EOS in row
        outputs.append((row[: row.index(tokenizers_.EOS)] if ended else row, ended))
    return outputs
