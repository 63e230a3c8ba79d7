"""Where samples end: asked of vLLM as far as it can stop by itself, and read by the rules that all engines share."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

import numpy as np

from metagen.generators.continuation import BROKEN, Continuation
from metagen.generators.engine import GenerateRequest, Sample
from metagen.generators.tokenizer import Tokenizer
from metagen.sequence import Step

#: Token ids that may be asked for in place of a text of one character: vLLM looks through them at every token.
MOST = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """What vLLM is asked to stop at. Stopping too early does no harm: the sample is then gone on with."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]


class Endings:
    """The tokens that end samples, of one tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Files name the engine where torch is not installed.
        from metagen.generators.torch import endings as table

        self._tokenizer = tokenizer
        self._marks = table.EOS, table.STOP, table.TEXT
        self._table = table.Endings(tokenizer)
        self._by_token: dict[str, tuple[int, ...] | None] = {}

    def of(self, request: GenerateRequest) -> bytes:
        """[V]: by token, whether it ends the request's samples."""
        return self._table.of(request.params, request.until)

    def asked(self, request: GenerateRequest, written: str) -> Asked:
        """What vLLM should stop at, once `written` follows the request's prefix.

        It knows nothing of the prefix's text: the rest of a text that began there is asked for as a text of its own.
        """
        params, until = request.params, request.until
        ids = [] if params.ignore_eos else sorted(self._tokenizer.eos)
        ids += params.stop_token_ids
        delimiter = (until.delimiter,) if isinstance(until, Step) else ()
        texts: list[str] = []
        for text in dict.fromkeys((*params.stop, *delimiter)):
            tokens = self._tokens(text)
            if tokens is not None:
                ids += tokens
                continue
            before = request.prefix.text[-len(text) :] + written
            texts.append(text)
            texts += [text[i:] for i in range(1, len(text)) if before.endswith(text[:i])]
        return Asked(tuple(dict.fromkeys(ids)), tuple(dict.fromkeys(texts)))

    def _tokens(self, text: str) -> tuple[int, ...] | None:
        """All tokens that complete a text of one character; None if it is longer, or they are too many."""
        if len(text) > 1 or not text.isascii():
            return None
        if text not in self._by_token:
            ids = np.flatnonzero(self._table.may_complete(text)).tolist()
            alone = self._tokenizer.decode_many([[i] for i in ids])
            found = tuple(i for i, t in zip(ids, alone, strict=True) if text in t or BROKEN not in t)
            self._by_token[text] = found if len(found) <= MOST else None
        return self._by_token[text]

    def sample(
        self,
        continuation: Continuation,
        ends: bytes,
        ids: list[int],
        logprobs: abc.Sequence[float],
        known: int,
    ) -> Sample | None:
        """The sample that the ids begin with; None if it goes on. It does not end within the first `known` ids."""
        end, stop, text = self._marks
        concerned = {*(at for at in range(known, len(ids)) if ends[ids[at]]), len(ids) - 1}
        for at in sorted(concerned):
            flag = ends[ids[at]]
            sample = continuation.sample(
                ids[: at + 1],
                logprobs[: at + 1],
                eos=bool(flag & end),
                stop=bool(flag & stop),
                text=bool(flag & text),
            )
            if sample is not None:
                return sample
        return None
