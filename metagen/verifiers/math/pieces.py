r"""Places where a function changes its formula: `|x-5|` at 5, `\max(x, 10^6)` at 10^6, `\sqrt{x^2-8x+16}` at 4.

A function of one variable is followed along the whole line, one of several along lines through all quadrants. Kinks
belong to the function, not to its form: candidates come from the tree, and those with smooth values around them are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import combinations, pairwise
from typing import Any, Final

from metagen.verifiers.math.arithmetic import Arithmetic, TooLarge, Undefined, Work, context, draw
from metagen.verifiers.math.tree import BINDERS, Node, minus, names, symbols, walk, whole

#: Of all values here: enough that a kink of the seventh order still shows.
_DIGITS: Final = 240
MP: Final = context(_DIGITS)
_SINGULAR: Final = names(
    "abs sign ln log lg max min floor ceil mod arcsin arccos arctan arccot arccosh arctanh arcsinh arg Re Im gcd lcm"
)
#: Divided by these.
_QUOTIENTS: Final = {"tan": "cos", "sec": "cos", "cot": "sin", "csc": "sin"}
_DEGREE: Final = 26
#: Of kinks on one line, and of values that are compared in pairs.
_MOST: Final = 48
_TINY: Final = MP.mpf(10) ** -100
_STEP: Final = MP.mpf(10) ** -16
_SMOOTH: Final = MP.mpf(10) ** -125
_STILL: Final = MP.mpf(10) ** -150
#: Differences across a candidate.
_AROUND: Final = 14
_ASIDE: Final = MP.mpf("0.737")
#: Places around which steps, which never end, are looked for.
_NEAR: Final = tuple(MP.mpf(t) for t in ("1.137", "137.31", "-55.17"))
#: Places on a line at all scales.
ANCHORS: Final = tuple(s * MP.mpf("1.1352") * MP.mpf("4.017") ** k for k in range(12) for s in (1, -1))
WHOLE: Final = tuple(MP.mpf(n) for n in (2, 7, -3, 12, 100))
_INFINITY: Final = MP.inf


def may_break(node: Node) -> bool:
    """Whether a tree has an operation whose formula depends on where its variables are."""
    return any(
        symbols(n)
        for n in walk(node)
        if n.op == "root"
        or (n.op == "call" and n.value in _SINGULAR)
        or (n.op == "pow" and whole(n.args[1]) is None)
    )


class Line:
    """A line through the space of the variables: its place at each t, and the breaks of functions along it."""

    def __init__(self, place: Callable[[Any], Mapping[str, Any]], work: Work) -> None:
        self.place, self._work, self._arithmetic = place, work, Arithmetic(_DIGITS, work)
        #: Whether all candidates are known; not of functions that are no quotients of polynomials.
        self.complete = True
        #: Whether they go on for ever, as steps do, and only those near some places are known.
        self.endless = False
        #: Whether zeros were only looked for at places on a grid.
        self.searched = False
        self.at = cache(self._at)
        self.breaks = cache(self._breaks)
        self.zeros = cache(self._zeros)

    def _at(self, node: Node, t: Any) -> Any:
        """The value; None where there is none."""
        try:
            value = self._arithmetic.wide(self._arithmetic.value(node, self.place(t)))
        except Undefined:
            return None
        except TooLarge:
            self._work.spend(0)
            return None
        return value if MP.isfinite(value) else None

    def kinks(self, node: Node) -> list[Any]:
        """The places where the function is not smooth, in order."""
        return [t for t in self.breaks(node) if self._is_kink(node, t)]

    def nearest(self, kinks: list[Any]) -> list[Any]:
        """The kinks next to the places of `_NEAR`, on either side."""
        found = []
        for t in _NEAR:
            found += [k for k in kinks if k > t][:1] + [k for k in kinks if k < t][-1:]
        return found

    def _is_kink(self, node: Node, t: Any) -> bool:
        """By differences of high order of the values around it, which vanish where a function is analytic."""
        step, wide = _STEP * max(1, abs(t)), max(1, abs(t)) / 8
        # Not evenly: differences of even and odd functions would cancel.
        values = [self.at(node, t + step * (k - MP.mpf(_AROUND) / 2 + _ASIDE)) for k in range(_AROUND)]
        if any(v is None for v in values):
            return True
        far = [v for v in (self.at(node, t + wide), self.at(node, t - wide)) if v is not None]
        size = max(abs(v) for v in values + far)
        while len(values) > 1:
            values = [b - a for a, b in pairwise(values)]
        return bool(abs(values[0]) > _SMOOTH * size)

    def _breaks(self, node: Node) -> tuple[Any, ...]:
        """Candidates: all places where some operation of the tree may change its formula."""
        if not symbols(node):
            return ()
        if node.op in BINDERS:
            if may_break(node.args[0]):
                raise TooLarge("kinks in a sum")
            return ()
        found = [t for a in node.args for t in self.breaks(a)]
        for inner, level in self._critical(node):
            found += self.zeros(inner, level)
        return _distinct(found)

    def _critical(self, node: Node) -> Iterable[tuple[Node, int]]:
        """Functions and numbers: where a function takes the number, or has a pole, a node may break."""
        args = node.args
        if node.op == "root":
            return [(args[1], 0)]
        if node.op == "pow":
            return [] if whole(args[1]) is not None else [(args[0], 0)]
        if node.op != "call" or node.value not in _SINGULAR:
            return []
        match node.value:
            case "max" | "min":
                return [(minus(a, b), 0) for a, b in combinations(args[:8], 2)]
            case "floor" | "ceil":
                return self._levels(args[0])
            case "mod":
                return self._levels(Node("div", args))
            case "arcsin" | "arccos" | "arctanh" | "arccosh":
                return [(args[0], 1), (args[0], -1)]
        return [(a, 0) for a in args]

    def _levels(self, node: Node) -> Iterable[tuple[Node, int]]:
        self.endless = True
        for t in _NEAR:
            value = self.at(node, t)
            if value is not None and not MP.im(value) and abs(value) < MP.mpf(10) ** 40:
                below = int(MP.floor(value))
                yield from ((node, below + k) for k in range(-1, 3))

    def _zeros(self, node: Node, level: Any = 0) -> tuple[Any, ...]:
        """The places where a function takes a level, or has a pole."""
        if not symbols(node):
            return ()
        if (inverse := self._inverse(node, level)) is not None:
            return tuple(t for inner, value in inverse for t in self.zeros(inner, value))
        below = _divisors(node)
        found = [t for d in below for t in self.zeros(d)]
        ends = [-_INFINITY, *self.breaks(node), _INFINITY]
        for low, high in pairwise(ends):
            polynomial = self._fit(node, level, below, low, high)
            if polynomial is None:
                crossed = self._scan(node, level, low, high)
                self.complete &= not crossed
                found += crossed
                continue
            for part in ([MP.re(c) for c in polynomial], [MP.im(c) for c in polynomial]):
                found += [t for t in real_roots(part) if low <= t <= high]
            self._work.spend(len(polynomial) ** 2 * 100)
        return _distinct(found)

    def _inverse(self, node: Node, level: Any) -> list[tuple[Node, Any]] | None:
        """Simpler functions and levels that stand for one function and one level; None without an inverse here."""
        varying = [a for a in node.args if symbols(a)]
        rest = [self.at(a, MP.zero) for a in node.args if not symbols(a)]
        if None in rest or (level and len(varying) != 1):
            return None
        match node.op:
            case "mul" | "div" if not level:
                return [(a, level) for a in varying]
            case "neg":
                return [(varying[0], -level)]
            case "add" if len(varying) == 1:
                return [(varying[0], level - MP.fsum(rest))]
            case "mul" if all(rest):
                return [(varying[0], level / MP.fprod(rest))]
            case "div" if varying[0] == node.args[0] and rest[0]:
                return [(varying[0], level * rest[0])]
            case "root" if varying == [node.args[1]]:
                return [(varying[0], level ** rest[0])]
            case "pow" if varying == [node.args[0]] and rest[0]:
                if not level:
                    return [(varying[0], level)]
                size = abs(level) ** (1 / rest[0])
                return [(varying[0], size), (varying[0], -size)]
            case "pow" if varying == [node.args[1]] and rest[0] and rest[0] != 1:
                return [(varying[0], MP.re(MP.log(level) / MP.log(rest[0])))] if level else []
            case "call" if node.value == "abs":
                return [(varying[0], level), (varying[0], -level)] if level else [(varying[0], level)]
            case "call" if node.value == "ln" and abs(level) < 1000:
                return [(varying[0], MP.exp(level))]
        return None

    def _fit(self, node: Node, level: Any, below: list[Node], low: Any, high: Any) -> list[Any] | None:
        """Coefficients of a function times its divisors between two places; None if that is no polynomial."""
        points: list[Any] = []
        newton: list[Any] = []
        largest, vanished = MP.zero, 0
        for k in range(2 * _DEGREE):
            t = _inside(low, high, k)
            values = [self.at(n, t) for n in (node, *below)]
            if any(v is None for v in values):
                continue
            value = (values[0] - level) * MP.fprod(values[1:])
            largest = max(largest, abs(value))
            total, product = MP.zero, MP.one
            for c, p in zip(newton, points, strict=True):
                total += c * product
                product *= t - p
            rest = value - total
            vanished = vanished + 1 if abs(rest) <= _TINY * largest else 0
            newton.append(rest / product if not vanished else MP.zero)
            points.append(t)
            if vanished == 3:
                return _monomials(newton[:-3], points)
            if len(points) > _DEGREE:
                break
        return None

    def _scan(self, node: Node, level: Any, low: Any, high: Any) -> list[Any]:
        """Zeros where the sign changes, or where a smallest value is 0, between places at many scales."""
        found: list[Any]
        self.searched = True
        grid = sorted(t for t in {*ANCHORS, *(MP.mpf(k) / 7 for k in range(-90, 91, 2))} if low < t < high)
        step = MP.mpf(10) ** -60

        def slope(t: Any) -> Any:
            before, after = value(t - step), value(t + step)
            return None if before is None or after is None else after - before

        def value(t: Any) -> Any:
            found = self.at(node, t)
            return None if found is None or MP.im(found) else found - level

        if found := _crossings(value, grid, most=4):
            return found
        for t in _crossings(slope, grid, most=4):
            least, beside = value(t), value(t + max(1, abs(t)) / 100)
            if least is not None and beside is not None and abs(least) < abs(beside) * MP.mpf(10) ** -40:
                found.append(t)
        return found


def _divisors(node: Node) -> list[Node]:
    """The divisors in a tree."""
    found: list[Node] = []
    for n in walk(node):
        if n.op == "call" and n.value in _QUOTIENTS and symbols(n):
            found.append(Node("call", n.args, _QUOTIENTS[str(n.value)]))
        if n.op == "div" and symbols(n.args[1]):
            found.append(n.args[1])
        if n.op == "pow" and symbols(n.args[0]) and (power := whole(n.args[1]) or 0) < 0:
            found += [n.args[0]] * min(-power, 4)
    return found[:8]


def _inside(low: Any, high: Any, k: int) -> Any:
    """Place number k between two ends, one of which may be infinite."""
    if MP.isinf(low) and MP.isinf(high):
        return MP.mpf(2 * k + 1) * (-1) ** k * MP.mpf("0.4137")
    if MP.isinf(low):
        return high - (k + 1) * max(1, abs(high)) * MP.mpf("0.2931")
    if MP.isinf(high):
        return low + (k + 1) * max(1, abs(low)) * MP.mpf("0.2931")
    return low + (high - low) * MP.frac((k + 1) * MP.mpf("0.6180339887498949"))


def _monomials(newton: list[Any], points: list[Any]) -> list[Any]:
    result: list[Any] = []
    for c, p in zip(reversed(newton), reversed(points[: len(newton)]), strict=True):
        shifted = [MP.zero, *result]
        for i, r in enumerate(result):
            shifted[i] -= p * r
        shifted[0] += c
        result = shifted
    return result


def real_roots(coefficients: list[Any]) -> list[Any]:
    """All real roots of a polynomial, lowest coefficient first: between the roots of its derivative, or at them."""
    size = max(map(abs, coefficients), default=0)
    while coefficients and abs(coefficients[-1]) <= _TINY * size:
        coefficients = coefficients[:-1]
    if len(coefficients) < 2:
        return []
    if len(coefficients) == 2:
        return [-coefficients[0] / coefficients[1]]
    turns = real_roots([k * c for k, c in enumerate(coefficients)][1:])
    bound = 1 + max(abs(c / coefficients[-1]) for c in coefficients)

    def value(t: Any) -> Any:
        total, scale = MP.zero, MP.zero
        for c in reversed(coefficients):
            total, scale = total * t + c, scale * abs(t) + abs(c)
        return total if abs(total) > _TINY * scale else MP.zero

    return list(_distinct(_crossings(value, [-bound, *turns, bound])))


def _crossings(value: Callable[[Any], Any], grid: list[Any], most: int = _MOST) -> list[Any]:
    """The places where a function changes its sign between neighbours of a grid, or is 0 at one of them."""
    values = [value(t) for t in grid]
    found = [t for t, v in zip(grid, values, strict=True) if v == 0]
    for (a, b), (left, right) in zip(pairwise(grid), pairwise(values), strict=True):
        if left is None or right is None or not left or not right or (left < 0) == (right < 0):
            continue
        if len(found) >= most:
            break
        if (root := _root(value, a, b, left)) is not None:
            found.append(root)
    return found


def _root(value: Callable[[Any], Any], a: Any, b: Any, left: Any) -> Any:
    """Between places of different signs, by halves and then by secants; None if there is none, but a jump."""
    for _ in range(24):
        t = (a + b) / 2
        middle = value(t)
        if not middle:
            return t if middle == 0 else None
        a, b = (t, b) if (middle < 0) == (left < 0) else (a, t)
    old, new, before = a, b, value(a)
    for _ in range(24):
        now = value(new)
        if now is None or now == before:
            return None
        if not now:
            return new
        old, new, before = new, new - now * (new - old) / (now - before), now
        if not a <= new <= b:
            return None
        if abs(new - old) <= _STILL * max(1, abs(new)):
            return new
    return None


def _distinct(places: Iterable[Any]) -> tuple[Any, ...]:
    result: list[Any] = []
    for t in sorted(places):
        t = t if abs(t) > _TINY else MP.zero
        if not result or t - result[-1] > MP.mpf(10) ** -70 * max(1, abs(t)):
            result.append(t)
    if len(result) > _MOST:
        raise TooLarge("kinks")
    return tuple(result)


def lines(variables: list[str], rest: Mapping[str, Any], work: Work) -> Iterable[Line]:
    """The line itself of one variable; of more, lines that go through all quadrants. rest: the fixed variables."""
    if not variables:
        return
    if len(variables) == 1:
        (name,) = variables
        yield Line(lambda t: {**rest, name: t}, work)
        return
    for i in range(min(1 << (len(variables) - 1), 4)):
        starts, slopes = {}, {}
        for k, name in enumerate(variables):
            starts[name] = MP.mpf(draw("start", name, str(i)) % 10**6) / 10**6
            slope = MP.mpf(draw("slope", name, str(i)) % 10**6 + 500_000) / 10**6
            # The first always rises; the others in all combinations of signs, as far as there are lines.
            slopes[name] = -slope if k and i >> (k - 1) & 1 else slope
        yield Line(
            lambda t, starts=starts, slopes=slopes: {
                **rest,
                **{n: starts[n] + slopes[n] * t for n in starts},
            },  # type: ignore[misc]
            work,
        )
