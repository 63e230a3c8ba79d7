"""Token-wise tilts against the tilt of whole sequences, on a model that can be enumerated.

    python examples/value_tilt.py

A model writes words of two letters that end with $; its reward is 1 for a palindrome of two letters or more. Three ways
to want more of it: p · e^(λr) / Z of whole words; token by token with the soft value (1/λ) log E_p e^(λr), which is the
same; and token by token with V = E_p[r | prefix], which is not. Prints what each wins, and at what KL divergence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

import metagen as mg

TOKENS, LONGEST = ("a", "b", "$"), 5
WEIGHTS, DISTANCES = (0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 0.4, 1.0)
Word = tuple[str, ...]
Tilt = Callable[[dict[Word, float], float], dict[Word, float]]


def p(prompt: str, done: Word) -> tuple[float, float, float]:
    """Letters that like to change; from the second on, one word in four ends with each."""
    if len(done) == LONGEST:
        return (0.0, 0.0, 1.0)
    if not done:
        return (0.7, 0.3, 0.0)
    again, other = (0.25, 0.5) if done[-1] == "a" else (0.5, 0.25)
    return (again, other, 0.25)


def reward(word: Word) -> float:
    letters = word[:-1]
    return float(len(letters) > 1 and letters == letters[::-1])


def tree(of: dict[Word, float]) -> dict[Word, float]:
    """The probability of every beginning, whole words included."""
    found: dict[Word, float] = {}
    for word, mass in of.items():
        for k in range(len(word) + 1):
            found[word[:k]] = found.get(word[:k], 0.0) + mass
    return found


def values(of: dict[Word, float], mean: Callable[[float], float]) -> dict[Word, float]:
    """E_p[mean(r) | beginning] of every beginning."""
    total = tree({word: mass * mean(reward(word)) for word, mass in of.items()})
    return {begun: total[begun] / mass for begun, mass in tree(of).items()}


def by_tokens(of: dict[Word, float], factor: dict[Word, float]) -> dict[Word, float]:
    """π(z | y) = p(z | y) · factor(y, z) / Z(y), as probabilities of whole words."""
    mass = tree(of)
    weight = {begun: mass[begun] * factor[begun] for begun in mass}
    total: dict[Word, float] = {}
    for begun in mass:
        if begun:
            total[begun[:-1]] = total.get(begun[:-1], 0.0) + weight[begun]
    found = {}
    for word in of:
        steps = (weight[word[:k]] / total[word[: k - 1]] for k in range(1, len(word) + 1))
        found[word] = float(np.prod(list(steps)))
    return found


def whole(of: dict[Word, float], weight: float) -> dict[Word, float]:
    """p(y) e^(λ r(y)) / Z."""
    tilted = {word: mass * np.exp(weight * reward(word)) for word, mass in of.items()}
    return {word: float(mass / sum(tilted.values())) for word, mass in tilted.items()}


def soft(of: dict[Word, float], weight: float) -> dict[Word, float]:
    """Token by token, e^(λV) with the soft value: V = (1/λ) log E_p[e^(λr) | prefix]."""
    return by_tokens(of, values(of, lambda r: float(np.exp(weight * r))))


def expected(of: dict[Word, float], weight: float) -> dict[Word, float]:
    """Token by token, e^(λV) with V = E_p[r | prefix]."""
    return by_tokens(of, {y: float(np.exp(weight * v)) for y, v in values(of, lambda r: r).items()})


def divergence(q: dict[Word, float], of: dict[Word, float]) -> float:
    """KL(q‖p) in nats."""
    return sum(mass * float(np.log(mass / of[word])) for word, mass in q.items() if mass > 0)


def won(q: dict[Word, float]) -> float:
    """E_q[r]."""
    return sum(mass * reward(word) for word, mass in q.items())


def apart(q: dict[Word, float], other: dict[Word, float]) -> float:
    """The total variation distance."""
    return 0.5 * sum(abs(q[word] - other[word]) for word in q)


def at_distance(of: dict[Word, float], tilt: Tilt, distance: float) -> dict[Word, float]:
    """The tilt of so much divergence."""
    weight = brentq(lambda w: divergence(tilt(of, w), of) - distance, 1e-3, 60.0)
    return tilt(of, float(weight))


def main() -> None:
    with mg.EnumerableEngine(TOKENS, p, name="words") as engine:
        words = engine.sequences(max_tokens=LONGEST + 1)
    print(f"{len(words)} words; E_p[r] = {won(words):.4f}\n")
    print("| λ | E[r], whole | KL, whole | E[r], by V | KL, by V | soft − whole | by V − whole |")
    print("|---|---|---|---|---|---|---|")
    for weight in WEIGHTS:
        target, tokens = whole(words, weight), expected(words, weight)
        told = [won(target), divergence(target, words), won(tokens), divergence(tokens, words)]
        same = apart(soft(words, weight), target)
        cells = [*(f"{number:.3f}" for number in told), f"{same:.0e}", f"{apart(tokens, target):.3f}"]
        print(f"| {weight:g} | {' | '.join(cells)} |")
    print("\n| KL(π‖p) | E[r], whole, or by soft values | E[r], by V |\n|---|---|---|")
    for distance in DISTANCES:
        rewards = [won(at_distance(words, tilt, distance)) for tilt in (whole, expected)]
        print(f"| {distance:g} | {rewards[0]:.4f} | {rewards[1]:.4f} |")


if __name__ == "__main__":
    main()
