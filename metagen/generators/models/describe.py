"""What can be told of a model before it is loaded: its tokenizer, its shape, and the fingerprint that it will have."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from metagen.cost import Beside, ModelShape
from metagen.errors import ModelError
from metagen.generators.directory import read_json, vocabulary_size
from metagen.generators.models import recipes
from metagen.generators.models.recipes import KGRAM, Model, Recipe
from metagen.generators.models.vocabulary import TableTokenizer, check_one_vocabulary
from metagen.generators.tiny import resolve
from metagen.generators.tokenizer import Tokenizer
from metagen.sequence import digest


def is_kgram(directory: Path) -> bool:
    """Whether a model directory holds the counts of a k-gram model."""
    return bool(read_json(directory / "config.json").get("model_type") == KGRAM)


def tokenizer_of(model: Model) -> Tokenizer:
    """A recipe has that of its first part. Raises ModelError if there is none."""
    if isinstance(model, recipes.Table):
        return TableTokenizer(model.tokens)
    if isinstance(model, recipes.Function):
        return tokenizer_of(model.vocabulary)
    if isinstance(model, Recipe):
        return tokenizer_of(model.parts[0])
    directory = resolve(model)
    return Tokenizer(directory, vocabulary_size(directory))


def check_vocabularies(model: Model) -> None:
    """Raises InputError unless all parts of a recipe, and of its parts, have one vocabulary."""
    if not isinstance(model, Recipe) or not model.parts:
        return
    for part in model.parts:
        check_vocabularies(part)
    check_one_vocabulary([str(part) for part in model.parts], [tokenizer_of(part) for part in model.parts])


def shape_of(model: Model, dtype_bytes: int | None = None) -> ModelShape | None:
    """dtype_bytes: of a number, if it is not the one that config.json names. None for what has no matrices.

    A recipe has the shape of its first part, with the others beside it; what has no matrices costs nothing there.
    """
    if isinstance(model, Recipe):
        return _shape_of_parts(model, [shape_of(part, dtype_bytes) for part in model.parts])
    directory = resolve(model)
    if is_kgram(directory):
        return None
    shape = ModelShape.from_config(directory)
    return shape if dtype_bytes is None else replace(shape, dtype_bytes=dtype_bytes)


def _shape_of_parts(recipe: Recipe, shapes: Sequence[ModelShape | None]) -> ModelShape | None:
    others = [shape for shape in shapes[1:] if shape is not None]
    lead = shapes[0] if shapes else None
    window = recipe.window or 0 if isinstance(recipe, recipes.Contrastive) else 0
    guided = isinstance(recipe, recipes.Guided)
    if lead is None:
        # What runs in a way of its own, beside what costs nothing, has no shape that says so.
        if not others or window or guided:
            return None
        lead = others.pop(0)
    tries = (recipe.candidates or lead.vocab) if isinstance(recipe, recipes.Guided) else 0
    return replace(lead, beside=(*lead.beside, *(Beside(shape, window, tries) for shape in others)))


def fingerprint_of(model: Model, dtype: str) -> str:
    """What an engine over the model calls itself, from the files alone. dtype: as torch writes it."""
    if isinstance(model, Recipe):
        parts = [fingerprint_of(part, dtype) for part in model.parts]
        return recipe_fingerprint(model, tokenizer_of(model), parts)
    directory = resolve(model)
    return model_fingerprint(directory, weights_digest(directory), dtype, tokenizer_of(directory))


def recipe_fingerprint(recipe: Recipe, tokenizer: Tokenizer, parts: Sequence[str]) -> str:
    """The kind of recipe, what it says, and its parts' fingerprints."""
    return digest(type(recipe).__name__, recipe.options, tokenizer.fingerprint, *parts).hex()


def model_fingerprint(directory: Path, weights: str, dtype: str, tokenizer: Tokenizer) -> str:
    """Config, weights, number format and tokenizer: what the distribution depends on."""
    h = sha256((directory / "config.json").read_bytes())
    for part in (weights, dtype, tokenizer.fingerprint, repr(sorted(tokenizer.eos))):
        h.update(b"\0" + part.encode())
    return h.hexdigest()[:32]


def weights_digest(directory: Path) -> str:
    """SHA-256 over the files of the weights, as engines name them. ModelError for missing files."""
    files = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if index.exists():
        files = [directory / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    missing = [file.name for file in files if not file.exists()] if files else ["model.safetensors"]
    if missing:
        raise ModelError(f"{directory}: no {', '.join(missing)}; copy the model whole")
    h = sha256()
    for file in files:
        with file.open("rb") as stream:
            h.update(hashlib.file_digest(stream, "sha256").digest())
    return h.hexdigest()
