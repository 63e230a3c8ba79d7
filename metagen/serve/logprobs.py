"""Log-probabilities of the tokens of an answer, in the two forms of the API."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

from metagen.generators.continuation import BROKEN
from metagen.sequence import Sequence
from metagen.serve.solve import Job
from metagen.strategies.rewrite import generators_of

#: Tokens that are read together, at most, where characters are spread over them.
SPREAD = 16
#: Log-probability above which no other token can be as likely.
HALF = math.log(0.5)

#: A token's text, its log-probability, and where it begins in the answer; None where the text says otherwise.
Token = tuple[str, float, int | None]


def wants_logprobs(job: Job) -> bool:
    """Whether the request asks for them."""
    return any(one.params.logprobs for one in generators_of(job.strategy))


def chat_logprobs(sequence: Sequence, job: Job) -> dict[str, Any] | None:
    """`logprobs` of a chat; None where they were not asked for, or are not known."""
    tokens = _tokens(sequence, job)
    if tokens is None:
        return None
    content = [
        {
            "token": text, "logprob": value, "top_logprobs": [],
            # A token that is a part of a character is no text, and nobody knows its bytes here.
            "bytes": None if BROKEN in text or at is None else list(text.encode("utf-8")),
        }
        for text, value, at in tokens
    ]  # fmt: skip
    return {"content": content, "refusal": None}


def text_logprobs(sequence: Sequence, job: Job) -> dict[str, Any] | None:
    """`logprobs` of a text; None where they were not asked for, or are not known.

    text_offset: counted from the beginning of the prompt; None where the tokens do not spell the text.
    top_logprobs: with `logprobs: 0` the drawn token alone. With `logprobs: 1` the most likely token beside it: that is
    the drawn one where its probability is above one half. Elsewhere nobody kept it, and there is None.
    """
    tokens = _tokens(sequence, job)
    if tokens is None:
        return None
    before = len(job.prompt.text or "")
    offsets = [at for _, _, at in tokens if at is not None]
    return {
        "tokens": [text for text, _, _ in tokens],
        "token_logprobs": [value for _, value, _ in tokens],
        "top_logprobs": [
            {text: value} if not job.alternatives or value > HALF else None for text, value, _ in tokens
        ],
        "text_offset": [before + at for at in offsets] if len(offsets) == len(tokens) else None,
    }


def _tokens(sequence: Sequence, job: Job) -> list[Token] | None:
    """The tokens of the answer, those of a thought before it left out."""
    if not wants_logprobs(job) or sequence.tokens is None or sequence.token_logprobs is None:
        return None
    decode = _decoder(sequence, job)
    thought = 0 if sequence.thought is None else sequence.thought.tokens
    if decode is None or thought is None:
        return None
    ids = sequence.tokens.ids[thought:]
    spelt = spell(decode, ids, sequence.text)
    return [
        (text, value, at)
        for (text, at), value in zip(spelt, islice(sequence.token_logprobs, thought, None), strict=False)
    ]


def _decoder(sequence: Sequence, job: Job) -> Callable[[tuple[int, ...]], str] | None:
    """What writes these tokens; None where no engine with their tokenizer can."""
    for one in generators_of(job.strategy):
        decode: Callable[[tuple[int, ...]], str] | None = getattr(one.engine, "decode", None)
        tokens = sequence.tokens
        if decode is not None and tokens is not None and one.tokenizer_fingerprint == tokens.tokenizer:
            return decode
    return None


def spell(
    decode: Callable[[tuple[int, ...]], str], ids: tuple[int, ...], text: str
) -> list[tuple[str, int | None]]:
    """Each token as text, and where it begins in `text`; from where the tokens do not spell `text`, None.

    A token within a character begins where that does.
    """
    made: list[tuple[str, int | None]] = []
    at: int | None = 0
    first = 0
    for end in range(1, len(ids) + 1):
        piece = decode(ids[first:end])
        if piece.endswith(BROKEN) and end - first < SPREAD and end < len(ids):
            continue
        if at is not None and not text.startswith(piece, at):
            at = None
        for place in range(first, end):
            made.append(
                (
                    decode((ids[place],)),
                    None if at is None else at + _begin(decode, ids[first:end], place - first),
                )
            )
        at, first = None if at is None else at + len(piece), end
    return made


def _begin(decode: Callable[[tuple[int, ...]], str], ids: tuple[int, ...], place: int) -> int:
    """Where in the text of some ids that at this place begins; within a character, the beginning of that."""
    text, rest = decode(ids), decode(ids[place:])
    if text.endswith(rest):
        return len(text) - len(rest)
    return len(decode(ids[:place]).rstrip(BROKEN))
