"""Reading a Hugging Face model directory: configuration, weights, and the errors that they can hold.

transformers itself is not needed to run a model: the files are the interface.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from metagen.errors import ModelError, UnsupportedError
from metagen.generators.directory import read_json
from metagen.generators.models.describe import weight_files

#: Architectures that `llama.py` computes: a decoder with RMSNorm, rotary positions and a gated MLP.
FAMILY = ("llama", "mistral", "qwen2", "qwen3")
#: Ends of the names of architectures whose head scores; `heads.py` reads it.
SCORED = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "ForPrmModel")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants of a Llama-like model, under the names of the papers' shapes."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    vocab: int
    context: int
    eps: float
    tied: bool
    frequencies: tuple[float, ...]
    """Rotation per position of each pair of a head's dimensions, in radians."""
    architecture: str = ""

    @property
    def scores(self) -> bool:
        """Whether the architecture's name promises a head that scores, not a language model."""
        return self.architecture.endswith(SCORED)


def read_config(path: Path) -> LlamaConfig:
    """From `config.json`. Raises ModelError for missing fields, UnsupportedError for what is not computed."""
    data = read_json(path)
    kind = data.get("model_type")
    if kind not in FAMILY:
        raise UnsupportedError(
            f"{path}: model_type={kind!r}; the torch engine runs {', '.join(FAMILY)}; "
            "give a model of one of these architectures"
        )
    if data.get("hidden_act", "silu") != "silu":
        raise UnsupportedError(f"{path}: hidden_act={data['hidden_act']!r}; the torch engine runs 'silu'")

    def number(name: str, default: int | None = None) -> int:
        value = data.get(name) if data.get(name) is not None else default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{path}: {name}={value!r}, expected an integer ≥ 1; mend the field")
        return value

    heads, width = number("num_attention_heads"), number("hidden_size")
    kv_heads = number("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(
            f"{path}: num_attention_heads={heads} is no multiple of num_key_value_heads={kv_heads}"
        )
    head_dim = number("head_dim", max(width // heads, 1))
    context = number("max_position_embeddings")
    window = data.get("sliding_window") if data.get("use_sliding_window", kind == "mistral") else None
    return LlamaConfig(
        layers=number("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ff=number("intermediate_size"),
        vocab=number("vocab_size"),
        # Within its window, sliding attention is plain attention: the context ends there.
        context=min(context, window) if window else context,
        eps=float(data.get("rms_norm_eps", 1e-6)),
        tied=bool(data.get("tie_word_embeddings", False)),
        frequencies=_frequencies(path, data, head_dim),
        architecture=_architecture(path, data),
    )


def architecture_of(directory: Path) -> str:
    """The class that a model directory names; empty if it names none."""
    path = directory / "config.json"
    return _architecture(path, read_json(path))


def _architecture(path: Path, data: Mapping[str, Any]) -> str:
    """The first name under `architectures`; empty if there is none."""
    names = data.get("architectures") or [""]
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise ModelError(f"{path}: architectures={names!r}, expected a list of names; mend the field")
    return names[0]


def _frequencies(path: Path, data: Mapping[str, Any], head_dim: int) -> tuple[float, ...]:
    """Rotary frequencies: default, linear scaling, and Llama 3's smooth scaling."""
    rope = data.get("rope_parameters") or {**(data.get("rope_scaling") or {})}
    theta = float(rope.get("rope_theta") or data.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    plain = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    if rope.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0)) not in (1.0, 1, None):
        raise UnsupportedError(f"{path}: partial rotary embeddings; the torch engine rotates whole heads")
    if kind == "default":
        return tuple(plain)
    if kind not in ("linear", "llama3"):
        raise UnsupportedError(
            f"{path}: rope_type={kind!r}; the torch engine runs default, linear and llama3"
        )
    try:
        factor = float(rope["factor"])
        if kind == "linear":
            return tuple(f / factor for f in plain)
        low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
        original = float(rope["original_max_position_embeddings"])
    except KeyError as error:
        raise ModelError(f"{path}: rope parameters lack {error.args[0]!r}; add the field") from None

    def scale(f: float) -> float:
        smooth = (original * f / (2 * math.pi) - low) / (high - low)
        smooth = min(max(smooth, 0.0), 1.0)
        return (1 - smooth) * f / factor + smooth * f

    return tuple(scale(f) for f in plain)


class Weights:
    """The tensors of a directory's safetensors files, checked against the shapes that a model expects.

    Raises ModelError for a file that cannot be read.
    """

    def __init__(self, directory: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.directory, self.dtype, self.device = directory, dtype, device
        self._tensors: dict[str, Tensor] = {}
        for file in weight_files(directory):
            try:
                with safe_open(file, framework="pt") as content:
                    self._tensors.update({name: content.get_tensor(name) for name in content.keys()})  # noqa: SIM118
            except (SafetensorError, OSError) as error:
                raise ModelError(
                    f"{file}: not a readable safetensors file ({error}); copy it again"
                ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor [*shape] in the model's dtype, on its device; each is taken once.

        Raises ModelError where it is lacking, or has another shape.
        """
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(
                f"{self.directory}: the weights lack {name!r} of shape {shape}, which config.json asks for; "
                "use the config.json that the weights were saved with"
            )
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.directory}: {name!r} has shape {tuple(tensor.shape)}, but config.json asks for "
                f"{shape}; use the config.json that the weights were saved with"
            )
        return tensor.to(self.device, self.dtype)

    def maybe(self, name: str, *shape: int) -> Tensor | None:
        """The tensor [*shape] if there is one: biases are optional."""
        return self.take(name, *shape) if name in self else None

    def rows(self, name: str) -> int:
        """Length of the tensor's first dimension."""
        shape = self._tensors[name].shape
        return int(shape[0]) if shape else 0

    def drop(self, name: str) -> None:
        """Leave out what is not needed, if it is there."""
        self._tensors.pop(name, None)

    def finish(self) -> None:
        """Raises ModelError for weights that nothing asked for."""
        left = [n for n in self._tensors if not n.endswith("rotary_emb.inv_freq")]
        if left:
            raise ModelError(
                f"{self.directory}: config.json has no place for the weights {left[:3]!r} "
                f"({len(left)} in all); use the config.json that the weights were saved with"
            )
