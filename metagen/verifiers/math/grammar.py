"""The grammar of answers: a parser by recursive descent that builds data and evaluates nothing."""

from __future__ import annotations

from typing import Final

from metagen.verifiers.math.primaries import ENDS, Primaries
from metagen.verifiers.math.tokens import Token, clean, tokens
from metagen.verifiers.math.tree import INFINITY, PI, Node, Unreadable, names

MAX_CHARACTERS: Final = 1_000
MAX_ENTRIES: Final = 400
_RELATIONS: Final = names("= < > ≤ ≥ ≠ ≈ ∈")
_SETS: Final = {"∪": "union", "∩": "meet", "∖": "without"}
_SEPARATORS: Final = {",": ",", ";": ",", "and": "and", "or": "or"}
_MATRICES: Final = names("matrix pmatrix bmatrix Bmatrix smallmatrix array")


def parse(answer: str, *, percent: bool = True) -> Node:
    """The tree of an answer; Unreadable if it is none, or is too long or too deep.

    percent: `%` divides by a hundred; without, it is dropped like a unit.
    """
    if len(answer) > MAX_CHARACTERS:
        raise Unreadable(f"{len(answer)} characters; at most {MAX_CHARACTERS}")
    return Parser(tokens(clean(answer)), percent).whole()


def _set(node: Node) -> Node:
    """An operand of sets: with braces that LaTeX does not print, `{0}` looks like a number."""
    return Node("set", (node,)) if node.op in ("number", "neg", "div", "root", "mul", "constant") else node


class Parser(Primaries):
    """Lists, statements, sets and brackets: the grammar from its top."""

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
            result = Node(operation, (_set(result), _set(self.ratio())))
        return result

    def ratio(self) -> Node:
        terms = [self.sum()]
        while self.accept(":"):
            terms.append(self.sum())
        return terms[0] if len(terms) == 1 else Node("ratio", tuple(terms))

    def group(self, opening: str) -> Node:
        match opening:
            case "(" | "[" | "⦃" | "{" | "⟨":
                return self.enclosed(opening)
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

    def enclosed(self, opening: str) -> Node:
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
        """Whether a set is given by a condition, as {x | x > 2} or {x ∈ ℝ : x > 2}; what stands before it is read."""
        ahead = [t.text for t in self.tokens[self.at : self.at + 4]]
        size = (
            2
            if ahead[1:2] in (["|"], [":"])
            else 4
            if ahead[1:3] == ["∈", "ℝ"] and ahead[3:] in (["|"], [":"])
            else 0
        )
        if not size or self.next.kind != "s":
            return False
        self.at += size
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
