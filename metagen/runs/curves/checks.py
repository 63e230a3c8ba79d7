"""What results cannot tell, said: too few problems, missing samples, scores and costs, equal prompts.

Findings work with what is left, and never with a number that such a gap would make up.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping

import numpy as np

from metagen.errors import DataError
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Bools, Curve, StudyResult, Votes
from metagen.runs.directory import RunDirectory
from metagen.runs.note import Note
from metagen.runs.table.tables import read

#: Names that a note spells out.
NAMED = 3


def problems(count: int) -> tuple[Note, ...]:
    """What so few problems cannot tell; DataError for none."""
    if count < 1:
        raise DataError("the study has no problem; expected at least one, and eight for intervals")
    if count == 1:
        return (
            Note(
                "problems",
                "one problem allows no interval, no test, no groups by difficulty and no fitted law; give at least "
                f"{FEW}",
            ),
        )
    if count < FEW:
        return (
            Note(
                "problems",
                f"{count} problems are too few for intervals; give at least {FEW}",
            ),
        )
    return ()


def duplicates(prompts: Mapping[str, str]) -> tuple[Note, ...]:
    """Problems that ask the same thing under several ids. prompts: digests by id."""
    ids: dict[str, list[str]] = {}
    for problem, prompt in prompts.items():
        ids.setdefault(prompt, []).append(problem)
    repeated = [same for same in ids.values() if len(same) > 1]
    if not repeated:
        return ()
    shown = "; ".join(" = ".join(map(repr, same[:NAMED])) for same in repeated[:NAMED])
    more = f" and {len(repeated) - NAMED} more" if len(repeated) > NAMED else ""
    return (
        Note(
            "problems",
            f"{len(prompts)} problems have only {len(ids)} different prompts ({shown}{more}), so intervals are too "
            "narrow",
        ),
    )


def note_duplicates(directory: RunDirectory) -> tuple[Note, ...]:
    """`duplicates` of a finished run."""
    rows = read(directory.table("problems"), ["problem", "place", "salt"]).sort_by("place").to_pylist()
    return duplicates({row["problem"]: row["salt"] for row in rows})


# ------------------------------------------------------------------------------------------------ of a result


def notes(result: StudyResult) -> tuple[Note, ...]:
    """What is seen in the arrays of a result alone, beside the notes that it has."""
    found = [
        *problems(len(result.problems)),
        *_missing(result.curves),
        *_flat(result.curves),
        *_costs(result),
        *_scores(result),
        *_likelihoods(result.votes),
    ]
    return tuple(note for note in dict.fromkeys(found) if note not in result.notes)


def _missing(curves: abc.Sequence[Curve]) -> Iterator[Note]:
    """Problems that a curve lacks, altogether or at some n."""
    for curve in curves:
        measured = np.isfinite(curve.accuracy)
        every, some = measured.shape[1], int(measured.any(axis=0).sum())
        about, why = (
            (curve.model, "those with as many samples")
            if curve.source == "pool"
            else (curve.name, "the others failed")
        )
        if some < every:
            yield Note(about, f"measured on {some} of {every} problems; the others failed")
        for n, there in zip(curve.ns.tolist(), measured.sum(axis=1).tolist(), strict=True):
            if there < some:
                yield Note(about, f"n = {n} is measured on {there} of {some} problems, {why}")


def _flat(curves: abc.Sequence[Curve]) -> Iterator[Note]:
    """Curves that are right, or wrong, throughout."""
    for curve in curves:
        there = curve.accuracy[np.isfinite(curve.accuracy)]
        if there.size and (there == there[0]).all() and there[0] in (0.0, 1.0):
            count = int(np.isfinite(curve.accuracy).any(axis=0).sum())
            exact = "; its interval is the exact binomial bound"
            yield Note(
                curve.name,
                f"{'all' if there[0] else 'none'} of {count} problems {'are' if there[0] else 'is'} solved at every n: "
                f"they show no differences, no law and no saturation{exact if count >= FEW else ''}",
            )


def _costs(result: StudyResult) -> Iterator[Note]:
    """Costs that no curve knows; those that some lack are said where they are compared."""
    for name in dict.fromkeys(name for curve in result.curves for name in curve.costs):
        if all(name not in c.costs or np.isnan(c.costs[name]).all() for c in result.curves):
            yield Note(name, f"{name} is unknown for every curve{remedy(name)}")


def remedy(cost: str) -> str:
    """How an unknown cost becomes known, to be put behind a clause; nothing where that is not in the user's hands."""
    if cost == "money":
        return ": give engines.NAME.price"
    if ":" in cost:
        return (
            f": give study.accelerators.{cost.partition(':')[2]}, and engines whose models' shapes are known"
        )
    if cost in ("flops", "flops_2n", "generated", "tokens"):
        return ": give counts of tokens and the models' shapes, or study.sizes for a recorded pool"
    return ""


def _scores(result: StudyResult) -> Iterator[Note]:
    """Samples that a verifier has not scored, for each strategy that goes by it."""
    pools = {(votes.model, votes.generator): votes for votes in result.votes if votes.role == "test"}
    for curve in result.curves:
        votes = pools.get((curve.model, curve.generator))
        if curve.source != "pool" or votes is None or curve.verifier not in votes.scores:
            continue
        there = _there(votes)
        missing = int((np.isnan(votes.scores[curve.verifier or ""]) & there).sum())
        if missing:
            what = "they come last" if curve.kind == "best_of_n" else "they have no vote"
            yield Note(
                curve.name,
                f"{missing:,} of {there.sum():,} samples have no score of {curve.verifier}: {what}",
            )


def _likelihoods(pools: abc.Sequence[Votes]) -> Iterator[Note]:
    """Samples without log-probabilities."""
    for votes in pools:
        there = _there(votes)
        if votes.role == "test" and (missing := int((np.isnan(votes.logprob) & there).sum())):
            yield Note(
                votes.model,
                f"{missing:,} of {there.sum():,} samples have no log-probability",
            )


def _there(votes: Votes) -> Bools:
    """Which places of the arrays are samples."""
    return np.asarray(np.arange(votes.classes.shape[1]) < votes.sizes[:, None])
