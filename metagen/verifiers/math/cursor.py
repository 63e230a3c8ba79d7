"""A place in a list of tokens, and the steps on from it."""

from __future__ import annotations

from typing import Final

from metagen.verifiers.math.tokens import Token
from metagen.verifiers.math.tree import Unreadable

MAX_DEPTH: Final = 40
END: Final = Token("o", "")


class Cursor:
    """What all parts of the parser share: the tokens, how deep they nest, and what encloses the place.

    percent: `%` divides. angle: inside the argument of a trigonometric function, where degrees count. bars: open
    absolute values.
    """

    def __init__(self, given: list[Token], percent: bool) -> None:
        self.tokens, self.at, self.depth = given, 0, 0
        self.percent, self.angle, self.bars = percent, False, 0
        self.units: set[str] = set()

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    @property
    def after(self) -> Token:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else END

    @property
    def before(self) -> Token:
        return self.tokens[self.at - 1]

    def sees(self, *texts: str) -> bool:
        """Whether one of these operators comes next."""
        return self.next.kind == "o" and self.next.text in texts

    def take(self) -> Token:
        if self.at == len(self.tokens):
            raise Unreadable("unexpected end")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, text: str) -> bool:
        if self.next.kind == "o" and self.next.text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise Unreadable(f"expected {text!r}, found {self.next.text!r}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"deeper than {MAX_DEPTH}")

    def subscript(self) -> str:
        if not self.accept("{"):
            return self.take().text
        parts = []
        while not self.accept("}"):
            parts.append(self.take().text)
        return "".join(parts)
