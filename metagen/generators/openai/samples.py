"""From a choice of a server to a sample: where its text ends and why, its ids, its log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from metagen.errors import UnsupportedError
from metagen.generators.confidence import confidence
from metagen.generators.continuation import BROKEN, CONTEXT, Continuation, find
from metagen.generators.engine import GenerateRequest, Sample
from metagen.generators.openai.answer import STOPPED, Choice, Malformed
from metagen.generators.openai.body import limit, stop_texts
from metagen.generators.openai.dialects import Dialect
from metagen.generators.openai.vocabulary import Vocabulary
from metagen.generators.tool_calls import split_calls
from metagen.sequence import Finish, Step, Thought

#: By so much rounding may lift the logarithm of a probability above 0.
ROUNDING = 1e-3


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

    def sample(self, choice: Choice, generated: int | None, thinking: int | None = None) -> Sample:
        """generated: its tokens, if the server counted them; thinking: those of its thought.

        Malformed for what contradicts itself.
        """
        logprobs, confidences = self._logprobs(choice)
        if logprobs is not None and generated is not None and self._lacks(choice, len(logprobs), generated):
            logprobs = confidences = None
        told, most = max(len(choice.token_ids or ()), len(logprobs or ())), limit(self._request)
        if told > most:
            raise Malformed(f"it gave {told} tokens where at most {most} were asked for")
        sample = None
        thought = choice.thought
        if thought is not None or thinking:
            return self._thoughtful(choice, Thought(thought, thinking), max(told, generated or 0) or None)
        if choice.token_ids and self._vocabulary is not None and self._ids is not None:
            sample = self._by_ids(choice, choice.token_ids, logprobs)
            if sample is not None and choice.calls and len(split_calls(sample.text)[1]) < choice.calls:
                sample = None  # calls in a notation that the server alone reads
        if sample is None:
            # What is charged for may be more than what is shown.
            sample = self._by_text(choice, max(told, generated or 0) or None)
            if choice.calls:  # ids would write them in another notation than was drawn
                sample = replace(sample, ids=None)
        return replace(
            sample,
            logprob=math.fsum(logprobs) if logprobs is not None else None,
            token_logprobs=tuple(logprobs)
            if logprobs is not None and self._request.params.logprobs
            else None,
            token_confidences=confidences,
        )

    def _lacks(self, choice: Choice, told: int, generated: int) -> bool:
        """Whether tokens are without a log-probability, so that a sum would be too large.

        llama.cpp's server leaves out tokens that end within a character. The end itself need not have one.
        """
        return choice.thought is None and told < generated - (choice.finish != "length")

    def _thoughtful(self, choice: Choice, thought: Thought, generated: int | None) -> Sample:
        """A sample whose thought the server tells apart: its text is the answer alone.

        Ids are left out, which would write the thought too. Log-probabilities, which some servers give of the answer
        only, are checked and left out as well.
        """
        self._logprobs(choice)
        ended = bool(choice.full_text) or choice.finish != "length"
        if isinstance(self._request.until, Step) and not choice.full_text:
            raise UnsupportedError(
                f"a step of problem {self._request.prefix.prompt.problem_id!r} ended within a thought that the server "
                "tells apart, where no chat can go on; search by api='completions', where thoughts are text, or let "
                "the model answer without one (extra_body: {chat_template_kwargs: {enable_thinking: false}})"
            )
        return replace(self._by_text(choice, generated), ids=None, thought=replace(thought, ended=ended))

    # -- by ids ----------------------------------------------------------------------------------

    def _by_ids(self, choice: Choice, ids: list[int], logprobs: list[float] | None) -> Sample | None:
        """As engines that hold ids end a sample, token by token; None where these do not show why it ended."""
        assert self._vocabulary is not None and self._ids is not None
        if (bad := self._vocabulary.unknown(ids)) is not None:
            raise Malformed(f"it gave the token id {bad!r}, which {self._vocabulary.directory} does not have")
        if logprobs is not None and len(logprobs) != len(ids):
            raise Malformed(f"it gave {len(logprobs)} log-probabilities of {len(ids)} tokens")
        values = logprobs if logprobs is not None else [0.0] * len(ids)
        continuation = Continuation(self._vocabulary.decode, self._request, self._ids)
        eos, stop = self._last(choice, ids[-1])
        for k in self._ends(ids):
            last = k == len(ids)
            sample = continuation.sample(ids[:k], values[:k], eos=eos and last, stop=stop and last)
            if sample is not None:
                return replace(sample, generated=len(ids))
        if choice.finish == "length":  # of the server's own, short of the one that was asked for
            return Sample(continuation.text(ids, final=True), tuple(ids), len(ids), finish="length")
        return None

    def _ends(self, ids: list[int]) -> Iterator[int]:
        """After how many of the ids the sample may end: where the newest may complete a text, and with the last.

        It looks at the newest tokens alone, so that the work grows with the length of an answer and not with its
        square. A token has a byte at least, or the tail is too short to say.
        """
        assert self._vocabulary is not None
        wanted = stop_texts(self._request)
        longest = max((len(text.encode()) for text in wanted), default=0)
        window = longest + CONTEXT
        for k in range(1, len(ids)) if wanted else ():
            tail = self._vocabulary.decode(ids[k - window : k]) if k > 2 * window else ""
            # Bytes that are no character are shown by one of three.
            size = len(tail.encode("utf-8", "surrogatepass")) - 2 * tail.count(BROKEN)
            if size < longest or any(text in tail for text in wanted):
                yield k
        yield len(ids)

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
        text, request = choice.full_text, self._request
        finish: Finish | None
        step_end: int | None = None
        cut = False
        if choice.finish == "length":
            # A limit of the server's own ends the sequence, one that was asked for with a step or block does not.
            own = limit(request) < request.max_tokens and (generated is None or generated >= limit(request))
            finish, cut = (None, isinstance(request.until, Step)) if own else ("length", False)
        else:
            text, finish, step_end = self._find_end(choice, text)
            if step_end is not None and generated is not None and generated >= request.max_tokens:
                finish = "length"
        if self._spans(text, step_end):
            text, finish, step_end, cut = "", "stop", None, False
        ids = self._encode(text)
        return Sample(text, ids, generated, finish=finish, cut=cut, step_end=step_end)

    def _spans(self, text: str, step_end: int | None) -> bool:
        """Whether a stop text that began in the prefix ends in the text, of which alone the server knows."""
        for stop in self._request.params.stop:
            at = find(self._request.prefix.text, text, stop)
            if at is not None and at < 0 and (step_end is None or at + len(stop) <= step_end):
                return True
        return False

    def _find_end(self, choice: Choice, text: str) -> tuple[str, Finish | None, int | None]:
        """The text up to its end, why it ended, and where a step ends in it."""
        params, until = self._request.params, self._request.until
        by = choice.find_stop(self._dialect.reason)
        if choice.finish_reason == STOPPED:
            longest = max((stop for stop in params.stop if text.endswith(stop)), key=len, default="")
            return text.removesuffix(longest), "stop", None
        if choice.finish == "eos":
            return text, "eos", None
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
        # Of the server's own, or of extra_body.
        return text, "stop", None

    def _encode(self, text: str) -> tuple[int, ...] | None:
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
        if logprobs is None and (choice.finish == "content_filter" or choice.declined):
            return None, None
        if logprobs is None or not all(map(_possible, logprobs)):
            raise Malformed("it gave no log-probabilities, or some that cannot be, where they were asked for")
        logprobs = [min(value, 0.0) for value in logprobs]
        if not (k := params.top_logprobs):
            return logprobs, None
        places = choice.most_probable()
        # Where tokens are told by their texts, those that read alike, such as parts of characters, are told as one.
        by_text = choice.names_once and self._dialect.named is None
        least = 1 if by_text else k
        if places is None or len(places) != len(logprobs) or any(len(place) < least for place in places):
            raise Malformed(f"it gave fewer than the {k} most probable tokens that were asked for of each")
        # One that cannot be drawn may have −∞.
        if not all(value <= ROUNDING for place in places for _, value in place):
            raise Malformed("it gave log-probabilities of the most probable tokens that cannot be")
        if any(len(place) < k for place in places):
            return logprobs, None
        return logprobs, tuple(confidence([value for _, value in place], k) for place in places)


def _possible(value: Any) -> bool:
    """Whether it is the logarithm of a probability."""
    return math.isfinite(value) and value <= ROUNDING
