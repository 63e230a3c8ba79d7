"""Several comparisons over the same problems: paired differences with one correction, and the price of having picked.

A family is a set of comparisons that are read together: the larger it is, the more of them differ by chance. The option
that is best on some problems looks better there than it is; problems without a say in the choice tell its worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isinf, isnan, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.intervals import SHARES, Support, interval
from metagen.analysis.paired import Difference, paired_difference
from metagen.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Mean of b − a over the problems that have both, as one of a family.

    a, b: means. difference: its interval is the comparison's own, at 1 − alpha; its p_value uncorrected; `detectable`
    allows for the family (at alpha over its size, so a bound for Holm), inf where so few problems can show none of any
    size. p_value: Holm's; NaN where the problems cannot tell. shown: p_value ≤ alpha. more, less: shares of problems on
    which b is above a, and below. tests: how many were corrected together. alpha: the level of the family.
    """

    name: str
    a: float
    b: float
    difference: Difference
    p_value: float
    shown: bool
    more: float = nan
    less: float = nan
    tests: int = 1
    alpha: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """The worth of the option that is picked as best, on problems that did not pick it.

    estimate: mean over problems that had no say. low, high: from the lower bound of the chosen option on all problems,
    moved down to that mean, to its upper bound. All NaN for one problem. naive: the mean of the chosen option on
    all problems, which flatters. chosen: the option that all problems pick. shares: how often halves picked each,
    [options].
    """

    estimate: float
    low: float
    high: float
    naive: float
    chosen: int
    shares: Floats


def best(values: Floats) -> int:
    """The option with the highest mean, the first of equals; values: [options, problems]."""
    return int(np.argmax(values.mean(axis=1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979): ordered, times how many are left, never falling. NaN stays."""
    known = sorted((p, i) for i, p in enumerate(p_values) if not isnan(p))
    corrected, least = list(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        corrected[i] = least
    return corrected


def contrasts(
    rows: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    support: Support | None = SHARES,
    alpha: float = 0.05,
    fewest: int = 2,
) -> list[Contrast]:
    """Mean of b − a of each pair (a, b) of [problems], paired by problem, as one family corrected by Holm.

    Problems that are NaN in a or in b are left out of that pair; a pair that keeps less than `fewest`, or one, has an
    estimate alone, p_value NaN, and does not count for the correction. support: of a and b. Raises
    InputError for shapes that differ, and values that are infinite or outside of the support.
    """
    pairs = {name: _pair(name, *pair) for name, pair in rows.items()}
    tests = sum(len(a) >= max(fewest, 2) for a, _ in pairs.values())
    found = {
        name: paired_difference(b, a, support=support, level=1.0 - alpha, tests=max(tests, 1), fewest=fewest)
        if len(a)
        else Difference(nan, nan, nan, nan, nan, 0)
        for name, (a, b) in pairs.items()
    }
    corrected = holm([d.p_value for d in found.values()])
    return [
        Contrast(
            name,
            a=float(a.mean()) if len(a) else nan,
            b=float(b.mean()) if len(b) else nan,
            difference=found[name],
            p_value=p,
            shown=p <= alpha,
            more=float((b > a).mean()) if len(a) else nan,
            less=float((b < a).mean()) if len(a) else nan,
            tests=max(tests, 1),
            alpha=alpha,
        )
        for (name, (a, b)), p in zip(pairs.items(), corrected, strict=True)
    ]


def sentence(c: Contrast) -> str:
    """The contrast in words; differences in points, for values in [0, 1]."""
    d = c.difference
    if d.problems == 0:
        return "no problem has both: nothing to compare"
    if d.problems == 1:
        return f"{_points(d.estimate)} on one problem, which tells nothing about others"
    if isnan(c.p_value):
        return f"{_points(d.estimate)} on {d.problems} problems, too few for an interval or a test"
    number = p_number(c.p_value)
    p = (f"p {number}" if number.startswith("<") else f"p = {number}") + (
        f", corrected for {c.tests} comparisons (Holm)" if c.tests > 1 else ""
    )
    if isnan(d.detectable):  # no spread
        if d.estimate != 0.0:
            return f"{_points(d.estimate)} on each of {d.problems} problems, {p}"
        same = {0.0: "neither solves any of", 1.0: "both solve all"}.get(
            c.a, "both have the same accuracy on each of"
        )
        return f"{same} {d.problems} problems, which cannot tell them apart"
    alone = " uncorrected" if c.tests > 1 else ""
    spread = f"{100 * (1 - c.alpha):g}% interval{alone} [{_sign_text(d.low)}, {_sign_text(d.high)}]"
    found = f"{_points(d.estimate)}, {spread}, {p}"
    if c.shown:
        return found
    least = "none of any size" if isinf(d.detectable) else f"{100 * d.detectable:.1f} points"
    return f"not shown to differ (smallest detectable difference {least}): {found}"


def p_number(p_value: float) -> str:
    """A p-value as tables say it: `0.031`, `< 0.001`, a dash for no test."""
    if isnan(p_value):
        return "–"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}" if p_value < 0.0995 else f"{p_value:.2f}"


def pick(
    values: ArrayLike,
    *,
    judged: ArrayLike | None = None,
    choose: Callable[[Floats], int] = best,
    support: Support | None = None,
    halvings: int = 20,
    level: float = 0.95,
    seed: int = 0,
) -> Picked:
    """Pick one of several options on one half of the problems, measure it on the other, both ways, many times.

    values: [options, problems], higher is better. judged: of the same shape, the values to measure of the option that
    was picked; the values themselves by default. choose: from values of some problems to an option. support: of what is
    judged (see `intervals.interval`). Half as many problems pick worse than all do, so the estimate is, if anything,
    low, and the chosen option's own mean is high; the interval spans both. Raises InputError for no option or problem,
    shapes that differ, or values that are not finite.
    """
    x = np.asarray(values, dtype=np.float64)
    y = x if judged is None else np.asarray(judged, dtype=np.float64)
    for name, given in (("values", x), ("judged", y)):
        if x.ndim != 2 or given.shape != x.shape or 0 in x.shape or not np.isfinite(given).all():
            raise InputError(
                f"picking among {name} {given.shape}, {int((~np.isfinite(given)).sum())} of them not finite: expected "
                "finite [options, problems]; leave out the problems that have no value"
            )
    options, problems = x.shape
    chosen = choose(x)
    naive = float(y[chosen].mean())
    if problems == 1:
        return Picked(nan, nan, nan, naive, chosen, np.eye(options)[chosen])
    rng = np.random.default_rng(seed)
    held, shares = 0.0, np.zeros(options)
    for _ in range(halvings):
        order = rng.permutation(problems)
        halves = order[: problems // 2], order[problems // 2 :]
        for voters, others in (halves, halves[::-1]):
            choice = choose(x[:, voters])
            shares[choice] += 1.0 / (2 * halvings)
            held += float(y[choice, others].sum())
    estimate = held / (halvings * problems)
    bounds = interval(y[chosen], support=support, level=level)
    low = min(float(bounds.low) + min(estimate - naive, 0.0), estimate)
    high = max(float(bounds.high), estimate)
    return Picked(estimate, low if support is None else max(low, support[0]), high, naive, chosen, shares)


def _pair(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or np.isinf(x).any() or np.isinf(y).any():
        raise InputError(
            f"{name}: values of shapes {x.shape} and {y.shape}; expected one [problems] for both, none infinite"
        )
    both = ~(np.isnan(x) | np.isnan(y))
    return x[both], y[both]


def _sign_text(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _points(share: float) -> str:
    return f"{_sign_text(share)} points"
