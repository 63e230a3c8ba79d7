"""Token healing: where a prompt ends within a token, its last tokens are dropped, and their bytes are forced."""

from __future__ import annotations

from bisect import bisect_left
from collections import abc
from collections.abc import Iterable
from typing import Self

import numpy as np

from metagen.generators.decoding.constraint import Held, Mask, longest


class Boundaries:
    """Which tokens may lie across the end of a text.

    texts: the bytes of each token; none where it stands for no text.
    """

    def __init__(self, texts: abc.Sequence[bytes]) -> None:
        self.texts = texts
        self._order = sorted((i for i, text in enumerate(texts) if text), key=lambda i: texts[i])
        self._sorted = [texts[i] for i in self._order]
        self._longest = max(map(len, texts), default=0)
        self._ids = {text: i for i, text in zip(self._order, self._sorted, strict=True)}

    def heal(self, ids: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids to keep, one at least, and those to drop.

        Dropped are the fewest at the end with which every token can be written that begins in them and goes on behind
        the end. Tokens without text stay, and so do those before them.
        """
        tail, count = b"", 0
        for token in reversed(ids[1:]):
            if len(tail) >= self._longest or not self.texts[token]:
                break
            tail, count = self.texts[token] + tail, count + 1
        cut = next((n for n in range(min(len(tail), self._longest - 1), 0, -1) if self._extend(tail[-n:])), 0)
        dropped, size = 0, 0
        while size < cut:
            dropped += 1
            size += len(self.texts[ids[-dropped]])
        return ids[: len(ids) - dropped], ids[len(ids) - dropped :]

    def spell(self, text: bytes) -> list[int] | None:
        """Tokens of a text, always the longest that fits. None where none does."""
        ids = longest(text, self._ids, self._longest)
        return ids if b"".join(self.texts[i] for i in ids) == text else None

    def covering(self, text: bytes) -> list[int]:
        """Tokens that begin with a text and go on behind it."""
        at = bisect_left(self._sorted, text)
        found = []
        while at < len(self._sorted) and self._sorted[at].startswith(text):
            if len(self._sorted[at]) > len(text):
                found.append(self._order[at])
            at += 1
        return found

    def within(self, text: bytes) -> list[int]:
        """Tokens that a text begins with, itself among them, and behind which the rest can be written."""
        # From the end: whether tokens lead from here to the end of the text, or across it.
        open_ = [False] * len(text) + [True]
        for at in range(len(text) - 1, -1, -1):
            ends = (m for m in range(at + 1, min(len(text), at + self._longest) + 1) if open_[m])
            open_[at] = self._extend(text[at:]) or any(text[at:m] in self._ids for m in ends)
        found = []
        for size in range(1, min(len(text), self._longest) + 1):
            at = bisect_left(self._sorted, text[:size])
            while open_[size] and at < len(self._sorted) and self._sorted[at] == text[:size]:
                found.append(self._order[at])
                at += 1
        return found

    def _extend(self, text: bytes) -> bool:
        """Whether a token begins with a text and goes on behind it."""
        at = bisect_left(self._sorted, text + b"\0")
        return at < len(self._sorted) and self._sorted[at].startswith(text)


class ForcedBytes(Held):
    """Where a completion stands that begins with forced bytes, and is held to `then` behind them, or to nothing."""

    def __init__(self, boundaries: Boundaries, text: bytes, then: Held | None = None) -> None:
        self._boundaries, self._rest, self._then = boundaries, text, then
        self.size = len(boundaries.texts)

    def copy(self) -> Self:
        return type(self)(self._boundaries, self._rest, self._then.copy() if self._then else None)

    @property
    def free(self) -> bool:
        return not self._rest and (self._then is None or self._then.free)

    def consume(self, tokens: Iterable[int]) -> bool:
        ids = list(tokens)
        for i, token in enumerate(ids):
            if not self._rest:
                return self._then is None or self._then.consume(ids[i:])
            text = self._boundaries.texts[token]
            if text and self._rest.startswith(text):
                self._rest = self._rest[len(text) :]
            elif text.startswith(self._rest):
                behind, self._rest = text[len(self._rest) :], b""
                ids_behind = self._boundaries.spell(behind)
                if self._then is not None and (ids_behind is None or not self._then.consume(ids_behind)):
                    return False
            else:
                return False
        return True

    def allowed_tokens(self, left: int | None = None) -> Mask:
        if not self._rest:
            return np.ones(self.size, np.bool_) if self._then is None else self._then.allowed_tokens(left)
        mask = np.zeros(self.size, np.bool_)
        mask[self._boundaries.within(self._rest)] = True
        for token in self._boundaries.covering(self._rest):
            mask[token] = self._then is None or self.copy().consume([token])
        return mask

    def _only(self, left: int | None) -> int | None:
        if not self._rest:
            return None if self._then is None else self._then._only(left)
        return super()._only(left)
