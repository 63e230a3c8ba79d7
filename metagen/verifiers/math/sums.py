"""Sums, products and powers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Final

from metagen.verifiers.math import quantities
from metagen.verifiers.math.cursor import Cursor
from metagen.verifiers.math.tokens import Token
from metagen.verifiers.math.tree import HUNDRED, PI, Node, Unreadable, names, number

#: Units of one letter, behind the stroke of another unit: km/h.
_UNIT_LETTERS: Final = names("h s m g l L")


class Sums(Cursor, ABC):
    """Operators by precedence, from + down to the signs behind a factor."""

    @abstractmethod
    def primary(self) -> Node:
        """A number, a name, a function with its arguments, or what brackets enclose."""

    @abstractmethod
    def argument(self) -> Node:
        """What a command takes."""

    def sum(self) -> Node:
        terms = [self.term()]
        while self.sees("+", "-", "±", "∓"):
            sign = self.take().text
            term = self.term()
            if sign in "±∓":
                pair = (term, Node("neg", (term,)))
                term = Node("choice", pair if sign == "±" else pair[::-1])
            terms.append(Node("neg", (term,)) if sign == "-" else term)
        if len(terms) == 2 and terms[1].op == "neg" and terms[1].args[0].op == "set":
            return Node("without", (terms[0], terms[1].args[0]))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def term(self) -> Node:
        sign = 1
        while self.sees("+", "-"):
            sign = -sign if self.take().text == "-" else sign
        if self.sees("±", "∓"):
            plus = self.take().text == "±"
            term = self.term()
            pair = (term, Node("neg", (term,)))
            result = Node("choice", pair if plus else pair[::-1])
        else:
            result = self.product()
        return result if sign > 0 else Node("neg", (result,))

    def product(self, *, argument: bool = False) -> Node:
        """Factors, by signs or side by side; of an argument without parentheses, side by side only."""
        factors = [self.power()]
        while True:
            if not argument and self.accept("%"):
                # Of the whole quantity before it: 1/2% is a half of a hundredth.
                whole = factors[0] if len(factors) == 1 else Node("mul", tuple(factors))
                factors = [Node("div", (whole, HUNDRED)) if self.percent else whole]
            elif not argument and self.sees("*", "/"):
                divides = self.take().text == "/"
                negative = False
                while self.sees("+", "-"):
                    negative ^= self.take().text == "-"
                factor = self.power()
                factor = Node("neg", (factor,)) if negative else factor
                if divides:
                    left = factors[0] if len(factors) == 1 else Node("mul", tuple(factors))
                    factors = [Node("div", (left, factor))]
                else:
                    factors.append(factor)
            elif self.begins(argument):
                factors.append(self.beside(factors))
            else:
                return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))

    def begins(self, argument: bool) -> bool:
        """Whether the next token begins a factor that stands beside the last one."""
        kind, text, _ = self.next
        before = self.before.kind
        if before == "w" and (kind == "w" or text == "("):
            raise Unreadable("words")
        if kind == "n" and before in ("s", "w"):
            raise Unreadable(f"a number after a letter or a word: {text!r}")
        if kind == "w":
            if quantities.scale(text.split(" ")[0]):
                return True
            self.unit()
            return self.begins(argument)
        if kind == "o":
            return text in ("(", "[", "⦃", "{", "π", "∞", "⌊", "⌈", "⟨") or (text == "|" and not self.bars)
        return kind in ("s", "n") or (kind == "c" and text != "end") or (kind == "f" and not argument)

    def beside(self, factors: list[Node]) -> Node:
        """A factor after another without a sign; a fraction after an integer makes a mixed number."""
        before = self.before
        if (factor := self.scale()) is not None:
            return factor
        if self.next.kind == "n":
            follows = self.tokens[self.at + 1 : self.at + 3]
            mixed = (
                before.kind == "n" and len(follows) == 2 and follows[0].text == "/" and follows[1].kind == "n"
            )
            if mixed and _whole(factors[-1]) and "." not in self.next.text + follows[1].text:
                over = self.take().text
                self.take()
                return self.mixed(factors, number(int(over)), self.power())
            if before.kind == "n" or before.text in ("}", "%"):
                raise Unreadable(f"two numbers side by side: {before.text!r} {self.next.text!r}")
        elif self.next == ("c", "frac", self.next.spaced) and before.kind == "n" and _whole(factors[-1]):
            fraction = self.power()
            if fraction.op == "div" and all(_whole(a) for a in fraction.args):
                return self.mixed(factors, *fraction.args)
            return fraction
        return self.power()

    def mixed(self, factors: list[Node], over: Node, under: Node) -> Node:
        return Node("add", (factors.pop(), Node("div", (over, under))))

    def unit(self) -> None:
        """Words after a quantity, with their exponents and quotients: dropped, unless they say more."""
        begin = self.at
        if self.before.text == "%" and self.next.text.startswith("point"):
            raise Unreadable("percentage points")
        while True:
            self.take()
            if self.accept("^"):
                self.argument()
            if self.sees("/", "*") and (self.after.kind == "w" or self.after.text in _UNIT_LETTERS):
                self.take()
            elif self.next.kind != "w":
                break
        if self.next.kind in ("n", "s", "f"):
            raise Unreadable(f"a quantity after a unit: {self.next.text!r}")
        words = [t.text for t in self.tokens[begin : self.at] if t.kind == "w"]
        self.units.add(quantities.unit(" ".join(words)))
        if len(self.units) > 1:
            raise Unreadable("several units")

    def scale(self) -> Node | None:
        """The factor that words stand for, as in `3 million dollars`; what follows them is left."""
        word, _, rest = self.next.text.partition(" ")
        if self.next.kind != "w" or (factor := quantities.scale(word)) is None:
            return None
        if rest:
            self.tokens[self.at] = Token("w", rest.strip(), True)
        else:
            # What follows stands beside a number, not beside a word.
            self.tokens[self.at] = Token("", word)
            self.take()
        return number(factor)

    def power(self) -> Node:
        result = self.postfix(self.primary())
        if self.accept("^"):
            self.deeper()
            result = Node("pow", (result, self.exponent()))
            self.depth -= 1
            result = self.postfix(result)
        return result

    def exponent(self) -> Node:
        negative = False
        while self.sees("+", "-"):
            negative ^= self.take().text == "-"
        result = self.power()
        return Node("neg", (result,)) if negative else result

    def postfix(self, result: Node) -> Node:
        for _ in range(8):
            if self.accept("!"):
                if self.sees("!"):
                    raise Unreadable("a double factorial")  # 3!! is 3 for some, and 720 for others
                result = Node("call", (result,), "factorial")
            elif self.accept("°"):
                if self.next.kind == "s" and self.next.text in ("C", "F"):
                    self.take()
                elif self.next.kind in ("s", "w") and self.next.text.upper() in ("N", "S", "E", "W"):
                    raise Unreadable("a bearing")
                result = Node("mul", (result, Node("div", (PI, number(180))))) if self.angle else result
            else:
                return result
        raise Unreadable("too many signs in a row")


def _whole(node: Node) -> bool:
    return node.op == "number" and isinstance(node.value, Fraction) and node.value.denominator == 1
