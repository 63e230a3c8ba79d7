"""What is read of a model directory before vLLM reads it: its vocabulary, and what its fingerprint names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from metagen.errors import InputError, ModelError
from metagen.generators.directory import read_json, text_config
from metagen.generators.tokenizer import Tokenizer

#: Files that hold weights; the first kind that a directory has counts.
WEIGHTS = ("*.safetensors", "*.gguf", "*.bin", "*.pt")
#: Fields of a config that change how many places a model has.
LENGTHS = {"max_position_embeddings", "rope_scaling", "rope_parameters", "text_config"}
#: Ranks of adapters that vLLM makes room for.
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def vocabulary(directory: Path) -> int:
    """The number of token ids. ModelError if the config has none."""
    size = text_config(directory).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise ModelError(
            f"{directory / 'config.json'}: vocab_size={size!r}, expected an integer ≥ 1; mend the field"
        )
    return size


def length(directory: Path, max_context: int | None, given: Mapping[str, Any]) -> int | None:
    """Tokens that vLLM has to make room for: one more than are asked for, but no more than the model has places.

    given: engine arguments; where they replace the model's config, only vLLM knows its places.
    """
    if max_context is None:
        return None
    overrides = given.get("hf_overrides") or {}
    known = isinstance(overrides, Mapping) and not LENGTHS & set(overrides)
    if given.get("hf_config_path") or not known:
        return max_context + 1
    own = text_config(directory).get("max_position_embeddings")
    return min(max_context + 1, own) if isinstance(own, int) else max_context + 1


def fingerprint(directory: Path, tokenizer: Tokenizer, dtype: str, lora: Path | None, numerics: str) -> str:
    """Config, weights, number format, tokenizer, adapter and arguments that change numbers.

    It is not the torch engine's: the same seed draws other samples.
    """
    h = hashlib.sha256((directory / "config.json").read_bytes())
    parts = ["vllm", _digest(weights(directory)), dtype, tokenizer.fingerprint, repr(sorted(tokenizer.eos))]
    if lora is not None:
        config = read_json(lora / "adapter_config.json") | {"base_model_name_or_path": None}
        files = sorted(lora.glob("adapter_model.*")) or weights(lora)
        parts.append(json.dumps(config, sort_keys=True) + _digest(files))
    for part in (*parts, numerics):
        h.update(b"\0" + part.encode())
    return h.hexdigest()[:32]


def weights(directory: Path) -> list[Path]:
    """The files of the weights. ModelError if there are none."""
    for pattern in WEIGHTS:
        if found := sorted(directory.glob(pattern)):
            return found
    raise ModelError(f"{directory}: no weights ({', '.join(WEIGHTS)}); copy the model whole")


def adapter(lora: str | Path) -> tuple[Path, int]:
    """The directory of a LoRA adapter, and the rank to make room for.

    Raises InputError for a rank that vLLM cannot run.
    """
    directory = Path(lora).expanduser()
    data: dict[str, Any] = read_json(directory / "adapter_config.json")
    rank = data.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= RANKS[-1]:
        raise InputError(f"lora={str(lora)!r}: its rank is r={rank!r}, expected 1 to {RANKS[-1]}")
    return directory, next(size for size in RANKS if size >= rank)


def _digest(files: Iterable[Path]) -> str:
    """SHA-256 over files."""
    h = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            h.update(hashlib.file_digest(stream, "sha256").digest())
    return h.hexdigest()
