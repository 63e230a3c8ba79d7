"""From a choice of a server to a sample: where its text ends and why, its ids, its log-probabilities."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from metagen.generators.continuation import Continuation
from metagen.generators.engine import GenerateRequest, Sample
from metagen.generators.openai.answer import Choice, Malformed
from metagen.generators.openai.body import limit
from metagen.generators.openai.dialects import Dialect
from metagen.generators.openai.vocabulary import Vocabulary
from metagen.sequence import MOST_CONFIDENT, Finish, Step


class Reader:
    """Makes samples of the choices that answer one request.

    vocabulary: of the model, if it is known here; with the ids that a server sends along, a sample is then what any
    engine that holds ids makes of them. ids: the rendered prefix.
    """

    def __init__(
        self,
        request: GenerateRequest,
        dialect: Dialect,
        vocabulary: Vocabulary | None,
        ids: tuple[int, ...] | None,
    ) -> None:
        self._request, self._dialect, self._vocabulary, self._ids = request, dialect, vocabulary, ids

    def sample(self, choice: Choice, generated: int | None) -> Sample:
        """generated: its tokens, if the server counted them. Malformed for what contradicts itself."""
        logprobs, confidences = self._logprobs(choice)
        sample = None
        if choice.token_ids and self._vocabulary is not None:
            sample = self._by_ids(choice, choice.token_ids, logprobs)
        if sample is None:
            sample = self._by_text(choice, len(logprobs) if logprobs else generated)
        return replace(
            sample,
            logprob=math.fsum(logprobs) if logprobs is not None else None,
            token_logprobs=tuple(logprobs)
            if logprobs is not None and self._request.params.logprobs
            else None,
            token_confidences=confidences,
        )

    # -- by ids ----------------------------------------------------------------------------------

    def _by_ids(self, choice: Choice, ids: list[int], logprobs: list[float] | None) -> Sample | None:
        """As engines that hold ids end a sample, token by token; None where these do not show why it ended."""
        assert self._vocabulary is not None and self._ids is not None
        if (bad := self._vocabulary.unknown(ids)) is not None:
            raise Malformed(f"it gave the token id {bad!r}, which {self._vocabulary.directory} does not have")
        if logprobs is not None and len(logprobs) != len(ids):
            raise Malformed(f"it gave {len(logprobs)} log-probabilities of {len(ids)} tokens")
        if len(ids) > self._request.max_tokens:
            raise Malformed(
                f"it gave {len(ids)} tokens where at most {self._request.max_tokens} were asked for"
            )
        values = logprobs if logprobs is not None else [0.0] * len(ids)
        continuation = Continuation(self._vocabulary.decode, self._request, self._ids)
        eos, stop = self._last(choice, ids[-1])
        for k in range(1, len(ids) + 1):
            last = k == len(ids)
            sample = continuation.sample(ids[:k], values[:k], eos=eos and last, stop=stop and last)
            if sample is not None:
                return replace(sample, generated=len(ids))
        if choice.finish == "length":  # of the server's own, short of the one that was asked for
            return Sample(continuation.text(ids, final=True), tuple(ids), len(ids), finish="length")
        return None

    def _last(self, choice: Choice, last: int) -> tuple[bool, bool]:
        """Whether the last id is the model's end, or one of the ids that end a completion."""
        params, vocabulary = self._request.params, self._vocabulary
        assert vocabulary is not None
        if choice.finish == "length":
            return False, False
        eos = last in vocabulary.eos and not params.ignore_eos
        return eos, last in params.stop_token_ids and not eos

    # -- by text ---------------------------------------------------------------------------------

    def _by_text(self, choice: Choice, generated: int | None) -> Sample:
        text, request = choice.said, self._request
        finish: Finish | None
        step_end: int | None = None
        cut = False
        if choice.finish == "length":
            # A limit of the server's own ends the sequence, one that was asked for with a step or block does not.
            own = limit(request) < request.max_tokens and (generated is None or generated >= limit(request))
            finish, cut = (None, isinstance(request.until, Step)) if own else ("length", False)
        else:
            text, finish, step_end = self._stopped(choice, text)
            if step_end is not None and generated is not None and generated >= request.max_tokens:
                finish = "length"
        ids = self._encoded(text)
        return Sample(text, ids, generated, finish=finish, cut=cut, step_end=step_end)

    def _stopped(self, choice: Choice, text: str) -> tuple[str, Finish | None, int | None]:
        """The text up to its end, why it ended, and where a step ends in it."""
        params, until = self._request.params, self._request.until
        by = choice.stopped_by(self._dialect.reason)
        if self._dialect.reason is None:
            # The server says no more than that it stopped.
            return text, "stop" if params.stop or params.stop_token_ids else "eos", None
        if isinstance(by, int):
            return text, "stop" if by in params.stop_token_ids else "eos", None
        if by is None:
            return text, "eos", None
        if by in params.stop:
            return (text.removesuffix(by) if isinstance(until, Step) else text), "stop", None
        if isinstance(until, Step) and by == until.delimiter:
            whole = text if text.endswith(by) else text + by
            return whole, None, len(whole)
        raise Malformed("it stopped at a text that was not asked for")

    def _encoded(self, text: str) -> tuple[int, ...] | None:
        """Ids that write the text behind the prefix; None where there are none, or they would write another."""
        if self._vocabulary is None or self._ids is None:
            return None
        return self._vocabulary.behind(self._ids, text)

    # -- log-probabilities -----------------------------------------------------------------------

    def _logprobs(self, choice: Choice) -> tuple[list[float] | None, tuple[float, ...] | None]:
        """Of each token its log-probability and its confidence, as far as they were asked for."""
        params = self._request.params
        if not (params.logprobs or params.top_logprobs):
            return None, None
        logprobs = choice.token_logprobs()
        if logprobs is None or not all(map(_possible, logprobs)):
            raise Malformed("it gave no log-probabilities, or some that cannot be, where they were asked for")
        logprobs = [min(value, 0.0) for value in logprobs]
        if not (k := params.top_logprobs):
            return logprobs, None
        places = choice.most_probable()
        if places is None or len(places) != len(logprobs) or any(len(place) < k for place in places):
            raise Malformed(f"it gave fewer than the {k} most probable tokens that were asked for of each")
        return logprobs, tuple(confidence(place, k) for place in places)


def confidence(place: list[tuple[str, float]], k: int) -> float:
    """−(1/k) Σ log p over the k most probable tokens at a place, none counting below −MOST_CONFIDENT."""
    values = sorted((value for _, value in place), reverse=True)[:k]
    return -sum(max(value, -MOST_CONFIDENT) for value in values) / k


def _possible(value: Any) -> bool:
    """Whether it is the logarithm of a probability; rounding may lift it above 0."""
    return math.isfinite(value) and value <= 1e-3
