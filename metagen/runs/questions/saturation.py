"""Where voting saturates, and whether at the limit that theory gives.

With infinitely many samples a vote converges to argmax_a Σ v·g for each problem (g: the share of samples with answer a,
v: their weight). That limit is estimated from an independent pool, never from the samples whose curve it judges. The
plug-in argmax errs where shares are close, so beside it stand: for how many problems the halves of the pool agree, and
what a smaller pool would have given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from metagen.analysis.comparison import Contrast
from metagen.analysis.figures import Line
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.limits import Limit, vote_limit
from metagen.runs.curves.frontier import bootstrap_weights, enough, shared_problems
from metagen.runs.curves.measured import FEW, bounds
from metagen.runs.curves.study import Bools, Curve, Floats, StudyResult
from metagen.runs.declare import registry
from metagen.runs.note import Note
from metagen.runs.questions import exact_limit, laws
from metagen.runs.questions.pools import complete_problems, limit_pool
from metagen.runs.questions.question import Question, leave_open, numbers
from metagen.runs.questions.question import words as said
from metagen.runs.questions.section import Finding, Plot, Section, Table, has_band
from metagen.runs.table.pools import Pool
from metagen.runs.words import share, with_interval, within

#: The part of the whole rise after which a curve counts as saturated.
PART = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Saturation:
    """A voting curve beside its limit.

    over: [problems] that both have; the arrays below are over these. measured: accuracy at the largest n. first: at the
    smallest. enough: the n that gives `PART` of the rise between them, with its interval: 0 and inf where that lies
    outside the curve; NaN for a curve that does not rise. growth: accuracy of the plug-in limit by size of the pool.
    plain: the limit of the vote without weights over the same samples.
    """

    curve: Curve
    over: Bools
    first: Floats
    measured: Floats
    limit: Limit
    enough: float
    low: float
    high: float
    growth: dict[int, float]
    plain: Limit

    @property
    def largest(self) -> int:
        """The largest n that is measured."""
        return int(self.curve.ns[np.isfinite(self.curve.accuracy[:, self.over]).all(axis=1)][-1])


def saturation(
    result: StudyResult, curve: Curve, *, resamples: int = 1000, seed: int = 0
) -> Saturation | None:
    """None without an independent pool, or with one measured point: such a curve says nothing about its end."""
    pool = limit_pool(result, curve)
    if pool is None or _points(curve) < 2:
        return None
    over = shared_problems([curve]) & complete_problems(pool)
    if not over.any():
        return None
    samples = Pool(
        pool.classes[over], pool.eligible[over], pool.correct[over],
        {name: scores[over] for name, scores in pool.scores.items()}, result.levels[over], pool.sizes[over],
    )  # fmt: skip
    rows = curve.accuracy[np.isfinite(curve.accuracy[:, over]).all(axis=1)][:, over]
    ns = curve.ns[np.isfinite(curve.accuracy[:, over]).all(axis=1)].astype(np.float64)
    enough = n_reaching(ns, rows.mean(axis=1))
    low = high = nan
    if over.sum() >= FEW and not np.isnan(enough):
        draws = [n_reaching(ns, rows @ w) for w in bootstrap_weights(int(over.sum()), resamples, seed)]
        # A resample that does not rise is saturated from the start.
        low, high = np.quantile(np.nan_to_num(draws, nan=0.0), [0.025, 0.975], method="inverted_cdf")
    most = samples.classes.shape[1]
    sizes = sorted({max(1, most // 4), max(1, most // 2), most})
    grown, _ = samples.curve(curve.kind, sizes, curve.verifier)
    return Saturation(
        curve, over, rows[0], rows[-1], _limit(samples, curve.kind, curve.verifier), enough, float(low), float(high),
        dict(zip(sizes, grown.mean(axis=1).tolist(), strict=True)), _limit(samples, "majority", None),
    )  # fmt: skip


def _limit(samples: Pool, kind: str, verifier: str | None) -> Limit:
    """The answer of the whole pool, as its curve is measured: also where nobody votes, and some other rule chooses."""
    weights = None if kind == "majority" else samples.weights(verifier)
    found = vote_limit(samples.classes, samples.correct, weights)
    accuracy, _ = samples.accuracy(kind, found.samples, verifier)
    ((estimate, low, high, _),) = bounds([accuracy])
    return replace(found, accuracy=accuracy, estimate=estimate, low=low, high=high)


def _points(curve: Curve) -> int:
    """How many n are measured."""
    return int(np.isfinite(curve.accuracy).any(axis=1).sum())


def n_reaching(ns: Floats, means: Floats, part: float = PART) -> float:
    """The first n, between points in proportion to log n, with this part of the rise; NaN if the end is no higher.

    What has been reached must hold: a curve that rises past and falls back again counts from where it last passed.
    ns, means: ascending sizes and the accuracy at each, [points] each.
    """
    rise = means[-1] - means[0]
    if not rise > 1e-12:
        return nan
    target = means[0] + part * rise
    below = int(np.flatnonzero(means < target - 1e-12)[-1])
    step = (target - means[below]) / (means[below + 1] - means[below])
    return float(np.exp(np.log(ns[below]) + step * (np.log(ns[below + 1]) - np.log(ns[below]))))


def find_saturations(result: StudyResult, kinds: Sequence[str] | None = None) -> list[Saturation]:
    """The saturation of every voting curve that has an independent pool."""
    every = (saturation(result, c) for c in _votes(result, kinds))
    return [s for s in every if s is not None]


def _votes(result: StudyResult, kinds: Sequence[str] | None = None) -> Iterator[Curve]:
    """Curves of votes over pools, as far as enough problems have their points."""
    for c in enough(result):
        if (
            c.kind in (kinds or registry.saying("votes"))
            and c.source == "pool"
            and not c.oracle
            and _points(c)
        ):
            yield c


def voting_saturates(result: StudyResult) -> Question:
    """From which n on, and whether what is measured there is the limit of an independent pool."""
    asked = "Where does voting saturate, and is it at the limit of theory?"
    claim = "accuracy of (weighted) voting saturates, at that of argmax Σ v·g"
    source = "Wu et al. 2024, Inference Scaling Laws, theorems 1 and 2"
    every = find_saturations(result, ["majority"])
    if not every:
        return leave_open(
            asked,
            "no voting curve has two measured n and an independent pool of samples",
            claim=claim,
            source=source,
        )

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        rising = [s for s in every if not np.isnan(s.enough)]
        main = rising[-1] if rising else every[-1]
        parts = {s: f"{_sentence(s, tested.get(s.curve.name))}." for s in every}
        return Finding(
            asked, parts[main], estimate=main.enough, low=main.low, high=main.high, unit="samples",
            claim=claim, source=source, shown=bool(rising),
            details=tuple(text for s, text in parts.items() if s is not main),
        )  # fmt: skip

    return Question(finding, {s.curve.name: (s.limit.accuracy, s.measured) for s in every})


def weighted_against_limit(result: StudyResult) -> Question:
    """Weighted voting beside its own limit, and that limit beside the one of a plain vote."""
    asked = "Does weighting votes raise the limit of voting, and is it reached?"
    claim = "weights raise the limit where the right answer leads in shares of v·g, and not in those of g"
    source = "Wu et al. 2024, theorem 2"
    every = find_saturations(result, ["weighted"])
    if not every:
        return leave_open(
            asked,
            "no weighted vote has two measured n and an independent pool with its verifier's scores",
            claim=claim,
            source=source,
        )
    pairs = {s.curve.name: (s.limit.accuracy, s.measured) for s in every}
    # The plain vote's limit is that of the same samples: a plain vote may be frozen at other settings.
    limits = {
        f"{s.curve.name}, limits": (
            _whole(s, result, s.plain.accuracy),
            _whole(s, result, s.limit.accuracy),
        )
        for s in every
    }

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        parts = {}
        for s in every:
            name = f"{s.curve.name}, limits"
            parts[name] = (
                f"{_sentence(s, tested.get(s.curve.name))}. Its limit against that of the plain vote over the same "
                f"samples ({share(s.plain.estimate)}): {said(tested.get(name))}."
            )
        chosen = next(reversed(parts))
        main = tested.get(chosen)
        return Finding(
            asked, parts[chosen], unit="points", claim=claim, source=source,
            shown=main is not None and main.shown,
            details=tuple(text for name, text in parts.items() if name != chosen), **numbers(main),
        )  # fmt: skip

    return Question(finding, {**pairs, **limits})


def section(result: StudyResult, *, exact: bool = False) -> Section:
    """Curves with their limits, from which n on they are flat, and scaling laws with their error where not fitted.

    exact: also what pools make of a limit that is known, on a model that can be enumerated.
    """
    every = find_saturations(result)
    panels: dict[str, list[Line]] = {}
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for s in every:
        rows = s.curve.accuracy[:, s.over]
        fine = np.isfinite(rows).all(axis=1)
        low = high = None
        if s.over.sum() >= FEW:
            bounds = interval(rows[fine], support=SHARES)
            low, high = bounds.low.tolist(), bounds.high.tolist()
        ns, means = s.curve.ns[fine].tolist(), rows[fine].mean(axis=1).tolist()
        line = Line(s.curve.strategy, ns, means, low, high)
        panels.setdefault(s.curve.model, []).append(line)
        hollow = points.setdefault(s.curve.model, {})
        hollow[f"limit of {s.curve.strategy}"] = (
            float(s.limit.samples),
            s.limit.estimate,
        )
    notes = [
        Note(c.name, "its limit is unknown, because it has no independent pool of samples")
        for c in result.curves
        if registry.says(c.kind, "votes")
        and not c.oracle
        and c.source == "pool"
        and limit_pool(result, c) is None
    ]
    notes += [
        Note(c.name, "one of its n alone is measured on enough problems: where it saturates is unknown")
        for c in _votes(result)
        if limit_pool(result, c) is not None and _points(c) < 2
    ]
    for s in every:
        count = int(shared_problems([s.curve]).sum())
        if (fewer := count - int(s.over.sum())) > 0:
            text = f"its limit leaves out {fewer} of {count} problems, with fewer than {s.limit.samples} other samples"
            notes.append(Note(s.curve.name, text))
    pictures = []
    if panels:
        caption = (
            "Accuracy of votes over n samples. A hollow mark is the limit from an independent pool, and stands at the "
            "number of samples of that pool."
        )
        if has_band(panels):
            caption += " Bands are 95% intervals over problems."
        plot = Plot(
            "saturation", "Votes and their limits", caption, "samples n", "accuracy", panels,
            x_scale="log2", points=points,
        )  # fmt: skip
        pictures.append(plot)
    fitted = laws.every(result)
    return Section(
        "saturation",
        "Saturation and scaling laws",
        "A vote converges to argmax Σ v·g as n grows. The limit comes from an independent pool of samples. It errs if "
        "two answers are close; the column `halves agree` and the smaller pools show this. Scaling laws are fitted "
        "without the last two points of each curve, and judged there.",
        pictures=(*pictures, *laws.pictures(fitted)),
        tables=(
            *([_table(every)] if every else []),
            *([exact_limit.table()] if exact else []),
            *laws.tables(fitted),
            *laws.predict_coverage(result),
        ),
        notes=(*notes, *laws.notes(fitted)),
    )


def _table(every: list[Saturation]) -> Table:
    columns = (
        "configuration",
        "n for 95% of the rise",
        "at the largest n",
        "limit",
        "halves agree",
        "limit by pool",
    )
    rows = []
    for s in every:
        growth = ", ".join(f"{size}: {share(value)}" for size, value in s.growth.items())
        limit = with_interval(s.limit.estimate, s.limit.low, s.limit.high)
        largest = f"{s.largest}: {share(float(s.measured.mean()))}"
        rows.append((s.curve.name, _enough(s), largest, limit, share(s.limit.stable), growth))
    caption = "Votes at the largest n of their curve, and their limit from an independent pool."
    return Table("saturation", caption, columns, tuple(rows), frozenset({1, 2, 3, 4}))


def _enough(s: Saturation) -> str:
    """The n of saturation with its interval."""
    if np.isnan(s.enough):
        return "does not rise"
    return f"{s.enough:.0f}" + ("" if np.isnan(s.low) else f" ({within(s.low, s.high, '{:.0f}'.format)})")


def _sentence(s: Saturation, test: Contrast | None) -> str:
    rise = "does not rise with n" if np.isnan(s.enough) else f"has {PART:.0%} of its rise by n = {_enough(s)}"
    return (
        f"{s.curve.name} {rise}; at n = {s.largest} it is at {share(float(s.measured.mean()))}, its limit from "
        f"{s.limit.samples} other samples is {with_interval(s.limit.estimate, s.limit.low, s.limit.high)}: {said(test)}"
    )


def _whole(s: Saturation, result: StudyResult, accuracy: Floats) -> Floats:
    """An accuracy over all problems of the study, NaN where it is not known."""
    whole = np.full(len(result.problems), nan)
    whole[s.over] = accuracy
    return whole
