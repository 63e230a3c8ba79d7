"""Reward against KL divergence on two models that can be enumerated: every policy exactly, and what is possible.

Palindromes: words of one to five letters; the reward is 1 for palindromes of two letters or more, and 0 for the rest.
Symbols: six draws of p = (.50, .30, .20); the reward is the log-probability of the word under q = (.22, .11, .67).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from metagen.analysis.alignment import (
    Floats,
    Tokens,
    best_of_n_pmf,
    blockwise_pmf,
    expected_blocks,
    expected_values,
    kl,
    kl_bound,
    pessimistic_pmf,
    sequences,
    soft_best_of_n_pmf,
    soft_values,
    tilt_at,
    tokenwise_pmf,
    win_rate,
)

NS = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
#: Of soft best-of-n and of tilts, in units of the reward's standard deviation under p.
BETAS, WEIGHTS = (2.0, 1.0, 0.5, 0.25, 0.1), (0.25, 0.5, 1.0, 2.0, 4.0)
BLOCKS, BLOCK_NS = (1, 2, 3), (2, 4, 16)
#: Proxies: the reward and, of each sequence, noise with heavy tails (Student's t), in its standard deviations.
ENSEMBLE, FREEDOM = 4, 2.0


@dataclass(frozen=True, eq=False)
class Enumerable:
    """A model as a table of next tokens, and a reward of whole sequences.

    next: prefix → probabilities of the next token, the last that of the end. longest: tokens. p, r: [sequences].
    """

    name: str
    next: Callable[[Tokens], tuple[float, ...]]
    reward: Callable[[Tokens], float]
    longest: int
    of: dict[Tokens, float] = field(init=False)
    p: Floats = field(init=False)
    r: Floats = field(init=False)

    def __post_init__(self) -> None:
        of = sequences(self.next, self.longest)
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "p", np.array(list(of.values())))
        object.__setattr__(self, "r", np.array([self.reward(y) for y in of]))

    @property
    def mean(self) -> float:
        """E_p[r]."""
        return float(self.p @ self.r)

    @property
    def spread(self) -> float:
        """Standard deviation of r under p."""
        return math.sqrt(float(self.p @ (self.r - self.mean) ** 2))

    def vector(self, policy: dict[Tokens, float]) -> Floats:
        """Its probabilities in the order of p, [sequences]."""
        return np.array([policy.get(y, 0.0) for y in self.of])


@dataclass(frozen=True, slots=True)
class Reached:
    """What a policy wins, and how far it goes. knob: what was turned, as words.

    bound: on its KL divergence, NaN where none is known. reward: E_π[r] − E_p[r]. optimal: the same of the tilt at its
    KL divergence. wins: against one draw of p.
    """

    policy: str
    knob: str
    kl: float
    bound: float
    reward: float
    optimal: float
    wins: float


def palindromes() -> Enumerable:
    """Two letters that like to change, and from the second letter on an end for one word in four."""

    def after(done: Tokens) -> tuple[float, ...]:
        if len(done) == 5:
            return 0.0, 0.0, 1.0
        if not done:
            return 0.7, 0.3, 0.0
        return (0.25, 0.5, 0.25) if done[-1] == 0 else (0.5, 0.25, 0.25)

    def reward(word: Tokens) -> float:
        letters = tuple(z for z in word if z != 2)
        return float(len(letters) > 1 and letters == letters[::-1])

    return Enumerable("palindromes", after, reward, 6)


def symbols(length: int = 6) -> Enumerable:
    """Independent draws of three symbols; none ends before `length`."""
    log_q = tuple(math.log(q) for q in (0.22, 0.11, 0.67))

    def reward(word: Tokens) -> float:
        # By counts, so that words of equal counts have one reward to the last bit.
        return math.fsum(word.count(z) * log_q[z] for z in range(3))

    return Enumerable("symbols", lambda done: (0.5, 0.3, 0.2, 0.0), reward, length)


def policies(model: Enumerable, seed: int = 0) -> Iterator[Reached]:
    """Best-of-n, soft and pessimistic; by blocks; token by token. seed: of the ensemble's noise."""
    p, r, unit = model.p, model.r, model.spread

    def reach(policy: str, knob: str, q: Floats, bound: float = math.nan) -> Reached:
        far = kl(q, p)
        most, _ = tilt_at(p, r, far)
        won, optimal = (float(x @ r) - model.mean for x in (q, most))
        return Reached(policy, knob, far, bound, won, optimal, win_rate(q, p, r))

    for n in NS:
        yield reach("best-of-n", f"n = {n}", best_of_n_pmf(p, r, n), kl_bound(n))
    for beta in BETAS:
        soft = soft_best_of_n_pmf(p, r, 16, beta * unit)
        yield reach("soft best-of-16", f"β = {beta:g} sd", soft, kl_bound(16))
    rng = np.random.default_rng(seed)
    noisy = r + unit * rng.standard_t(FREEDOM, size=(ENSEMBLE, len(r)))
    mean, apart = noisy.mean(axis=0), noisy.std(axis=0)
    for n in NS[1:]:
        yield reach("by one proxy", f"n = {n}", best_of_n_pmf(p, noisy[0], n), kl_bound(n))
        yield reach(f"by the mean of {ENSEMBLE}", f"n = {n}", best_of_n_pmf(p, mean, n), kl_bound(n))
        pessimistic = pessimistic_pmf(p, mean, n, 1.0, apart)
        yield reach(f"pessimistic, of {ENSEMBLE}", f"n = {n}", pessimistic, kl_bound(n))
    values = expected_values(model.of, model.reward)
    for block in BLOCKS:
        for n in BLOCK_NS:
            chosen = blockwise_pmf(model.next, values.__getitem__, n, block, model.longest)
            bound = kl_bound(n, expected_blocks(chosen, block))
            yield reach(f"blocks of {block}", f"n = {n}", model.vector(chosen), bound)
    for weight in WEIGHTS:
        lam = weight / unit
        soft_v = soft_values(model.of, model.reward, lam)
        for name, value in (("token-wise, soft value", soft_v), ("token-wise, expected value", values)):
            chosen = tokenwise_pmf(model.next, value.__getitem__, lam, model.longest)
            yield reach(name, f"λ = {weight:g}/sd", model.vector(chosen))


def frontier(model: Enumerable, furthest: float, points: int = 16) -> tuple[list[float], list[float]]:
    """KL divergences up to `furthest` nats, and the most that E[r] − E_p[r] can be within each."""
    far = (furthest * np.linspace(0.0, 1.0, points) ** 2).tolist()  # denser where it bends
    return far, [float(tilt_at(model.p, model.r, one)[0] @ model.r) - model.mean for one in far]


@lru_cache(maxsize=4)
def exact(seed: int = 0) -> tuple[tuple[Enumerable, tuple[Reached, ...]], ...]:
    """Both models with what every policy reaches; a second."""
    return tuple((model, tuple(policies(model, seed))) for model in (palindromes(), symbols()))
