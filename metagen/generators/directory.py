"""What lies in a model directory, as JSON: the same for every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metagen.errors import ModelError
from metagen.sequence import digest


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; ModelError if there is none."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); give a Hugging Face model directory"
        ) from None
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error}); copy the file again") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def chat_template(directory: Path) -> str | None:
    """Names the chat template by which the tokenizer in a directory renders messages; None if there is none.

    ModelError for a tokenizer_config.json that is none.
    """
    config = directory / "tokenizer_config.json"
    own = read_json(config).get("chat_template") if config.exists() else None
    files = [directory / name for name in ("chat_template.jinja", "chat_template.json")]
    found = [path.read_bytes() for path in files if path.exists()]
    return digest("chat template", json.dumps(own), *found).hex() if own or found else None


def vocabulary_size(directory: Path) -> int:
    """Tokens that the model in a directory gives logits of. ModelError if config.json does not say."""
    size = text_config(directory).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise ModelError(
            f"{directory / 'config.json'}: vocab_size={size!r}, expected an integer ≥ 1; mend the field"
        )
    return size


def text_config(directory: Path) -> dict[str, Any]:
    """The fields of config.json; those of the text part, in a model of several. ModelError if there is none."""
    data = read_json(directory / "config.json")
    return {**data, **(data.get("text_config") or {})}
