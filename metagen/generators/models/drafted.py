"""What a draft adds to what can be told of a model before it is loaded."""

from __future__ import annotations

from dataclasses import replace

from metagen.cost import Beside, ModelShape
from metagen.generators.decoding.draft import Draft
from metagen.generators.models.describe import check_vocabularies, fingerprint_of, shape_of, tokenizer_of
from metagen.generators.models.recipes import Model
from metagen.generators.models.vocabulary import check_one_vocabulary
from metagen.sequence import digest


def drafted_shape(model: Model, draft: Draft | None, dtype_bytes: int | None = None) -> ModelShape | None:
    """The model's, with the draft's beside it: each token is run in both."""
    shape = shape_of(model, dtype_bytes)
    small = None if draft is None or draft.model is None else shape_of(draft.model, dtype_bytes)
    if shape is None or small is None:
        return shape
    return replace(shape, beside=(*shape.beside, Beside(small)))


def check_drafted(model: Model, draft: Draft | None) -> None:
    """Raises InputError unless the model's parts, and what drafts for it, have one vocabulary."""
    check_vocabularies(model)
    if draft is not None and draft.model is not None:
        check_vocabularies(draft.model)
        check_one_vocabulary([str(model), str(draft.model)], [tokenizer_of(model), tokenizer_of(draft.model)])


def drafted_fingerprint(target: str, draft: Draft | None, dtype: str) -> str:
    """From the fingerprint of the model alone; sampled tokens depend on what drafts. dtype: as torch writes it."""
    if draft is None:
        return target
    small = "" if draft.model is None else fingerprint_of(draft.model, dtype)
    return digest(target, draft.describes(small)).hex()
