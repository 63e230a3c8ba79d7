"""The text of new tokens, and how it ends a sample: one set of rules for all engines that hold token ids.

A character may be spread over tokens, and so may a stop string or a delimiter. Text is therefore decoded
behind some context, an incomplete character is held back while the sequence can be continued, and texts
that begin in the prefix are found when they end in what is new.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from typing import Any

from metagen.generators.engine import GenerateRequest, Sample
from metagen.sequence import Step, Tokens

#: What a decoder writes for bytes that are no character (yet).
BROKEN = "\ufffd"
#: Tokens of the prefix behind which new ids are decoded, so that leading spaces survive.
CONTEXT = 6


class Continuation:
    """How the samples of one request end. Its rows share it.

    decode: text of ids. ids: the rendered prefix. dropped: ids behind it that are written anew. `limit` is the
    number of new tokens at which a row ends.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        request: GenerateRequest,
        ids: tuple[int, ...],
        dropped: tuple[int, ...] = (),
    ) -> None:
        self.decode, self._request, self._dropped = decode, request, dropped
        self._context, known = self._behind(ids, dropped)
        self._skip = len(known) - self._count_missing(known, ids + dropped)
        self._stop = request.params.stop
        until, text = request.until, request.prefix.text
        self._delimiter = until.delimiter if isinstance(until, Step) else None
        wanted = [*self._stop, *([self._delimiter] if self._delimiter else [])]
        self._longest = max((len(one.encode()) for one in wanted), default=0)
        self._wanted = tuple(wanted)
        self._before = text
        self._step_before = text[max(request.prefix.steps, default=0) :]
        self.limit = request.max_tokens
        own = until.count if isinstance(until, Tokens) else until.max_tokens if until is not None else None
        if own is not None:
            self.limit = min(self.limit, own)

    def _behind(self, ids: tuple[int, ...], dropped: tuple[int, ...] = ()) -> tuple[list[int], str]:
        """The last of `ids`, and their text with that of `dropped`: enough of them for a character that is whole."""
        size = CONTEXT
        while not (text := self.decode([*ids[-size:], *dropped])).rstrip(BROKEN) and size < len(ids):
            size *= 2
        return list(ids[-size:]), text

    def _count_missing(self, known: str, ids: tuple[int, ...]) -> int:
        """How many of the broken characters at the end of `known` the text of the prefix, whose ids these are, lacks.

        They may be completed, and are text if they are not.
        """
        count, text = _count_broken(known), self._request.prefix.text
        if not count:
            return 0
        written = _count_broken(text)
        if written == len(text):
            # What is broken at the end of the prompt was never held back.
            tokens = self._request.prefix.tokens
            own = len(tokens.ids) if tokens is not None and ids[-len(tokens.ids) :] == tokens.ids else 0
            written += _count_broken(self._behind(ids[: len(ids) - own])[1])
        return max(0, count - written)

    def text(self, ids: list[int], *, final: bool) -> str:
        """Text of the new ids. Unless `final`, an incomplete character at the end is held back."""
        text = self.decode(self._context + ids)[self._skip :]
        return text if final else text.rstrip(BROKEN)

    def certain(self, text: str) -> str:
        """The new text, without what is or may become part of a stop string."""
        return without_stops(text, self._stop, self._before)

    def sample(
        self,
        ids: list[int],
        logprobs: abc.Sequence[float],
        *,
        eos: bool = False,
        stop: bool = False,
        text: bool = True,
    ) -> Sample | None:
        """The sample that ends with the newest of `ids`; None if it goes on.

        eos, stop: the newest id ends the sequence by itself. text: it may complete a stop string or the
        delimiter. The rules, in order:

        - An end token: it is not part of `ids` or text.
        - A stop string: the text is cut before it, though never into the prefix; `ids` are those whose text
          lies entirely before the cut.
        - The delimiter: the step keeps what its last token hangs over. It must end in the new text, and begin
          after the end of the step before. Of stop string and delimiter the one that ends first counts, the
          stop string if they end together.
        - The limit of the request, also where a step ends there: "length". Then that of `until`: not finished.
        """
        full = len(ids) >= self._request.max_tokens
        if eos or stop:
            kept = ids[:-1]
            return self._make(self.text(kept, final=True), kept, logprobs, finish="eos" if eos else "stop")
        step_end: int | None = None
        if text and self._wanted and self._may_end(ids):
            new = self.text(ids, final=False)
            cut, step_end = self._find_end(new)
            if cut is not None:
                return self._make(new[:cut], ids[: self._inside(ids, cut)], logprobs, finish="stop")
            if step_end is not None and not full:
                return self._make(new, ids, logprobs, step_end=step_end)
        if full:
            return self._make(self.text(ids, final=True), ids, logprobs, finish="length", step_end=step_end)
        if len(ids) >= self.limit:
            cut_step = isinstance(self._request.until, Step)
            return self._make(self.text(ids, final=False), ids, logprobs, cut=cut_step)
        return None

    def _may_end(self, ids: list[int]) -> bool:
        """Whether a text that ends a sample may have come to its end: a look at the newest tokens alone.

        Each has a byte at least, or else the tail is too short to say, so that a stop string lies within them.
        """
        window = self._longest + CONTEXT
        if len(ids) <= 2 * window:
            return True
        tail = self.decode(ids[-window:])
        return len(tail) < self._longest or any(one in tail for one in self._wanted)

    def _make(self, text: str, ids: list[int], logprobs: abc.Sequence[float], **how: Any) -> Sample:
        first = self.begin(ids)
        # Behind dropped tokens that were not written as they were, ids do not continue those of the prefix.
        added = None if first is None else tuple(ids[first:])
        each = tuple(logprobs[first or 0 :]) if self._request.params.logprobs else None
        return Sample(text, added, len(logprobs), float(sum(logprobs)), each, **how)

    def begin(self, ids: list[int]) -> int | None:
        """How many of the new ids are dropped tokens, written as they were; None if these were written otherwise."""
        dropped = len(self._dropped)
        return dropped if tuple(ids[:dropped]) == self._dropped else None

    def _find_end(self, text: str) -> tuple[int | None, int | None]:
        """Where a stop string cuts the new text, or else where the delimiter ends in it."""
        stops = [(at + len(s), at) for s in self._stop if (at := find(self._before, text, s)) is not None]
        step_end = None
        if self._delimiter is not None and (at := find(self._step_before, text, self._delimiter)) is not None:
            step_end = at + len(self._delimiter)
        if stops and (step_end is None or min(stops)[0] <= step_end):
            return max(0, min(stops)[1]), None
        return None, step_end

    def _inside(self, ids: list[int], cut: int) -> int:
        """How many of `ids` make no text beyond `cut`."""
        kept = len(ids)
        while kept and len(self.text(ids[:kept], final=True)) > cut:
            kept -= 1
        return kept


def without_stops(text: str, stops: abc.Sequence[str], before: str = "") -> str:
    """A text that is still being written behind `before`, up to what is or may become part of a stop string."""
    ends = [at for stop in stops if (at := find(before, text, stop)) is not None]
    for stop in stops:
        near = before[-len(stop) :] + text[-len(stop) :]
        ends += [len(text) - k for k in range(1, len(stop)) if near.endswith(stop[:k])]
    return text[: max(0, min(ends))] if ends else text


def _count_broken(text: str) -> int:
    """Broken characters at the end of a text."""
    return len(text) - len(text.rstrip(BROKEN))


def find(before: str, text: str, wanted: str) -> int | None:
    """Where `wanted` begins, counted from the start of `text` (negative: in `before`), if it ends in `text`."""
    before = before[-(len(wanted) - 1) :] if len(wanted) > 1 else ""
    at = (before + text).find(wanted)
    return None if at < 0 else at - len(before)
