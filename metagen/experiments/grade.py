"""Outputs that somebody recorded, graded: an experiment over the pool, with every vote that it allows.

The pool is a JSONL file with one problem a line. What is measured: the accuracy of one sample (pass@1), of majority
voting (maj@n), coverage (pass@n: the best of n by the task's own grader) and, for every verifier, the best of n and
the weighted vote; each is an average over random subsets of the pool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from metagen.errors import DataError
from metagen.experiments.schema import checked
from metagen.experiments.source import Source, nearest, read
from metagen.experiments.specs import SECTIONS, Experiment
from metagen.generators.replay import ReplayGenerator

#: Parts of every grading, by name.
POOL, SINGLE, MAJORITY, COVERAGE, GRADER = "recorded", "single", "majority", "pass", "grader"
#: What an experiment file lends to a grading.
LENT: Final = ("task", "engines", "verifiers", "seed")


@dataclass(frozen=True, slots=True)
class Fields:
    """What the fields of a pool's records are called. None: as is usual, if there is one such."""

    id: str | None = None
    samples: str | None = None
    question: str | None = None
    reference: str | None = None


USUAL: Final = Fields(
    "id problem_id task_id unique_id question_id",
    "samples completions outputs texts generations responses answers",
    "question problem prompt input puzzle",
    "answer gold reference target solution",
)


def experiment(
    file: Path,
    *,
    like: Path | None = None,
    named: Fields | None = None,
    answer: Mapping[str, Any] | None = None,
    scores: Ordered[str] = (),
    n: Ordered[int] = (),
    sets: Ordered[str] = (),
) -> Experiment:
    """The experiment that grades `file`.

    like: an experiment file, or the beginning of one, whose task, engines and verifiers are used; without it, questions
    and references stand in the pool's own records, and `answer` holds options of the jsonl task for reading answers.
    scores: fields that hold a list of numbers, one a sample, each a verifier of its own.
    n: numbers of candidates; by default powers of two up to the smallest pool, and its size. sets: overrides.
    Raises DataError for a file that is no pool, ConfigError that lists what is wrong with the rest.
    """
    source = read(like) if like else Source("metagen grade")
    lent: dict[str, Any] = {name: source.data[name] for name in LENT if name in source.data}
    found = _found(file, named or Fields(), alone="task" not in lent)
    pool = {"id": str(found.id), "texts": str(found.samples)} | {f"scores.{score}": score for score in scores}
    given = lent.get("verifiers") or {}
    recorded = {score: {"kind": "recorded", "score": score} for score in scores}
    verifiers = {**given, **recorded, GRADER: {"kind": "oracle"}} if isinstance(given, dict) else given
    strategies: dict[str, Any] = {
        SINGLE: {"kind": "sample"},
        MAJORITY: {"kind": "majority"},
        COVERAGE: {"kind": "best_of_n", "verifier": GRADER},
    }
    for name in (name for name in verifiers if name != GRADER):
        strategies[f"best-{name}"] = {"kind": "best_of_n", "verifier": name}
        strategies[f"weighted-{name}"] = {"kind": "weighted", "verifier": name}
    source.data = {
        "name": "grade-"
        + "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "-" for c in file.stem),
        "task": _own(file, found, answer or {}),
        **lent,
        "generators": {POOL: {"kind": "replay", "path": str(file.resolve()), "fields": pool}},
        "verifiers": verifiers,
        "strategies": strategies,
        "grid": {"n": list(n) or _sizes(file, pool)},
    }
    for assignment in sets:
        source.assign(assignment, named=SECTIONS)
    return checked(source, like.parent if like else Path())


def _own(file: Path, found: Fields, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The records as problems: whoever gives no question is asked nothing, and its samples are graded all the same."""
    names = {"id": found.id, "question": found.question or found.id, "answer": found.reference}
    return {"kind": "jsonl", "path": str(file.resolve()), "fields": names, **answer}


def _found(file: Path, named: Fields, *, alone: bool) -> Fields:
    """The names of the fields, checked against the first record. alone: references are read from the records too."""
    first = _first(file)
    wanted = ("id", "samples", *(("reference",) if alone else ()))
    chosen: dict[str, str | None] = {}
    for each in (f.name for f in fields(Fields)):
        given, usual = getattr(named, each), getattr(USUAL, each).split()
        if given is not None and given not in first:
            raise DataError(
                f"{str(file)!r}: the first record has no field {given!r} (it has {', '.join(first)})"
                f"{nearest(given, tuple(first))}; name the field by --{each}"
            )
        chosen[each] = given or next((name for name in usual if name in first), None)
        if chosen[each] is None and each in wanted:
            raise DataError(
                f"{str(file)!r}: no field of the first record is usual for the {each} ({', '.join(usual)}; "
                f"it has {', '.join(first)}); name the field by --{each}"
            )
    return Fields(**chosen)


def _first(file: Path) -> dict[str, Any]:
    try:
        with file.open(encoding="utf-8-sig") as stream:
            line = next((line for line in stream if line.strip()), "")
        record = json.loads(line)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read the pool {str(file)!r}: {error}; expected a JSONL file, one problem a line"
        ) from error
    if not isinstance(record, dict):
        raise DataError(f"{str(file)!r} begins with {line[:60]!r}; expected one JSON object a line")
    return record


def _sizes(file: Path, pool: Mapping[str, str]) -> list[int]:
    """1, 2, 4, … and the number of samples that every problem has."""
    recorded = ReplayGenerator.from_jsonl(file, pool)
    least = min(recorded.size(problem) for problem in recorded.problems)
    if not least:
        empty = next(p for p in recorded.problems if not recorded.size(p))
        raise DataError(
            f"{str(file)!r}: problem {empty!r} has no samples; give it at least one, or remove it"
        )
    return [*(1 << i for i in range(least.bit_length()) if 1 << i < least), least]
