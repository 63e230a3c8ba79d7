"""One sample as vLLM is asked for it, and the numbers that it gives back."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metagen.errors import NumericsError
from metagen.generators.confidence import confidence
from metagen.generators.declared import VLLMDeclared
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import SamplingParams
from metagen.generators.vllm.endings import Asked
from metagen.sequence import digest

#: Labels of one request, at most.
LABELS = 128


def stream(seed: int, position: int) -> int:
    """The seed of vLLM's random numbers for a sample from its token number `position` on: 63 bits.

    vLLM counts a request's draws from 0. Parts of one sample, which are requests of their own, would share their
    random numbers if they shared a seed; and neighbouring seeds are made strangers.
    """
    return int.from_bytes(digest("vllm", str(seed), str(position))[:8], "little") >> 1


def asked(
    names: Any,
    params: SamplingParams,
    stops: Asked,
    *,
    most: int,
    logprobs: bool,
    bias: Mapping[int, float] | None = None,
    told: bool = False,
) -> Any:
    """The parameters of vLLM for samples of at most `most` tokens, which lack a seed.

    logprobs: whether those of the tokens drawn are told. bias: by token, those of `params`. told: whether vLLM gives
    its tokens while it draws them, each time all that it has; its last output is the same either way. End tokens are
    asked for as stop tokens, so that they are those of the tokenizer that all engines share.
    """
    return names.SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        logit_bias=dict(bias) if bias else None,
        **{name: getattr(params, name) for name in VLLMDeclared.adapters if name != "logit_bias"},
        max_tokens=most,
        ignore_eos=True,
        stop_token_ids=list(stops.ids),
        stop=list(stops.texts),
        include_stop_str_in_output=True,
        detokenize=bool(stops.texts),
        skip_special_tokens=False,
        logprobs=params.top_logprobs if logprobs else None,
        flat_logprobs=True,
        structured_outputs=_held(names, params.grammar),
        output_kind=names.cumulative if told else names.final_only,
        skip_clone=True,
    )


def labels(names: Any, ids: abc.Sequence[int]) -> Any:
    """The parameters of vLLM for the log-probabilities of tokens that may come next."""
    return names.SamplingParams(
        temperature=0.0,
        max_tokens=1,
        ignore_eos=True,
        detokenize=False,
        logprob_token_ids=list(ids),
        output_kind=names.final_only,
        skip_clone=True,
    )


def following(names: Any) -> Any:
    """The parameters of vLLM for the log-probability of each token of a prompt."""
    return names.SamplingParams(
        temperature=0.0,
        max_tokens=1,
        ignore_eos=True,
        detokenize=False,
        prompt_logprobs=0,
        output_kind=names.final_only,
        skip_clone=True,
    )


def _held(names: Any, grammar: Grammar | None) -> Any:
    if grammar is None:
        return None
    field = {"regex": "regex", "json_schema": "json", "lark": "grammar"}[grammar.kind]
    return names.StructuredOutputsParams(**{field: grammar.source})


def numbers(logprobs: abc.Iterable[float], fed: int) -> None:
    """NumericsError if one of them is none. fed: tokens of the prefix that they continue."""
    if any(map(math.isnan, logprobs)):
        raise NumericsError(
            f"the model returned NaN while it continued a prefix of {fed} tokens; check its weights, or choose "
            "dtype='float32'"
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """What came back of one request. logprobs: one for each id, or none. ended: by itself or by its limit, not by being
    aborted.
    """

    ids: list[int]
    logprobs: list[float]
    confidences: list[float]
    prompt: int
    cached: int | None
    ended: bool

    @classmethod
    def of(cls, output: Any, k: int) -> Drawn:
        """From vLLM's output; k: of the confidences, 0 for none. NumericsError for what is no number."""
        (found,) = output.outputs
        flat, ids = found.logprobs, list(found.token_ids)
        starts = flat.start_indices[: len(ids)] if flat is not None else []
        logprobs = [flat.logprobs[at] for at in starts]
        numbers(logprobs, len(output.prompt_token_ids))
        # The sampled token comes first, then the k best.
        confidences = [confidence(flat.logprobs[at + 1 : at + 1 + k], k) for at in starts] if k else []
        return cls(
            ids,
            logprobs,
            confidences,
            len(output.prompt_token_ids),
            output.num_cached_tokens,
            found.finish_reason != "abort",
        )
