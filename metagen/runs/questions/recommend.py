"""What to run under a budget: the most accurate configuration that it pays for, and what to expect of it.

What is best on these problems looks better than it is. So its accuracy is cross-fitted: problems are halved at
random, the best of one half is measured on the other, both ways, again and again; the interval spans both views.
Of configurations that tie with the best (`analysis.ties`) the cheapest is taken.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metagen.analysis.comparison import Contrast, Picked, contrasts, pick, sentence
from metagen.analysis.intervals import DIFFERENCES, SHARES
from metagen.analysis.ties import ENOUGH, first_best
from metagen.errors import ConfigError, InputError
from metagen.html import amount
from metagen.runs import words
from metagen.runs.curves import checks
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Bools, Curve, CurvePoint, Floats, StudyResult
from metagen.runs.declare import recipe
from metagen.runs.declare.study import COSTS, MODELLED
from metagen.runs.names import nearest
from metagen.runs.note import Note

if TYPE_CHECKING:
    from rich.console import RenderableType

    from metagen.runs.declare.specs import Experiment


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to run, and what to expect.

    accuracy, low, high: cross-fitted; naive: as measured on the problems that it was picked on. Without an interval
    (few problems) accuracy is naive. costs: means for each problem, of those that are known; latency: of these, what a
    user would wait for, by accelerator (modelled). runner_up: against the best of another curve, this minus that.
    yaml: an experiment with this one cell; None where none was given to cut it out of. options: accuracies of all that
    it was picked from, [configurations, problems], cheapest first, NaN where not measured; noise: [configurations], the
    Monte-Carlo standard errors of their means.
    """

    configuration: str
    curve: Curve
    n: int
    budgets: Mapping[str, float]
    accuracy: float
    low: float
    high: float
    naive: float
    problems: int
    costs: Mapping[str, float]
    latency: Mapping[str, float]
    runner_up: Contrast | None
    notes: tuple[Note, ...]
    yaml: str | None
    options: Floats
    noise: Floats

    def gain(self, other: Floats) -> Picked | None:
        """What it adds to these accuracies, [problems], on problems that had no say in the choice; None for no problem.

        Fewer than `FEW` problems have no interval, and the estimate is that of the problems it was picked on.
        """
        both = np.isfinite(self.options).all(axis=0) & np.isfinite(other)
        rows = self.options[:, both]
        return _pick(rows, self.noise, rows - other[both]) if both.any() else None

    @property
    def full_name(self) -> str:
        """The configuration with its frozen setting: `small/rebase@16 (temperature=0.2)`."""
        return self.curve.full_name(self.curve.ns.tolist().index(self.n))

    @property
    def sentence(self) -> str:
        """The recommendation in a line."""
        limits = words.join_words([words.with_unit(limit, cost) for cost, limit in self.budgets.items()])
        expected = words.with_interval(self.accuracy, self.low, self.high)
        return f"For {limits} a problem: {self.full_name}, {expected} expected"

    def data(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        found: dict[str, Any] = {
            "configuration": self.configuration, "model": self.curve.model, "strategy": self.curve.strategy,
            "setting": self.curve.setting, "n": self.n or None, "budgets": dict(self.budgets),
            "accuracy": self.accuracy, "low": self.low, "high": self.high, "naive": self.naive,
            "problems": self.problems, "costs": dict(self.costs), "latency": dict(self.latency),
            "runner_up": None if self.runner_up is None else asdict(self.runner_up),
            "notes": [asdict(note) for note in self.notes], "yaml": self.yaml,
        }  # fmt: skip
        return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass(frozen=True, eq=False)
class _Candidate(CurvePoint):
    """A configuration that could be recommended: accuracy [problems], mean costs."""

    costs: Mapping[str, float]

    @property
    def accuracy(self) -> Floats:
        return np.asarray(self.curve.accuracy[self.point])

    def load(self, budgets: Mapping[str, float]) -> float:
        """The largest share of a budget that it takes."""
        return max(self.costs[cost] / limit for cost, limit in budgets.items())

    def rank(self, budgets: Mapping[str, float]) -> tuple[float, bool, str]:
        """Cheapest first; of equal ones, which means may tell apart by rounding, the plain sample."""
        return float(f"{self.load(budgets):.9g}"), self.curve.kind != "sample", self.name


def recommend(
    result: StudyResult, budgets: Mapping[str, float], *, experiment: Experiment | None = None, seed: int = 0
) -> Recommendation:
    """The configuration to use where a problem may cost so much on average; never an oracle.

    budgets: by cost, all of which must hold, `latency:NAME` too. experiment: the one that measured the result, which
    the YAML is cut out of; a note says where it cannot be. Raises InputError for no budget, an unknown cost, and a
    budget below the cheapest.
    """
    _check_budgets(result, budgets)
    candidates, notes = _candidates(result, budgets)
    affordable = sorted(
        (c for c in candidates if c.load(budgets) <= 1.0 + 1e-9), key=lambda c: c.rank(budgets)
    )
    if not affordable:
        raise InputError(_too_little(candidates, budgets))
    options = np.stack([c.accuracy for c in affordable])
    shared: Bools = np.asarray(np.isfinite(options).all(axis=0))
    if not shared.any():
        raise InputError(
            f"{affordable[0].name} and {affordable[-1].name} share no problem that all affordable configurations "
            "measured; resume the run, or give it as many samples of each problem"
        )
    rows = options[:, shared]
    noise = np.array([c.curve.noise(c.point, shared) for c in affordable])
    worth = _pick(rows, noise, seed=seed)
    at, chosen = worth.chosen, affordable[worth.chosen]
    notes += _notes(result, chosen, candidates, budgets, int(shared.sum()), len(shared))
    costs = {name: value for name, value in chosen.costs.items() if isfinite(value) and value > 0}
    found = Recommendation(
        chosen.name, chosen.curve, int(chosen.curve.ns[chosen.point]), dict(budgets),
        worth.estimate, worth.low, worth.high, worth.naive, int(shared.sum()), costs,
        {name.partition(":")[2]: value for name, value in costs.items() if name.startswith("latency:")},
        _runner_up(affordable, rows, at), tuple(dict.fromkeys(notes)), None, options, noise,
    )  # fmt: skip
    if experiment is None:
        return found
    head = [
        f"{found.sentence}.",
        f"As measured by {result.name!r} on {found.problems} problems, seed {result.seed}.",
    ]
    try:
        text = recipe.recipe(
            experiment, chosen.curve.model, chosen.curve.strategy, found.n, head, name=f"{result.name}-recommended"
        )  # fmt: skip
    except InputError as error:
        return replace(found, notes=(*found.notes, Note("yaml", f"no YAML: {error}")))
    return replace(found, yaml=text)


def at(path: str | Path, budgets: Mapping[str, float]) -> Recommendation:
    """The recommendation of a study or a finished run, found as commands find them."""
    from metagen.runs.declare import schema
    from metagen.runs.questions.found import find

    found = find(path)
    try:
        experiment = schema.load(found.run.experiment)
    except ConfigError as error:
        # A pool or a model that was moved takes the YAML away, not what was measured.
        lost = Note("yaml", f"no YAML: {error}")
        return recommend(replace(found.result, notes=(*found.result.notes, lost)), budgets)
    return recommend(found.result, budgets, experiment=experiment)


def parse_budgets(texts: Iterable[str]) -> dict[str, float]:
    """Budgets from words such as `flops=2e9`. InputError for what is none, and for a cost given twice."""
    found: dict[str, float] = {}
    for text in texts:
        cost, _, amount = text.partition("=")
        try:
            limit = float(amount)
        except ValueError:
            raise InputError(f"--budget {text!r}: expected COST=AMOUNT, such as flops=2e9") from None
        if cost in found:
            raise InputError(f"--budget {text!r}: {cost} is given twice; give it once")
        found[cost] = limit
    return found


# ------------------------------------------------------------------------------------------------ what is affordable


def _check_budgets(result: StudyResult, budgets: Mapping[str, float]) -> None:
    """Budgets that can be compared with what is known."""
    curves = [curve for curve in result.curves if not curve.oracle]
    if not curves:
        raise InputError(f"{result.name!r} has no curve that does not know the answers; nothing to recommend")
    named = dict.fromkeys(name for curve in curves for name in curve.costs)
    known = [n for n in named if any((c.costs[n] > 0).any() for c in curves if n in c.costs)]
    if not budgets:
        raise InputError(f"no budget is given; expected at least one, of {', '.join(known)}")
    for cost, limit in budgets.items():
        if cost not in named and cost not in COSTS and cost.partition(":")[0] not in MODELLED:
            raise InputError(f"budget {cost}: there is no such cost; {nearest(cost, known, 'costs')}")
        if cost not in known:
            zero = any((c.costs[cost] == 0).any() for c in curves if cost in c.costs)
            what = f"{cost} is 0 throughout: nobody counted it" if zero else f"{cost} is unknown"
            raise InputError(f"{what}{checks.remedy(cost)}; known costs: {', '.join(known)}")
        if not (isfinite(limit) and limit > 0):
            raise InputError(f"budget {cost}={limit!r}: expected a number > 0, of a problem on average")


def _candidates(result: StudyResult, budgets: Mapping[str, float]) -> tuple[list[_Candidate], list[Note]]:
    """The configurations whose costs are known, and notes on those that are left out."""
    found, notes = [], []
    least = ENOUGH * len(result.problems)
    for curve in result.curves:
        if curve.oracle:
            continue
        few, unknown = [], dict[str, None]()
        for point in range(len(curve.ns)):
            there = np.isfinite(curve.accuracy[point])
            if there.sum() < least or not there.any():
                few.append(f"{curve.configuration(point)} ({there.sum()})")
                continue
            costs = {name: float(values[point, there].mean()) for name, values in curve.costs.items()}
            if missing := [cost for cost in budgets if isnan(costs.get(cost, nan))]:
                unknown |= dict.fromkeys(missing)
                continue
            found.append(_Candidate(curve, point, costs))
        if few:
            text = (
                f"measured on fewer than half of {len(result.problems)} problems: {', '.join(few)}; left out"
            )
            notes.append(Note(curve.name, text))
        notes += [Note(curve.name, f"{cost} is unknown: left out{checks.remedy(cost)}") for cost in unknown]
    if not found:
        raise InputError(
            f"no configuration of {result.name!r} is measured on half of its problems with known costs: "
            + "; ".join(f"{note.about}: {note.text}" for note in notes[:3])
        )
    return found, notes


def _too_little(candidates: abc.Sequence[_Candidate], budgets: Mapping[str, float]) -> str:
    """What the budgets lack."""
    for cost, limit in budgets.items():
        cheapest = min(candidates, key=lambda c: c.costs[cost])
        if cheapest.costs[cost] > limit:
            least = cheapest.costs[cost]
            return (
                f"{cost}={limit:g} is below the cheapest, {cheapest.name} at {least:.4g} a problem; "
                "give at least that"
            )
    nearest_one = min(candidates, key=lambda c: c.load(budgets))
    takes = words.join_words([f"{cost}={nearest_one.costs[cost]:.4g}" for cost in budgets])
    limits = words.join_words([f"{cost}={limit:g}" for cost, limit in budgets.items()])
    return f"no configuration keeps {limits} together; the nearest is {nearest_one.name}, which takes {takes}"


# ------------------------------------------------------------------------------------------------ what is best


def _pick(rows: Floats, noise: Floats, judged: Floats | None = None, seed: int = 0) -> Picked:
    """Pick one of these, and measure it on problems that had no say in the choice; if they are few, on all.

    rows: [configurations, problems], cheapest first.
    """

    def choose(some: Floats) -> int:
        # Fewer problems have larger errors.
        return first_best(some.mean(axis=1), noise * np.sqrt(rows.shape[1] / some.shape[1]))

    found = pick(
        rows, judged=judged, choose=choose, support=SHARES if judged is None else DIFFERENCES, seed=seed
    )
    return replace(found, estimate=found.naive, low=nan, high=nan) if rows.shape[1] < FEW else found


def _runner_up(affordable: abc.Sequence[_Candidate], rows: Floats, at: int) -> Contrast | None:
    """What was picked against the best of each other curve, one family; the most accurate of these is returned."""
    means = rows.mean(axis=1)
    best: dict[str, int] = {}
    for i, candidate in enumerate(affordable):
        name = candidate.curve.name
        if name != affordable[at].curve.name and means[i] > (means[best[name]] if name in best else -inf):
            best[name] = i
    if not best or rows.shape[1] < 2:
        return None
    found = contrasts({affordable[i].full_name: (rows[i], rows[at]) for i in best.values()}, fewest=FEW)
    return max(found, key=lambda contrast: contrast.a)


def _notes(
    result: StudyResult,
    chosen: _Candidate,
    candidates: abc.Sequence[_Candidate],
    budgets: Mapping[str, float],
    shared: int,
    every: int,
) -> list[Note]:
    """What should be known of a choice."""
    found = list(checks.problems(shared))
    if shared < FEW:
        found.append(
            Note(chosen.name, "the accuracy is that of the problems of the choice; expect less on others")
        )
    if shared < every:
        found.append(
            Note("problems", f"compared on the {shared} of {every} problems that all configurations have")
        )
    largest = max(chosen.curve.ns.tolist())
    # One sample has no larger n, whatever its strategy is measured at.
    more = chosen.curve.kind != "sample" and largest
    if more and chosen.curve.ns[chosen.point] == largest and chosen.load(budgets) < 0.5:
        share = chosen.load(budgets)
        text = f"it takes {share:.0%} of the budget at the largest measured n; a larger n may be better"
        found.append(Note(chosen.name, text))
    if not any(name.startswith("latency:") and isfinite(value) for name, value in chosen.costs.items()):
        text = (
            "the waiting time of a user is unknown; metagen study models it, from study.accelerators and engines with "
            "models of known shapes"
        )
        found.append(Note("latency", text))
    if modelled := [cost for cost in budgets if ":" in cost]:
        found.append(Note(words.join_words(modelled), "modelled, not measured"))
    if "seconds" in budgets:
        found.append(Note("seconds", f"{words.TIMED} latency:NAME models the waiting time of a user"))
    about = {chosen.curve.name, chosen.curve.model, chosen.curve.verifier, "yaml", *budgets}
    return found + [note for note in result.notes if note.about in about]


def write(found: Recommendation, path: Path) -> None:
    """The experiment of what is recommended. InputError where there is none, or no place to write it to."""
    if found.yaml is None:
        why = next((note.text for note in found.notes if note.about == "yaml"), "no experiment was given")
        raise InputError(f"cannot write {str(path)!r}: {why}")
    try:
        path.write_text(found.yaml, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error}; give another path by --out") from error


# ------------------------------------------------------------------------------------------------ words


def render(found: Recommendation) -> RenderableType:
    """For the terminal."""
    from rich import box
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("a problem takes", "on average", "of the budget"):
        table.add_column(name, justify="left" if name == "a problem takes" else "right")
    for cost, value in found.costs.items():
        limit = found.budgets.get(cost)
        table.add_row(words.unit(cost), amount(value), "" if limit is None else f"{value / limit:.0%}")
    parts: list[RenderableType] = [Text(found.sentence, "bold"), Text(_expectation(found)), table]
    if found.runner_up is not None:
        parts.append(
            Text(f"Against {found.runner_up.name}, the best of another curve: {sentence(found.runner_up)}")
        )
    parts += [Text(f"note: {note.about}: {note.text}", "dim") for note in found.notes]
    return Padding(Group(*parts), (0, 0, 0, 1))


def _expectation(found: Recommendation) -> str:
    if isnan(found.low):
        return f"measured on the {found.problems} problems of the choice; no interval"
    return (
        f"expected on other problems, 95% interval; on the {found.problems} problems of the choice it has "
        f"{words.share(found.naive)}"
    )
