"""Scaling laws of a study's curves, judged on the points that they were not fitted to.

Coverage follows an exponentiated power law in the number of samples (Brown et al. 2024, Large Language Monkeys); error
against compute is tried as a power law that falls to a floor, and accuracy as a line in the logarithm of compute. Each
is fitted without the last two points. A law that fits and does not extrapolate is none: the held-out error says which.
Coverage beyond the pool is not read off its law, but predicted with an interval (`analysis.extrapolation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np

from metagen.analysis.estimators import pass_at_k
from metagen.analysis.extrapolation import Extrapolated, coverage_beyond
from metagen.analysis.figures import Line
from metagen.analysis.scaling import Fit, Law, fit, predict, refits
from metagen.errors import InputError
from metagen.runs.curves.frontier import curves_with_cost, ladder, main_cost, shared_problems
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Curve, Floats, StudyResult
from metagen.runs.declare import registry
from metagen.runs.note import Note
from metagen.runs.questions.pools import complete_problems, own_pool
from metagen.runs.questions.section import Plot, Table
from metagen.runs.words import axis, join_words, with_interval

#: Times the pool at which coverage is predicted.
MULTIPLES = (1, 4, 16)
#: Points that no law is fitted to.
HELD_OUT = 2
#: Resamples of the problems, and how many of them must have such a law for its parameters to have intervals.
RESAMPLES, ENOUGH = 100, 50


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A law of one curve. of: whose. x, y: the points it is judged on. bounds: of its parameters, over problems.

    fit: None where it could not be fitted, and `why` says why not.
    """

    law: Law
    of: str
    axis: str
    x: Floats
    y: Floats
    fit: Fit | None
    bounds: dict[str, tuple[float, float]]
    why: str = ""


@lru_cache(maxsize=4)
def every(result: StudyResult) -> tuple[Fitted, ...]:
    """Coverage of every model; error and accuracy of its votes against the study's main cost."""
    found = [c for c in (coverage(result, model.name) for model in result.models) if c is not None]
    cost = main_cost(result)
    curves = (
        [c for c in curves_with_cost(result, cost) if c.source == "pool" and registry.says(c.kind, "votes")]
        if cost
        else []
    )
    for curve in curves:
        found += [against(curve, str(cost), "power to a floor"), against(curve, str(cost), "log-linear")]
    return tuple(found)


def coverage(result: StudyResult, model: str) -> Fitted | None:
    """pass@k of a model's pool against k, in powers of two; None without a pool."""
    pool = own_pool(result, model)
    if pool is None or not complete_problems(pool).any():
        return None
    over = complete_problems(pool)
    size, right = pool.classes.shape[1], pool.correct[over].sum(axis=1)
    ks = np.array([2**i for i in range(size.bit_length())], dtype=np.float64)
    rows = np.stack([pass_at_k(size, right, k) for k in ks])
    return _fit("exponentiated power", f"coverage of {model}", "samples n", ks, rows)


@lru_cache(maxsize=4)
def beyond(result: StudyResult) -> dict[str, tuple[int, tuple[Extrapolated, ...]]]:
    """By model with a pool of `FEW` problems or more: its samples a problem, and coverage at `MULTIPLES` of them."""
    found = {}
    for model in result.models:
        pool = own_pool(result, model.name)
        if pool is None or (over := complete_problems(pool)).sum() < FEW:
            continue
        size = pool.classes.shape[1]
        ks = [size * times for times in MULTIPLES]
        found[model.name] = size, tuple(coverage_beyond(size, pool.correct[over].sum(axis=1), ks))
    return found


def against(curve: Curve, cost: str, law: Law) -> Fitted:
    """A law of a curve against a cost."""
    over = shared_problems([curve])
    points, costs = ladder(curve, cost, over)
    accuracy = curve.accuracy[points][:, over]
    rows = accuracy if law == "log-linear" else 1.0 - accuracy
    what = "accuracy" if law == "log-linear" else "error"
    return _fit(law, f"{what} of {curve.name}", axis(cost), costs, rows)


def _fit(law: Law, of: str, label: str, x: Floats, rows: Floats) -> Fitted:
    """rows: [points, problems]."""
    means = rows.mean(axis=1)
    if np.ptp(means) < 1e-12:
        why = f"has no law to fit: it is the same at every point ({means[0]:.3g})"
        return Fitted(law, of, label, x, means, None, {}, why)
    try:
        made = fit(law, x, means, held_out=HELD_OUT)
    except InputError as error:
        return Fitted(law, of, label, x, means, None, {}, f"no law is fitted: {error}")
    drawn = refits(law, x, rows, held_out=HELD_OUT, resamples=RESAMPLES) if rows.shape[1] >= FEW else []
    bounds = dict.fromkeys(made.parameters, (nan, nan))
    if len(drawn) >= ENOUGH:
        for name in bounds:
            low, high = np.quantile([one.parameters[name] for one in drawn], [0.025, 0.975])
            bounds[name] = (float(low), float(high))
    return Fitted(law, of, label, x, means, made, bounds)


def pictures(fitted: tuple[Fitted, ...]) -> list[Plot]:
    """Coverage as measured, and as its law has it."""
    panels = {}
    for one in fitted:
        if one.fit is None or one.law != "exponentiated power":
            continue
        law = np.clip(predict(one.fit, one.x), 0.0, 1.0)
        lines = [Line("measured", one.x.tolist(), one.y.tolist()), Line("law", one.x.tolist(), law.tolist())]
        panels[one.of] = lines
    caption = f"Laws are fitted without the last {HELD_OUT} points of each curve."
    return (
        [Plot("coverage", "Coverage and its law", caption, "samples n", "coverage", panels, "log2")]
        if panels
        else []
    )


def tables(fitted: tuple[Fitted, ...]) -> list[Table]:
    """Parameters with intervals, and the errors where the law was not fitted."""
    rows = []
    for one in fitted:
        if one.fit is None:
            continue
        parameters = ", ".join(_parameter(n, v, one.bounds[n]) for n, v in one.fit.parameters.items())
        held = ", ".join(f"{100 * v:+.1f}".replace("-", "−") for v in one.fit.held_out)
        rows.append((one.of, one.law, parameters, f"{100 * one.fit.rmse:.2f}", held))
    caption = (
        "Scaling laws with 95% intervals over problems; errors are in points. “Held out” is measured − predicted at "
        f"the last {HELD_OUT} points, which no fit used."
    )
    columns = ("curve", "law", "parameters", "error of the fit", "held out")
    return [Table("laws", caption, columns, tuple(rows), frozenset({3}))] if rows else []


def predict_coverage(result: StudyResult) -> list[Table]:
    """Coverage of more samples than there are, with its interval."""
    rows = []
    for model, (size, found) in beyond(result).items():
        fits = "" if found[0].fits else "no, or too few solved to tell: bounds of any distribution"
        rows.append(
            (
                model,
                str(size),
                *(with_interval(one.estimate, one.low, one.high) for one in found),
                fits or "yes",
            )
        )
    caption = (
        "Coverage (pass@k) of fresh problems at multiples of the pool's samples, predicted from the number of right "
        "samples of each problem. Chances follow a beta distribution, except for unsolvable problems. 95% "
        "intervals."
    )
    columns = ("model", "samples", *(f"at {times} times" for times in MULTIPLES), "fits")
    return [Table("coverage-beyond", caption, columns, tuple(rows), frozenset({1, 2, 3, 4}))] if rows else []


def notes(fitted: tuple[Fitted, ...]) -> list[Note]:
    """Where no law could be fitted, and why: one for each reason."""
    reasons: dict[str, list[str]] = {}
    for one in fitted:
        if one.fit is None:
            reasons.setdefault(one.why, []).append(one.of)
    return [Note(join_words(curves), why) for why, curves in reasons.items()]


def _parameter(name: str, value: float, bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{name} = {_number(value)}" + ("" if np.isnan(low) else f" [{_number(low)}, {_number(high)}]")


def _number(value: float) -> str:
    """Three digits; what is as good as zero is zero."""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"
