"""Length control by rejection: draw until the length is the one that was asked for (s1, Muennighoff et al. 2025)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from metagen import values
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate
from metagen.values import Amount, show
from metagen.verifiers.base import AnswerRule

#: Tokens of a text.
Count = Callable[[str], int]


def counter(what: str, count: Count | None, writer: Generator, *others: Generator) -> Count:
    """`count`, or what the engine of one of the generators counts. what: who needs it.

    Raises UnsupportedError where neither is there, InputError for a count beside a writer's ids, which are counted.
    """
    if count is not None:
        if _encoder(writer) is not None:
            raise InputError(
                f"{what}: count={show(count)}: {writer!r} has token ids, which are counted in its place; leave count "
                "out"
            )
        return count
    encode = next((found for one in (writer, *others) if (found := _encoder(one))), None)
    if encode is None:
        raise UnsupportedError(
            f"{what} counts tokens, and {type(writer).__name__} has no token ids; give it count=, such as "
            "lambda text: len(text.split()), or a generator over an engine with ids"
        )
    return lambda text: len(encode(text))


def _encoder(generator: Generator) -> Any:
    """What makes token ids of a text; None for a generator without ids."""
    known = getattr(generator, "tokenizer_fingerprint", None) is not None
    return getattr(getattr(generator, "engine", None), "encode", None) if known else None


def new_tokens(before: Sequence, after: Sequence, count: Count) -> int:
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


@part
class LengthControl(Strategy):
    """The first of at most `tries` samples that has from `least` to `most` new tokens; else the closest to that.

    What is cut or lacks an answer that it needs is taken only if there is nothing else. Among equals the first drawn
    wins. The samples are those of every parallel strategy over the generator. count: tokens of a text, for generators
    without ids. The length that a model finds by itself goes with how hard the problem is: choosing the short samples
    chooses among other things the easy lines of thought, and that is what s1 found wanting in it. least: new tokens at
    least. most: new tokens at most. tries: samples at most. Raises InputError for least > most, UnsupportedError for a
    generator whose draws are joint.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.sequential.length_control import LengthControl
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "word " * (5 - index), name="words")
        >>> LengthControl(draw, least=2, most=3, count=lambda text: len(text.split())).solve("Say something.").text
        'word word word '
    """

    thinks = True

    generator: Generator = field(kw_only=False)
    least: Amount = 0
    most: Amount
    tries: values.Count = 8
    answer: AnswerRule | None = None
    count: Count | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not self.generator.independent:
            raise UnsupportedError(f"{name} draws until one fits; {self.generator!r} draws jointly")
        self._count = counter(name, self.count, self.generator)

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        least, most = given["least"], given["most"]
        return f"least={least!r}, most={most!r}; expected least ≤ most" if least > most else None

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        drawing, best, least_off = scope.child("sample"), prefix, float("inf")
        for i in range(self.tries):
            (sample,) = await self.generator.generate(prefix, start=i, scope=drawing)
            (answer,) = await self.answer.read([sample]) if self.answer else (None,)
            tokens = new_tokens(prefix, sample, self._count)
            off = max(self.least - tokens, tokens - self.most, 0)
            rank = off if Candidate(sample, answer).eligible else off + 1e9
            scope.offer(sample, -float(rank), answer.key if answer else None)
            if rank < least_off:
                best, least_off = sample, rank
            if rank == 0:
                break
        return best
