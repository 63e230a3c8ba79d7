"""Does adaptive sampling pay? Three answers at equal cost: as it ran, replayed over pools, and as an allocation.

- Adaptive-consistency that ran by itself, against the plain vote of its model at the mean cost of the former.
- Its rule replayed over the pool in random orders, against a vote over the whole pool.
- Samples dealt by difficulty, learned on one half of the problems and given to the other, both ways, against as many
  for every problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np

from metagen.analysis.comparison import Contrast
from metagen.analysis.stopping import Replayed, replay, running_vote
from metagen.runs.curves.frontier import (
    SLACK,
    AtCost,
    at_cost,
    bootstrap_weights,
    curves_with_cost,
    ladder,
    main_cost,
)
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Bools, Curve, Floats, Ints, StudyResult
from metagen.runs.declare import registry
from metagen.runs.note import Note
from metagen.runs.questions.pools import complete_problems, dense, own_pool
from metagen.runs.questions.question import Question, leave_open, numbers, words
from metagen.runs.questions.section import Finding, Section, Table
from metagen.runs.words import difference, share, with_interval, with_unit
from metagen.runs.work.allocation.allocate import Difficulty, Plan, accuracy_at
from metagen.strategies.adaptive.consistency import Beta

#: Samples that tell how hard a problem is, and the mean number that is dealt out.
FIRST, MEANS = 4, (8, 16)
#: At most so many samples in a replay: those of the paper.
MOST = 40
#: Random orders of a pool.
ORDERS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """An adaptive strategy that ran by itself, and the plain vote at what it spent. saved: how many times less it cost
    than a vote as accurate, with its interval; NaN where the vote never is.
    """

    curve: Curve
    point: int
    cost: str
    spends: float
    accuracy: Floats
    beside: AtCost
    saved: float
    low: float
    high: float

    @property
    def name(self) -> str:
        return self.curve.configuration(self.point)


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Samples by difficulty against as many for all, on average `mean` a problem; accuracies [problems]."""

    model: str
    mean: float
    dealt: Floats
    uniform: Floats
    drawn: float


def ran(result: StudyResult) -> list[Ran]:
    """Every point of an adaptive strategy whose model has a plain vote as dear."""
    cost = main_cost(result)
    curves = curves_with_cost(result, cost) if cost else []
    votes = {c.model: c for c in curves if c.kind == "majority"}
    found = []
    for curve in curves:
        vote = votes.get(curve.model)
        if not registry.says(curve.kind, "adaptive") or vote is None:
            continue
        for point in range(len(curve.ns)):
            voted = np.isfinite(vote.accuracy)
            over = np.isfinite(curve.accuracy[point]) & voted[voted.any(axis=1)].all(axis=0)
            if not over.any():
                continue
            paid = curve.costs[str(cost)][point]
            spends = float(paid[over].mean())
            beside = at_cost(vote, str(cost), spends, over)
            if beside is not None and beside.spends >= spends * (1.0 - SLACK):
                right = np.where(over, curve.accuracy[point], nan)
                saved = _saving(vote, str(cost), over, right[over], paid[over])
                found.append(Ran(curve, point, str(cost), spends, right, beside, *saved))
    return found


@lru_cache(maxsize=4)
def replay_pools(result: StudyResult) -> dict[str, Replayed]:
    """The rule of adaptive-consistency over each model's pool, at most `MOST` samples of it."""
    found = {}
    for model in result.models:
        pool = own_pool(result, model.name)
        if pool is None or pool.classes.shape[1] < 2 or not (over := complete_problems(pool)).any():
            continue
        tokens = pool.tokens[over]
        found[model.name] = replay(
            Beta(0.95), dense(pool.classes[over]), pool.correct[over],
            tokens=None if np.isnan(tokens).any() else tokens, most=min(MOST, pool.classes.shape[1]),
            orders=ORDERS, seed=result.seed,
        )  # fmt: skip
    return found


@lru_cache(maxsize=4)
def dealt(result: StudyResult, *, seed: int = 0) -> list[Dealt]:
    """Allocation by difficulty on every model's pool, half of the problems against the other."""
    found = []
    for model in result.models:
        pool = own_pool(result, model.name)
        if pool is None or pool.classes.shape[1] < 2 * FIRST:
            continue
        over = complete_problems(pool)
        if over.sum() < 2 * FEW:
            continue
        classes, correct = dense(pool.classes[over]), pool.correct[over].astype(np.float64)
        means = [mean for mean in MEANS if mean <= pool.classes.shape[1]]
        for mean, right, same, drawn in zip(means, *_dealt(classes, correct, means, seed), strict=True):
            found.append(Dealt(model.name, float(mean), _whole(right, over), _whole(same, over), drawn))
    return found


def adaptive_pays(result: StudyResult) -> Question:
    """As it ran if it did; otherwise as replayed over pools."""
    asked = "Does adaptive allocation pay?"
    claim = (
        "adaptive-consistency: 3.3× fewer samples, at most 0.1 points lost; difficulty-aware allocation: > 4× over "
        "best-of-N"
    )
    source = "Aggarwal et al. 2023; Snell et al. 2024"
    runs, pools, given = ran(result), replay_pools(result), dealt(result)
    if not runs and not pools and not given:
        why = "no adaptive strategy has a plain vote at its cost, and there are no samples to replay one on"
        return leave_open(asked, why, claim=claim, source=source)
    pairs = {f"ran {one.name}": (one.beside.accuracy, one.accuracy) for one in runs}
    pairs |= {f"dealt {one.model} {one.mean:g}": (one.uniform, one.dealt) for one in given}

    # Of what ran the largest model, which comes last; without any, of allocation.
    chosen = f"ran {runs[-1].name}" if runs else next(reversed(pairs), "")

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        parts = {f"ran {one.name}": _sentence(one, tested.get(f"ran {one.name}")) for one in runs}
        parts |= {f"replayed {model}": _again(model, one) for model, one in pools.items()}
        for one in given:
            name = f"dealt {one.model} {one.mean:g}"
            parts[name] = (
                f"{one.model}, {one.mean:g} samples a problem by difficulty against as many for all: "
                f"{words(tested.get(name))}"
            )
        main = tested.get(chosen)
        first = chosen if chosen in parts else next(reversed(parts))
        return Finding(
            asked,
            f"{parts[first]}.",
            unit="points",
            claim=claim,
            source=source,
            shown=any(c.shown for c in tested.values()),
            details=tuple(f"{text}." for name, text in parts.items() if name != first),
            **numbers(main),
        )

    return Question(finding, pairs)


def section(result: StudyResult) -> Section | None:
    """The three as tables; None for a study with neither adaptive strategies nor samples."""
    runs = ran(result)
    made = (_ran(runs), _replay_table(replay_pools(result)), _dealing(dealt(result)))
    tables = [table for table in made if table is not None]
    notes = _apart(result, {one.name for one in runs})
    if not tables and not notes:
        return None
    if not any(table.name == "allocation" for table in tables):
        text = f"needs pools of {2 * FIRST} samples or more, on {2 * FEW} problems or more"
        notes.append(Note("allocation", text))
    return Section(
        "adaptive",
        "Adaptive allocation",
        "An adaptive strategy is compared with the plain vote at its own mean cost, not at its largest n. Replays take "
        f"{ORDERS} random orders of each pool. Allocation is learned on one half of the problems and used on the "
        "other.",
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _apart(result: StudyResult, there: Set[str]) -> list[Note]:
    """Points of adaptive strategies that are not compared."""
    cost = main_cost(result)
    return [
        Note(name, "not compared: its model has no plain vote that was measured at this cost")
        for curve in (curves_with_cost(result, cost) if cost else [])
        if registry.says(curve.kind, "adaptive")
        for point in np.flatnonzero(np.isfinite(curve.accuracy).any(axis=1)).tolist()
        if (name := curve.configuration(point)) not in there
    ]


def _saving(vote: Curve, cost: str, over: Bools, right: Floats, paid: Floats) -> tuple[float, float, float]:
    """The cost of a vote as accurate over that of the strategy; bounds by resampling problems, inf where none is."""
    points, _ = ladder(vote, cost, over)
    rows, costs = vote.accuracy[points][:, over], vote.costs[cost][points][:, over]
    count = int(over.sum())
    whole = _factor(rows.mean(axis=1), costs.mean(axis=1), float(right.mean()), float(paid.mean()))
    if count < FEW:
        return whole, nan, nan
    drawn = [
        _factor(rows @ w, costs @ w, float(right @ w), float(paid @ w))
        for w in bootstrap_weights(count, 1000, 0)
    ]
    low, high = np.quantile(np.nan_to_num(drawn, nan=np.inf), [0.025, 0.975], method="inverted_cdf")
    return whole, float(low), float(high)


def _factor(means: Floats, costs: Floats, wanted: float, paid: float) -> float:
    """The first cost at which a curve is as accurate as wanted, over what was paid; NaN if it never is."""
    above = np.flatnonzero(means >= wanted - 1e-12)
    if not len(above):
        return nan
    at = int(above[0])
    if at == 0:
        return float(costs[0] / paid)
    step = (wanted - means[at - 1]) / (means[at] - means[at - 1])
    return float((costs[at - 1] + step * (costs[at] - costs[at - 1])) / paid)


def _dealt(
    classes: Ints, correct: Floats, means: Sequence[int], seed: int
) -> tuple[Floats, Floats, list[float]]:
    """By problem, over random orders of its samples: accuracy under the plan learned on the other half of the problems,
    and with as many samples for all, [means, problems] each; and the mean numbers of samples that plans drew.
    """
    rng = np.random.default_rng(seed)
    problems, size = classes.shape
    order = rng.permutation(problems)
    halves = order[::2], order[1::2]
    right, same, drawn = (
        np.zeros((len(means), problems)),
        np.zeros((len(means), problems)),
        np.zeros(len(means)),
    )
    learned = [
        Difficulty.learn(classes[h], correct[h], first=FIRST, orders=ORDERS, seed=seed) for h in halves
    ]
    for _ in range(ORDERS):
        places = rng.permuted(np.broadcast_to(np.arange(size), classes.shape), axis=1)
        ids, hits = (np.take_along_axis(array, places, axis=1) for array in (classes, correct))
        curves = np.pad(running_vote(ids, hits), ((0, 0), (1, 0)))
        for at, mean in enumerate(means):
            for mine, other in ((halves[0], learned[1]), (halves[1], learned[0])):
                plan = Plan(float(mean * len(mine)), (other,))
                given = plan.replay(ids[mine], np.ones((len(mine), size)))
                right[at, mine] += accuracy_at(curves[mine], given)
                drawn[at] += float(given.sum())
            same[at] += curves[:, mean]
    return right / ORDERS, same / ORDERS, (drawn / ORDERS / problems).tolist()


def _whole(values: Floats, over: Bools) -> Floats:
    whole = np.full(len(over), nan)
    whole[over] = values
    return whole


def _sentence(one: Ran, test: Contrast | None) -> str:
    return (
        f"{one.name} spends {with_unit(one.spends, one.cost)} on average; against majority at that cost "
        f"({share(one.beside.mean)}): {words(test)}"
    )


def _again(model: str, one: Replayed) -> str:
    return (
        f"Replayed on the pool of {model} as written, the rule of adaptive-consistency draws {one.fewer:.1f}× fewer "
        f"samples than a vote over {one.most}; it is at {share(float(one.accuracy.mean()))}, the vote at "
        f"{share(float(one.full_accuracy.mean()))}"
    )


def _ran(every: list[Ran]) -> Table | None:
    rows = []
    for one in every:
        times = "never as accurate" if np.isnan(one.saved) else f"{one.saved:.2g}×"
        if not np.isnan(one.low):
            times += f" [{one.low:.2g}, {'∞' if np.isinf(one.high) else f'{one.high:.2g}'}]"
        accuracy = share(float(np.nanmean(one.accuracy)))
        rows.append((one.name, with_unit(one.spends, one.cost), accuracy, share(one.beside.mean), times))
    caption = (
        "Adaptive strategies as they ran, beside the plain vote at their mean cost. The last column is the cost of an "
        "equally accurate vote, divided by theirs, with a 95% interval over problems."
    )
    columns = ("configuration", "spends", "accuracy", "majority at that cost", "majority's cost for as much")
    return Table("adaptive", caption, columns, tuple(rows), frozenset({1, 2, 3, 4})) if rows else None


def _replay_table(every: Mapping[str, Replayed]) -> Table | None:
    rows = []
    for model, one in every.items():
        few = len(one.drawn) < FEW
        bounds = None if few else one.fewer_interval()
        fewer = f"{one.fewer:.2f}×" + (
            "" if bounds is None else f" [{float(bounds.low):.2f}, {float(bounds.high):.2f}]"
        )
        gained = None if few else one.gain()
        lost = "–" if gained is None else difference(gained.estimate, gained.low, gained.high)
        accuracy = with_interval(float(one.accuracy.mean()), nan, nan)
        rows.append((model, str(one.most), fewer, accuracy, lost, share(float(one.agreement.mean()))))
    caption = (
        "The rule of adaptive consistency (Beta, 0.95) replayed over pools, against a vote over all of `most` samples. "
        "“Agreement” is the share of problems on which both choose the same answer."
    )
    columns = ("model", "most", "fewer samples", "accuracy", "gained", "agreement")
    return Table("replay", caption, columns, tuple(rows), frozenset({1, 2, 3, 4, 5})) if rows else None


def _dealing(every: list[Dealt]) -> Table | None:
    rows = [
        (one.model, f"{one.mean:g}", f"{one.drawn:.1f}", share(float(np.nanmean(one.dealt))),
         share(float(np.nanmean(one.uniform))))
        for one in every
    ]  # fmt: skip
    caption = (
        "Votes with samples allocated by difficulty, learned on the other half of the problems, against equal numbers "
        "for all problems. “Drawn” is the mean number that allocation spent."
    )
    columns = ("model", "samples a problem", "drawn", "by difficulty", "as many for each")
    return Table("allocation", caption, columns, tuple(rows), frozenset({1, 2, 3, 4})) if rows else None
