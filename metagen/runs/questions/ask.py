"""The questions of the inference-scaling literature, each asked of a study and answered with a number and an interval.

Every question is a function of its result that says what it compares; `answer_questions` asks those that the study has
the parts for, corrects their tests as one family, and hears what they say. What was asked and not measured stays
unanswered, and says so; a note names what was not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from math import nan

import numpy as np

from metagen.analysis.comparison import Contrast
from metagen.errors import InputError
from metagen.runs.curves.frontier import (
    SLACK,
    AtCost,
    curves_with_cost,
    even,
    ladder,
    main_cost,
    optimal_size,
    shared_problems,
)
from metagen.runs.curves.study import Bools, Curve, StudyResult
from metagen.runs.declare import registry
from metagen.runs.declare.study import AlignmentSpec
from metagen.runs.note import Note
from metagen.runs.questions import (
    adaptive,
    difficulty,
    frontier,
    saturation,
    splitting,
    temperature,
    unasked,
)
from metagen.runs.questions.adaptive import adaptive_pays
from metagen.runs.questions.alignment import section as alignment
from metagen.runs.questions.crossings import crossing
from metagen.runs.questions.equal_compute import between, budgets
from metagen.runs.questions.question import Question, answers, leave_open, numbers, words
from metagen.runs.questions.saturation import voting_saturates, weighted_against_limit
from metagen.runs.questions.section import Finding, Section
from metagen.runs.questions.splitting import verify_or_generate
from metagen.runs.questions.unasked import LONGER, REBASE, SIZES, TREES
from metagen.runs.words import (
    DETECTABLE,
    TIED,
    join_words,
    lines,
    sentences,
    share,
    win_share,
    with_unit,
    within,
)
from metagen.runs.work.progress import Phase

#: Costs of a sample that tell which model is larger.
SIZED = ("flops", "flops_2n")
#: By name: two curves, and both at the same cost.
Rows = dict[str, tuple[Curve, Curve, AtCost, AtCost]]


def sections(
    result: StudyResult,
    extras: Mapping[str, StudyResult],
    aligned: AlignmentSpec | None = None,
    phase: Phase | None = None,
) -> Iterator[Section]:
    """Answers first, then what they rest on, each when it is asked for; parts that a study has not are left out.

    extras: results of the roles `splitting` and `temperature`. aligned: what the study says of alignment. Where curves
    have no problem in common, a section is one note that names them. phase: is told how far this is.
    """
    phase = phase or Phase()
    made: dict[str, Callable[[], Section | None]] = {
        "answers": lambda: answer_questions(result, extras, aligned),
        "frontier": lambda: frontier.section(result),
        "equal-compute": lambda: frontier.comparison(result),
        "difficulty": lambda: difficulty.section(result),
        "adaptive": lambda: adaptive.section(result),
        "splitting": lambda: splitting.section(result, extras),
        "temperature": lambda: temperature.section(result, extras),
        "saturation": lambda: saturation.section(result, exact=aligned is not None and aligned.enumerable),
    }
    phase.begin("sections", len(made), "sections")
    for name, make in made.items():
        try:
            section = make()
        except InputError as error:
            section = Section(name, name.capitalize(), notes=(Note(name, str(error)),))
        phase.advance()
        if section is not None:
            yield section


def answer_questions(
    result: StudyResult, extras: Mapping[str, StudyResult], aligned: AlignmentSpec | None = None
) -> Section:
    """The questions that the study has the parts for with their answers, one family of tests; the others in a note."""
    lacking = unasked.missing_questions(result, extras, aligned)
    made: dict[str, Callable[[], Question]] = {
        SIZES: lambda: small_many_or_large_few(result),
        REBASE: lambda: rebase_dominates_voting(result),
        unasked.SATURATES: lambda: voting_saturates(result),
        unasked.WEIGHTS: lambda: weighted_against_limit(result),
        unasked.OPTIMAL: lambda: best_of_n_to_optimal_kl(result, aligned),
        unasked.ADAPTIVE: lambda: adaptive_pays(result),
        LONGER: lambda: samples_or_longer(result),
        unasked.VERIFY: lambda: verify_or_generate(result, extras),
    }
    questions = []
    for text, make in made.items():
        if text in lacking:
            continue
        try:
            questions.append(make())
        except InputError as error:
            questions.append(leave_open(text, str(error)))
    count = sum(len(question.pairs) for question in questions)
    return Section(
        "answers",
        "Questions and answers",
        f"p-values are corrected by Holm for the {count} comparisons of this section; intervals are each comparison's "
        f"own, uncorrected. Where a difference is not shown, the smallest detectable one stands beside it. "
        f"{DETECTABLE} Beside each answer stands what was published, for other models and tasks.",
        findings=tuple(answers(questions)),
        notes=unasked.note(lacking),
    )


def small_many_or_large_few(result: StudyResult) -> Question:
    """Smaller models with many samples, at the cost of one sample of the largest."""
    claim = "smaller models with more samples are the better use of small budgets"
    source = "Wu et al. 2024, Inference Scaling Laws; Snell et al. 2024"
    cost = main_cost(result)
    sizes = {model.name: model.size for model in result.models}
    pairs, said, ends = {}, {}, {}
    apart: list[str] = []
    for kind in registry.saying("votes"):
        ordered = _by_size(result, cost, kind) if cost else []
        if cost is None or len(ordered) < 2:
            continue
        if cost not in SIZED and not all(sizes[c.model] for c in ordered):
            why = "the models' sizes are unknown, and no FLOPs tell them: give study.sizes"
            return leave_open(SIZES, why, claim=claim, source=source)
        large = ordered[-1]
        for small in ordered[:-1]:
            over = shared_problems([small, large])
            least = float(ladder(large, cost, over)[1][0])
            both = even(small, large, cost, least, over)
            if both is None:
                apart.append(_apart(small, large, cost, over))
                continue
            many, one = both
            name = f"{kind} {small.name} at one {large.name}"
            pairs[name] = (one.accuracy, many.accuracy)
            said[name] = (
                f"at {with_unit(least, cost)}, {small.name} with n = {between(many)} is at {share(many.mean)}, "
                f"{large.name} with n = {between(one)} at {share(one.mean)}"
            )
        ends[kind] = _optimal(result, cost, kind, ordered)
    if not pairs:
        why = "; ".join(apart) or "there are no two models whose votes can be had for the same cost"
        return leave_open(SIZES, why, claim=claim, source=source)
    # The largest of the smaller models, under the plain vote where there is one.
    first = next(iter(pairs)).partition(" ")[0]
    chosen = [name for name in pairs if name.startswith(f"{first} ")][-1]

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        parts = {name: f"{text}: {words(tested.get(name))}" for name, text in said.items()}
        rest = [text for name, text in parts.items() if name != chosen]
        rest += [*(end for kind, end in ends.items() if kind != first), *apart]
        return Finding(
            SIZES, sentences([parts[chosen], ends[first]]), unit="points", claim=claim, source=source,
            shown=any(c.shown for c in tested.values()), details=lines(rest), **numbers(tested.get(chosen)),
        )  # fmt: skip

    return Question(finding, pairs)


def rebase_dominates_voting(result: StudyResult) -> Question:
    """REBASE at what its own n cost against votes over samples, as far as both were measured."""
    claim = "REBASE beats voting at every budget: 7B with 32 samples 46.8%, 34B with 64 votes 46.7%"
    source = "Wu et al. 2024, Inference Scaling Laws"
    cost = main_cost(result)
    curves = curves_with_cost(result, cost) if cost else []
    rows: Rows = {}
    apart: list[str] = []
    for tree in (c for c in curves if c.kind in TREES):
        for vote in (c for c in curves if c.model == tree.model and registry.says(c.kind, "votes")):
            over = shared_problems([tree, vote])
            before = 0.0
            for budget in ladder(tree, str(cost), over)[1]:
                both = even(tree, vote, str(cost), float(budget), over)
                # Beyond the end of the vote nothing changes: said once.
                if both is not None and both[0].spends > before * (1.0 + SLACK):
                    before = both[0].spends
                    rows[f"{tree.name}@{between(both[0])} {vote.name}"] = tree, vote, *both
            if before == 0.0:
                apart.append(_apart(tree, vote, str(cost), over))
    if not rows:
        why = "; ".join(apart) or "no model has both REBASE and a vote that can be had for its cost"
        return leave_open(REBASE, why, claim=claim, source=source)
    # The largest model, the strongest vote, and of its n the middle one.
    last = list(rows)[-1]
    alike = [name for name, row in rows.items() if row[:2] == rows[last][:2]]
    chosen = alike[(len(alike) - 1) // 2]

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        ahead = sum(c.shown and c.difference.estimate > 0 for c in tested.values())
        behind = sum(c.shown and c.difference.estimate < 0 for c in tested.values())
        parts = {name: _beside(row, str(cost), tested.get(name)) for name, row in rows.items()}
        count = (
            f"of {len(rows)} comparisons over models, votes and n it is shown to lead in {ahead} and to trail in "
            f"{behind}; the other {len(rows) - ahead - behind} are not shown to differ"
        )
        rest = [text for name, text in parts.items() if name != chosen]
        return Finding(
            REBASE, sentences([count, parts[chosen]]), unit="points", claim=claim, source=source,
            shown=ahead + behind > 0, details=lines([*rest, *apart]), **numbers(tested.get(chosen)),
        )  # fmt: skip

    return _question(finding, rows)


def best_of_n_to_optimal_kl(result: StudyResult, aligned: AlignmentSpec | None = None) -> Question:
    """How near best-of-n comes to the reward that is possible at its divergence."""
    found = alignment.question(result, aligned)
    return Question(lambda _: found)


def samples_or_longer(result: StudyResult) -> Question:
    """Strategies that make a model think longer, against votes at what they spend, as far as both were measured."""
    claim = "longer thought and more samples trade off; which is better depends on how hard a problem is"
    source = "Muennighoff et al. 2025, s1; Snell et al. 2024"
    cost = main_cost(result)
    rows: Rows = {}
    apart: list[str] = []
    curves = curves_with_cost(result, cost) if cost else []
    for curve in curves:
        vote = next((c for c in curves if (c.model, c.kind) == (curve.model, "majority")), None)
        if not registry.says(curve.kind, "thinks") or vote is None:
            continue
        over = shared_problems([curve, vote])
        both = even(curve, vote, str(cost), float(ladder(curve, str(cost), over)[1][-1]), over)
        if both is not None:
            rows[curve.name] = curve, vote, *both
        else:
            apart.append(_apart(curve, vote, str(cost), over))
    if not rows:
        why = "; ".join(apart) or "no model has both longer thought and a plain vote whose costs are known"
        return leave_open(LONGER, why, claim=claim, source=source)

    def finding(tested: Mapping[str, Contrast]) -> Finding:
        *rest, main = (_beside(row, str(cost), tested.get(name)) for name, row in rows.items())
        return Finding(
            LONGER, sentences([main]), unit="points", claim=claim, source=source,
            shown=any(c.shown for c in tested.values()), details=lines([*rest, *apart]),
            **numbers(tested.get(next(reversed(rows)))),
        )  # fmt: skip

    return _question(finding, rows)


def _question(finding: Callable[[Mapping[str, Contrast]], Finding], rows: Rows) -> Question:
    return Question(
        finding, {name: (beside.accuracy, at.accuracy) for name, (_, _, at, beside) in rows.items()}
    )


def _beside(row: tuple[Curve, Curve, AtCost, AtCost], cost: str, test: Contrast | None) -> str:
    """Two curves at the same cost, in words."""
    curve, vote, at, beside = row
    with_n = f" with n = {between(at)}" if at.between != (0, 0) else ""
    return (
        f"at {with_unit(at.spends, cost)}, {curve.name}{with_n} is at {share(at.mean)}, {vote.name} with n = "
        f"{between(beside)} at {share(beside.mean)}: {words(test)}"
    )


def _apart(a: Curve, b: Curve, cost: str, over: Bools) -> str:
    """Two curves that can't be had for the same cost, in words."""
    dear, cheap = sorted((a, b), key=lambda c: -float(ladder(c, cost, over)[1][0]))
    begins, ends = ladder(dear, cost, over)[1][0], ladder(cheap, cost, over)[1][-1]
    return (
        f"{dear.name} begins at {with_unit(float(begins), cost)}, and {cheap.name} was measured up to "
        f"{with_unit(float(ends), cost)}: not compared"
    )


def _by_size(result: StudyResult, cost: str, kind: str) -> list[Curve]:
    """The first curve of this kind of every model, smallest model first: by its size, or by its least mean cost."""
    sizes = {model.name: model.size for model in result.models}
    curves: dict[str, Curve] = {}
    for curve in curves_with_cost(result, cost):
        if curve.kind == kind:
            curves.setdefault(curve.model, curve)
    every = list(curves.values())
    if all(sizes.get(c.model) for c in every):
        return sorted(every, key=lambda c: sizes[c.model] or nan)
    return sorted(every, key=lambda c: float(ladder(c, cost, shared_problems([c]))[1][0]))


def _optimal(result: StudyResult, cost: str, kind: str, ordered: list[Curve]) -> str:
    """The best model by budget, and where the two largest cross."""
    sizes = optimal_size(result, cost, budgets(result, cost), lambda c: c.kind == kind)
    found = [size for size in sizes if size.model is not None]
    parts = []
    for (model, alone, tied), same in groupby(
        found, key=lambda size: (str(size.model), size.alone, size.tied)
    ):
        those = list(same)
        least = min(size.share[model] for size in those)
        ends = [with_unit(size.budget, cost) for size in (those[0], those[-1])]
        where = f"at {ends[0]}" if len(those) == 1 else f"from {ends[0]} to {ends[1]}"
        sure = "" if np.isnan(least) else win_share(least, len(those))
        if len(tied) > 1:
            model, sure = "none", f" ({join_words(list(tied))} tie: {TIED})"
        parts.append(f"{model} {where}{' (the only one that it pays for)' if alone else sure}")
    cross = crossing(ordered[-2], ordered[-1], cost)
    after = ""
    if cross is not None:
        after = f"; {cross.after} overtakes {cross.before} at {with_unit(cross.cost, cost)}"
        if not np.isnan(cross.low):
            after += f" (95%: {within(cross.low, cross.high, lambda x: with_unit(x, cost))})"
    return f"of the budgets, under {kind}, best is {join_words(parts)}{after}" if parts else ""
