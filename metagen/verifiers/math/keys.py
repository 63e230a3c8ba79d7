"""The canonical key of an answer: a function of the answer alone, so equality of keys is an equivalence relation."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import Final, Literal, NamedTuple

from metagen.verifiers.math import reals
from metagen.verifiers.math.arithmetic import WORK, Beyond, TooLarge, Undefined, Work
from metagen.verifiers.math.grammar import MAX_CHARACTERS, parse
from metagen.verifiers.math.reals import MIRROR, Regions, collection, meet
from metagen.verifiers.math.scalars import SCALARS, Scalars, digest
from metagen.verifiers.math.tree import Node, Unreadable, choose, minus, names, structure, symbols, walk
from metagen.verifiers.math.words import prose, words

#: Of these, and of variables, the left side of `A = 5` may be made: it only names what is 5.
_NAMES: Final = names("symbol call mul div tuple ratio")
_LONGEST: Final = 400


class Keys:
    """Keys of trees. `key` raises Beyond where the arithmetic given is too narrow, Unreadable where there is none.

    The key of a value beyond the limits of arithmetic is its form: equal forms have equal keys, equal values in
    different forms have not.
    """

    def __init__(self, work: Work) -> None:
        self.scalars = Scalars(work)
        self.regions = Regions(self.scalars)

    def key(self, node: Node) -> str:
        try:
            result = self._any(node)
            if self.scalars.work.left < 0:
                raise TooLarge("work")
        except TooLarge:
            result = f"form {digest(structure(node))}"
        except Undefined as error:
            raise Unreadable(str(error)) from error
        return result if len(result) <= _LONGEST else f"long {digest(result)}"

    def _any(self, node: Node) -> str:
        if node.op == "list":
            return self._list(node)
        if any(n.op == "choice" for n in walk(node)):
            return collection(self._flat([choose(node, 0), choose(node, 1)]))
        match node.op:
            case "set":
                return self._list(node)
            case "tuple":
                return f"({', '.join(map(self._any, node.args))})"
            case "matrix" | "row":
                return f"[{', '.join(map(self._any, node.args))}]"
            case "relation":
                return self._relation(node)
            case "ratio" if len(node.args) > 2:
                return self._ratio(node)
            case "interval" | "union" | "meet" | "without" | "reals" | "empty":
                return self._region(node)
            case "mul" | "neg" | "div" | "add" if any(n.op == "matrix" for n in walk(node)):
                return self._any(_matrix(node))
        if node.op in SCALARS:
            return self.scalars.key(node)
        raise Unreadable(node.op)

    # -- collections ---------------------------------------------------------------------------------

    def _list(self, node: Node) -> str:
        """A finite set; a tuple in the order of the names, if each element has a name of its own."""
        items = list(node.args)
        named = [_assignment(item) for item in items]
        if all(n is not None for n in named):
            pairs = [n for n in named if n is not None]
            if (points := _points(pairs)) is not None:
                return collection(map(self._any, points))
            items = [value for _, value in pairs]
        elif named[0] is not None and not any(i.op == "relation" for i in items[1:]):
            items[0] = named[0][1]
        elif all(i.op == "relation" and not named[k] for k, i in enumerate(items)):
            return self._statements(items, str(node.value))
        return collection(self._flat(items))

    def _flat(self, items: list[Node]) -> list[str]:
        keys = []
        for item in items:
            if item.op == "list":
                keys += self._flat(list(item.args))
            elif any(n.op == "choice" for n in walk(item)):
                keys += self._flat([choose(item, 0), choose(item, 1)])
            else:
                keys.append(self._any(item))
        return keys

    def _statements(self, items: list[Node], join: str) -> str:
        """Conditions on one variable, joined: `or` unites; `and` and commas meet, or unite sets that do not meet."""
        try:
            sets = [self.regions.inequality(item) for item in items]
        except Unreadable:
            return collection(self._any(item) for item in items)
        common = sets[0]
        for other in sets[1:]:
            common = meet(common, other)
        return reals.key(common if common and join != "or" else tuple(p for s in sets for p in s))

    def _ratio(self, node: Node) -> str:
        first = node.args[0]
        terms = [self._any(Node("div", (a, first))) for a in node.args[1:]]
        return f"1 : {' : '.join(terms)}"

    def _region(self, node: Node) -> str:
        try:
            return reals.key(self.regions.of(node))
        except (Unreadable, TooLarge):
            pass
        if node.op == "interval":
            brackets = str(node.value)
            return f"{brackets[0]}{', '.join(map(self._any, node.args))}{brackets[1]}"
        return f"{node.op} {digest(' '.join(sorted(map(self._any, node.args))))}"

    # -- statements ----------------------------------------------------------------------------------

    def _relation(self, node: Node) -> str:
        sides, signs = list(node.args), str(node.value).split()
        if "∈" in signs:
            return self._any(sides[len(signs) - signs[::-1].index("∈")])
        if "≈" in signs:
            sides, signs = _before_approximation(sides, signs)
            if not signs:
                return self._any(sides[0])
        if set(signs) == {"="}:
            return self._any(sides[-1]) if len(sides) > 2 else self._equality(*sides)
        try:
            return reals.key(self.regions.inequality(node))
        except Unreadable:
            parts = sorted(
                self._comparison(a, s, b) for a, s, b in zip(sides, signs, sides[1:], strict=False)
            )
            return " & ".join(parts)

    def _equality(self, left: Node, right: Node) -> str:
        named = _assignment(Node("relation", (left, right), "="))
        if named is not None:
            return self._any(named[1])
        if left.op not in SCALARS or right.op not in SCALARS:
            return f"equation {digest(' '.join(sorted(map(self._any, (left, right)))))}"
        if not symbols(left) or not symbols(right):
            constant, other = (left, right) if not symbols(left) else (right, left)
            if not symbols(other):
                return self._any(right)
            if _is_name(other) or _is_sum(other):
                return self._any(constant)
        difference = minus(left, right)
        variables = sorted(symbols(difference))
        unknown = "y" if variables == ["x", "y"] else variables[0] if len(variables) == 1 else None
        if unknown is not None and (line := self.scalars.linear(difference, unknown)):
            # A line y = 2x + 3 is the function 2x + 3, in whatever form it is given.
            return self._any(Node("neg", (Node("div", (line[1], line[0])),)))
        return f"equation {self.scalars.proportional(difference, positive=False)}"

    def _comparison(self, left: Node, sign: str, right: Node) -> str:
        if left.op not in SCALARS or right.op not in SCALARS:
            raise Unreadable("a comparison of collections")
        if sign in (">", "≥"):
            left, sign, right = right, MIRROR[sign], left
        return f"0 {sign} {self.scalars.proportional(minus(right, left), positive=sign in '<≤')}"


def _assignment(node: Node) -> tuple[str, Node] | None:
    """(name, value) of `x = 5`, `f(x) = 2x` or `5 = x`; None for what is no such thing."""
    if node.op != "relation" or set(str(node.value).split()) != {"="} or len(node.args) != 2:
        return None
    for left, right in (node.args, node.args[::-1]):
        lone = left.op == "symbol" or (left.op == "call" and str(left.value).startswith("given "))
        tuples = left.op == "tuple" and right.op in ("tuple", "list", "set", "choice")
        if _is_name(left) and not _is_bare(right) and (lone or tuples or not symbols(right)):
            own = {str(left.value)} if left.op == "symbol" else set()
            if not own & symbols(right):
                return structure(left), right
    return None


def _is_name(node: Node) -> bool:
    return bool(symbols(node)) and all(
        n.op in _NAMES or (n.op == "number" and node.op == "call") for n in walk(node)
    )


def _is_sum(node: Node) -> bool:
    """A sum of names, such as a + b: asked for, it is a number. Sums of x, y and z are lines and planes."""
    return node.op == "add" and all(map(_is_name, node.args)) and not symbols(node) <= {"x", "y", "z"}


def _is_bare(node: Node) -> bool:
    """A name that says nothing of a value, as `f(x)` and `ab` do, and `ln x` does not."""
    return _is_name(node) and all(n.op != "call" or str(n.value).startswith("given ") for n in walk(node))


def _points(named: list[tuple[str, Node]]) -> list[Node] | None:
    """Tuples in the order of the names, of values of several unknowns: one, or more if all names come again.

    Several values of one unknown, be it x₁ and x₂, are no tuple.
    """
    bases = [name.split("_")[0] for name, _ in named]
    size = len(set(bases))
    groups = [range(i, i + size) for i in range(0, len(named), size)]
    if size < 2 or len(named) % size or any(len({bases[i] for i in group}) < size for group in groups):
        return None
    return [Node("tuple", tuple(named[i][1] for i in sorted(g, key=lambda i: bases[i]))) for g in groups]


def _before_approximation(sides: list[Node], signs: list[str]) -> tuple[list[Node], list[str]]:
    """`x = 1/3 ≈ 0.33` is 1/3, `x ≈ 11` is x = 11, and `x ≈ √4 = 2` is x = √4 = 2."""
    at = signs.index("≈")
    if at == 0 and symbols(sides[0]):
        end = signs.index("≈", 1) if "≈" in signs[1:] else len(signs)
        return sides[: end + 1], ["=", *signs[1:end]]
    return sides[: at + 1], signs[:at]


def _matrix(node: Node) -> Node:
    """Sums and products of matrices and numbers, multiplied out, as a matrix; a number stays one."""
    if not any(n.op == "matrix" for n in walk(node)) or node.op == "matrix":
        return node
    parts = list(map(_matrix, node.args))
    match node.op:
        case "neg" | "div":
            if node.op == "div" and parts[1].op == "matrix":
                raise Unreadable("a quotient by a matrix")
            return _each(parts[0], lambda a: node._replace(args=(a, *parts[1:])))
        case "add" if len({_shape(part) for part in parts}) == 1:
            rows = zip(*(p.args for p in parts), strict=True)
            sums = ([Node("add", c) for c in zip(*(r.args for r in row), strict=True)] for row in rows)
            return _matrix_of(sums)
        case "mul":
            return reduce(_product, parts)
    raise Unreadable(f"{node.op} of matrices")


def _each(matrix: Node, change: Callable[[Node], Node]) -> Node:
    return matrix._replace(args=tuple(row._replace(args=tuple(map(change, row.args))) for row in matrix.args))


def _product(left: Node, right: Node) -> Node:
    if left.op != "matrix" or right.op != "matrix":
        matrix, factor = (left, right) if left.op == "matrix" else (right, left)
        if matrix.op != "matrix":
            return Node("mul", (left, right))
        return _each(matrix, lambda a: Node("mul", (factor, a)))
    columns = list(zip(*(row.args for row in right.args), strict=True))
    if len(left.args[0].args) != len(right.args):
        raise Unreadable("matrices that do not fit")
    return _matrix_of(
        [Node("add", tuple(Node("mul", p) for p in zip(row.args, c, strict=True))) for c in columns]
        for row in left.args
    )


def _matrix_of(rows: Iterable[Iterable[Node]]) -> Node:
    return Node("matrix", tuple(Node("row", tuple(row)) for row in rows))


def _shape(node: Node) -> tuple[int, ...]:
    """The lengths of a matrix's rows; () of a number."""
    return tuple(len(row.args) for row in node.args) if node.op == "matrix" else ()


Percent = Literal["hundredths", "dropped"]


class Verdict(NamedTuple):
    """A key, or why there is none: `unparsable`."""

    key: str | None
    verdict: str | None = None


UNPARSABLE: Final = Verdict(None, "unparsable")
#: mpmath's contexts are not for two threads at once.
_LOCK: Final = threading.Lock()
_EQUALS: Final = re.compile(r"(?<![<>!:=\\])=(?!=)(?![^{]*\})")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,299})", re.ASCII)


def _last_side(answer: str) -> str | None:
    """The last side of a chain of equations; None for no chain, and where a brace is not closed."""
    *before, side = _EQUALS.split(answer)
    side = side.strip(" $.\n")
    whole = all(map(str.strip, (*before, side))) and answer.count("{") == answer.count("}")
    return side if before and whole else None


@lru_cache(1 << 15)
def verdict(answer: str, percent: Percent = "hundredths") -> Verdict:
    """The verdict on an answer: its key, or `unparsable`."""
    found = attempt(answer, percent, WORK)
    assert found is not None
    return found


@lru_cache(1 << 15)
def attempt(answer: str, percent: Percent, limit: int) -> Verdict | None:
    """The verdict, if it takes no more additions than `limit`, or as many as an answer may take; else None."""
    if len(answer) > MAX_CHARACTERS:
        return UNPARSABLE
    if _INTEGER.fullmatch(answer):
        return Verdict("0" if answer == "-0" else answer)
    if (key := prose(answer)) is not None:
        return Verdict(key)
    work = Work(limit)
    try:
        tree = parse(answer, percent=percent == "hundredths")
        with _LOCK:
            found = Verdict(Keys(work).key(tree))
    except (Unreadable, Beyond):
        text = words(answer)
        found = UNPARSABLE if text is None else Verdict(text)
        if found == UNPARSABLE and (side := _last_side(answer)) is not None:
            return attempt(side, percent, limit)
    return found if work.left >= 0 or limit >= WORK else None
