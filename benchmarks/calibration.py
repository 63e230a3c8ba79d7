"""How often 95% intervals hold the truth: simulated studies whose truth is known.

    make bench ARGS=calibration             # every cell; minutes
    python -m benchmarks.calibration        # the same, as the table of docs/studies/statistics.md

A cell is a quantity, a number of problems, a form of difficulty and the true share of right samples. Each repetition
draws fresh problems from the form, and fresh samples of each: the truth is the mean over all problems of that form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import binom, hypergeom

from benchmarks.row import Row
from metagen.analysis.comparison import pick
from metagen.analysis.estimators import best_of_k
from metagen.analysis.extrapolation import coverage_beyond
from metagen.analysis.intervals import DIFFERENCES, SHARES, interval
from metagen.analysis.ties import first_best

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

PROBLEMS = (30, 64, 198, 500)
TRUTHS = (0.005, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.995)
#: Samples of a problem; of votes and of best-of-n; where coverage is read beyond the pool.
SAMPLES, VOTES, CHOICES, BEYOND = 64, 9, 4, 1024
#: Chances that stand for all problems of a form.
ALL = 200_000
#: Repetitions of a cell, and of the quantities that take more time for each.
REPEATS = {"recommended": 150, "pass@1024": 60}
MOST = 400
#: Problems that are simulated at once.
AT_ONCE = 20_000
#: Coverage that counts as kept.
LEAST, GREATEST = 0.93, 0.97


def _wide(mean: float) -> Draw:
    return lambda rng, size: rng.beta(mean, 1.0 - mean, size)


def _narrow(mean: float) -> Draw:
    return lambda rng, size: rng.beta(5.0 * mean, 5.0 * (1.0 - mean), size)


def _two(low: float, high: float, mean: float) -> Draw:
    share = (mean - low) / (high - low)
    return lambda rng, size: np.where(rng.random(size) < share, high, low)


def _bimodal(mean: float) -> Draw:
    return _two(min(0.1, mean / 2.0), max(0.9, (1.0 + mean) / 2.0), mean)


def _few(mean: float) -> Draw:
    """Few hard among easy; where most are hard, few easy."""
    if mean >= 0.5:
        return _two(0.05, 1.0 - (1.0 - mean) / 4.0, mean)
    return _two(mean / 4.0, 0.95, mean)


FORMS: dict[str, Callable[[float], Draw]] = {
    "wide": _wide,
    "narrow": _narrow,
    "bimodal": _bimodal,
    "few others": _few,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """truth: the share of right samples. value: the true value of the quantity. covered: share of repetitions."""

    quantity: str
    problems: int
    form: str
    truth: float
    value: float
    covered: float
    width: float
    repeats: int


def majority(chances: Floats) -> Floats:
    return np.asarray(binom.sf(VOTES // 2, VOTES, np.maximum(chances, 1e-15)))


def best(chances: Floats) -> Floats:
    """Scores of right samples are those of the better of two wrong ones: of j right ones 2j / (k + j) is best."""
    right = np.arange(CHOICES + 1)
    p = chances[..., None]
    share = comb(CHOICES, right) * p**right * (1.0 - p) ** (CHOICES - right)
    return np.asarray((share * (2 * right / (CHOICES + right))).sum(axis=-1))


def cells(
    problems: Sequence[int] = PROBLEMS,
    truths: Sequence[float] = TRUTHS,
    forms: Sequence[str] = tuple(FORMS),
    most: int = MOST,
) -> Iterator[Cell]:
    """Every cell of every quantity; most: repetitions at most."""
    for form in forms:
        for truth in truths:
            for count in problems:
                yield from _cells(form, truth, count, most)


def _cells(form: str, truth: float, count: int, most: int) -> Iterator[Cell]:
    rng = np.random.default_rng(crc32(f"{form} {truth} {count}".encode()))
    draw = FORMS[form](truth)
    every = draw(rng, ALL)
    chances = draw(rng, most * count).reshape(most, count)
    drawn = [_measure(rng, some) for some in np.array_split(chances, -(-most * count // AT_ONCE))]
    rows = {name: np.concatenate([part[name] for part in drawn]) for name in drawn[0]}
    values = {
        "single": float(every.mean()),
        "majority@9": float(majority(every).mean()),
        "best-of-4": float(best(every).mean()),
    }

    def cell(quantity: str, value: float, low: Floats, high: Floats) -> Cell:
        held = (low <= value + 1e-4) & (value - 1e-4 <= high)  # the truth is itself a mean over ALL chances
        return Cell(
            quantity, count, form, truth, value, float(held.mean()), float(np.mean(high - low)), len(low)
        )

    for name, block in rows.items():
        at = interval(block, support=SHARES)
        yield cell(name, values[name], at.low, at.high)
    again = rng.binomial(SAMPLES, chances) / SAMPLES
    pairs = {
        "majority − single": (rows["majority@9"] - rows["single"], values["majority@9"] - values["single"]),
        "best-of − single": (rows["best-of-4"] - rows["single"], values["best-of-4"] - values["single"]),
        "two pools": (again - rows["single"], 0.0),
    }
    for name, (block, value) in pairs.items():
        at = interval(block, support=DIFFERENCES)
        yield cell(name, value, at.low, at.high)
    yield _recommended(rows, again, values, form, truth, count, most)
    yield _beyond(rows["single"], every, cell, most)


def _measure(rng: np.random.Generator, chances: Floats) -> dict[str, Floats]:
    """By strategy, the accuracies on pools of these problems, [repetitions, problems]."""
    correct = rng.random((chances.size, SAMPLES), np.float32) < chances.ravel()[:, None]
    scores = rng.random((chances.size, SAMPLES), np.float32)
    scores[correct] **= 0.5
    right = correct.sum(axis=1)
    found = {
        "single": right / SAMPLES,
        "majority@9": _VOTED[right],
        "best-of-4": best_of_k(scores, correct, [CHOICES]).accuracy[0],
    }
    return {name: np.asarray(values).reshape(chances.shape) for name, values in found.items()}


def _recommended(
    rows: dict[str, Floats],
    again: Floats,
    values: dict[str, float],
    form: str,
    truth: float,
    count: int,
    most: int,
) -> Cell:
    """Of the three, and of a second model that is as good as the first: each time the value of what was picked."""
    options = [rows["single"], again, rows["best-of-4"], rows["majority@9"]]
    worth = [values["single"], values["single"], values["best-of-4"], values["majority@9"]]
    held, wide = [], []
    for i in range(min(most, REPEATS["recommended"])):
        one = pick(
            np.stack([option[i] for option in options]), support=SHARES,
            choose=lambda some: first_best(some.mean(axis=1)), seed=i,
        )  # fmt: skip
        held.append(one.low - 1e-4 <= worth[one.chosen] <= one.high + 1e-4)
        wide.append(one.high - one.low)
    value = max(worth)
    return Cell(
        "recommended", count, form, truth, value, float(np.mean(held)), float(np.mean(wide)), len(held)
    )


def _beyond(
    single: Floats, every: Floats, cell: Callable[[str, float, Floats, Floats], Cell], most: int
) -> Cell:
    value = float(-np.expm1(BEYOND * np.log1p(-np.minimum(every, 1.0 - 1e-12))).mean())
    some = single[: min(most, REPEATS["pass@1024"])]
    found = [coverage_beyond(SAMPLES, np.rint(row * SAMPLES), [BEYOND])[0] for row in some]
    return cell(
        "pass@1024", value, np.array([one.low for one in found]), np.array([one.high for one in found])
    )


#: Majority over subsets of a pool, by its number of right samples; wrong ones agree.
_VOTED = hypergeom.sf(VOTES // 2, SAMPLES, np.arange(SAMPLES + 1), VOTES)


def markdown(every: Sequence[Cell]) -> str:
    """A row for each quantity and number of problems; then the cells below."""
    lines = [
        "| quantity | problems | lowest | mean | below 93% | 93–97% | above 97% | mean width, points |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for quantity in dict.fromkeys(cell.quantity for cell in every):
        for count in dict.fromkeys(cell.problems for cell in every):
            mine = [cell for cell in every if (cell.quantity, cell.problems) == (quantity, count)]
            held = np.array([cell.covered for cell in mine])
            kept = (held >= LEAST) & (held <= GREATEST)
            lines.append(
                f"| {quantity} | {count} | {held.min():.1%} | {held.mean():.1%} | {(held < LEAST).sum()} "
                f"| {kept.sum()} | {(held > GREATEST).sum()} | {100 * np.mean([c.width for c in mine]):.1f} |"
            )
    low = sorted((cell for cell in every if cell.covered < LEAST), key=lambda cell: cell.covered)
    lines += [
        "",
        "| below 93% | problems | difficulty | right samples | true value | held in |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.quantity} | {c.problems} | {c.form} | {c.truth:.1%} | {c.value:.1%} | {c.covered:.1%} |"
        for c in low
    ]
    return "\n".join(lines)


def rows() -> list[Row]:
    """The lowest and the mean coverage of each quantity over all cells."""
    every = list(cells())
    found = []
    for quantity in dict.fromkeys(cell.quantity for cell in every):
        held = np.array([cell.covered for cell in every if cell.quantity == quantity])
        how = f"95% intervals in {len(held)} cells of problems, difficulty and truth"
        found += [
            Row(f"coverage of {quantity}, mean", 100 * float(held.mean()), "%", how, "≥ 93"),
            Row(
                f"coverage of {quantity}, cells of at least 93%",
                100 * float((held >= LEAST).mean()),
                "%",
                how,
            ),
        ]
    return found


if __name__ == "__main__":
    print(markdown(list(cells())))
