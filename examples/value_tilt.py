"""Token-wise tilts against the tilt of whole sequences, on a model that can be enumerated.

    python examples/value_tilt.py

A model writes words of two letters that end with $; its reward is 1 for a palindrome of two letters or more. Three ways
to want more of it: p · e^(λr) / Z of whole words; token by token with the soft value (1/λ) log E_p e^(λr), which is the
same; and token by token with V = E_p[r | prefix], which is not. Prints what each wins, and at what KL divergence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from metagen.analysis.alignment import (
    expected_values,
    kl,
    sequences,
    soft_values,
    tilt,
    tilt_at,
    tokenwise_pmf,
)

END, LONGEST = 2, 6
WEIGHTS, DISTANCES = (0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 0.4, 1.0)
Word = tuple[int, ...]
Floats = NDArray[np.float64]


def following(done: Word) -> tuple[float, float, float]:
    """Letters 0 and 1 that like to change, and the end; from the second on, one word in four ends with each."""
    if len(done) == LONGEST - 1:
        return (0.0, 0.0, 1.0)
    if not done:
        return (0.7, 0.3, 0.0)
    again, other = (0.25, 0.5) if done[-1] == 0 else (0.5, 0.25)
    return (again, other, 0.25)


def reward(word: Word) -> float:
    letters = word[:-1]
    return float(len(letters) > 1 and letters == letters[::-1])


WORDS = sequences(following, LONGEST)
P, R = np.array([*WORDS.values()]), np.array([reward(word) for word in WORDS])


def by_tokens(value: Callable[[Word], float], weight: float) -> Floats:
    """π(z | y) = p(z | y) · e^(λ V(y, z)) / Z(y), as probabilities of whole words."""
    found = tokenwise_pmf(following, value, weight, LONGEST)
    return np.array([found[word] for word in WORDS])


def soft(weight: float) -> Floats:
    """With V = (1/λ) log E_p[e^(λr) | prefix]."""
    return by_tokens(soft_values(WORDS, reward, weight).__getitem__, weight)


def expected(weight: float) -> Floats:
    """With V = E_p[r | prefix]."""
    return by_tokens(expected_values(WORDS, reward).__getitem__, weight)


def apart(q: Floats, other: Floats) -> float:
    """The total variation distance."""
    return float(0.5 * np.abs(q - other).sum())


def main() -> None:
    print(f"{len(WORDS)} words; E_p[r] = {P @ R:.4f}\n")
    print("| λ | E[r], whole | KL, whole | E[r], by V | KL, by V | soft − whole | by V − whole |")
    print("|---|---|---|---|---|---|---|")
    for weight in WEIGHTS:
        target, tokens = tilt(P, R, weight), expected(weight)
        told = [target @ R, kl(target, P), tokens @ R, kl(tokens, P)]
        cells = [*(f"{number:.3f}" for number in told), f"{apart(soft(weight), target):.0e}"]
        print(f"| {weight:g} | {' | '.join(cells)} | {apart(tokens, target):.3f} |")
    print("\n| KL(π‖p) | E[r], whole, or by soft values | E[r], by V |\n|---|---|---|")
    for distance in DISTANCES:
        weight = brentq(lambda w, most=distance: kl(expected(w), P) - most, 1e-3, 60.0)
        print(f"| {distance:g} | {tilt_at(P, R, distance)[0] @ R:.4f} | {expected(weight) @ R:.4f} |")


if __name__ == "__main__":
    main()
