"""What engines that run a model directory on this machine have in common."""

from __future__ import annotations

import os
from collections import abc

from metagen.cost import ModelShape
from metagen.generators.checks import Checks
from metagen.generators.engine import EngineStats
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.watch import SILENCE
from metagen.sequence import Sequence


class LocalEngine:
    """What the engine is, its tokens, and what is no request of its model. name: as the user gave it.

    silence: seconds without any progress after which whoever waits hears an EngineError (`watch`); None: never.
    """

    silence: float | None = SILENCE

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        *,
        context: int,
        shape: ModelShape | None,
        fingerprint: str,
        stats: EngineStats,
    ) -> None:
        self.directory = tokenizer.directory
        self._name, self._tokenizer, self._context = name, tokenizer, context
        self._shape, self._fingerprint, self._stats = shape, fingerprint, stats
        self._checks = Checks(name, tokenizer.vocab_size, context)

    @property
    def name(self) -> str:
        return self._name

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def tokenizer_fingerprint(self) -> str:
        return self._tokenizer.fingerprint

    @property
    def chat(self) -> str | None:
        """Names the model's chat template, if it has one."""
        return self._tokenizer.chat

    @property
    def takes_tools(self) -> bool:
        """Whether the model's chat template has a place for tools."""
        return self._tokenizer.takes_tools

    @property
    def shape(self) -> ModelShape | None:
        return self._shape

    @property
    def max_context(self) -> int:
        return self._context

    @property
    def stats(self) -> EngineStats:
        return self._stats

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        return self._tokenizer.render(prefix)[0]

    def encode(self, text: str) -> tuple[int, ...]:
        return self._tokenizer.encode(text)

    def decode(self, ids: abc.Sequence[int]) -> str:
        """Text of ids, special tokens by their names."""
        return self._tokenizer.decode(list(ids))

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids that end a completion."""
        return tuple(sorted(self._tokenizer.eos))

    @property
    def vocabulary(self) -> int:
        """Tokens that the model has logits of."""
        return self._tokenizer.vocab_size


def key_value_bytes() -> int:
    """Bytes for keys and values on a CPU: 2 GiB, or an eighth of the memory if that is less."""
    return min(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
