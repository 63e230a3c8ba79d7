"""Evaluate by a completions API that has it: log-probabilities of labels, and of the tokens of a prompt."""

from __future__ import annotations

import math
from collections import abc
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Evaluated, EvaluateRequest
from metagen.generators.openai.answer import Choice, Counts, Malformed
from metagen.generators.openai.body import Wording
from metagen.generators.openai.samples import ROUNDING
from metagen.generators.openai.vocabulary import Vocabulary

Values = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one prompt reads: the first `length` ids of a part, which are cut when it is sent."""

    part: EvaluateRequest
    length: int


class Readings:
    """Labels are read behind each position, by a prompt that one token is generated for; so the server's prefix cache
    serves them, and several prompts go in one request. Tokens that follow are read from a prompt's own
    log-probabilities, by one request for all positions, which vLLM computes afresh, past its cache.
    """

    def __init__(self, wording: Wording, vocabulary: Vocabulary | None, shown: str) -> None:
        self._wording, self._vocabulary, self._shown = wording, vocabulary, shown
        #: Tokens of all that is read, once that is known.
        self.whole = 0
        #: Whether the server has answered any of it, or was cut off, when it may have read it: that is paid for.
        self.answered = False

    @property
    def possible(self) -> bool:
        """Whether the server can be asked for them."""
        return self._wording.dialect.reads_labels(self._wording.api, self._vocabulary is not None)

    def parts(self, request: EvaluateRequest) -> list[EvaluateRequest]:
        """The request, by as many labels as the server takes at once. UnsupportedError where there is no way to ask."""
        self._check(request)
        labels, most = request.labels, self._wording.dialect.labels
        if labels is None:
            return [request]
        return [replace(request, labels=labels[i : i + most]) for i in range(0, len(labels), most)]

    def prompts(self, part: EvaluateRequest) -> list[Prompt]:
        """One for each position, or one for all."""
        if part.labels is None:
            return [Prompt(part, len(part.ids))]
        return [Prompt(part, p + 1) for p in part.positions]

    def groups(self, prompts: abc.Sequence[Prompt], most: int) -> list[list[Prompt]]:
        """Those that one request may ask for, in order: the same labels, `most` at most."""
        groups = []
        for labels, alike in groupby(prompts, lambda prompt: prompt.part.labels):
            some, each = list(alike), 1 if labels is None else most
            groups += [some[i : i + each] for i in range(0, len(some), each)]
        return groups

    def body(self, group: abc.Sequence[Prompt]) -> dict[str, Any]:
        """The fields of one request."""
        labels = group[0].part.labels
        asked: dict[str, Any] = {"prompt_logprobs": 0}
        if labels is not None:
            asked = {"logprobs": 1, "logprob_token_ids": list(dict.fromkeys(labels))}
            asked |= {self._wording.dialect.named or "": True}
        ids = [list(prompt.part.ids[: prompt.length]) for prompt in group]
        base = {"model": self._wording.model, "max_tokens": 1, "temperature": 0.0, **self._wording.extra}
        return {**base, **asked, "prompt": ids if len(ids) > 1 else ids[0]}

    def _check(self, request: EvaluateRequest) -> None:
        if request.outputs:
            raise UnsupportedError(
                f"{self._shown} has no outputs that score; use TorchEngine for models with such heads"
            )
        if request.entropies or request.params is not None:
            raise UnsupportedError(
                f"{'entropies=True' if request.entropies else 'params'}: {self._shown} tells log-probabilities of some "
                "tokens, not of all; leave that out, or use TorchEngine"
            )
        if not self.possible or self._vocabulary is None:
            raise UnsupportedError(
                f"{self._shown} cannot read log-probabilities of given tokens: that takes a vLLM server with "
                "api='completions', dialect='vllm' and tokenizer=; or use TorchEngine"
            )
        following = request.labels is None
        last = len(request.ids) - following
        if not request.positions or min(request.positions) < 0 or max(request.positions) >= last:
            raise InputError(
                f"positions={request.positions!r}: expected indices from 0 to {last - 1} of an input of "
                f"{len(request.ids)} tokens (the last one is followed by no token, unless labels are given)"
            )
        if request.labels is not None and not request.labels:
            raise InputError("labels are empty; give at least one id, or None for the token that follows")
        self._vocabulary.expect("ids", request.ids)
        self._vocabulary.expect("labels", request.labels or ())

    def values(self, request: EvaluateRequest, choice: Choice) -> Values:
        """What one answer says, one row for each position that it was asked about."""
        if request.labels is not None:
            places = choice.most_probable()
            found = dict(places[0]) if places else {}
            row = [found.get(f"token_id:{label}") for label in request.labels]
            return (tuple(map(self._number, row)),)
        given = choice.prompt_logprobs or []
        if len(given) != len(request.ids):
            raise Malformed(
                f"it gave log-probabilities of {len(given)} tokens of a prompt of {len(request.ids)}"
            )
        rows = [(given[p + 1] or {}).get(str(request.ids[p + 1])) for p in request.positions]
        return tuple((self._number(row.get("logprob") if isinstance(row, dict) else None),) for row in rows)

    def _number(self, value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value > ROUNDING
        ):
            raise Malformed("it gave no log-probability of a token that it was asked about")
        return min(float(value), 0.0)

    def join_answers(self, parts: list[list[tuple[Values, Counts]]]) -> Evaluated:
        """The answers about the parts of one request, joined."""
        counts = [c for answers in parts for _, c in answers]
        known = all(c.prompt is not None and c.cached is not None for c in counts)
        rows = [[row for values, _ in answers for row in values] for answers in parts]
        return Evaluated(
            tuple(tuple(chain(*row)) for row in zip(*rows, strict=True)),
            sum((c.prompt or 0) - (c.cached or 0) for c in counts) if known else None,
            sum(c.cached or 0 for c in counts) if known else None,
        )
