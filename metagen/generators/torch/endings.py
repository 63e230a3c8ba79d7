"""Which tokens may end a row: a table that is asked for all rows at once."""

from __future__ import annotations

from threading import Lock

import numpy as np
from numpy.typing import NDArray

from metagen.generators.continuation import BROKEN
from metagen.generators.engine import SamplingParams
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch.language_model import Ints
from metagen.sequence import Step, Until

EOS, STOP, TEXT = 1, 2, 4
#: Kinds kept although no row is of them any more.
IDLE = 64

Key = tuple[bool, tuple[int, ...], tuple[str, ...]]


class Surface:
    """Which tokens can complete a text: those whose own text holds its last character, or is broken."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: list[str] | None = None
        self._known: dict[str, NDArray[np.bool_]] = {}

    def may_end(self, wanted: str) -> NDArray[np.bool_]:
        """[vocab]: True where the token may be the one that completes `wanted`."""
        last = wanted[-1]
        if (known := self._known.get(last)) is None:
            texts = self._all()
            known = np.fromiter((last in t or BROKEN in t for t in texts), np.bool_, len(texts))
            self._known[last] = known
        return known

    def _all(self) -> list[str]:
        """Each token's text, alone and behind another token, where some decoders write it otherwise."""
        if self._texts is None:
            size = self._tokenizer.vocab_size
            alone = self._tokenizer.decode_many([[i] for i in range(size)])
            behind = self._tokenizer.decode_many([[0, i] for i in range(size)])
            self._texts = [a + b[len(alone[0]) :] for a, b in zip(alone, behind, strict=True)]
        return self._texts


class Endings:
    """flags(kinds, tokens): EOS and STOP tokens end a row; TEXT tokens may complete a stop string or delimiter.

    A *kind* is a way of ending that rows share. Kinds are made by the threads that ask, and read by the
    engine's thread, which always sees a whole table.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._surface = Surface(tokenizer)
        self._table = np.zeros((1, tokenizer.vocab_size), np.uint8)
        self._kinds: dict[Key, int] = {}
        self._uses: dict[int, int] = {}
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Of the vocabulary."""
        return self._tokenizer.vocab_size

    def flags(self, kinds: Ints, tokens: Ints) -> NDArray[np.uint8]:
        return self._table[kinds, tokens]

    def take(self, params: SamplingParams, until: Until) -> int:
        """The kind of these parameters; give it back when the request is done."""
        texts = params.stop + ((until.delimiter,) if isinstance(until, Step) else ())
        key = (params.ignore_eos, params.stop_token_ids, texts)
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._add(key)
            self._uses[kind] += 1
            return kind

    def give_back(self, kind: int) -> None:
        with self._lock:
            self._uses[kind] -= 1

    def _add(self, key: Key) -> int:
        ignore_eos, stop_ids, texts = key
        row = np.zeros(self._tokenizer.vocab_size, np.uint8)
        if not ignore_eos:
            row[list(self._tokenizer.eos)] |= EOS
        row[list(stop_ids)] |= STOP
        for text in texts:
            row[self._surface.may_end(text)] |= TEXT
        idle = next((k for k, n in self._uses.items() if n == 0), None) if len(self._kinds) >= IDLE else None
        if idle is not None:
            self._kinds = {k: v for k, v in self._kinds.items() if v != idle}
            self._table[idle] = row
        else:
            idle = len(self._uses)
            table = np.zeros(
                (max(1, 2 * idle) if idle >= len(self._table) else len(self._table), row.size), np.uint8
            )
            table[: len(self._table)] = self._table
            table[idle] = row
            self._table = table
        self._kinds[key] = idle
        self._uses[idle] = 0
        return idle
