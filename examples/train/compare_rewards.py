"""Compare reward models on validation problems: `python examples/train/compare_rewards.py --into RUN`.

Trains nothing. Every model of the run that is a verifier scores the same samples, and those that score steps lead the
same search. Which kind of supervision serves a search, and which a vote? Intervals are over
problems, and differences are paired: 95%, not corrected for their number. The test problems stay untouched.

- AUC: the chance that a right sample of a problem outscores a wrong one of the same problem.
- best-of-n, weighted vote: expected accuracy of n of the samples. Who came to no answer is never chosen.
- search: the best of four steps, then the best of four that continue it. As many samples as best-of-4.
- first error: the share of samples whose first wrong step is named (or that have none, and none is named), by a
  threshold that was chosen on the other half of the problems.
"""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import judging
import train_critic
import train_reward
from candidates import Candidates, Floats
from judging import Judge
from metagen.analysis.first_error import best_threshold, first_below
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import paired_difference
from metagen.analysis.selection import problem_aucs
from metagen.verifiers.aggregation import AGGREGATIONS, aggregate
from parts import Record
from setting import Setting

GENERATORS = ("tiny-0.5m", "tiny-2m")
VERIFIERS = (*train_reward.PLANS, *train_critic.PLANS)
NS = (1, 4, 16)
"""Sizes of best-of-n and of votes, as far as the samples go."""
REFERENCE = "reward-labels.orm"
"""What the other kinds of supervision are compared with."""
Ints = NDArray[np.int64]


def rules(judge: Judge, records: list[Record], candidates: Candidates) -> dict[str, Floats]:
    """Scores [problems, samples] by rule: of a process model one for each aggregation. NaN where there is no answer."""
    if judge.stepwise:
        found = {
            f"{judge.name}.{how}": [[aggregate(steps, how) for steps in r["steps"]] for r in records]
            for how in AGGREGATIONS
        }
    else:
        found = {judge.name: [[np.nan if v is None else v for v in r["values"]] for r in records]}
    return {rule: candidates.answered(rows) for rule, rows in found.items()}


def first_errors(records: list[Record], truth: Ints) -> Floats:
    """Share of samples whose first error is named rightly, by problem; thresholds come from the other half.

    truth: the places, [problems, samples]; -1 where there is none.
    """
    steps = [[steps or [0.0] for steps in r["steps"]] for r in records]
    found = np.full(len(records), np.nan)
    for half in (0, 1):
        there, here = range(1 - half, len(records), 2), range(half, len(records), 2)
        known = np.concatenate([truth[i] for i in there]) if len(there) else np.array([])
        if not (known < 0).any() or (known < 0).all():
            continue  # a pool without errors, or with nothing else, tells of no threshold
        threshold = best_threshold([s for i in there for s in steps[i]], known)
        for i in here:
            found[i] = (first_below(steps[i], threshold) == truth[i]).mean()
    return found


def examined(run: Setting, generator: str, judges: list[Judge]) -> dict[str, Any]:
    """All figures on the samples of one generator: by problem, from which means and differences are taken."""
    rows = [record["samples"] for record in judging.done(run, judging.samples_of(run, generator))]
    candidates = Candidates.of(*([[s[what] for s in row] for row in rows] for what in ("right", "key")), NS)
    places = np.array([[s["error"] for s in row] for row in rows])
    by_problem: dict[str, Floats] = {"sample": candidates.right.mean(axis=1)}
    by_problem |= _by_n("majority", candidates, candidates.vote())
    aucs: dict[str, Floats] = {}
    errors: dict[str, Floats] = {}
    for judge in judges:
        records = judging.done(run, judging.scores_of(run, generator, judge))
        for rule, scores in rules(judge, records, candidates).items():
            aucs[rule] = problem_aucs(scores, candidates.right)
            by_problem |= _by_n(f"best-of-n {rule}", candidates, candidates.best(scores))
            by_problem |= _by_n(f"weighted {rule}", candidates, candidates.vote(scores))
        if judge.stepwise:
            errors[judge.name] = first_errors(records, places)
        if judge.leads:
            led = judging.done(run, judging.search_of(run, generator, judge))
            by_problem[f"search {judge.name}"] = np.array([float(r["right"]) for r in led])
    return {
        "generator": generator,
        "problems": len(candidates.right),
        "samples": candidates.right.shape[1],
        "ns": candidates.ns,
        "auc": {rule: mean(values) for rule, values in aucs.items()},
        "first error": {rule: mean(values) for rule, values in errors.items()},
        "accuracy": {rule: mean(values) for rule, values in by_problem.items()},
        "differences": dict(differences(candidates.ns[-1], by_problem, aucs, errors)),
    }


def _by_n(rule: str, candidates: Candidates, accuracy: Floats) -> dict[str, Floats]:
    return {f"{rule} @{n}": row for n, row in zip(candidates.ns, accuracy, strict=True)}


def mean(values: Floats) -> list[float] | None:
    """Mean with its interval, over the problems that have a value; None if there are none."""
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    found = interval(known, support=SHARES)
    return [float(found.estimate), float(found.low), float(found.high)]


def difference(a: Floats, b: Floats) -> list[float] | None:
    """Mean of a − b with its interval and p-value, over the problems that have both; None if there are none."""
    known = ~np.isnan(a) & ~np.isnan(b)
    if not known.any():
        return None
    d = paired_difference(a[known], b[known])
    return [d.estimate, d.low, d.high, d.p_value]


def differences(
    most: int, accuracy: dict[str, Floats], aucs: dict[str, Floats], errors: dict[str, Floats]
) -> Iterator[tuple[str, list[float] | None]]:
    """What is to be known: a vote against the majority, a search against best-of-n, one supervision against another."""
    for rule in aucs:
        vote, best = f"weighted {rule} @{most}", f"best-of-n {rule} @{most}"
        yield f"{vote} − majority", difference(accuracy[vote], accuracy[f"majority @{most}"])
        yield f"{best} − majority", difference(accuracy[best], accuracy[f"majority @{most}"])
        search = f"search {rule.removesuffix('.last')}"
        if search in accuracy:
            best = f"best-of-n {rule} @{judging.WIDTH}"
            yield f"{search} − {best}", difference(accuracy[search], accuracy[best])
        if REFERENCE in aucs and rule != REFERENCE and rule.startswith("reward-"):
            for what in ("weighted", "best-of-n"):
                a, b = accuracy[f"{what} {rule} @{most}"], accuracy[f"{what} {REFERENCE} @{most}"]
                yield f"{what} @{most}: {rule} − {REFERENCE}", difference(a, b)
            yield f"AUC: {rule} − {REFERENCE}", difference(aucs[rule], aucs[REFERENCE])
    checked = "reward-steps.prm"
    for rule in ("reward-soft.prm", "reward-hard.prm"):
        if rule in errors and checked in errors:
            yield f"first error: {rule} − {checked}", difference(errors[rule], errors[checked])
            a, b = accuracy[f"search {rule}"], accuracy[f"search {checked}"]
            yield f"search: {rule} − {checked}", difference(a, b)


def judges(run: Setting, names: list[str] | None = None) -> list[Judge]:
    """The verifiers of a run; those named must be there. SystemExit if there are none."""
    folders = (
        [run.trained(n) for n in names] if names else [run.models / n for n in VERIFIERS if run.finished(n)]
    )
    found = [judge for folder in folders for judge in judging.judges_of(folder)]
    if not found:
        raise SystemExit(f"{run.models} has no verifier; train one first (examples/train/train_reward.py)")
    return found


def compare(run: Setting, generators: tuple[str, ...] = GENERATORS, names: list[str] | None = None) -> str:
    """All figures, written as `figures.json` and `report.md` in the run's folder `compared`; the report."""
    chosen = judges(run, names)
    judging.do(run, [judging.samples_of(run, g) for g in generators])
    scores = [judging.scores_of(run, g, j) for g in generators for j in chosen]
    judging.do(run, scores + [judging.search_of(run, g, j) for g in generators for j in chosen if j.leads])
    found = [examined(run, generator, chosen) for generator in generators]
    text = "\n".join(line for figures in found for line in report(figures))
    folder = run.into / "compared"
    (folder / "figures.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (folder / "report.md").write_text(text + "\n")
    return text


def report(figures: dict[str, Any]) -> Iterator[str]:
    """The figures on one generator's samples, as Markdown."""
    accuracy, ns = figures["accuracy"], figures["ns"]
    yield f"## Samples of {figures['generator']}\n"
    count, each = figures["problems"], figures["samples"]
    yield f"{count} validation problems, {each} samples each at temperature 1. In %, with 95% intervals over"
    yield "problems.\n"
    yield (
        "| verifier | AUC | "
        + " | ".join(f"best of {n} | vote of {n}" for n in ns[1:])
        + " | search | first error |"
    )
    yield "| --- |" + " --- |" * (2 * len(ns) + 1)
    majority = " | ".join(f"| {cell(accuracy[f'majority @{n}'])}" for n in ns[1:])
    yield f"| none | | {majority} | {cell(accuracy['sample'])} | |"
    for rule, auc in figures["auc"].items():
        votes = (cell(accuracy[f"{what} {rule} @{n}"]) for n in ns[1:] for what in ("best-of-n", "weighted"))
        whole = rule.removesuffix(".last")
        search, error = accuracy.get(f"search {whole}"), figures["first error"].get(whole)
        yield f"| {rule} | {cell(auc)} | {' | '.join(votes)} | {cell(search)} | {cell(error)} |"
    yield "\nPaired differences, in points.\n"
    yield "| difference | points | p |"
    yield "| --- | --- | --- |"
    for name, d in figures["differences"].items():
        if d is not None:
            yield f"| {name} | {100 * d[0]:+.1f} [{100 * d[1]:+.1f}, {100 * d[2]:+.1f}] | {d[3]:.3f} |"
    yield ""


def cell(found: list[float] | None) -> str:
    return "" if found is None else f"{100 * found[0]:.1f} [{100 * found[1]:.1f}, {100 * found[2]:.1f}]"


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("--generators", nargs="+", default=GENERATORS, help="default: %(default)s")
    parser.add_argument(
        "--verifiers", nargs="+", help="directories under models; default: all that are there"
    )
    arguments = parser.parse_args()
    print(compare(setting.begin(arguments), tuple(arguments.generators), arguments.verifiers))
