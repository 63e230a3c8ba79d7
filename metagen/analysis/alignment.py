"""The distance of a policy from its model, and its gain in reward, for best-of-n and its kin on known distributions.

In all functions, p: [outcomes], the model's probability of each outcome; r: [outcomes], the reward of each. Equal
rewards are one class. A policy is another distribution over the same outcomes. KL divergences are in nats.

Best-of-n, its bound and the estimator: Beirami et al. 2024, arXiv:2401.01879. Soft best-of-n: Verdun et al. 2025,
arXiv:2505.03156. Blockwise and token-wise control: Mudgal et al. 2024, arXiv:2310.17022. The tilt: Yang et al. 2024,
arXiv:2404.01730.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from metagen.errors import InputError

Floats = NDArray[np.float64]
#: Token ids; the last id of a vocabulary ends a sequence.
Tokens = tuple[int, ...]
Next = Callable[[Tokens], ArrayLike]
#: Readings of KL divergences, in nats.
MARKS = {8.0: "beyond: look closer", 15.0: "beyond: look for reward hacking", 100.0: "not useful"}
#: Values of prefixes are equal up to this part of the largest value of a whole sequence.
TIE = 1e-9
#: Sequences beyond which nothing is enumerated.
MOST = 1_000_000
#: Soft best-of-n: the step of the quadrature over log t, and how far it goes to either side (below: and log n).
STEP, BELOW, ABOVE = 0.125, 42.0, 7.0
#: Numbers in the largest temporary array.
CELLS = 2_000_000


def best_of_n_pmf(p: ArrayLike, r: ArrayLike, n: float) -> Floats:
    """Policy of the best of n draws, [outcomes]; p, r: [outcomes].

    A class of equal rewards has the probability F(y)ⁿ − F⁻(y)ⁿ, shared within it in proportion to p. F is the
    probability of a reward that is not above y's, F⁻ of one below. n need not be whole: Yang et al. take e^(mΔ).
    Raises InputError for p that is no distribution, r that is not finite, and n < 1.
    """
    p, r = _policy(p, r)
    _candidates(n)
    of, mass = _classes(p, r)
    below = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    with np.errstate(divide="ignore"):
        # From the nearer end, so that neither a small F nor a small 1 − F is rounded off.
        log_f = np.where(above < 0.5, np.log1p(-above), np.log(below + mass))
        share = np.clip(mass * np.exp(-log_f), 0.0, 1.0)
        won = np.exp(n * log_f) * -np.expm1(n * np.log1p(-np.where(below > 0, share, 1.0)))
    return np.asarray(p * (won / mass)[of])


def soft_best_of_n_pmf(p: ArrayLike, r: ArrayLike, n: int, beta: float) -> Floats:
    """Policy of soft best-of-n, [outcomes]: of n draws, one with probability ∝ exp(r/β); exact, to 1e-10.

    With a_y = exp((r_y − max r)/β) and φ(t) = Σ_z p_z e^(−t·a_z), by 1/s = ∫ e^(−ts) dt,

        π(y) = n · p(y) · ∫₀^∞ a_y e^(−t·a_y) φ(t)^(n−1) dt,

    by the trapezoidal rule over log t, which converges exponentially. β → 0 is best-of-n, β → ∞ is p. p, r: [outcomes].
    Raises InputError as `best_of_n_pmf`, and for β that is not positive, or so small that r/β overflows.
    """
    p, r = _policy(p, r)
    _candidates(n)
    there = p > 0
    top = r[there].max()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = (r - top) / beta
    if not 0.0 < beta < math.inf or not np.isfinite(scaled).all():
        raise InputError(f"beta={beta!r}: expected a finite number > 0; for β = 0 take best_of_n_pmf")
    of, mass = _classes(p, scaled)
    log_a = np.unique(scaled[there])
    density = np.zeros_like(mass)
    for u in _grid(log_a, n):
        reach = np.exp(np.minimum(u[:, None] + log_a, 700.0))  # t · a
        left = np.exp(-reach)
        short = np.expm1(-reach) @ mass  # φ(t) − 1
        with np.errstate(divide="ignore", invalid="ignore"):
            log_phi = np.where(short > -0.5, np.log1p(short), np.log(left @ mass))
        decay = np.zeros_like(log_phi) if n == 1 else (n - 1) * log_phi
        density += STEP * (np.exp(decay) @ (reach * left))
    return np.asarray(p * (n * density)[of])


def pessimistic_pmf(p: ArrayLike, r: ArrayLike, n: float, penalty: float, spread: ArrayLike) -> Floats:
    """Policy of the best of n by the lower bound r − penalty · spread, [outcomes].

    p, r, spread: [outcomes]; r and spread are the mean and the standard deviation of an ensemble's rewards. Raises
    InputError as `best_of_n_pmf`.
    """
    return best_of_n_pmf(p, np.asarray(r, np.float64) - penalty * np.asarray(spread, np.float64), n)


# ------------------------------------------------------------------------------------------ the tilt


def tilt(p: ArrayLike, r: ArrayLike, lam: float) -> Floats:
    """The tilt p · e^(λr) / Z, [outcomes]: the policy with the most reward at its KL divergence; p, r: [outcomes].

    λ = ∞ gives p on the best rewards alone. Raises InputError as `best_of_n_pmf`, and for λ that is NaN.
    """
    p, r = _policy(p, r)
    if math.isnan(lam):
        raise InputError("lam=nan: expected a weight of the reward")
    return _tilt(p, _gaps(p, r, lam >= 0), lam)


def _gaps(p: Floats, r: Floats, up: bool) -> Floats:
    """How far each reward is from the best, or from the worst; 0 where p is."""
    there = p > 0
    best = r[there].max() if up else r[there].min()
    return np.where(there, r - best, 0.0)


def _tilt(p: Floats, gap: Floats, lam: float) -> Floats:
    """The tilt by `_gaps`."""
    if math.isinf(lam):
        weight = p * (gap == 0.0)
    else:
        with np.errstate(over="ignore"):
            weight = p * np.exp(lam * gap)
    return np.asarray(weight / weight.sum())


def tilt_at(p: ArrayLike, r: ArrayLike, kl: float) -> tuple[Floats, float]:
    """The policy of the most reward within `kl` nats of p, [outcomes], and its λ: the RL-optimal frontier.

    p, r: [outcomes]. No tilt goes beyond −log p(best class); for `kl` at or above that, the result is p on that class,
    with λ = ∞ (Yang et al. 2024). Raises InputError as `best_of_n_pmf`, and for kl that is negative or NaN.
    """
    p, r = _policy(p, r)
    if not kl >= 0.0:
        raise InputError(f"kl={kl!r}: expected nats, at least 0")
    if kl == 0.0:
        return p, 0.0
    rewards, gap = np.unique(r[p > 0]), _gaps(p, r, True)
    last = _tilt(p, gap, math.inf)
    if kl >= _divergence(last, p) or len(rewards) == 1:
        return last, math.inf

    log_p = np.log(p, where=p > 0, out=np.zeros_like(p))

    def beyond(lam: float) -> float:
        weight = p * np.exp(lam * gap)
        q = weight / weight.sum()
        if not q.all():
            return _divergence(q, p) - kl
        return max(0.0, float((q * (np.log(q) - log_p)).sum())) - kl if lam else -kl

    high = 1.0 / float(rewards[-1] - rewards[0])
    while beyond(high) < 0.0:
        high *= 2.0
        if not math.isfinite(high):
            return last, math.inf  # nearer to the end than floats can tell
    lam = float(brentq(beyond, 0.0, high, xtol=1e-14 * high))
    return _tilt(p, gap, lam), lam


# ------------------------------------------------------------------------------- distances and wins


def kl(q: ArrayLike, p: ArrayLike) -> float:
    """KL(q ‖ p) = Σ q log(q/p) in nats; q, p: [outcomes]. ∞ where p is 0 and q is not.

    Raises InputError for shapes that differ.
    """
    q, p = np.asarray(q, np.float64), np.asarray(p, np.float64)
    if q.shape != p.shape or q.ndim != 1:
        raise InputError(f"KL of {q.shape} from {p.shape}: expected two distributions over the same outcomes")
    return _divergence(q, p)


def _divergence(q: Floats, p: Floats) -> float:
    there = q > 0
    if (p[there] == 0).any():
        return math.inf
    return max(0.0, float((q[there] * (np.log(q[there]) - np.log(p[there]))).sum()))


def kl_bound(n: float, blocks: float = 1.0) -> float:
    """KL(π ‖ p) ≤ E[blocks] · (log n − (n − 1)/n), in nats: distance of the best of n of each block from the generator.

    blocks: their expected number. An upper bound; for one block it is that of best-of-n (Mudgal et al. 2024).
    Raises InputError for n < 1 or blocks < 0.
    """
    if not n >= 1 or not blocks >= 0:
        raise InputError(f"kl_bound(n={n!r}, blocks={blocks!r}): expected n ≥ 1 candidates and blocks ≥ 0")
    return blocks * (math.log(n) - (n - 1) / n)


def kl_estimate(n: float, epsilon: ArrayLike) -> Floats:
    """KL of best-of-n, in nats, from the probability ε of its choice, any shape. Its mean estimates KL(π ‖ p).

        (1−ε)ⁿ [log n + (n−1) log(1−ε) − (n−1)/n] + (1 − (1−ε)ⁿ) log((1 − (1−ε)ⁿ)/ε)

    (Beirami et al. 2024, approximation 1.) ε → 0 is the bound, ε = 1 is 0. NaN stays NaN.
    Raises InputError for n < 1 and ε outside [0, 1].
    """
    _candidates(n)
    e = np.asarray(epsilon, np.float64)
    if ((e < 0.0) | (e > 1.0)).any():
        raise InputError(f"epsilon={e[(e < 0.0) | (e > 1.0)].flat[0]!r}: expected probabilities in [0, 1]")
    inner = np.where((e > 0.0) & (e < 1.0), e, 0.5)
    log_other = np.log1p(-inner)
    missed = np.exp(n * log_other)
    hit = -np.expm1(n * log_other)
    second = hit * (np.log(hit) - np.log(inner))
    found = missed * (math.log(n) + (n - 1) * log_other - (n - 1) / n) + second
    return np.asarray(
        np.where(e == 0.0, kl_bound(n), np.where(e == 1.0, 0.0, np.where(np.isnan(e), e, found)))
    )


def win_rate(q: ArrayLike, p: ArrayLike, r: ArrayLike) -> float:
    """P(r(y) > r(z)) + ½ P(r(y) = r(z)) for y ~ q, z ~ p; q, p, r: [outcomes].

    Raises InputError as `best_of_n_pmf`.
    """
    p, r = _policy(p, r)
    q, _ = _policy(q, r)
    rewards = np.unique(r)
    of = np.searchsorted(rewards, r)
    ours, theirs = (np.bincount(of, weights=x, minlength=len(rewards)) for x in (q, p))
    return float(ours @ (np.cumsum(theirs) - 0.5 * theirs))


def win_rate_bound(n: float) -> float:
    """n/(n + 1): the most that best-of-n can win against one draw, and its rate where no two rewards are equal."""
    _candidates(n)
    return n / (n + 1)


# ------------------------------------------------------------------------------- models that are trees


def sequences(next: Next, longest: int) -> dict[Tokens, float]:
    """The probability of each sequence, end token included; cut at `longest` tokens.

    next: prefix → probabilities of the next token, [vocabulary], of which the last is that of the end.
    Raises InputError for more than `MOST` sequences.
    """
    return dict(_from((), 1.0, _row(next), longest, longest))


def blockwise_pmf(
    next: Next, value: Callable[[Tokens], float], n: float, block: int, longest: int
) -> dict[Tokens, float]:
    """The policy that draws n blocks of `block` tokens, keeps that whose prefix has the highest value, and goes on.

    block ≥ longest is best-of-n. KL(π ‖ p) ≤ `kl_bound(n, E[blocks])`. Equal values share as in `best_of_n_pmf`; values
    as near as `TIE` are equal, since equal sums differ by rounding. next: as of `sequences`.
    Raises InputError for more than `MOST` sequences, n or block < 1.
    """
    _candidates(n)
    if block < 1:
        raise InputError(f"block={block!r}: expected tokens of a block, at least 1")
    row, found = _row(next), dict[Tokens, float]()
    slack = TIE * max(abs(value(y)) for y in sequences(next, longest))
    open_: dict[Tokens, float] = {(): 1.0}
    while open_:
        after: dict[Tokens, float] = {}
        for prefix, mass in open_.items():
            drawn = dict(_from(prefix, 1.0, row, min(len(prefix) + block, longest), longest))
            p = np.array(list(drawn.values()))
            q = best_of_n_pmf(
                p / p.sum(), _tie_near(np.array([value(y) for y in drawn], np.float64), slack), n
            )
            end = len(row(prefix)) - 1
            for y, share in zip(drawn, q.tolist(), strict=True):
                done = y[-1] == end or len(y) == longest
                (found if done else after)[y] = mass * share
        _few(len(found) + len(after))
        open_ = after
    return found


def tokenwise_pmf(
    next: Next, value: Callable[[Tokens], float], lam: float, longest: int
) -> dict[Tokens, float]:
    """π(z | y) = p(z | y) · e^(λ V(y z)) / Z(y), token by token; next: as of `sequences`.

    With `soft_values` this is the tilt of whole sequences; with `expected_values` it is not.
    Raises InputError for more than `MOST` sequences.
    """
    row = _row(next)

    def tilt_row(prefix: Tokens) -> Floats:
        p = row(prefix)
        values = np.array([value((*prefix, z)) if p[z] > 0 else 0.0 for z in range(len(p))])
        return tilt(p, values, lam)

    return sequences(tilt_row, longest)


def expected_values(of: Mapping[Tokens, float], reward: Callable[[Tokens], float]) -> dict[Tokens, float]:
    """V(prefix) = E_p[r | prefix] of every prefix that has a probability. of: as of `sequences`."""
    return {y: total / mass for y, (mass, total) in _sums(of, reward).items()}


def soft_values(
    of: Mapping[Tokens, float], reward: Callable[[Tokens], float], lam: float
) -> dict[Tokens, float]:
    """V(prefix) = (1/λ) log E_p[e^(λr) | prefix]; for λ = 0 its limit, `expected_values`."""
    if lam == 0.0:
        return expected_values(of, reward)
    top = max(lam * reward(y) for y in of)
    sums = _sums(of, lambda y: math.exp(lam * reward(y) - top))
    # Where the sum underflows, the least float stands for it.
    least = math.log(math.ulp(0.0))
    return {
        y: (top + (math.log(total / mass) if total > 0 else least)) / lam for y, (mass, total) in sums.items()
    }


def expected_blocks(of: Mapping[Tokens, float], block: int) -> float:
    """E[⌈T/block⌉] of sequences of T tokens."""
    return math.fsum(mass * -(-len(y) // block) for y, mass in of.items())


def _sums(of: Mapping[Tokens, float], reward: Callable[[Tokens], float]) -> dict[Tokens, tuple[float, float]]:
    """By prefix: its probability, and Σ p·r over what it may become."""
    found: dict[Tokens, tuple[float, float]] = {}
    for y, p in of.items():
        won = p * reward(y)
        for k in range(len(y) + 1 if p > 0 else 0):
            mass, total = found.get(y[:k], (0.0, 0.0))
            found[y[:k]] = (mass + p, total + won)
    return found


def _row(next: Next) -> Callable[[Tokens], Floats]:
    def row(prefix: Tokens) -> Floats:
        p = np.asarray(next(prefix), np.float64)
        _distribution(p, f"after {prefix!r} ")
        return p

    return row


def _from(
    prefix: Tokens, mass: float, row: Callable[[Tokens], Floats], until: int, longest: int
) -> Iterator[tuple[Tokens, float]]:
    """The continuations of a prefix up to `until` tokens, or to their end, with their probabilities."""
    if longest < 1:
        raise InputError(f"longest={longest!r}: expected tokens, at least 1")
    stack, made = [(prefix, mass)], 0
    while stack:
        y, before = stack.pop()
        p = row(y)
        for z in np.flatnonzero(p).tolist():
            longer, here = (*y, z), before * float(p[z])
            if z == len(p) - 1 or len(longer) >= until:
                made += 1
                _few(made)
                yield longer, here
            else:
                stack.append((longer, here))
        _few(len(stack))


def _few(number: int) -> None:
    if number > MOST:
        raise InputError(f"more than {MOST} sequences are too many to enumerate; lower `longest`")


# --------------------------------------------------------------------------------------------- inside


def _classes(p: Floats, r: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Of each outcome, its class; and the probability of each class, worst rewards first.

    Classes are those that p has; an outcome without probability has some class, which its own 0 undoes.
    """
    rewards = np.unique(r[p > 0])
    of = np.minimum(np.searchsorted(rewards, r), len(rewards) - 1)
    mass = np.bincount(of, weights=p, minlength=len(rewards))
    return np.asarray(of, np.int64), np.asarray(mass, np.float64)


def _tie_near(values: Floats, slack: float) -> Floats:
    """Values with neighbours closer than `slack` made equal to the lowest of them; as they are if one is not finite."""
    if not np.isfinite(values).all():
        return values
    order = np.argsort(values)
    first = ~(np.diff(values[order], prepend=math.nan) <= slack)
    tied = np.empty_like(values)
    tied[order] = values[order][first][np.cumsum(first) - 1]
    return tied


def _grid(log_a: Floats, n: int) -> Iterator[Floats]:
    """Places u = log t where the integrand is not 0, in chunks."""
    starts, stops = -log_a[::-1] - BELOW - math.log(n), -log_a[::-1] + ABOVE
    size = max(1, CELLS // len(log_a))
    at = -math.inf
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        first = max(math.ceil(start / STEP), at)
        last = math.floor(stop / STEP)
        while first <= last:
            end = min(first + size - 1, last)
            yield STEP * np.arange(first, end + 1)
            first = at = end + 1


def _policy(p: ArrayLike, r: ArrayLike) -> tuple[Floats, Floats]:
    p, r = np.asarray(p, np.float64), np.asarray(r, np.float64)
    if p.shape != r.shape or p.ndim != 1 or not p.size:
        raise InputError(f"p {p.shape} and r {r.shape}: expected one [outcomes] for both, not empty")
    _distribution(p, "")
    if not np.isfinite(r).all():
        where = int(np.flatnonzero(~np.isfinite(r))[0])
        raise InputError(f"outcome {where} has the reward {r[where]}: expected finite rewards")
    return p, r


def _distribution(p: Floats, where: str) -> None:
    if not (p >= 0).all() or abs(p.sum() - 1.0) > 1e-9:
        raise InputError(f"{where}p={p.tolist()!r:.80}: expected probabilities that sum to 1")


def _candidates(n: float) -> None:
    if not 1 <= n < math.inf:
        raise InputError(f"n={n!r}: expected a number of candidates, at least 1")
