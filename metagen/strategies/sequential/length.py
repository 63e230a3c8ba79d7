"""How long a piece of a sequence is, in the tokens of the generator that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metagen.errors import UnsupportedError
from metagen.generators.base import Generator
from metagen.sequence import Sequence

#: Tokens of a text.
Count = Callable[[str], int]


def counter(generator: Generator, count: Count | None, what: str) -> Count:
    """`count`, or what the generator's engine counts; UnsupportedError where it has no ids. what: who needs it."""
    if count is not None:
        return count
    encode: Any = getattr(getattr(generator, "engine", None), "encode", None)
    if encode is None or getattr(generator, "tokenizer_fingerprint", None) is None:
        raise UnsupportedError(
            f"{what} counts tokens, and {type(generator).__name__} has no token ids; give it count=, such as "
            "lambda text: len(text.split()), or a generator over an engine with ids"
        )
    return lambda text: len(encode(text))


def written(before: Sequence, after: Sequence, count: Count) -> int:
    """Tokens that `after` has beyond `before`, which it extends: by their ids where both have them, else by `count`.

    A thought that a server has told apart is counted by what the server says, else by `count`.
    """
    if after.thought is not None and after.tokens is None and before.thought is None:
        own = after.thought.tokens
        return (count(after.thought.text or "") if own is None else own) + count(
            after.text[len(before.text) :]
        )
    if after.tokens is not None and not before.text:
        return len(after.tokens.ids)
    if after.tokens is not None and before.tokens is not None:
        return len(after.tokens.ids) - len(before.tokens.ids)
    return count(after.text[len(before.text) :])
