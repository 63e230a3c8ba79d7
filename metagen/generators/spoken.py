"""The text of an answer, told as it is written."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from metagen.events import Event, Listener
from metagen.sequence import Sequence, Thought


class Spoken:
    """What one call has told of its text so far. Texts of an attempt that is made again must begin alike.

    prefix: what the call goes on from; its text is part of the answer, and told first.
    """

    def __init__(self, listener: Listener, path: str, prefix: Sequence) -> None:
        self._listener, self._path, self._before = listener, path, prefix.text
        self._loop = asyncio.get_running_loop()
        self._said = ""

    def hear(self, number: int, text: str) -> None:
        """In the engine's thread: the text so far, behind the prefix."""
        with suppress(RuntimeError):  # that loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._say, self._before + text)

    def end(self, sequence: Sequence) -> None:
        """The rest, once the call has its result."""
        if sequence.thought is not None:
            self._think(sequence.thought)
        self._say(sequence.text)

    def _think(self, thought: Thought) -> None:
        if thought.text:
            self._listener(Event("thought", self._path, text=thought.text))

    def _say(self, text: str) -> None:
        if len(text) > len(self._said) and text.startswith(self._said):
            self._listener(Event("text", self._path, text=text[len(self._said) :]))
            self._said = text
