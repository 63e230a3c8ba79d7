"""The grammar of answers: a parser by recursive descent that builds data and evaluates nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from metagen.verifiers.math import quantities
from metagen.verifiers.math.tokens import Token, clean, tokens
from metagen.verifiers.math.tree import (
    HUNDRED,
    INFINITY,
    PI,
    Node,
    Unreadable,
    names,
    number,
    substitute,
    symbols,
    walk,
    whole,
)

MAX_CHARACTERS: Final = 1_000
MAX_ENTRIES: Final = 400
#: Sums of so many terms are written out.
_WRITTEN_OUT: Final = 20
_RELATIONS: Final = names("= < > ≤ ≥ ≠ ≈ ∈")
_SETS: Final = {"∪": "union", "∩": "meet", "∖": "without"}
_SEPARATORS: Final = {",": ",", ";": ",", "and": "and", "or": "or"}
_MATRICES: Final = names("matrix pmatrix bmatrix Bmatrix smallmatrix array")
MAX_DEPTH: Final = 40
END: Final = Token("o", "")
#: Units of one letter, behind the stroke of another unit: km/h.
_UNIT_LETTERS: Final = names("h s m g l L")
#: The closing brackets of each bracket.
ENDS: Final = {"(": ")]", "[": ")]", "⦃": "⦄", "{": "}", "⟨": "⟩"}
_ACCENTS: Final = names(
    "overline vec hat bar tilde underline overrightarrow widehat mathcal mathbb boldsymbol"
)
#: With parentheses right behind them, these are functions of which nothing else is known.
_OPAQUE: Final = frozenset("fgh")
_INVERSE: Final = ["^", "{", "-", "1", "}", "("]


def parse(answer: str, *, percent: bool = True) -> Node:
    """The tree of an answer; Unreadable if it is none, or is too long or too deep.

    percent: `%` divides by a hundred; without, it is dropped like a unit.
    """
    if len(answer) > MAX_CHARACTERS:
        raise Unreadable(f"{len(answer)} characters; at most {MAX_CHARACTERS}")
    return Parser(tokens(clean(answer)), percent).whole()


class Parser:
    """A place in a list of tokens, and methods named after what they read there.

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

    # -- lists, statements, sets and brackets ---------------------------------------------------------

    def whole(self) -> Node:
        if not self.tokens:
            raise Unreadable("empty")
        result = self.listing()
        if self.at < len(self.tokens):
            raise Unreadable(f"left over: {self.next.text!r}")
        return result

    def listing(self) -> Node:
        """Elements between commas, semicolons, `and` and `or`; a lone element is itself."""
        self.deeper()
        items, joins = [self.statement()], set()
        while self.sees(*_SEPARATORS):
            while self.sees(*_SEPARATORS):
                joins.add(_SEPARATORS[self.take().text])
            items.append(self.statement())
        self.depth -= 1
        if len(items) == 1:
            return items[0]
        if len(items) > MAX_ENTRIES:
            raise Unreadable(f"{len(items)} elements; at most {MAX_ENTRIES}")
        return Node("list", tuple(items), "or" if "or" in joins else "and" if "and" in joins else ",")

    def statement(self) -> Node:
        sides, signs = [self.sets()], []
        while self.sees(*_RELATIONS):
            signs.append(self.take().text)
            sides.append(self.sets())
        return sides[0] if not signs else Node("relation", tuple(sides), " ".join(signs))

    def sets(self) -> Node:
        result = self.ratio()
        while self.sees(*_SETS):
            operation = _SETS[self.take().text]
            result = Node(operation, (_to_set(result), _to_set(self.ratio())))
        return result

    def ratio(self) -> Node:
        terms = [self.sum()]
        while self.accept(":"):
            terms.append(self.sum())
        return terms[0] if len(terms) == 1 else Node("ratio", tuple(terms))

    def group(self, opening: str) -> Node:
        match opening:
            case "(" | "[" | "⦃" | "{" | "⟨":
                return self.brackets(opening)
            case "|":
                self.bars += 1
                inner = self.sum()
                self.bars -= 1
                self.expect("|")
                return Node("call", (inner,), "abs")
            case "⌊" | "⌈":
                inner = self.one("⌋" if opening == "⌊" else "⌉")
                return Node("call", (inner,), "floor" if opening == "⌊" else "ceil")
            case "π":
                return PI
            case "∞":
                return INFINITY
            case "∅":
                return Node("empty")
            case "ℝ":
                return Node("reals")
        raise Unreadable(f"unexpected {opening or 'end'!r}")

    def brackets(self, opening: str) -> Node:
        if opening in "⦃{" and self.accept(ENDS[opening]):
            return Node("empty")
        builder = opening == "⦃" and self.builder()
        bars, self.bars = self.bars, 0
        angle, self.angle = self.angle, self.angle and opening != "⦃"
        inner = self.listing()
        self.bars, self.angle = bars, angle
        closing = self.take().text
        if closing not in ENDS[opening] or not closing:
            raise Unreadable(f"{opening!r} closed by {closing!r}")
        items = inner.args if inner.op == "list" else (inner,)
        if builder:
            return inner
        if opening in "⦃{":
            return Node("set", items) if opening == "⦃" or inner.op == "list" else inner
        if len(items) == 1:
            if opening + closing in ("(]", "[)"):
                raise Unreadable("an interval with one end")
            return inner
        if (
            opening + closing in ("[]", "(]", "[)")
            and len(items) == 2
            and items[0].op not in ("tuple", "interval")
        ):
            return Node("interval", items, opening + closing)
        if opening == "[" and all(i.op in ("tuple", "interval") for i in items):
            return Node("matrix", tuple(Node("row", i.args) for i in items))
        return Node("tuple", items)

    def builder(self) -> bool:
        """Whether a set is given by a condition, as {x | x > 2} or {x ∈ ℝ : x > 2}; if so, skip to the condition."""
        ahead = [t.text for t in self.tokens[self.at : self.at + 4]]
        bar = 3 if ahead[1:3] == ["∈", "ℝ"] else 1
        if self.next.kind != "s" or ahead[bar : bar + 1] not in (["|"], [":"]):
            return False
        self.at += bar + 1
        return True

    def matrix(self) -> Node:
        name = self.subscript()
        if name not in _MATRICES and name != "cases":
            raise Unreadable(f"unknown environment {name!r}")
        if name == "array" and self.next.text == "{":
            self.subscript()
        rows: list[Node] = []
        row: list[Node] = []
        while True:
            row.append(self.statement())
            if self.accept("&"):
                continue
            rows.append(Node("row", tuple(row)))
            row = []
            ended = not self.accept("\\\\") or self.next == Token("c", "end", self.next.spaced)
            if ended:
                break
        if self.take()[:2] != ("c", "end") or self.subscript() != name:
            raise Unreadable(f"{name!r} does not end")
        if name == "cases" and all(len(r.args) == 1 for r in rows):
            return rows[0].args[0] if len(rows) == 1 else Node("list", tuple(r.args[0] for r in rows), ",")
        if (
            name == "cases"
            or len({len(r.args) for r in rows}) != 1
            or sum(len(r.args) for r in rows) > MAX_ENTRIES
        ):
            raise Unreadable("rows of different lengths, or too many entries")
        return Node("matrix", tuple(rows))

    # -- sums, products and powers ----------------------------------------------------------------------

    def sum(self) -> Node:
        terms = [self.term()]
        while self.sees("+", "-", "±", "∓"):
            sign = self.take().text
            term = self.term()
            terms.append(
                term if sign == "+" else Node("neg", (term,)) if sign == "-" else _choice(sign, term)
            )
        if len(terms) == 2 and terms[1].op == "neg" and terms[1].args[0].op == "set":
            return Node("without", (terms[0], terms[1].args[0]))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def term(self) -> Node:
        sign = 1
        while self.sees("+", "-"):
            sign = -sign if self.take().text == "-" else sign
        result = _choice(self.take().text, self.term()) if self.sees("±", "∓") else self.product()
        return result if sign > 0 else Node("neg", (result,))

    def product(self, *, argument: bool = False) -> Node:
        """Factors, by signs or side by side; of an argument without parentheses, side by side only."""
        factors = [self.power()]
        while True:
            if not argument and self.accept("%"):
                # Of the whole quantity before it: 1/2% is a half of a hundredth.
                whole = _product(factors)
                factors = [Node("div", (whole, HUNDRED)) if self.percent else whole]
            elif not argument and self.sees("*", "/"):
                divides = self.take().text == "/"
                factor = self.signed_power()
                if divides:
                    factors = [Node("div", (_product(factors), factor))]
                else:
                    factors.append(factor)
            elif not argument and self.accept("mod"):
                factors = [Node("call", (_product(factors), self.power()), "mod")]
            elif self.begins(argument):
                factors.append(self.beside(factors))
            else:
                return _product(factors)

    def begins(self, argument: bool) -> bool:
        """Whether the next token begins a factor that stands beside the last one."""
        kind, text, _ = self.next
        before = self.before.kind
        if before == "w" and (kind == "w" or text == "("):
            raise Unreadable("words")
        if kind == "n" and before in ("s", "w"):
            raise Unreadable(f"a number after a letter or a word: {text!r}")
        if kind == "f" and text in ("min", "sec") and before == "n" and self.after.kind in ("o", "w"):
            if self.after.text in ("(", "{", "_", "^", "|"):
                return not argument
            self.tokens[self.at] = Token("w", text)  # minutes and seconds
            return self.begins(argument)
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
                return self.mixed_number(factors, number(int(over)), self.power())
            if before.kind == "n" or before.text in ("}", "%"):
                raise Unreadable(f"two numbers side by side: {before.text!r} {self.next.text!r}")
        elif self.next == ("c", "frac", self.next.spaced) and before.kind == "n" and _whole(factors[-1]):
            fraction = self.power()
            if fraction.op == "div" and all(_whole(a) for a in fraction.args):
                return self.mixed_number(factors, *fraction.args)
            return fraction
        return self.power()

    def mixed_number(self, factors: list[Node], over: Node, under: Node) -> Node:
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
        """The factor that words stand for, as in `3 million dollars` and `3°F`; the words behind them are left."""
        word, _, rest = self.next.text.partition(" ")
        if self.next.kind != "w" or (factor := quantities.scale(word)) is None:
            return None
        if rest:
            self.tokens[self.at] = Token("w", rest.strip(), True)
        else:
            # The next token stands beside a number, not beside a word.
            self.tokens[self.at] = Token("", word)
            self.take()
        return Node("symbol", (), factor) if isinstance(factor, str) else number(factor)

    def power(self) -> Node:
        result = self.postfix(self.primary())
        if self.accept("^"):
            self.deeper()
            result = Node("pow", (result, self.signed_power()))
            self.depth -= 1
            result = self.postfix(result)
        return result

    def signed_power(self) -> Node:
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
                if self.next.kind in ("s", "w") and self.next.text.upper() in ("N", "S", "E", "W"):
                    raise Unreadable("a bearing")
                result = Node("mul", (result, Node("div", (PI, number(180))))) if self.angle else result
            else:
                return result
        raise Unreadable("too many signs in a row")

    # -- numerals, names, functions and commands --------------------------------------------------------

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
            value = quantities.repeating(text)
        elif "e" in text or "E" in text:
            value = quantities.scientific(text)
        else:
            value = quantities.decimal(text)
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
        if follows and (name[0] in _OPAQUE or "'" in name or self._heads()):
            self.take()
            return Node("call", self.until(")"), f"given {name}")
        return Node("symbol", (), name)

    def _heads(self) -> bool:
        """Whether the name that was taken is that of a function which the whole answer defines: `P(x) = x + 1`."""
        behind = [token.text for token in self.tokens[1:5]]
        return (
            self.at == 1 and behind[::2] == ["(", ")"] and behind[3:] == ["="] and self.tokens[2].kind == "s"
        )

    def until(self, end: str) -> tuple[Node, ...]:
        """The elements within a bracket."""
        inner = self.inside(end)
        return inner.args if inner.op == "list" else (inner,)

    def inside(self, end: str) -> Node:
        bars, self.bars = self.bars, 0
        inner = self.listing()
        self.bars = bars
        self.expect(end)
        return inner

    def one(self, end: str) -> Node:
        """The one element within a bracket; Unreadable for several."""
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
        r"""The argument of a command: a group, or a single digit or symbol, as in `\frac12`."""
        token = self.next
        if self.accept("{"):
            return self.inside("}")
        if token.kind == "n" and len(token.text) > 1 and token.text[0] != ".":
            if not token.text.replace(".", "", 1).isdigit():
                raise Unreadable(f"a numeral for a digit: {token.text!r}")
            self.tokens[self.at] = Token("n", token.text[1:])
            return number(int(token.text[0]))
        if self.accept("-"):
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
                if self.accept("("):
                    return Node("root", (degree, self.one(")")))
                # As others do, but of all digits: nobody means √1 · 9 by \sqrt19.
                return Node("root", (degree, self.primary() if self.next.kind == "n" else self.argument()))
            case "binom" | "dbinom" | "tbinom":
                upper = self.argument()
                return Node("call", (upper, self.argument()), "binomial")
            case "begin":
                return self.matrix()
            case "sum" | "prod":
                return self.series("sum" if name == "sum" else "product")
            case "int":
                return self.integral()
            case "lim":
                return self.limit()
            case _ if name in _ACCENTS:
                return Node("symbol", (), f"{name} {self.subscript()}")
        raise Unreadable(f"unknown command {name!r}")

    def series(self, op: str) -> Node:
        """A sum or product over a variable, of the term to its right, up to a + or −."""
        self.expect("_")
        self.expect("{")
        name = self.variable()
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high = self.argument()
        body = self.bind(name, self.product())
        first, last = whole(low), whole(high)
        if symbols(body) and first is not None and last is not None and 0 <= last - first < _WRITTEN_OUT:
            span = range(first, last + 1)
            terms = tuple(substitute(body, self.binder(), number(k)) for k in span)
            return Node("add" if op == "sum" else "mul", terms)
        return Node(op, (body, low, high), self.binder())

    def integral(self) -> Node:
        """An integral to the `dx` that ends it."""
        ends = []
        for sign in "_^":
            if self.accept(sign):
                ends.append(self.argument())
        pairs = enumerate(pairwise(self.tokens[self.at :]), self.at)
        last = next((k for k, (d, x) in pairs if d.text == "d" and x.kind == "s"), None)
        if last is None or len(ends) == 1:
            raise Unreadable("an integral that does not end")
        name = self.tokens[last + 1].text
        self.tokens[last : last + 2] = [Token("o", "dx")]
        body = self.bind(name, self.sum() if not self.sees("dx") else number(1))
        self.expect("dx")
        return Node("integral", (body, *ends), self.binder())

    def limit(self) -> Node:
        self.expect("_")
        self.expect("{")
        name = self.variable()
        self.expect("→")
        where = self.sum()
        self.expect("}")
        return Node("limit", (self.bind(name, self.product()), where), self.binder())

    def variable(self) -> str:
        token = self.take()
        if token.kind != "s":
            raise Unreadable(f"no variable: {token.text!r}")
        return token.text

    def binder(self) -> str:
        """One name for the variable, however it is called."""
        return f"bound {self.depth}"

    def bind(self, name: str, body: Node) -> Node:
        if any(n.op == "symbol" and name in str(n.value).partition("_")[2] for n in walk(body)):
            # A sequence of which nothing is known: it depends on the variable by its name.
            body = Node("call", (body, Node("symbol", (), name)), "given sequence")
        return substitute(body, name, Node("symbol", (), self.binder()))


def _product(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))


def _choice(sign: str, term: Node) -> Node:
    pair = (term, Node("neg", (term,)))
    return Node("choice", pair if sign == "±" else pair[::-1])


def _to_set(node: Node) -> Node:
    """An operand of sets: with braces that LaTeX does not print, `{0}` looks like a number."""
    return Node("set", (node,)) if node.op in ("number", "neg", "div", "root", "mul", "constant") else node


def _whole(node: Node) -> bool:
    return node.op == "number" and whole(node) is not None
