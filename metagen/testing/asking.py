"""What the laws of engines have in common: what an engine declares, and how they ask it."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections import abc
from collections.abc import Awaitable, Iterator
from typing import Any, Final, TypeVar

import pytest

from metagen.generators.engine import (
    Engine,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
)
from metagen.sequence import Prompt, Sequence, TokenIds, Until, digest

T = TypeVar("T")

FEATURES: Final = {
    "seeds": "the same seed gives the same sample",
    "ids": "token ids: render, encode, and those of samples",
    "begun": "a completion that was begun is gone on with",
    "until": "steps and blocks; needs ids",
    "logprobs": "log-probabilities of samples",
    "evaluate": "log-probabilities of given ids; needs ids",
    "counts": "how many tokens a prefix has, and how many were generated",
    "cache": "how many tokens of a prefix were computed, and how many read",
    "reads": "the same for several samples of one request",
    "stop_token_ids": "ids that end a completion",
    "ignore_eos": "going on behind end-of-sequence tokens",
    "written": "the text of a single sample is told while it is written",
}
"""The names that `without` may hold: what an engine may lack, if it says so."""


def seeds(n: int, first: int = 0) -> tuple[int, ...]:
    """Seeds as scopes give them: 64 bits, far from each other."""
    return tuple(int.from_bytes(digest("law", str(i))[:8], "little") for i in range(first, first + n))


class EngineTrial:
    """An engine under its laws. A subclass gives `make`, and says of its engine what follows.

    prompts: at least four that it can continue. Their completions should differ by seed, most of them should end
    within `most` tokens, and the greedy ones should hold a few different characters.
    flips: of samples that rounding may change, the share that is allowed; where it is more than 0, one at least is.
    0: exact. tolerance: between log-probabilities of the same token, computed on two ways, in nats.
    block: tokens of a prefix that the cache shares at once. many: coroutines that ask at once.
    patience: seconds for all that is asked together.
    without: what the engine does not have, by the names in `FEATURES`; laws that need it are skipped, and say so.
    """

    prompts: tuple[Prompt | str, ...] = ("A prompt.", "Another one.", "A third prompt.", "And the last?")
    most: int = 64
    flips: float = 0.0
    tolerance: float = 1e-3
    block: int = 1
    many: int = 1000
    patience: float = 120.0
    without: frozenset[str] = frozenset()

    @abstractmethod
    def make(self) -> Engine:
        """A new engine, not opened yet; always of the same model."""

    def decode(self, engine: Engine, ids: abc.Sequence[int]) -> str:
        """The text of a completion's ids: by the tokenizer of the model's directory, if the engine has one."""
        if engine.directory is None:
            pytest.skip("the engine has no directory to take a tokenizer from; override `decode`")
        tokenizers = pytest.importorskip("tokenizers")
        tokenizer = tokenizers.Tokenizer.from_file(str(engine.directory / "tokenizer.json"))
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        """One engine, open for all laws."""
        with cls().make() as opened:
            yield opened

    def need(self, *features: str) -> None:
        """Skip a law if the engine declares to be without what it needs."""
        for name in features:
            if name in self.without:
                pytest.skip(f"the engine is without {name!r}: {FEATURES[name]}")

    # -- asking ----------------------------------------------------------------------------------

    @property
    def prefixes(self) -> list[Sequence]:
        return [Sequence.of(prompt) for prompt in self.prompts]

    def request(
        self,
        numbers: int | abc.Sequence[int] = 4,
        prefix: Sequence | int = 0,
        *,
        most: int | None = None,
        until: Until = None,
        **params: Any,
    ) -> GenerateRequest:
        """Of so many seeds, or of these, for a prefix or for the prompt of that number."""
        given = seeds(numbers) if isinstance(numbers, int) else tuple(numbers)
        start = self.prefixes[prefix] if isinstance(prefix, int) else prefix
        most = self.most if most is None else most
        return GenerateRequest(start, given, SamplingParams(**params), most, until)

    def ask(self, engine: Engine, *requests: GenerateRequest) -> list[Generated]:
        """All at once."""
        return self.together(*(engine.generate(request) for request in requests))

    def draw(self, engine: Engine, *requests: GenerateRequest) -> list[Sample]:
        """The samples of all requests, asked at once."""
        return [sample for answer in self.ask(engine, *requests) for sample in answer.samples]

    def evaluate(self, engine: Engine, *requests: EvaluateRequest) -> list[Evaluated]:
        """In one call."""
        (answers,) = self.together(engine.evaluate(list(requests)))
        return answers

    def together(self, *calls: Awaitable[T]) -> list[T]:
        """Results of calls that run at once, in an event loop of their own."""

        async def gather() -> list[T]:
            return list(await asyncio.wait_for(asyncio.gather(*calls), self.patience))

        return asyncio.run(gather())

    def greedy(self, engine: Engine) -> list[Sample]:
        """The greedy completion of each prompt."""
        return self.draw(engine, *(self.request(1, i, temperature=0.0) for i in range(len(self.prompts))))

    def grow(self, engine: Engine, prefix: Sequence, sample: Sample) -> Sequence:
        """The prefix with a sample that has not finished."""
        tokenizer = engine.tokenizer_fingerprint
        known = sample.ids is not None and tokenizer is not None
        tokens = TokenIds(sample.ids or (), tokenizer or "") if known else None
        return prefix.extend(sample.text, tokens=tokens, cut=sample.cut, step_end=sample.step_end)

    # -- comparing -------------------------------------------------------------------------------

    def same(self, found: abc.Sequence[Sample], wanted: abc.Sequence[Sample]) -> None:
        """The same samples, up to the flips that are allowed."""
        assert len(found) == len(wanted)
        self.agree([_what(sample) for sample in found], [_what(sample) for sample in wanted])

    def agree(self, found: abc.Sequence[object], wanted: abc.Sequence[object]) -> None:
        """The same, one by one, up to the flips that are allowed."""
        pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if a != b]
        assert len(pairs) <= math.ceil(self.flips * len(wanted)), (
            f"{len(pairs)} of {len(wanted)} differ, such as {pairs[0]}"
        )


def _what(sample: Sample) -> tuple[object, ...]:
    """A sample without its numbers, which are compared up to rounding."""
    return sample.text, sample.ids, sample.generated, sample.finish, sample.cut, sample.step_end


def inside(samples: list[Sample], length: int = 1) -> list[tuple[int, str]]:
    """By number of the sample, a text that is first met in the midst of it; of those samples that have one."""
    found = []
    for i, sample in enumerate(samples):
        text = sample.text
        pieces = [text[at : at + length] for at in range(1, len(text) - length)]
        first = [p for at, p in enumerate(pieces, start=1) if text.index(p) == at and "\ufffd" not in p]
        if first:
            found.append((i, first[len(first) // 2]))
    assert 2 * len(found) >= len(samples), "give prompts whose greedy completions hold different characters"
    return found
