"""Keys beside values: functions and inequalities that nobody picked, and what Python makes of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest

from metagen.verifiers.math.keys import verdict

Function = tuple[str, Callable[[Fraction], Fraction]]

#: At all scales, and close together where most kinks are.
PLACES = [
    *(sign * Fraction(m, 100) * 10**e for e in range(9) for m in (107, 171, 251, 390, 550, 901) for sign in (1, -1)),
    *(Fraction(k, 3) + Fraction(1, 71) for k in range(-90, 91)),
]  # fmt: skip


def line(random: Random) -> Function:
    a, b = random.choice([1, 1, 2, -1, 3]), random.randint(-12, 12) * random.choice([1, 1, 1, 100, 10**6])
    return f"({a}x{b:+d})", lambda x: a * x + b


def piecewise(random: Random, depth: int) -> Function:
    if not depth:
        return line(random)
    (a, f), (b, g) = piecewise(random, depth - 1), piecewise(random, depth - 1)
    return random.choice(
        [
            (f"\\lvert {a}\\rvert", lambda x: abs(f(x))),
            (f"\\sqrt{{({a})^2}}", lambda x: abs(f(x))),
            (f"\\max({a},{b})", lambda x: max(f(x), g(x))),
            (f"\\min({a},{b})", lambda x: min(f(x), g(x))),
            (f"({a}-{b})", lambda x: f(x) - g(x)),
            (f"({a}+{b})", lambda x: f(x) + g(x)),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_functions_have_one_key_if_and_only_if_they_are_one(seed: int) -> None:
    random = Random(seed)
    functions = [piecewise(random, random.choice([1, 1, 2, 3])) for _ in range(60)]
    keys = {text: verdict(text).key for text, _ in functions}
    values = {text: [function(x) for x in PLACES] for text, function in functions}
    assert None not in keys.values()
    for a, b in combinations(keys, 2):
        assert (keys[a] == keys[b]) == (values[a] == values[b]), (a, b)
    for text, key in keys.items():
        for same in (f"{text}+|x-37|-|37-x|", f"\\frac{{2({text})}}{{2}}", f"\\max({text},{text})"):
            assert verdict(same).key == key, same


def side(random: Random) -> Function:
    (a, f), (b, g) = line(random), line(random)
    return random.choice(
        [
            (a, f),
            (f"{a}{b}", lambda x: f(x) * g(x)),
            (f"\\frac{{{a}}}{{{b}}}", lambda x: f(x) / g(x)),
            (f"|{a}|", lambda x: abs(f(x))),
            (f"\\max({a},{b})", lambda x: max(f(x), g(x))),
        ]
    )


def holds(key: str, x: Fraction) -> bool:
    """Whether a number is in the set that a key describes."""

    def number(text: str) -> float | Fraction:
        ends = {"oo": float("inf"), "-oo": -float("inf")}
        return ends[text] if text in ends else float(text[1:]) if text[0] == "~" else Fraction(text)

    for piece in key.split(" ∪ "):
        if piece[0] in "([":
            low, high = map(number, piece[1:-1].split(", "))
            within = low < x < high or (piece[0] == "[" and x == low) or (piece[-1] == "]" and x == high)
        else:
            within = any(number(text) == x for text in piece.strip("{}").split(", ") if text)
        if within:
            return True
    return False


@pytest.mark.parametrize("seed", range(3))
def test_an_inequality_is_the_set_of_what_satisfies_it(seed: int) -> None:
    random = Random(seed)
    compare: dict[str, Callable[[Fraction, Fraction], bool]] = {
        "<": lambda a, b: a < b, ">": lambda a, b: a > b, "\\le": lambda a, b: a <= b, "\\ge": lambda a, b: a >= b,
    }  # fmt: skip
    for _ in range(40):
        (a, f), (b, g), sign = side(random), side(random), random.choice(list(compare))
        text = f"{a} {sign} {b}"
        key = verdict(text).key
        assert key is not None and not key.startswith(("0 ", "form")), text
        for x in (Fraction(k, 6) for k in range(-90, 91)):
            try:
                expected = compare[sign](f(x), g(x))
            except ZeroDivisionError:
                expected = False
            assert holds(key, x) == expected, (text, key, x)
