"""Compute between generating and verifying: n samples, each judged with k critiques.

The error of n samples with k critiques each, at the cost n·g + n·k·v (g: of a sample, v: of a critique). Singhi et al.
(2025) find that for most budgets plain voting over more samples is better, and verification pays only far beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from metagen.analysis.comparison import Contrast
from metagen.analysis.figures import Line
from metagen.analysis.ties import leaders
from metagen.runs.curves.frontier import AtCost, at_cost, enough, ladder, shared_problems, wins
from metagen.runs.curves.recorded import COUNTED
from metagen.runs.curves.study import Bools, Curve, StudyResult
from metagen.runs.note import Note
from metagen.runs.questions.equal_compute import between
from metagen.runs.questions.question import Pairs, Question, leave_open, numbers, words
from metagen.runs.questions.section import Finding, Heat, Plot, Section, Table
from metagen.runs.words import TIED, axis, join_words, often, share, win_share, with_unit

#: Costs of which the first that all splits know counts.
COSTS = ("flops", "flops_2n", "tokens", "generated")
#: Budgets where the study names none that splits can spend.
BUDGETS = 6


#: A split that verifies nothing.
PLAIN = "plain vote"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One model: its curves from no verifying to the most critiques, as `plain vote`, `k = 0`, `k = 1`, …

    assumed: the cost of a critique as a part of a sample's, where nobody counted its tokens; None where they did.
    """

    model: str
    curves: Mapping[str, Curve]
    cost: str
    over: Bools
    assumed: float | None


#: What is said where no split is better than another by more than a tie.
ALIKE = "none (they tie)"


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The splits that one budget pays for, in their order, and how often each is best in resamples of the problems."""

    budget: float
    at: Mapping[str, AtCost]
    share: Mapping[str, float]

    @property
    def name(self) -> str:
        """The best with all that tie with it, or that none is ahead."""
        return ALIKE if len(self.at) > 1 and len(self.tied) == len(self.at) else join_words(list(self.tied))

    @property
    def tied(self) -> tuple[str, ...]:
        """Those that no other beats by more than a tie (`analysis.ties`)."""
        names = list(self.at)
        return tuple(names[i] for i in leaders([at.mean for at in self.at.values()]))

    @property
    def sure(self) -> float:
        """In which share of the resamples one of these is best; NaN for too few problems."""
        return sum(self.share[k] for k in self.tied)


def splits(result: StudyResult, extras: Mapping[str, StudyResult]) -> list[Split]:
    """Of every model that has a curve for two numbers of critiques or more; from the role `splitting`, if it ran."""
    source = extras.get("splitting", result)
    facts = result.facts.get("splitting") or source.facts.get("splitting")
    if not isinstance(facts, Mapping):
        return []
    verifiers = {int(k): str(name) for k, name in facts["critiques"].items()}
    kind = str(facts.get("aggregate", "weighted"))
    price = result.facts.get("critique_cost", source.facts.get("critique_cost"))
    found = []
    for model in dict.fromkeys(curve.model for curve in source.curves):
        mine = [c for c in enough(source) if c.model == model and np.isfinite(c.accuracy).any()]
        critiques = {
            k: next((c for c in mine if (c.kind, c.verifier) == (kind, name)), None)
            for k, name in sorted(verifiers.items())
        }
        curves = {k: curve for k, curve in critiques.items() if curve is not None}
        plain = next((c for c in mine if c.kind == "majority"), None)
        made = _split(model, plain, curves, bool(source.facts.get(COUNTED)), price)
        if made is not None:
            found.append(made)
    return found


def best(split: Split, at: Sequence[float]) -> list[Best]:
    """At every budget that pays for one split at least."""
    found = []
    for budget in at:
        bought = {k: at_cost(curve, split.cost, budget, split.over) for k, curve in split.curves.items()}
        had = {k: one for k, one in bought.items() if one is not None}
        if had:
            won = wins(np.stack([one.accuracy[split.over] for one in had.values()]))
            found.append(Best(budget, had, dict(zip(had, won, strict=True))))
    return found


def spendable(split: Split, result: StudyResult) -> tuple[float, ...]:
    """From what the dearest start costs to the dearest end: the study's budgets, or some; and `equal`, if it is there.

    Beyond `equal` some splits have no more samples, and are what they are.
    """
    ends = [ladder(curve, split.cost, split.over)[1] for curve in split.curves.values()]
    least, most = float(max(costs[0] for costs in ends)), float(max(costs[-1] for costs in ends))
    own = [b for b in result.budgets.get(split.cost, ()) if least <= b <= most]
    if len(own) < 2:
        own = np.geomspace(least, most, BUDGETS).tolist() if most > least else [most]
    even = equal(split)
    return tuple(sorted({*own, *([even] if least <= even <= most else [])}))


def equal(split: Split) -> float:
    """The most that all splits can spend."""
    return float(min(ladder(curve, split.cost, split.over)[1][-1] for curve in split.curves.values()))


def verify_or_generate(result: StudyResult, extras: Mapping[str, StudyResult]) -> Question:
    """More samples, or critiques of those there are: the best number of critiques by budget."""
    asked = "Spend on more samples, or on verifying those there are?"
    claim = "for most budgets more votes are better; verifying first matches them at up to 8× the compute"
    source = "Singhi et al. 2025, When To Solve, When To Verify"
    every = splits(result, extras)
    if not every:
        why = "no split to compare: no model has curves of known cost for two numbers of critiques"
        return leave_open(asked, why, claim=claim, source=source)
    found = {split.model: best(split, spendable(split, result)) for split in every}
    pairs = {}
    for split in every:
        for i, one in enumerate(found[split.model]):
            least, *_, most = [*one.at, *one.at]
            if least != most and one.budget <= equal(split):
                pairs[f"{split.model} {i}"] = (one.at[least].accuracy, one.at[most].accuracy)

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        parts = {split.model: _sentence(split, found[split.model], pairs, tested) for split in every}
        chosen = next(reversed(pairs), f"{every[-1].model} ")
        first = chosen.rpartition(" ")[0]
        return Finding(
            asked, parts[first], unit="points", claim=claim, source=source,
            shown=any(c.shown for c in tested.values()),
            details=tuple(text for model, text in parts.items() if model != first), **numbers(tested.get(chosen)),
        )  # fmt: skip

    return Question(finding, pairs)


def section(result: StudyResult, extras: Mapping[str, StudyResult]) -> Section | None:
    """error(n, k) as heat, the curves of each k, and the best k by budget; None for a study that splits nothing."""
    every = splits(result, extras)
    if not every:
        return None
    pictures: list[Plot | Heat] = []
    rows = []
    notes = []
    panels = {}
    for split in every:
        pictures.append(_heat(split))
        panels[split.model] = [_line(name, split) for name in split.curves]
        if split.assumed is not None:
            text = f"the tokens of critiques are unknown; a critique is assumed to cost {split.assumed:g} of a sample"
            notes.append(Note(f"splitting, {split.model}", text))
        for one in best(split, spendable(split, result)):
            means = ", ".join(f"{k}: {share(at.mean)} (n = {between(at)})" for k, at in one.at.items())
            shares = ", ".join(f"{k}: {often(v)}" for k, v in one.share.items())
            rows.append((split.model, with_unit(one.budget, split.cost), one.name, means, shares))
    caption = "Accuracy against cost, a line for each number k of critiques of a sample."
    pictures.append(
        Plot("splitting", "Samples or critiques", caption, axis(every[0].cost), "accuracy", panels)
    )
    columns = ("model", "budget", "best", "accuracy", "best in")
    caption = (
        f"The best number of critiques by budget, with all that tie with it ({TIED}). “Best in” is a share of the "
        "resamples of the problems. A split without more samples spends less than the budget."
    )
    return Section(
        "splitting",
        "Compute between generating and verifying",
        "n samples with k critiques each cost n·g + n·k·v, as counted. Without critiques, k = 0, a verifier still "
        "reads the samples. The plain vote has no verifier.",
        pictures=tuple(pictures),
        tables=(Table("splitting", caption, columns, tuple(rows), frozenset({1})),),
        notes=tuple(notes),
    )


def _split(
    model: str, plain: Curve | None, critiques: Mapping[int, Curve], counted: bool, price: float | None
) -> Split | None:
    """The curves over the cost that all know, critiques priced where nobody counted them.

    counted: of recorded critiques `flops_2n` has the price already, where it is known; no other cost has it.
    """
    every = ([plain] if plain else []) + list(critiques.values())
    costs = ("flops_2n", *COSTS) if counted and price is not None else COSTS
    cost = next((c for c in costs if all(_has_cost(curve, c) for curve in every)), None)
    if len(every) < 2 or cost is None:
        return None
    free = all(_free(curve) for k, curve in critiques.items() if k > 0)
    assumed = float(price) if price is not None and free and not (counted and cost == "flops_2n") else None
    named = {PLAIN: plain} if plain else {}
    for k, curve in critiques.items():
        paid = {**curve.costs, cost: curve.costs[cost] * (1.0 + k * (assumed or 0.0))}
        named[f"k = {k}"] = replace(curve, costs=paid)
    return Split(model, named, cost, shared_problems(every), assumed)


def _free(curve: Curve) -> bool:
    """Whether verifying seems to cost nothing: nobody counted it. What was stated is in no exact FLOPs."""
    exact = np.isfinite(curve.costs["flops"]) if "flops" in curve.costs else True
    return not np.nansum(np.where(exact, curve.verification, 0.0)) > 0.0


def _has_cost(curve: Curve, cost: str) -> bool:
    measured = np.isfinite(curve.accuracy)
    return cost in curve.costs and bool(measured.any()) and bool((curve.costs[cost][measured] > 0.0).all())


def _sentence(split: Split, found: list[Best], pairs: Pairs, tested: Mapping[str, Contrast]) -> str:
    alike = [i for i in range(len(found)) if f"{split.model} {i}" in pairs]
    if not alike:
        return f"{split.model}: no budget can be spent by all splits, so none is compared."
    where = []
    for name, same in groupby((found[i] for i in alike), key=lambda one: one.name):
        those = list(same)
        sure = min(one.sure for one in those)
        told = "" if name == ALIKE or np.isnan(sure) else win_share(sure, len(those))
        where.append(f"{name} {_range(those[0].budget, those[-1].budget, split.cost)}{told}")
    text = f"{split.model}: best is {join_words(where)}."
    last = found[alike[-1]]
    least, *_, most = [*last.at, *last.at]
    test = words(tested.get(f"{split.model} {alike[-1]}"))
    budget = with_unit(last.budget, split.cost)
    return f"{text} At {budget}, the most that all can spend, {most} against {least}: {test}."


def _range(least: float, most: float, cost: str) -> str:
    return (
        f"at {with_unit(least, cost)}"
        if least == most
        else f"from {with_unit(least, cost)} to {with_unit(most, cost)}"
    )


def _heat(split: Split) -> Heat:
    ns = sorted({int(n) for curve in split.curves.values() for n in curve.ns})
    values = np.full((len(split.curves), len(ns)), np.nan)
    for row, curve in enumerate(split.curves.values()):
        means = 1.0 - curve.accuracy[:, split.over].mean(axis=1)
        for n, mean in zip(curve.ns.tolist(), means.tolist(), strict=True):
            values[row, ns.index(n)] = mean
    name = f"splitting-{split.model}"
    caption = f"Error of {split.model} with n samples, k critiques of each."
    rows = tuple(split.curves)
    return Heat(
        name,
        f"error(n, k), {split.model}",
        caption,
        rows,
        tuple(map(str, ns)),
        values,
        axes=("critiques", "n"),
    )


def _line(name: str, split: Split) -> Line:
    points, costs = ladder(split.curves[name], split.cost, split.over)
    means = split.curves[name].accuracy[points][:, split.over].mean(axis=1)
    return Line(name, costs.tolist(), means.tolist())
