"""A model with its draft in memory."""

from __future__ import annotations

import warnings
from dataclasses import replace

from metagen.errors import UnsupportedError
from metagen.generators.decoding.draft import Draft
from metagen.generators.models.describe import shape_of
from metagen.generators.models.recipes import Model
from metagen.generators.models.vocabulary import check_one_vocabulary
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch.models.loading import Loaded, Place, load, token_bytes
from metagen.generators.torch.speculation.pair import Pair
from metagen.logs import logger
from metagen.sequence import digest

_LOG = logger(__name__)


def load_drafted(model: Model, draft: Draft, place: Place) -> Loaded:
    """The model, and its draft beside it with memory for as many tokens; each draft of a row has rows of its own.

    Raises as `load` does, and InputError for a draft with another vocabulary. Warns of one that is larger.
    """
    place = replace(place, batch=place.batch * draft.drafts)
    if draft.model is None:
        target = load(model, place)
        _check_speaks(target)
        return replace(target, fingerprint=digest(target.fingerprint, draft.describes("")).hex())
    sizes = [token_bytes(one, place.dtype) for one in (model, draft.model)]
    target, small = (
        load(one, replace(place, kv_bytes=place.kv_bytes * size // sum(sizes)))
        for one, size in zip((model, draft.model), sizes, strict=True)
    )
    check_one_vocabulary([target.name, small.name], [target.tokenizer, small.tokenizer])
    for one in (target, small):
        _check_speaks(one)
    ours, theirs = shape_of(model), shape_of(draft.model)
    if ours is not None and theirs is not None and theirs.parameters_total > ours.parameters_total:
        said = "the draft is larger than its target, and costs more than it can save"
        _LOG.warning(said, extra={"draft": small.name, "target": target.name})
        warnings.warn(f"{said}: {small.name!r} drafts for {target.name!r}", stacklevel=3)
    pair = Pair(target.model, small.model)
    same = pair.vocab_size >= target.tokenizer.vocab_size
    return replace(
        target,
        model=pair,
        tokenizer=target.tokenizer if same else Tokenizer(target.tokenizer.directory, pair.vocab_size),
        fingerprint=digest(target.fingerprint, draft.describes(small.fingerprint)).hex(),
        segment_tokens=min(target.segment_tokens, small.segment_tokens),
    )


def _check_speaks(one: Loaded) -> None:
    if one.scores is not None:
        raise UnsupportedError(
            f"{one.name!r} gives {one.scores.outputs} numbers that score (head {one.scores.name!r}), no logits; "
            "speculation needs language models: leave draft out of an engine that only scores"
        )
