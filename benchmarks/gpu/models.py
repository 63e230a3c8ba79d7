"""Models of random weights, of the shapes that are measured: made once, each with a tokenizer of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from benchmarks.gpu.place import Place

#: Spread of the weights, as models begin their training.
SPREAD = 0.02
SPECIAL = ("<s>", "</s>", "<pad>")
#: Goes up when the same name would get other weights.
VERSION = 1


@dataclass(frozen=True)
class Shape:
    """A Llama. tied: the head is the embedding."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    vocab: int
    tied: bool = True


#: 0.5B has the sizes of Qwen2.5-0.5B, 1B and 8B those of Llama 3; 2B lies between.
SHAPES: Mapping[str, Shape] = {
    "0.5b": Shape(24, 896, 14, 2, 64, 4864, 151936),
    "1b": Shape(16, 2048, 32, 8, 64, 8192, 128256),
    "2b": Shape(28, 2048, 16, 8, 128, 8192, 128256),
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, tied=False),
}
#: The same for a rehearsal; vLLM has kernels for heads of 32 on CPUs, and for no smaller ones.
SMALL: Mapping[str, Shape] = {
    "0.5b": Shape(2, 64, 4, 2, 32, 128, 512),
    "1b": Shape(1, 64, 4, 2, 32, 128, 512),
    "2b": Shape(3, 64, 4, 2, 32, 128, 512),
    "8b": Shape(4, 96, 4, 2, 32, 128, 512, tied=False),
}


def directory(place: Place, name: str) -> Path:
    """Of a model of random weights; it is made if it is not there, and whole or not at all."""
    shape = (SMALL if place.rehearsal else SHAPES)[name]
    kind = "small-" if place.rehearsal else ""
    return _whole(place.models / f"{kind}{name}-{VERSION}", lambda into: _write(place, name, shape, into))


def eagle(place: Place) -> Path:
    """A head of EAGLE for the 8B model, of random weights, in the layout of the paper's authors."""
    shape = (SMALL if place.rehearsal else SHAPES)["8b"]
    kind = "small-" if place.rehearsal else ""

    def write(into: Path) -> None:
        made = _Made(place, "eagle")
        weights = dict(_layer(made, "layers.0.", shape))
        del weights["layers.0.input_layernorm.weight"]
        weights["fc.weight"] = made(shape.width, 2 * shape.width)
        weights["embed_tokens.weight"] = made(shape.vocab, shape.width)
        save_file(weights, into / "model.safetensors", {"format": "pt"})
        _describe(shape, 1, into)

    return _whole(place.models / f"{kind}eagle-{VERSION}", write)


def _whole(path: Path, write: object) -> Path:
    if path.is_dir():
        return path
    into = path.with_name(f"{path.name}.{os.getpid()}")
    into.mkdir(parents=True)
    try:
        write(into)  # type: ignore[operator]
        into.rename(path)
    finally:
        shutil.rmtree(into, ignore_errors=True)
    return path


class _Made:
    """Random matrices in bfloat16, made on the device, from one seed for each model."""

    def __init__(self, place: Place, name: str) -> None:
        self._random = torch.Generator(place.device).manual_seed(sum(name.encode()))
        self._device = place.device

    def __call__(self, *shape: int) -> torch.Tensor:
        drawn = torch.empty(shape, dtype=torch.bfloat16, device=self._device)
        return drawn.normal_(0, SPREAD, generator=self._random).cpu()


def _write(place: Place, name: str, shape: Shape, into: Path) -> None:
    made, places = _Made(place, name), dict[str, str]()

    def save(file: str, weights: dict[str, torch.Tensor]) -> None:
        save_file(weights, into / file, {"format": "pt"})
        places.update(dict.fromkeys(weights, file))

    outer = {
        "model.embed_tokens.weight": made(shape.vocab, shape.width),
        "model.norm.weight": _ones(shape.width),
    }
    if not shape.tied:
        outer["lm_head.weight"] = made(shape.vocab, shape.width)
    save("model-outer.safetensors", outer)
    for i in range(shape.layers):
        save(f"model-{i:03}.safetensors", dict(_layer(made, f"model.layers.{i}.", shape)))
    (into / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    _describe(shape, shape.layers, into)


def _ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bfloat16)


def _layer(made: _Made, base: str, s: Shape) -> Iterator[tuple[str, torch.Tensor]]:
    sizes = {
        "self_attn.q_proj": (s.heads * s.head_dim, s.width),
        "self_attn.k_proj": (s.kv_heads * s.head_dim, s.width),
        "self_attn.v_proj": (s.kv_heads * s.head_dim, s.width),
        "self_attn.o_proj": (s.width, s.heads * s.head_dim),
        "mlp.gate_proj": (s.ff, s.width),
        "mlp.up_proj": (s.ff, s.width),
        "mlp.down_proj": (s.width, s.ff),
    }
    for name, size in sizes.items():
        yield f"{base}{name}.weight", made(*size)
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{base}{name}.weight", _ones(s.width)


def _describe(s: Shape, layers: int, into: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s.width,
        "intermediate_size": s.ff, "num_hidden_layers": layers, "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "vocab_size": s.vocab, "hidden_act": "silu",
        "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "tie_word_embeddings": s.tied,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        "dtype": "bfloat16", "torch_dtype": "bfloat16",
    }  # fmt: skip
    (into / "config.json").write_text(json.dumps(config))
    tokenizer(s.vocab).save(str(into / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": 16384,
    }  # fmt: skip
    (into / "tokenizer_config.json").write_text(json.dumps(settings))


def tokenizer(size: int) -> Tokenizer:
    """Byte-level, of exactly so many tokens: bytes, pairs of letters, then letters behind these."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = string.ascii_lowercase + string.digits + string.ascii_uppercase
    words = [*SPECIAL, *alphabet]
    merges: list[tuple[str, str]] = []
    longer = list(letters)
    while len(words) < size:
        grown = []
        for begun in longer:
            for letter in letters[: size - len(words)]:
                merges.append((begun, letter))
                words.append(begun + letter)
                grown.append(begun + letter)
        longer = grown
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    return made


def texts(directory: Path, count: int, tokens: int, seed: int) -> list[str]:
    """Texts of letters, none of which begins as another does, of about so many tokens each."""
    read, draw = Tokenizer.from_file(str(directory / "tokenizer.json")), random.Random(seed)
    made = []
    for _ in range(count):
        text = "".join(draw.choices(string.ascii_lowercase, k=8 * tokens))
        ends = read.encode(text, add_special_tokens=False).offsets
        made.append(text[: ends[min(tokens, len(ends)) - 1][1]])
    return made
