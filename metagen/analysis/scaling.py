"""Scaling laws, fitted to the cheap end of a curve and judged at the other.

A law that was fitted to all points says little by fitting them. So the last points are held out, and the error that is
reported is that of extrapolating to them. Laws, of means over problems:

- "exponentiated power": coverage c(k) = exp(a·k^b), a < 0, b < 0 (Brown et al. 2024, Large Language Monkeys);
- "power to a floor": error e(C) = floor + scale·C^(−exponent), as laws of training are written (Hoffmann et al. 2022);
- "log-linear": accuracy = intercept + slope·ln C, which can hold over a range only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from metagen.errors import InputError

Floats = NDArray[np.float64]
Law = Literal["exponentiated power", "log-linear", "power to a floor"]

#: Parameters of each law.
PARAMETERS: dict[Law, tuple[str, ...]] = {
    "exponentiated power": ("a", "b"),
    "log-linear": ("intercept", "slope"),
    "power to a floor": ("floor", "scale", "exponent"),
}

#: Exponents of a power law that falls to a floor; each round looks at so many, between the neighbours of the best.
EXPONENTS, STEPS, ROUNDS = (1e-4, 10.0), 64, 5
#: A law that moves by less than this share of its data stands at the bound of its parameters.
FLAT = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A law with its parameters by name.

    held_out: [held-out points], measured − predicted at the largest x, ascending, to which the law was not fitted.
    rmse: root mean square of the residuals at the other points. ks: x of these.
    """

    law: Law
    parameters: dict[str, float]
    held_out: Floats
    rmse: float
    ks: tuple[float, ...]

    @property
    def extrapolation(self) -> float:
        """Root mean square of `held_out`; NaN where nothing was held out."""
        return float(np.sqrt(np.square(self.held_out).mean())) if self.held_out.size else float("nan")


def fit(law: Law, x: ArrayLike, y: ArrayLike, *, held_out: int = 2, weights: ArrayLike | None = None) -> Fit:
    """Least squares without the `held_out` points of largest x.

    x, y: [points]; x > 0, numbers of samples or a cost, in any order. y: coverage, accuracy or error, as the law says.
    weights: [points], of squares, such as 1/variance; ratios count. Raises InputError for an unknown law, shapes that
    differ, values that are not finite, fewer points to fit than parameters, or a y that there does not vary, or not the
    way that its law does.
    """
    if law not in PARAMETERS:
        raise InputError(f"law={law!r}: expected one of {', '.join(map(repr, PARAMETERS))}")
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    w = np.ones(xs.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if not xs.shape == ys.shape == w.shape or xs.ndim != 1:
        raise InputError(
            f"{law}: x {xs.shape}, y {ys.shape}, weights {w.shape}; expected one [points] for all"
        )
    if not (np.isfinite(xs).all() and np.isfinite(ys).all() and (xs > 0).all() and (w > 0).all()):
        raise InputError(
            f"{law}: expected finite x > 0, finite y, and weights > 0; got x={xs}, y={ys}, weights={w}"
        )
    order = np.argsort(xs, kind="stable")
    xs, ys, w = xs[order], ys[order], w[order]
    fitted = len(xs) - held_out
    needed = len(PARAMETERS[law])
    if held_out < 0 or len(np.unique(xs[: max(fitted, 0)])) < needed:
        raise InputError(
            f"{law}: {len(xs)} points with held_out={held_out} leave too few; expected at least {needed} different x "
            "to fit; measure more n, or hold out fewer"
        )
    seen, got = xs[:fitted], ys[:fitted]
    if np.ptp(got) == 0.0:
        raise InputError(f"{law}: y is {got[0]:g} at all {fitted} points to fit; a constant has no law")
    parameters = _FITS[law](seen, got, 1.0 / np.sqrt(w[:fitted]))
    named = dict(zip(PARAMETERS[law], parameters.tolist(), strict=True))
    found = Fit(law, named, np.zeros(0), 0.0, tuple(seen.tolist()))
    line = predict(found, xs)
    if law in _WAYS and np.ptp(line[:fitted]) < FLAT * np.ptp(got):
        raise InputError(
            f"{law}: no law: y does not {_WAYS[law]} with x, from {got[0]:.3g} at x={seen[0]:.3g} to {got[-1]:.3g} at "
            f"x={seen[-1]:.3g}; fit a curve that does, or measure points further apart"
        )
    rest = ys - line
    rmse = float(np.sqrt(np.square(rest[:fitted]).mean()))
    return Fit(law, found.parameters, rest[fitted:], rmse, found.ks)


def predict(fit: Fit, x: ArrayLike) -> Floats:
    """The law at x, of any shape. Log-linear laws leave [0, 1] in the end."""
    values = np.asarray(x, dtype=np.float64)
    p = [fit.parameters[name] for name in PARAMETERS[fit.law]]
    return np.asarray(_FORMULAS[fit.law](values, *p))


def refits(
    law: Law, x: ArrayLike, rows: ArrayLike, *, held_out: int = 2, resamples: int = 200, seed: int = 0
) -> list[Fit]:
    """The law fitted to means over resampled problems, which shows how its parameters vary.

    Beyond the points, predictions from these hold the truth far too seldom, since they take the law as given. For
    coverage see `extrapolation.coverage_beyond`.

    x: [points]; rows: [points, problems]. Resamples that have no law, such as constants, are left out, so fewer may
    come back. Raises InputError as `fit` for the means over all problems.
    """
    values = np.asarray(rows, dtype=np.float64)
    fit(law, x, values.mean(axis=1), held_out=held_out)
    rng = np.random.default_rng(seed)
    problems = values.shape[1]
    found = []
    for _ in range(resamples):
        means = values[:, rng.integers(problems, size=problems)].mean(axis=1)
        with suppress(InputError):
            found.append(fit(law, x, means, held_out=held_out))
    return found


def _exponentiated_power(x: Floats, a: float, b: float) -> Floats:
    return np.asarray(np.exp(a * x**b))


def _log_linear(x: Floats, intercept: float, slope: float) -> Floats:
    return np.asarray(intercept + slope * np.log(x))


def _to_a_floor(x: Floats, floor: float, scale: float, exponent: float) -> Floats:
    return np.asarray(floor + scale * x**-exponent)


def _exponentiated_power_slopes(x: Floats, a: float, b: float) -> Floats:
    """[points, parameters], how the formula changes with each."""
    power = x**b
    value = np.exp(a * power)
    return np.stack([value * power, value * a * power * np.log(x)], axis=1)


def _fit_exponentiated_power(x: Floats, y: Floats, sigma: Floats) -> Floats:
    """From the line ln(−ln c) = ln(−a) + b·ln k, refined where errors are those of c."""
    inner = np.log(-np.log(np.clip(y, 1e-6, 1.0 - 1e-6)))
    slope, start = np.polyfit(np.log(x), inner, 1)
    return _least_squares(
        _exponentiated_power,
        _exponentiated_power_slopes,
        x,
        y,
        sigma,
        (-np.exp(start), min(slope, -1e-3)),
        ((-np.inf, -np.inf), (0.0, 0.0)),
    )


def _fit_log_linear(x: Floats, y: Floats, sigma: Floats) -> Floats:
    slope, intercept = np.polyfit(np.log(x), y, 1, w=1.0 / sigma)
    return np.array([intercept, slope])


def _fit_to_a_floor(x: Floats, y: Floats, sigma: Floats) -> Floats:
    """By the exponent alone, ever more finely: it fixes floor and scale, which are a line within bounds.

    In units of the geometric mean of x, so that the three parameters are of one size.
    """
    unit = float(np.exp(np.log(x).mean()))
    w = sigma**-2 / (sigma**-2).sum()
    found, (low, high) = np.zeros(3), EXPONENTS
    for _ in range(ROUNDS):
        exponents = np.geomspace(low, high, STEPS)
        power = (x / unit) ** -exponents[:, None]
        mean = power @ w
        slope = (power * y @ w - mean * (y @ w)) / ((power - mean[:, None]) ** 2 @ w)
        floor = np.clip(y @ w - np.maximum(slope, 0.0) * mean, 0.0, 1.0)
        scale = np.maximum(power * (y - floor[:, None]) @ w / (power**2 @ w), 0.0)
        loss = (y - floor[:, None] - scale[:, None] * power) ** 2 @ w
        at = int(loss.argmin())
        low, high = exponents[max(at - 1, 0)], exponents[min(at + 1, STEPS - 1)]
        found = np.array([floor[at], scale[at] * unit ** exponents[at], exponents[at]])
    return found


def _least_squares(
    formula: Callable[..., Floats],
    slopes: Callable[..., Floats],
    x: Floats,
    y: Floats,
    sigma: Floats,
    start: tuple[float, ...],
    bounds: tuple[tuple[float, ...], tuple[float, ...]],
) -> Floats:
    def residuals(parameters: Floats) -> Floats:
        return (formula(x, *parameters) - y) / sigma

    def jacobian(parameters: Floats) -> Floats:
        return slopes(x, *parameters) / sigma[:, None]

    found = least_squares(
        residuals, start, jacobian, bounds, max_nfev=20_000, ftol=1e-12, xtol=1e-12, gtol=1e-12
    )
    if not found.success:
        raise InputError(f"no law found in {found.nfev} steps for x={x}, y={y}; measure points further apart")
    return np.asarray(found.x, dtype=np.float64)


_FITS: dict[Law, Callable[[Floats, Floats, Floats], Floats]] = {
    "exponentiated power": _fit_exponentiated_power,
    "log-linear": _fit_log_linear,
    "power to a floor": _fit_to_a_floor,
}
_FORMULAS: dict[Law, Callable[..., Floats]] = {
    "exponentiated power": _exponentiated_power,
    "log-linear": _log_linear,
    "power to a floor": _to_a_floor,
}
#: The course of y with x under the laws that go one way only.
_WAYS: dict[Law, str] = {"exponentiated power": "rise", "power to a floor": "fall"}
