"""What a report shows of any study, from its curves alone.

Accuracy against each cost, where the compute went, and what was tuned.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from math import isfinite, nan

import numpy as np

from metagen.analysis.figures import Line
from metagen.html import amount
from metagen.runs import words
from metagen.runs.curves.measured import bounds
from metagen.runs.curves.study import Rated, StudyResult
from metagen.runs.declare.settings import AS_WRITTEN
from metagen.runs.declare.study import COSTS
from metagen.runs.declare.study_schema import PLAIN
from metagen.runs.questions.section import Plot, Section, Table, has_band

#: Columns of `curves.csv` that are a curve's, and those that are a row's.
OF_CURVES = ("model", "strategy", "kind", "setting", "source")
OF_ROWS = ("accuracy", "low", "high", "stderr", "error")


@dataclass(frozen=True, slots=True)
class Row(Rated):
    """One configuration over the problems that have it: `problems` of them.

    costs: means, NaN where unknown. verification: mean of the verifiers' FLOPs.
    """

    problems: int
    costs: dict[str, float]
    verification: float

    @property
    def error(self) -> float:
        """What the table calls the noise."""
        return self.noise


@lru_cache(maxsize=2)
def rows(result: StudyResult) -> tuple[Row, ...]:
    """Every configuration that any problem has, curve by curve."""
    places = [(c, p) for c in result.curves for p in range(len(c.ns)) if np.isfinite(c.accuracy[p]).any()]
    masks = [np.isfinite(c.accuracy[p]) for c, p in places]
    rated = bounds([c.accuracy[p, over] for (c, p), over in zip(places, masks, strict=True)])
    return tuple(
        Row(
            curve,
            point,
            *at,
            curve.noise(point, over),
            int(over.sum()),
            {name: float(values[point, over].mean()) for name, values in curve.costs.items()},
            float(curve.verification[point, over].mean()),
        )
        for (curve, point), over, at in zip(places, masks, rated, strict=True)
    )


def sections(result: StudyResult) -> list[Section]:
    """What curves alone can say; without those that would be empty."""
    made = (curves(result), breakdown(result), tuning_section(result))
    return [section for section in made if section.pictures or section.tables]


def curves(result: StudyResult) -> Section:
    """Accuracy against each cost that a curve knows: a panel for each strategy, a line for each model."""
    pictures = [
        Plot(
            f"accuracy-{cost}",
            "Accuracy of each strategy",
            f"{_how(cost)}{' Bands are 95% intervals over problems.' if has_band(panels) else ''}",
            words.axis(cost),
            "accuracy",
            panels,
            "log2" if cost == "samples" else "log",
        )
        for cost in _costs(result)
        if (panels := _panels(result, cost))
    ]
    text = (
        "Each model under each strategy, over the problems that have the result. Parallel strategies are averages over "
        "random subsets of one pool of samples; searches ran by themselves at each n. (oracle): chosen by the "
        "reference answer; an upper bound, never a method."
    )
    return Section("curves", "Models under each strategy", text, pictures=tuple(pictures))


def breakdown(result: StudyResult) -> Section:
    """Generation and verification, of each curve at its largest n."""
    found = []
    for row in _largest(rows(result)):
        flops = row.costs.get("flops", nan)
        if isfinite(flops) and flops > 0 and isfinite(row.verification) and not row.curve.oracle:
            part = row.verification / flops
            found.append(
                (
                    row.curve.configuration(row.point),
                    amount(flops),
                    amount(flops - row.verification),
                    amount(row.verification),
                    f"{100 * part:.1f}%",
                )
            )
    if not found:
        return Section("breakdown", "Generating and verifying")
    columns = ("configuration", "FLOPs", "generation", "verification", "share of verification")
    table = Table(
        "breakdown",
        "FLOPs per problem, each strategy at its largest n.",
        columns,
        tuple(found),
        _behind(columns),
    )
    return Section("breakdown", "Generating and verifying", tables=(table,))


def tuning_section(result: StudyResult) -> Section:
    """The settings that were tried on development problems, and those that were frozen."""
    found = [
        (
            t.model,
            t.strategy,
            setting or AS_WRITTEN,
            words.share(accuracy),
            "frozen" if setting == t.chosen else "",
            f"{t.problems:,}",
            "unknown" if t.flops is None else amount(t.flops),
        )
        for t in result.tuned
        for setting, accuracy in t.settings.items()
    ]
    if not found:
        return Section("tuned", "What was tuned")
    columns = (
        "model",
        "strategy",
        "setting",
        "accuracy there",
        "",
        "development problems",
        "FLOPs of tuning, in all",
    )
    text = (
        f"Settings were tried on development problems, none of them test problems; the best in the mean over its n was "
        f"frozen before anything was tested. {tuning(result)}"
    )
    table = Table(
        "tuned", "Mean accuracy on development problems.", columns, tuple(found), frozenset({3, 5, 6})
    )
    return Section("tuned", "What was tuned", text, tables=(table,))


def tuning(result: StudyResult) -> str:
    """Whether every strategy with knobs tried as many settings; if not, which did not."""
    tried: dict[int, dict[str, None]] = {}
    for one in result.tuned:
        tried.setdefault(len(one.settings), {})[one.strategy] = None
    known = {(one.model, one.strategy) for one in result.tuned}
    left = dict.fromkeys(
        c.strategy
        for c in result.curves
        if not c.oracle and c.kind not in PLAIN and (c.model, c.strategy) not in known
    )
    if len(tried) == 1 and not left:
        return f"Every strategy with knobs tried as many: {next(iter(tried))}."
    said = [
        f"{words.join_words(list(names))} tried {count} {'setting' if count == 1 else 'settings'}"
        for count, names in sorted(tried.items(), reverse=True)
    ]
    if left:
        said.append(
            f"{words.join_words(list(left))} {'was' if len(left) == 1 else 'were'} not tuned, and ran as written"
        )
    return f"Not every strategy tried as many, which favours those that tried more: {'; '.join(said)}."


def tidy(result: StudyResult) -> str:
    """`curves.csv`: a line for each configuration, accuracies as shares, costs as means per problem."""
    names = [*COSTS, *sorted({name for c in result.curves for name in c.costs} - set(COSTS))]
    # What is 0 throughout has no price: that is unknown, and not free.
    unpriced = {
        name for name in ("money",) if not any(row.costs.get(name, nan) > 0.0 for row in rows(result))
    }
    file = StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*OF_CURVES, "oracle", "n", "problems", *OF_ROWS, *names, "verification"])
    for row in rows(result):
        costs = (nan if name in unpriced else row.costs.get(name, nan) for name in names)
        numbers = (*(getattr(row, name) for name in OF_ROWS), *costs, row.verification)
        out.writerow(
            [
                *(getattr(row.curve, name) for name in OF_CURVES),
                str(row.curve.oracle).lower(),
                row.n or "",
                row.problems,
                *(f"{v:.7g}" if isfinite(v) else "" for v in numbers),
            ]
        )
    return file.getvalue()


def _panels(result: StudyResult, cost: str) -> dict[str, list[Line]]:
    """A panel for each strategy of which a model has several points at a known cost."""
    found: dict[str, list[Line]] = {}
    for strategy, ours in _by_strategy(rows(result)).items():
        for model in dict.fromkeys(row.curve.model for row in ours):
            known = [r for r in ours if r.curve.model == model and isfinite(r.costs.get(cost, nan))]
            if len(known) > 1:
                x = [row.costs[cost] for row in known]
                y, low, high = ([getattr(row, at) for row in known] for at in ("accuracy", "low", "high"))
                band = (low, high) if all(map(isfinite, low)) else (None, None)
                found.setdefault(strategy, []).append(Line(model, x, y, *band))
    return found


def _how(cost: str) -> str:
    kind = cost.partition(":")[0]
    if kind in ("roofline", "latency"):
        return "Seconds are modelled from the accelerator’s peak and bandwidth."
    if cost == "seconds":
        return f"Measured, of what ran by itself. {words.TIMED}"
    if cost == "physical":
        return "Measured."
    return "As accounted: what each configuration would spend by itself, its verifier included."


def _costs(result: StudyResult) -> list[str]:
    names = {name for c in result.curves for name in c.costs}
    return sorted(names, key=lambda name: (COSTS.index(name) if name in COSTS else len(COSTS), name))


def _by_strategy(found: Iterable[Row]) -> dict[str, list[Row]]:
    """By name; what knows the answers says so."""
    by: dict[str, list[Row]] = {}
    for row in found:
        name = f"{row.curve.strategy} (oracle)" if row.curve.oracle else row.curve.strategy
        by.setdefault(name, []).append(row)
    return by


def _largest(found: Iterable[Row]) -> list[Row]:
    return list({row.curve.name: row for row in sorted(found, key=lambda row: row.n)}.values())


def _behind(columns: tuple[str, ...]) -> frozenset[int]:
    """All columns but the first."""
    return frozenset(range(1, len(columns)))
