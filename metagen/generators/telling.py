"""The text of a sample, told while it is written: what later tokens may change is held back."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from metagen.border import call
from metagen.generators.continuation import BROKEN, CONTEXT, Continuation

#: Tokens of a sample between two times that its text is told.
EVERY = 4


class Telling:
    """What one sample has told of its text.

    Only the newest tokens are decoded, so that a long text costs no more for each token than a short one.
    """

    def __init__(self, continuation: Continuation, tell: Callable[[str], None]) -> None:
        self._continuation, self._tell = continuation, tell
        #: The text of the first `at` tokens, which end with a whole character; tokens when it was told last.
        self._text, self._at, self._told = "", 0, 0

    def due(self, count: int) -> bool:
        """Whether a sample of so many tokens should tell: at its first token, then at every `EVERY`."""
        return count > 0 and (self._told == 0 or count - self._told >= EVERY)

    def hear(self, ids: list[int]) -> None:
        """Tell of the text of all new ids so far."""
        self._told = len(ids)
        text = self._read(ids)
        if text and not text.endswith(BROKEN):
            self._text, self._at = text, len(ids)
        self._tell(self._continuation.certain(text.rstrip(BROKEN)))

    def _read(self, ids: list[int]) -> str:
        """The text of ids, decoded behind some tokens that have been read, whose text is whole."""
        size = CONTEXT
        while size < self._at:
            known = self._continuation.decode(ids[self._at - size : self._at])
            text = self._continuation.decode(ids[self._at - size :])
            if known and BROKEN not in known and text.startswith(known):
                return self._text + text[len(known) :]
            size *= 2
        return self._continuation.text(ids, final=True)


class Ear:
    """Hears the texts of one request until it is closed, in whatever thread."""

    def __init__(self, tell: Callable[[int, str], None]) -> None:
        self._tell, self._lock, self._open = tell, Lock(), True

    def __call__(self, number: int, text: str) -> None:
        with self._lock:
            if self._open:
                call(self, self._tell, number, text)

    def close(self) -> None:
        """From its return on nothing is told."""
        with self._lock:
            self._open = False
