"""Which tokens may end a row."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from metagen.generators.continuation import BROKEN
from metagen.generators.engine import SamplingParams
from metagen.generators.tokenizer import Tokenizer
from metagen.sequence import Step, Until

EOS, STOP, TEXT = 1, 2, 4
#: Ways of ending whose tokens are remembered.
REMEMBERED = 64


class Endings:
    """By token, whether it ends a row: EOS and STOP do, TEXT may, by completing a stop string or delimiter.

    Requests that end alike share one table. The threads that ask make it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ends = lru_cache(REMEMBERED)(self._make)
        self._texts = cache(self._spell)

    def of(self, params: SamplingParams, until: Until) -> bytes:
        """[V]: the flags of each token for rows of these parameters."""
        texts = params.stop + ((until.delimiter,) if isinstance(until, Step) else ())
        return self._ends(params.ignore_eos, params.stop_token_ids, texts)

    def may_complete(self, text: str) -> NDArray[np.bool_]:
        """[V]: whether a token may complete a text: its own text holds the last character, or is broken."""
        return np.array([text[-1] in own or BROKEN in own for own in self._texts()])

    def _make(self, ignore_eos: bool, stop_ids: tuple[int, ...], texts: tuple[str, ...]) -> bytes:
        ends = np.zeros(self._tokenizer.vocab_size, np.uint8)
        if not ignore_eos:
            ends[list(self._tokenizer.eos)] |= EOS
        ends[list(stop_ids)] |= STOP
        for last in {text[-1] for text in texts}:
            ends[self.may_complete(last)] |= TEXT
        return ends.tobytes()

    def _spell(self) -> list[str]:
        """Each token's text, alone and behind another token, where some decoders write it otherwise."""
        ids = range(self._tokenizer.vocab_size)
        alone = self._tokenizer.decode_many([[i] for i in ids])
        behind = self._tokenizer.decode_many([[0, i] for i in ids])
        return [a + b[len(alone[0]) :] for a, b in zip(alone, behind, strict=True)]
