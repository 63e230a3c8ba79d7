"""Decoding under voting and coverage: temperature and adapters against accuracy and diversity, for every n.

One sample is best at a low temperature, coverage of many at a higher one: the best temperature rises with n. It is
picked among a few that were tried, so its accuracy is measured on problems that had no part in the choice. Diversity
is the number of distinct answers that n samples are expected to have, and the entropy of answers over the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan

import numpy as np

from metagen.analysis.comparison import pick
from metagen.analysis.estimators import pass_at_k, subset_share
from metagen.analysis.figures import Line
from metagen.analysis.intervals import SHARES
from metagen.analysis.ties import leaders, margin
from metagen.runs.curves.frontier import bootstrap_weights, enough, shared_problems
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Bools, Curve, Floats, Ints, StudyResult, Votes
from metagen.runs.declare.plan import APART
from metagen.runs.note import Note
from metagen.runs.questions.pools import complete_problems, dense, own_pool
from metagen.runs.questions.section import Heat, Plot, Section, Table
from metagen.runs.questions.section import has_band as has_bands
from metagen.runs.words import with_interval


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A model as it was sampled: at a temperature, or with an adapter (temperature: None).

    vote: the plain vote's curve. pool: its samples; None if they were not kept.
    """

    model: str
    label: str
    temperature: float | None
    vote: Curve
    pool: Votes | None


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The best temperature at one n. low, high: 95% of the resamples of the problems have theirs between these.

    tied: all that tie with it (`analysis.ties`), it among them.
    accuracy, below, above: of what is so picked, on other problems, with its interval; NaN for fewer than `FEW`.
    """

    n: int
    temperature: float
    tied: tuple[float, ...]
    low: float
    high: float
    accuracy: float
    below: float
    above: float


def settings(result: StudyResult, models: Iterable[str] = ()) -> list[Setting]:
    """Every setting that was sampled, by model in the order of the study, temperatures first and ascending.

    models: names of the study; a setting of `0.5M` is called `0.5M.temperature-0.7`.
    """
    known = sorted(models, key=len, reverse=True)
    found = []
    for curve in enough(result):
        if curve.kind != "majority" or curve.oracle or curve.source != "pool":
            continue
        if not np.isfinite(curve.accuracy).any():
            continue
        own = next((m for m in known if curve.model == m or curve.model.startswith(f"{m}.")), curve.model)
        label = curve.setting or curve.model.removeprefix(own).lstrip(".") or "as written"
        at = next((m.temperature for m in result.models if m.name == curve.model), None)
        plain = label.startswith("temperature") or label == "as written"
        found.append(Setting(own, label, at if plain else None, curve, own_pool(result, curve.model)))
    return sorted(found, key=lambda s: (s.model, s.temperature is None, s.temperature or 0.0))


def best_temperature(
    tried: list[Setting], rows: Mapping[str, Floats], n: int, *, resamples: int = 1000
) -> Best | None:
    """Among temperatures, the best by `rows` (label → [problems]) with n samples; None for fewer than two."""
    given = [s for s in tried if s.temperature is not None and s.label in rows]
    if len(given) < 2:
        return None
    at = np.array([s.temperature for s in given], dtype=np.float64)
    values = np.stack([rows[s.label] for s in given])
    choice = pick(values, support=SHARES)
    best, tied = float(at[choice.chosen]), tuple(at[leaders(values.mean(axis=1))].tolist())
    if values.shape[1] < FEW:
        return Best(n, best, tied, nan, nan, nan, nan, nan)
    means = bootstrap_weights(values.shape[1], resamples, 0) @ values.T
    ahead = means >= means.max(axis=1, keepdims=True) - margin()
    # Of a resample in which several tie, the lowest and the highest.
    low = np.quantile(np.where(ahead, at, np.inf).min(axis=1), 0.025, method="inverted_cdf")
    high = np.quantile(np.where(ahead, at, -np.inf).max(axis=1), 0.975, method="inverted_cdf")
    return Best(n, best, tied, float(low), float(high), choice.estimate, choice.low, choice.high)


def distinct(pool: Votes, over: Bools, n: int) -> Floats:
    """Different answers that n of the samples are expected to have, [problems of `over`]; exact.

    A class with b of N samples is missing from C(N − b, n) / C(N, n) of the n-subsets.
    """
    counts = _counts(pool.classes[over])
    size = pool.classes.shape[1]
    there = 1.0 - subset_share(size, n)[size - counts]
    return np.asarray(np.where(counts > 0, there, 0.0).sum(axis=1))


def entropy(pool: Votes, over: Bools) -> Floats:
    """Of the answers of the whole pool, in bits, [problems of `over`]; the plug-in estimate, somewhat low."""
    counts = _counts(pool.classes[over]).astype(np.float64)
    p = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(-(p * np.log2(np.where(p > 0.0, p, 1.0))).sum(axis=1))


def section(result: StudyResult, extras: Mapping[str, StudyResult]) -> Section | None:
    """Votes, coverage and diversity by setting and n, and the best temperature by n; None for a study without."""
    source = extras.get("temperature")
    if source is None:
        return None
    tried = settings(source, [m.name for m in result.models])
    pictures: list[Plot | Heat] = []
    tables: list[Table] = []
    notes: list[Note] = []
    best: dict[str, list[Line]] = {}
    for model in dict.fromkeys(s.model for s in tried):
        mine = [s for s in tried if s.model == model]
        over = _over(mine)
        ns = _common(mine)
        votes = {n: {s.label: _row(s, n, over) for s in mine} for n in ns}
        pictures.append(
            _heat(model, "vote", mine, ns, [[votes[n][s.label].mean() for n in ns] for s in mine])
        )
        pools = [s for s in mine if s.pool is not None]
        if len(pools) < len(mine):
            notes.append(
                Note(
                    f"temperature, {model}",
                    "coverage and diversity are unknown, because samples were not kept",
                )
            )
        covered = {n: {s.label: _coverage(s, n, over) for s in pools} for n in ns}
        if pools:
            rows = [[covered[n][s.label].mean() for n in ns] for s in pools]
            pictures.append(_heat(model, "coverage", pools, ns, rows))
            tables.append(_diversity(model, pools, ns, over))
        lines, table = _best(model, mine, {"vote": votes, "coverage": covered})
        if lines:
            best[model] = lines
            tables.append(table)
        else:
            notes.append(
                Note(f"temperature, {model}", "fewer than two temperatures were tried, so none is the best")
            )
    if best:
        caption = "The temperature with the highest accuracy at n."
        if has_bands(best):
            caption += " Bands are 95% of the resamples of the problems."
        pictures.append(
            Plot(
                "best-temperature", "Best temperature by n", caption, "samples n", "temperature", best, "log2"
            )
        )
    return Section(
        "temperature",
        "Temperature and adapters",
        f"Pools of every setting{_where(source)}. The best temperature is picked among the tried ones. Its accuracy is "
        "measured on halves of the problems that had no part in the choice.",
        pictures=tuple(pictures),
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _where(source: StudyResult) -> str:
    """On which problems, if the study says it."""
    apart = source.facts.get(APART)
    if apart is None:
        return ""
    return ", on other problems than the test" if apart else ", on the problems of the test"


def _best(
    model: str, mine: list[Setting], by: Mapping[str, Mapping[int, Mapping[str, Floats]]]
) -> tuple[list[Line], Table]:
    """Of votes and of coverage."""
    lines, rows = [], []
    for what, values in by.items():
        every = [one for n, row in values.items() if (one := best_temperature(mine, row, n)) is not None]
        if not every:
            continue
        x, y = [float(b.n) for b in every], [b.temperature for b in every]
        banded = not any(np.isnan(b.low) for b in every)
        lines.append(
            Line(what, x, y, [b.low for b in every], [b.high for b in every]) if banded else Line(what, x, y)
        )
        for b in every:
            between = "–" if np.isnan(b.low) else f"{b.low:g} to {b.high:g}"
            rows.append(
                (
                    what,
                    str(b.n),
                    f"{b.temperature:g}"
                    if len(b.tied) < 2
                    else f"none ({', '.join(f'{t:g}' for t in b.tied)} tie)",
                    between,
                    with_interval(b.accuracy, b.below, b.above),
                )
            )
    columns = ("what", "n", "best temperature", "95% of resamples", "accuracy of the choice")
    caption = (
        f"{model}: the best temperature by n, and its accuracy on problems that had no part in the choice."
    )
    return lines, Table(f"best-temperature-{model}", caption, columns, tuple(rows), frozenset({1, 2, 3, 4}))


def _diversity(model: str, pools: list[Setting], ns: list[int], over: Bools) -> Table:
    rows = []
    for s in pools:
        assert s.pool is not None
        different = [f"{float(distinct(s.pool, over, n).mean()):.2f}" for n in ns]
        rows.append((s.label, *different, f"{float(entropy(s.pool, over).mean()):.2f}"))
    caption = (
        f"{model}: the number of different answers among n samples, and the entropy of answers in bits; means over "
        "problems."
    )
    columns = ("setting", *(f"n = {n}" for n in ns), "entropy")
    return Table(f"diversity-{model}", caption, columns, tuple(rows), frozenset(range(1, len(columns))))


def _heat(model: str, what: str, mine: list[Setting], ns: list[int], values: list[list[float]]) -> Heat:
    caption = f"{what.capitalize()} of {model} by setting and n."
    rows = tuple(s.label for s in mine)
    name = f"temperature-{what}-{model}"
    matrix = np.array(values, dtype=np.float64)
    return Heat(name, f"{what}, {model}", caption, rows, tuple(map(str, ns)), matrix, axes=("setting", "n"))


def _over(mine: list[Setting]) -> Bools:
    """The problems that all settings have, with whole pools."""
    over = shared_problems([s.vote for s in mine])
    for s in mine:
        if s.pool is not None:
            over = over & complete_problems(s.pool)
    return over


def _common(mine: list[Setting]) -> list[int]:
    """The n that all settings have."""
    return sorted(
        set.intersection(*(set(s.vote.ns[np.isfinite(s.vote.accuracy).any(axis=1)].tolist()) for s in mine))
    )


def _row(s: Setting, n: int, over: Bools) -> Floats:
    return np.asarray(s.vote.accuracy[s.vote.ns.tolist().index(n), over])


def _coverage(s: Setting, n: int, over: Bools) -> Floats:
    assert s.pool is not None
    return pass_at_k(s.pool.classes.shape[1], s.pool.correct[over].sum(axis=1), n)


def _counts(classes: Ints) -> Ints:
    """[problems, classes]: samples of each answer; those without one count for none."""
    ids = dense(classes)
    width = int(ids.max(initial=0)) + 1
    cells = np.where(ids < 0, width, ids) + np.arange(len(ids))[:, None] * (width + 1)
    return np.bincount(cells.ravel(), minlength=len(ids) * (width + 1)).reshape(len(ids), -1)[:, :width]
