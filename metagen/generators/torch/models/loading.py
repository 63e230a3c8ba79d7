"""From a directory, an embedded model's name or a recipe to a language model in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metagen.cost import ModelShape
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.decoding.draft import Draft
from metagen.generators.local import key_value_bytes
from metagen.generators.models import recipes
from metagen.generators.models.describe import (
    check_one_vocabulary,
    drafted_fingerprint,
    drafted_shape,
    is_kgram,
    model_fingerprint,
    recipe_fingerprint,
    shape_of,
    tokenizer_of,
    weight_files,
    weights_digest,
)
from metagen.generators.models.lora import adapter_of
from metagen.generators.models.quantization import compress, number_format
from metagen.generators.models.recipes import Model, Recipe
from metagen.generators.models.sources import resolve
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch.models import formulas
from metagen.generators.torch.models.by_transformers import TransformersModel
from metagen.generators.torch.models.checkpoint import SCORED, architecture_of, read_config
from metagen.generators.torch.models.combined import Combine, Combined
from metagen.generators.torch.models.guided import Guided
from metagen.generators.torch.models.heads import Head
from metagen.generators.torch.models.ids import FunctionModel, IdsModel, TableModel, Windowed
from metagen.generators.torch.models.kgram import KGram
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.models.llama import PREFILL_ROWS, LlamaModel
from metagen.generators.torch.speculation.pair import Pair
from metagen.logs import logger
from metagen.sequence import digest

_LOG = logger(__name__)


def memory_for(device: torch.device, shape: ModelShape | None) -> int:
    """Bytes for keys and values: half of what a GPU has free beside the weights, elsewhere `key_value_bytes`."""
    if device.type != "cuda":
        return key_value_bytes()
    weights = 0 if shape is None else int(shape.bytes_total)
    return max(0, int(torch.cuda.mem_get_info(device)[0]) - weights) // 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a model is loaded. batch: rows that decode at once. kv_bytes: for the state of its tokens.

    quantization: of the matrices of every model that has any.
    """

    dtype: torch.dtype
    device: torch.device
    batch: int
    kv_bytes: int
    quantization: str | None = None

    @property
    def rows(self) -> int:
        """Rows of any model here."""
        return self.batch + min(PREFILL_ROWS, self.batch)

    @property
    def numbers(self) -> str:
        """How they are kept, for fingerprints."""
        return number_format(str(self.dtype), self.quantization)

    def shape(self, model: Model) -> ModelShape | None:
        """That of the model here; None if it has no matrices."""
        return compress(shape_of(model, self.dtype.itemsize), self.quantization)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. name: as people name it. segment_tokens: that its memory holds beside the running rows.

    shape: None if it has no matrices. scores: its head, if it has one that scores; then it gives no logits.
    """

    name: str
    model: LanguageModel[Any]
    tokenizer: Tokenizer
    shape: ModelShape | None
    fingerprint: str
    segment_tokens: int
    scores: Head | None = None


def load(model: Model, place: Place) -> Loaded:
    """Raises ModelError, UnsupportedError or InputError, which name the place, the value and the remedy."""
    if isinstance(model, recipes.Table):
        return _of_ids(model, tokenizer_of(model), place, partial(TableModel, function=model.row))
    if isinstance(model, recipes.Function):
        return _of_ids(model, tokenizer_of(model), place, partial(FunctionModel, function=model.function))
    if isinstance(model, Recipe):
        return _of_parts(model, place)
    directory = resolve(model)
    if is_kgram(directory):
        if adapter_of(directory) is not None:
            raise UnsupportedError(
                f"{str(model)!r}: a k-gram model has no matrices to adapt; give it without the adapter"
            )
        return _kgram(str(model), directory, place)
    try:
        read_config(directory / "config.json")
    except UnsupportedError as error:
        if architecture_of(directory).endswith(SCORED):
            raise
        return _any(str(model), directory, place, str(error))
    return _llama(str(model), directory, place)


def _any(name: str, directory: Path, place: Place, reason: str) -> Loaded:
    """A model that only transformers computes. reason: why."""
    if adapter_of(directory) is not None:
        raise UnsupportedError(
            f"{reason}. Through transformers, adapters are not read: merge this one into its base with peft, and "
            "give the merged model"
        )
    if place.quantization is not None:
        raise UnsupportedError(
            f"{reason}. Through transformers, quantization={place.quantization!r} is not supported"
        )
    _LOG.info("a model runs through transformers, which is slower", extra={"model": name, "reason": reason})
    try:
        model = TransformersModel(
            directory, dtype=place.dtype, device=place.device, rows=place.rows, kv_bytes=place.kv_bytes
        )
    except UnsupportedError as error:
        raise UnsupportedError(f"{reason}. Nor can it run through transformers: {error}") from None
    tokenizer = Tokenizer(directory, model.vocab_size)
    fingerprint = model_fingerprint(directory, weights_digest(directory), place.numbers, tokenizer)
    return Loaded(name, model, tokenizer, place.shape(directory), fingerprint, model.segment_tokens)


def _llama(name: str, directory: Path, place: Place) -> Loaded:
    model = LlamaModel(
        directory,
        dtype=place.dtype,
        device=place.device,
        batch=place.batch,
        kv_bytes=place.kv_bytes,
        quantization=place.quantization,
    )
    tokenizer = Tokenizer(directory, model.vocab_size)
    return Loaded(
        name,
        model,
        tokenizer,
        place.shape(directory),
        model_fingerprint(directory, weights_digest(directory), place.numbers, tokenizer),
        model.segment_tokens,
        None if model.head.outputs is None else model.head,
    )


def _kgram(name: str, directory: Path, place: Place) -> Loaded:
    model = KGram.load(directory, rows=place.rows, device=place.device)
    tokenizer = Tokenizer(directory, model.vocab_size)
    fingerprint = model_fingerprint(directory, weights_digest(directory), place.numbers, tokenizer)
    return Loaded(name, model, tokenizer, None, fingerprint, place.kv_bytes // model.token_bytes)


def _of_ids(recipe: Recipe, tokenizer: Tokenizer, place: Place, make: Callable[..., IdsModel]) -> Loaded:
    model = make(tokenizer.vocab_size, rows=place.rows, device=place.device)
    fingerprint = recipe_fingerprint(recipe, tokenizer, ())
    return Loaded(str(recipe), model, tokenizer, None, fingerprint, place.kv_bytes // model.token_bytes)


def _of_parts(recipe: Recipe, place: Place) -> Loaded:
    """The parts, each with memory for as many tokens as the others, and how they are combined."""
    parts = []
    for i, (part, own) in enumerate(_places(recipe.parts, place)):
        # Candidates are tried in rows of their own.
        batch = place.rows if isinstance(recipe, recipes.Guided) and i else place.batch
        parts.append(load(part, replace(own, batch=batch)))
    names, tokenizers = [part.name for part in parts], [part.tokenizer for part in parts]
    check_one_vocabulary(names, tokenizers)
    speaking = parts[:1] if isinstance(recipe, recipes.Guided) else parts
    needs = f"{type(recipe).__name__} needs language models: use it as the scorer of Guided, or as a verifier"
    _check_language(speaking, needs)
    model = _whole(recipe, parts, place)
    lead = parts[0]
    return Loaded(
        str(recipe),
        model,
        _narrow(lead.tokenizer, model.vocab_size),
        place.shape(recipe),
        recipe_fingerprint(recipe, lead.tokenizer, [part.fingerprint for part in parts]),
        min(part.segment_tokens for part in parts),
    )


def load_drafted(model: Model, draft: Draft, place: Place) -> Loaded:
    """The model, and its draft beside it with memory for as many tokens; each draft of a row has rows of its own.

    Raises as `load` does, and InputError for a draft with another vocabulary. Warns of one that is larger.
    """
    place = replace(place, batch=place.batch * draft.drafts)
    needs = "speculation needs language models: leave draft out of an engine that only scores"
    if draft.model is None:
        target = load(model, place)
        _check_language([target], needs)
        return replace(target, fingerprint=digest(target.fingerprint, draft.describes("")).hex())
    target, small = (load(part, own) for part, own in _places((model, draft.model), place))
    check_one_vocabulary([target.name, small.name], [target.tokenizer, small.tokenizer])
    _check_language([target, small], needs)
    ours, theirs = shape_of(model), shape_of(draft.model)
    if ours is not None and theirs is not None and theirs.parameters_total > ours.parameters_total:
        said = "the draft is larger than its target, and costs more than it can save"
        _LOG.warning(said, extra={"draft": small.name, "target": target.name})
        warnings.warn(f"{said}: {small.name!r} drafts for {target.name!r}", stacklevel=3)
    pair = Pair(target.model, small.model)
    return replace(
        target,
        model=pair,
        tokenizer=_narrow(target.tokenizer, pair.vocab_size),
        fingerprint=digest(target.fingerprint, draft.describes(small.fingerprint)).hex(),
        segment_tokens=min(target.segment_tokens, small.segment_tokens),
    )


def adopt(
    model: LanguageModel[Any], base: Path, adapter: str | Path, place: Place, draft: Draft | None
) -> tuple[int, Loaded]:
    """Load an adapter into the model of its base; its number there, and what it makes of the model.

    base: the directory of the model without it. Raises UnsupportedError for a model that takes no adapters, InputError
    for an adapter of another base, and ModelError for files that do not fit.
    """
    directory, target = resolve(adapter), getattr(model, "target", model)
    found = adapter_of(directory)
    if found is None:
        raise InputError(
            f"{str(adapter)!r} is a whole model, expected an adapter of {str(base)!r}; open an engine for it"
        )
    if not isinstance(target, LlamaModel) or adapter_of(base) is not None:
        raise UnsupportedError(
            f"{str(base)!r} takes no adapters by row: it is an adapter itself, a recipe, or a model that runs through "
            f"transformers; give {str(adapter)!r} an engine of its own"
        )
    if not _same_base(directory, base):
        raise InputError(
            f"{str(adapter)!r} was trained on {str(found.base)!r}, and the engine runs {str(base)!r}; open an engine "
            "over the former, or write the latter into base_model_name_or_path of the adapter's configuration"
        )
    tokenizer = Tokenizer(directory, model.vocab_size)
    fingerprint = model_fingerprint(directory, weights_digest(directory), place.numbers, tokenizer)
    small = None if draft is None or draft.model is None else draft.model
    drafted = compress(drafted_shape(directory, draft, place.dtype.itemsize), place.quantization)
    if small is not None:
        check_one_vocabulary([str(adapter), str(small)], [tokenizer, tokenizer_of(small)])
    number = target.adopt(directory)
    head = target.heads[number]
    return number, Loaded(
        str(adapter),
        model,
        tokenizer,
        drafted,
        drafted_fingerprint(fingerprint, draft, place.numbers),
        0,
        None if head.outputs is None else head,
    )


def _same_base(adapted: Path, base: Path) -> bool:
    """Whether the directory of an adapter has the weights and sizes of a base."""
    files = [[file.resolve() for file in weight_files(directory)] for directory in (adapted, base)]
    ours, theirs = (read_config(directory / "config.json") for directory in (adapted, base))
    return files[0] == files[1] and replace(ours, architecture=theirs.architecture) == theirs


def _places(models: Sequence[Model], place: Place) -> list[tuple[Model, Place]]:
    """Each of the models, with memory for as many tokens as the others."""
    sizes = [token_bytes(model, place.dtype) for model in models]
    shares = [place.kv_bytes * size // sum(sizes) for size in sizes]
    return [(model, replace(place, kv_bytes=share)) for model, share in zip(models, shares, strict=True)]


def _narrow(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """The tokenizer for a model with so many logits."""
    return tokenizer if size >= tokenizer.vocab_size else Tokenizer(tokenizer.directory, size)


def _check_language(models: Sequence[Loaded], needs: str) -> None:
    for one in models:
        if one.scores is not None:
            raise UnsupportedError(
                f"{one.name!r} gives {one.scores.outputs} numbers that score (head {one.scores.name!r}), no logits; "
                f"{needs}"
            )


def _whole(recipe: Recipe, parts: Sequence[Loaded], place: Place) -> LanguageModel[Any]:
    """The combined model."""
    models = [part.model for part in parts]
    if isinstance(recipe, recipes.Guided):
        return _guide(recipe, parts)
    if isinstance(recipe, recipes.Contrastive) and recipe.window is not None:
        if recipe.window > models[1].max_context:
            raise InputError(
                f"window={recipe.window}: {parts[1].name!r} has a context of {models[1].max_context} tokens; give at "
                "most as many, or leave window out"
            )
        models[1] = Windowed(models[1], recipe.window, rows=place.rows, device=place.device)
    return Combined(models, combining(recipe))


def _guide(recipe: recipes.Guided, parts: Sequence[Loaded]) -> Guided:
    base, scorer = parts
    if scorer.scores is None:
        raise UnsupportedError(
            f"scorer={scorer.name!r} is a language model; Guided needs a model with a head that scores (…For"
            "SequenceClassification, a value head). For values of all tokens at once, use Tilted"
        )
    outputs = scorer.scores.outputs or 0
    if recipe.output >= outputs:
        raise InputError(f"output={recipe.output}: the head of {scorer.name!r} gives {outputs}; count from 0")
    read = formulas.READINGS[recipe.reading]

    def value(found: Tensor) -> Tensor:
        return read(found[:, recipe.output])

    return Guided(
        base.model,
        scorer.model,
        value=value,
        weight=recipe.weight,
        candidates=recipe.candidates,
        vocab_size=min(base.tokenizer.vocab_size, scorer.tokenizer.vocab_size),
    )


def combining(recipe: Recipe) -> Combine:
    """The recipe's formula, as a function of the logits of its parts. Raises ModelError for what is no recipe."""
    match recipe:
        case recipes.Contrastive(alpha=alpha, temperature=temperature, beta=beta, sure=sure):
            return lambda z: formulas.contrastive(
                z[0], z[1], alpha=alpha, temperature=temperature, beta=beta, sure=sure
            )
        case recipes.Experts(expert=expert, anti=anti, alpha=alpha):
            # Without one of the two, the base takes its place.
            own, other = 0 if expert is None else 1, 0 if anti is None else -1
            return lambda z: formulas.experts(z[0], z[own], z[other], alpha=alpha)
        case recipes.ProxyTuned(alpha=alpha):
            return lambda z: formulas.experts(z[0], z[1], z[2], alpha=alpha)
        case recipes.Ensemble(how="mean", shares=shares):
            return lambda z: formulas.mixture(z, shares)
        case recipes.Ensemble(shares=shares):
            return lambda z: formulas.product(z, shares)
        case recipes.Tilted(weights=weights, reading=reading):
            read = formulas.READINGS[reading]
            return lambda z: formulas.tilt(z[0], [read(v) for v in z[1:]], weights)
    raise ModelError(f"{recipe!r}: expected a recipe of metagen.generators.models.recipes")


def token_bytes(model: Model, dtype: torch.dtype) -> int:
    """Bytes of state of one token, by the configuration alone."""
    if isinstance(model, Recipe):
        return sum(token_bytes(part, dtype) for part in model.parts) or IdsModel.token_bytes
    shape = shape_of(model, dtype.itemsize)
    return IdsModel.token_bytes if shape is None else shape.kv_bytes_per_token
