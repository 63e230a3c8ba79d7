"""What can be told of a model before it is loaded: its tokenizer, its shape, and the fingerprint that it will have."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HFTokenizer

from metagen.cost import ARCHITECTURES, Beside, ModelShape
from metagen.errors import InputError, ModelError
from metagen.generators.decoding.draft import Draft
from metagen.generators.directory import read_json, text_config, vocabulary_size
from metagen.generators.models import lora, recipes
from metagen.generators.models.recipes import KGRAM, Model, Recipe
from metagen.generators.models.sources import resolve
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


def check_drafted(model: Model, draft: Draft | None) -> None:
    """Raises InputError unless the model's parts, and what drafts for it, have one vocabulary."""
    check_vocabularies(model)
    if draft is not None and draft.model is not None:
        check_vocabularies(draft.model)
        check_one_vocabulary([str(model), str(draft.model)], [tokenizer_of(model), tokenizer_of(draft.model)])


def check_one_vocabulary(names: Sequence[str], tokenizers: Sequence[Tokenizer]) -> None:
    """Raises InputError unless all tokenizers give every token the number that the first gives it."""
    first = tokenizers[0]
    for name, other in zip(names[1:], tokenizers[1:], strict=True):
        if other.fingerprint == first.fingerprint:
            continue
        ours, theirs = _tokens(first), _tokens(other)
        if ours == theirs:
            continue
        differs = min(
            (i for i in {*ours.values(), *theirs.values()} if _name(ours, i) != _name(theirs, i)), default=0
        )
        raise InputError(
            f"{names[0]!r} and {name!r} have different vocabularies: {len(ours)} tokens (tokenizer "
            f"{first.fingerprint}) and {len(theirs)} tokens (tokenizer {other.fingerprint}); id {differs} is "
            f"{_name(ours, differs)!r} in the first and {_name(theirs, differs)!r} in the second. Their "
            "logits cannot be combined: take models of one family, with one tokenizer.json"
        )


def _tokens(tokenizer: Tokenizer) -> dict[str, int]:
    path = str(tokenizer.directory / "tokenizer.json")
    return dict(HFTokenizer.from_file(path).get_vocab(with_added_tokens=True))


def _name(tokens: dict[str, int], number: int) -> str | None:
    return next((token for token, i in tokens.items() if i == number), None)


def shape_of(model: Model, dtype_bytes: int | None = None) -> ModelShape | None:
    """dtype_bytes: of a number, if it is not the one that config.json names.

    None for what has no matrices, and where the sizes of an architecture are not read, so that FLOPs are unknown.
    A recipe has the shape of its first part, with the others beside it; what has no matrices costs nothing there.
    """
    if _is_unread(model):
        return None
    if isinstance(model, Recipe):
        return _shape_of_parts(model, [shape_of(part, dtype_bytes) for part in model.parts])
    directory = resolve(model)
    if is_kgram(directory):
        return None
    shape = replace(ModelShape.from_config(directory), adapter=lora.parameters_of(directory))
    return shape if dtype_bytes is None else replace(shape, dtype_bytes=dtype_bytes)


def _is_unread(model: Model) -> bool:
    """Whether it is, or is made of, a network of an architecture whose sizes are not read."""
    if isinstance(model, Recipe):
        return any(map(_is_unread, model.parts))
    directory = resolve(model)
    return not is_kgram(directory) and text_config(directory).get("model_type") not in ARCHITECTURES


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


def drafted_shape(model: Model, draft: Draft | None, dtype_bytes: int | None = None) -> ModelShape | None:
    """The model's, with the draft's beside it: each token is run in both."""
    shape = shape_of(model, dtype_bytes)
    if draft is not None and draft.model is not None and _is_unread(draft.model):
        return None
    small = None if draft is None or draft.model is None else shape_of(draft.model, dtype_bytes)
    if shape is None or small is None:
        return shape
    return replace(shape, beside=(*shape.beside, Beside(small)))


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
    """SHA-256 over the files of the weights, as engines name them."""
    h = sha256()
    for file in weight_files(directory):
        with file.open("rb") as stream:
            h.update(hashlib.file_digest(stream, "sha256").digest())
    h.update(lora.digest_of(directory).encode())
    return h.hexdigest()


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory, in order, without an adapter's. ModelError for missing ones."""
    files = sorted(file for file in directory.glob("*.safetensors") if file.name != lora.WEIGHTS)
    index = directory / "model.safetensors.index.json"
    if index.exists():
        files = [directory / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    missing = [file.name for file in files if not file.exists()] if files else ["model.safetensors"]
    if missing:
        raise ModelError(
            f"{directory}: no {', '.join(missing)}; copy the model whole, with safetensors weights"
        )
    return files


def drafted_fingerprint(target: str, draft: Draft | None, dtype: str) -> str:
    """From the fingerprint of the model alone; sampled tokens depend on what drafts. dtype: as torch writes it."""
    if draft is None:
        return target
    small = "" if draft.model is None else fingerprint_of(draft.model, dtype)
    return digest(target, draft.describes(small)).hex()


class TableTokenizer(Tokenizer):
    """The tokens of a table, and bytes for whatever else a prompt has; in a folder that lasts as long as this does."""

    def __init__(self, tokens: Sequence[str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="metagen-table-"))
        weakref.finalize(self, shutil.rmtree, folder)
        end = tokens[-1]
        numbers = {token: i for i, token in enumerate(tokens)}
        numbers |= {f"<0x{byte:02X}>": len(tokens) + byte for byte in range(256)}
        codec = HFTokenizer(models.BPE(vocab=numbers, merges=[], byte_fallback=True))
        codec.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        codec.add_special_tokens([AddedToken(end, special=True, normalized=False)])
        # Without merges a text is read by single characters; longer tokens are looked for first.
        codec.add_tokens([AddedToken(token, normalized=False) for token in tokens[:-1] if len(token) > 1])
        codec.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(
            json.dumps({"model_type": "table", "vocab_size": len(numbers), "eos_token_id": len(tokens) - 1})
        )
        super().__init__(folder, len(numbers))
