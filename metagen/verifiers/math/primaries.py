"""Numerals, names, functions and commands."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from metagen.verifiers.math import literals
from metagen.verifiers.math.sums import Sums
from metagen.verifiers.math.tokens import Token
from metagen.verifiers.math.tree import Node, Unreadable, names, number

#: What each bracket may be closed by.
ENDS: Final = {"(": ")]", "[": ")]", "⦃": "⦄", "{": "}", "⟨": "⟩"}
_ACCENTS: Final = names(
    "overline vec hat bar tilde underline overrightarrow widehat mathcal mathbb boldsymbol"
)
#: With parentheses right behind them, these are functions of which nothing else is known.
_OPAQUE: Final = frozenset("fgh")
_INVERSE: Final = ["^", "{", "-", "1", "}", "("]


class Primaries(Sums):
    """The smallest pieces that stand for something."""

    @abstractmethod
    def listing(self) -> Node:
        """Elements between separators."""

    @abstractmethod
    def group(self, opening: str) -> Node:
        """What begins with an operator: brackets, bars, constants."""

    @abstractmethod
    def matrix(self) -> Node:
        r"""What stands after `\begin`."""

    def primary(self) -> Node:
        self.deeper()
        token = self.take()
        match token.kind:
            case "n":
                result = self.numeral(token.text)
            case "s":
                result = self.symbol(token.text)
            case "f":
                result = self.function(token.text)
            case "c":
                result = self.command(token.text)
            case "w":
                result = Node("symbol", (), f"text {token.text.lower()}")
            case _:
                result = self.group(token.text)
        self.depth -= 1
        return result

    def numeral(self, text: str) -> Node:
        if "overline" in text:
            value = literals.repeating(text)
        elif "e" in text or "E" in text:
            value = literals.scientific(text)
        else:
            value = literals.decimal(text)
        if self.accept("_"):
            # The base of a numeral is part of the question, as units are.
            self.subscript()
        return Node("number", (), value)

    def symbol(self, name: str) -> Node:
        if self.accept("_"):
            name += f"_{self.subscript()}"
        while self.accept("'"):
            name += "'"
        if name in ("e", "i"):
            return Node("constant", (), name)
        if name in _OPAQUE and [t.text for t in self.tokens[self.at : self.at + 6]] == _INVERSE:
            self.at += len(_INVERSE) - 1
            name += "^-1"
        follows = self.sees("(") and not self.next.spaced
        if follows and (name[0] in _OPAQUE or "'" in name):
            self.take()
            return Node("call", self.until(")"), f"given {name}")
        return Node("symbol", (), name)

    def until(self, end: str) -> tuple[Node, ...]:
        """What a bracket encloses, as a list."""
        bars, self.bars = self.bars, 0
        inner = self.listing()
        self.bars = bars
        self.expect(end)
        return inner.args if inner.op == "list" else (inner,)

    def one(self, end: str) -> Node:
        """What a bracket encloses, if it is no list."""
        inner = self.until(end)
        if len(inner) != 1:
            raise Unreadable(f"{len(inner)} elements in place of one")
        return inner[0]

    def function(self, name: str) -> Node:
        base, power = None, None
        for _ in range(2):
            if self.accept("_"):
                base = self.argument()
            elif self.accept("^"):
                power = self.argument()
        angle, self.angle = self.angle, name in ("sin", "cos", "tan", "cot", "sec", "csc")
        if self.sees("(", "{"):
            arguments = self.until(ENDS[self.take().text][0])
        else:
            negative = self.accept("-")
            argument = self.product(argument=True)
            arguments = (Node("neg", (argument,)) if negative else argument,)
        self.angle = angle
        if base is not None:
            arguments = (*arguments, base)
        inverse = power is not None and power == Node("neg", (number(1),))
        if inverse and name in ("sin", "cos", "tan"):
            return Node("call", arguments, f"arc{name}")
        result = Node("call", arguments, name)
        return result if power is None else Node("pow", (result, power))

    def argument(self) -> Node:
        r"""What a command takes: a group, or a single digit or symbol, as in `\frac12`."""
        token = self.next
        if token.kind == "o" and token.text == "{":
            self.take()
            bars, self.bars = self.bars, 0
            inner = self.listing()
            self.bars = bars
            self.expect("}")
            return inner
        if token.kind == "n" and len(token.text) > 1 and token.text[0] != ".":
            if not token.text.replace(".", "", 1).isdigit():
                raise Unreadable(f"a numeral for a digit: {token.text!r}")
            self.tokens[self.at] = Token("n", token.text[1:])
            return number(int(token.text[0]))
        if token.kind == "o" and token.text == "-":
            self.take()
            return Node("neg", (self.argument(),))
        return self.primary()

    def command(self, name: str) -> Node:
        match name:
            case "frac":
                over = self.argument()
                return Node("div", (over, self.argument()))
            case "sqrt":
                degree = number(2)
                if self.accept("["):
                    degree = self.one("]")
                if self.sees("("):
                    self.take()
                    radicand = self.one(")")
                    return Node("root", (degree, radicand))
                plain = self.next.kind == "n"
                radicand = self.primary() if plain and self.next.spaced else self.root_argument()
                return Node("root", (degree, radicand))
            case "binom" | "dbinom" | "tbinom":
                upper = self.argument()
                return Node("call", (upper, self.argument()), "binomial")
            case "begin":
                return self.matrix()
            case _ if name in _ACCENTS:
                return Node("symbol", (), f"{name} {self.subscript()}")
        raise Unreadable(f"unknown command {name!r}")

    def root_argument(self) -> Node:
        r"""As `argument`, but `\sqrt19` is the root of 19: nobody means √1 · 9."""
        return self.primary() if self.next.kind == "n" else self.argument()
