"""GGUF files, the model files of llama.cpp: turned into a Hugging Face model directory, once.

The `gguf` library reads the file and undoes its quantisation; what is here are the names and the conventions that
differ. Every hyperparameter of the file is either understood or named in an error: a model that is nearly right would
be wrong without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from metagen.errors import ModelError, UnsupportedError, install, lacks
from metagen.generators.models.gguf_tokenizer import write_tokenizer

#: Numbers up to which weights are kept in float32, in which they are what the file says; in bfloat16 above.
EXACT: Final = 1_000_000_000
#: Bytes of one file of weights.
SHARD: Final = 2_000_000_000

#: Of each architecture, by the name in the file: model_type, the class of transformers, and the activation.
ARCHITECTURES: Final[Mapping[str, tuple[str, str, str]]] = {
    "llama": ("llama", "LlamaForCausalLM", "silu"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", "silu"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", "silu"),
    "gemma": ("gemma", "GemmaForCausalLM", "gelu_pytorch_tanh"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", "gelu_pytorch_tanh"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", "gelu_pytorch_tanh"),
    "phi3": ("phi3", "Phi3ForCausalLM", "silu"),
}
#: A hyperparameter of the file and the field of config.json.
FIELDS: Final[Mapping[str, str]] = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
#: Hyperparameters that are read elsewhere here, or say nothing that a model directory needs.
READ: Final = {
    "vocab_size", "attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "rope.scaling.attn_factor", "rope.freq_base_swa", "expert_count", "expert_used_count",
}  # fmt: skip
#: A tensor of a layer in the file, and its name below `model.layers.N.`; {norm}: see `_norms`.
LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: Where layers have four norms, the one before the MLP has another name.
FOUR_NORMS: Final[Mapping[str, str]] = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
#: Tensors outside the layers.
WHOLE: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
#: The frequencies of Llama 3's rotation, given as divisors.
DIVISORS: Final = "rope_freqs.weight"


def convert(file: Path, directory: Path) -> None:
    """Write a model directory: config.json, tokenizer.json, chat template and weights.

    Weights are dequantised: float32 up to `EXACT` numbers, bfloat16 above. ModelError for a file that cannot be read,
    UnsupportedError for an architecture, a hyperparameter, a tensor or a tokenizer that is not known here.
    """
    reader = _reader(file)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}

    def value(name: str) -> Any:
        return fields[name].contents() if name in fields else None

    split = value("split.count")
    if split not in (None, 0, 1):
        raise UnsupportedError(
            f"{file}: one of {split} parts; join them with llama.cpp's llama-gguf-split --merge"
        )
    architecture = str(value("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"{file}: general.architecture={architecture!r}; expected one of {', '.join(ARCHITECTURES)}; other models "
            "can be used as Hugging Face directories, or behind llama.cpp's server (kind: openai)"
        )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = read_config(file, architecture, fields, tensors)
    directory.mkdir(parents=True, exist_ok=True)
    special = write_tokenizer(file, value, directory)
    size = sum(int(np.prod(tensor.shape)) for tensor in tensors.values())
    numbers = "float32" if size <= EXACT else "bfloat16"
    vocab = int(tensors["token_embd.weight"].shape[-1])
    _write(directory / "config.json", {**config, **special, "vocab_size": vocab, "dtype": numbers})
    _write(directory / "generation_config.json", special)
    _write_weights(file, directory, _weights(file, architecture, config, tensors), numbers)


def _reader(file: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(f"{file}: reading GGUF files needs {lacks(error)}; {install('gguf')}") from None
    try:
        return GGUFReader(file)
    except (ValueError, OSError, KeyError, IndexError) as error:
        raise ModelError(f"{file}: not a readable GGUF file ({error}); copy it again") from None


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_config(
    file: Path, architecture: str, fields: Mapping[str, Any], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of config.json. UnsupportedError for a hyperparameter that is not known here.

    Raises ModelError where the file lacks a size.
    """
    prefix = f"{architecture}."
    own = {name.removeprefix(prefix): field for name, field in fields.items() if name.startswith(prefix)}
    if unknown := sorted(own.keys() - FIELDS.keys() - READ):
        raise UnsupportedError(
            f"{file}: the hyperparameter {prefix}{unknown[0]}={own[unknown[0]].contents()!r} is not known here, so "
            "that the model might be computed wrongly; use a Hugging Face directory of it, or llama.cpp's server"
        )
    given = {name: field.contents() for name, field in own.items()}
    if given.get("expert_count"):
        raise UnsupportedError(
            f"{file}: a mixture of {given['expert_count']} experts; use a Hugging Face directory of the model"
        )
    model_type, name, activation = ARCHITECTURES[architecture]
    config: dict[str, Any] = {"architectures": [name], "model_type": model_type}
    config |= {FIELDS[key]: value for key, value in given.items() if key in FIELDS}
    config["sliding_window"] = config.get("sliding_window") or None  # 0: there is none
    if (
        lacking := {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"}
        - config.keys()
    ):
        raise ModelError(f"{file}: the file does not give {min(lacking)}; copy it again")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    config.setdefault("num_key_value_heads", heads)
    config.setdefault("head_dim", given.get("rope.dimension_count") or width // heads)
    if given.get("attention.value_length", config["head_dim"]) != config["head_dim"]:
        raise UnsupportedError(f"{file}: heads of values are not as wide as heads of keys")
    gemma = architecture.startswith("gemma")
    config["hidden_activation" if gemma else "hidden_act"] = activation
    config["tie_word_embeddings"] = "output.weight" not in tensors
    if architecture in ("llama", "gemma"):
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
    if architecture == "qwen2" and "blk.0.attn_q.bias" not in tensors:
        raise UnsupportedError(f"{file}: a qwen2 without biases of attention")
    if architecture in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = _scale(architecture, config)
    rope = _rope(file, given, config, tensors)
    if architecture == "gemma3":
        local = {"rope_type": "default", "rope_theta": given.get("rope.freq_base_swa", 10_000.0)}
        config["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
        kinds = [
            "full_attention" if i % 6 == 5 else "sliding_attention"
            for i in range(config["num_hidden_layers"])
        ]
        config["layer_types"] = kinds
    else:
        config["rope_parameters"] = rope
        config["rope_theta"] = rope["rope_theta"]
    return config


def _scale(architecture: str, config: Mapping[str, Any]) -> int:
    """By whose square root scores are divided: the file does not say, llama.cpp goes by the number of layers."""
    largest = {"gemma2": 46, "gemma3": 62}[architecture]  # 27B
    if config["num_hidden_layers"] == largest:
        return int(config["hidden_size"]) // int(config["num_attention_heads"])
    return int(config["head_dim"])


def _rope(
    file: Path, given: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """The rotation: plain, linear, YaRN, or Llama 3's, which is given by divisors of the frequencies."""
    theta = float(given.get("rope.freq_base", 10_000.0))
    rotated = given.get("rope.dimension_count", config["head_dim"])
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if rotated != config["head_dim"]:
        rope["partial_rotary_factor"] = rotated / config["head_dim"]
    kind = given.get("rope.scaling.type", "none")
    original = given.get("rope.scaling.original_context_length")
    factor = given.get("rope.scaling.factor")
    if DIVISORS in tensors:
        return {
            **rope,
            **_llama3(file, np.array(tensors[DIVISORS].data, np.float64), theta, original),
        }
    if any(name.startswith("rope_factors_") for name in tensors):
        raise UnsupportedError(f"{file}: LongRoPE; use a Hugging Face directory of the model")
    if kind == "none" or (kind == "linear" and factor in (None, 0.0, 1.0)):
        return rope
    if kind not in ("linear", "yarn") or factor is None or given.get("rope.scaling.attn_factor", 1.0) != 1.0:
        raise UnsupportedError(
            f"{file}: rope.scaling.type={kind!r}, factor={factor!r}; expected none, linear or yarn"
        )
    rope |= {"rope_type": kind, "factor": float(factor)}
    if kind == "yarn" and original:
        rope["original_max_position_embeddings"] = original
    return rope


def _llama3(file: Path, divisors: NDArray[np.float64], theta: float, original: int | None) -> dict[str, Any]:
    """The parameters whose frequencies these divisors give; UnsupportedError if there are none.

    original: the context of the first training, which files mostly leave out: a power of two is looked for.
    """
    factor, low, high = float(divisors.max()), 1.0, 4.0
    waves = 2 * np.pi * theta ** (np.arange(len(divisors)) / len(divisors))
    for context in [original] if original else [8192, *(1 << k for k in range(4, 24))]:
        smooth = np.clip((context / waves - low) / (high - low), 0, 1)
        if np.allclose(1 / divisors, (1 - smooth) / factor + smooth, rtol=1e-4):
            names = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
            return {"rope_type": "llama3", **names, "original_max_position_embeddings": context}
    raise UnsupportedError(
        f"{file}: {DIVISORS} are not those of Llama 3; use a Hugging Face directory of the model"
    )


def _weights(
    file: Path, architecture: str, config: Mapping[str, Any], tensors: Mapping[str, Any]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and numbers of each tensor, as transformers has them."""
    from gguf.quants import dequantize

    layer_names = {**LAYER, **(FOUR_NORMS if architecture in ("gemma2", "gemma3") else {})}
    if architecture == "phi3":
        layer_names["ffn_up"] = "mlp.gate_up_proj"
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        if name == DIVISORS:
            continue
        base, _, kind = name.rpartition(".")
        layer, short = "", base
        if base.startswith("blk."):
            _, number, short = base.split(".", 2)
            layer = f"model.layers.{number}."
        new = (layer_names if layer else WHOLE).get(short)
        if new is None or kind not in ("weight", "bias"):
            raise UnsupportedError(
                f"{file}: the tensor {name!r} is not known here; use a Hugging Face directory of the model"
            )
        try:
            numbers = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise UnsupportedError(
                f"{file}: {name!r} is kept as {tensor.tensor_type.name}, which the gguf library cannot undo; take a "
                "file of another quantisation, such as Q4_K_M or Q8_0"
            ) from None
        if architecture == "llama" and short in heads:
            numbers = _unpermute(numbers, heads[short])
        if architecture.startswith("gemma") and short.endswith("norm"):
            numbers = numbers - 1  # transformers multiplies by 1 + w, the file holds 1 + w
        yield f"{layer}{new}.{kind}", np.array(numbers, np.float32)


def _unpermute(numbers: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp keeps the two halves of a head that rotate together side by side, transformers one after another."""
    rows = numbers.shape[0]
    return numbers.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(numbers.shape)


def _write_weights(
    file: Path, directory: Path, weights: Iterator[tuple[str, NDArray[np.float32]]], numbers: str
) -> None:
    """Files of at most about `SHARD` bytes each, with the index that several need."""
    import torch
    from safetensors.torch import save_file

    shards: list[list[str]] = []
    held: dict[str, torch.Tensor] = {}
    size = total = 0

    def close() -> None:
        nonlocal held, size
        save_file(held, directory / f"part-{len(shards)}.safetensors", {"format": "pt"})
        shards.append(list(held))
        held, size = {}, 0

    for name, array in weights:
        held[name] = torch.from_numpy(array).to(getattr(torch, numbers))
        size, total = size + held[name].nbytes, total + held[name].nbytes
        if size >= SHARD:
            close()
    if held:
        close()
    if not shards:
        raise ModelError(f"{file}: there are no weights in it; copy it again")
    if len(shards) == 1:
        (directory / "part-0.safetensors").rename(directory / "model.safetensors")
        return
    where: dict[str, str] = {}
    for i, names in enumerate(shards):
        shard = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        (directory / f"part-{i}.safetensors").rename(directory / shard)
        where |= dict.fromkeys(names, shard)
    _write(
        directory / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where}
    )
