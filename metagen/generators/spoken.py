"""The text of an answer, told as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from metagen.events import Event, Listener
from metagen.sequence import Sequence, Thought

#: The thought and the answer in a text so far; None while that is uncertain.
Part = Callable[[str], tuple[Thought | None, str] | None]


def undivided(text: str) -> tuple[Thought | None, str]:
    """All of a text is answer."""
    return None, text


class Spoken:
    """What one call has told of its text so far. Texts of an attempt that is made again must begin alike.

    prefix: what the call goes on from; its text is part of the answer, and told first. part: tells thought and answer
    apart in a text that holds both.
    """

    def __init__(self, listener: Listener, path: str, prefix: Sequence, part: Part = undivided) -> None:
        self._listener, self._path, self._before, self._part = listener, path, prefix.text, part
        self._loop = asyncio.get_running_loop()
        self._said, self._thought, self._over = "", False, False

    def hear(self, number: int, text: str) -> None:
        """In the engine's thread: the text so far, behind the prefix."""
        with suppress(RuntimeError):  # that loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._follow, text)

    def end(self, sequence: Sequence) -> None:
        """The rest, once the call has its result."""
        self._say(sequence.thought, sequence.text)

    def stop(self) -> None:
        """Texts that are still on their way are told no more."""
        self._over = True

    def _follow(self, text: str) -> None:
        if not self._over and (parts := self._part(text)) is not None:
            thought, answer = parts
            self._say(thought, self._before + answer)

    def _say(self, thought: Thought | None, text: str) -> None:
        if thought is not None and thought.text and not self._thought:
            self._thought = True
            self._listener(Event("thought", self._path, text=thought.text))
        if len(text) > len(self._said) and text.startswith(self._said):
            self._listener(Event("text", self._path, text=text[len(self._said) :]))
            self._said = text
