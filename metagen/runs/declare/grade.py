"""Outputs that somebody recorded, graded: an experiment over the pool, with every vote that it allows.

The pool is a JSONL file with one problem a line, or one sample. What is measured: the accuracy of one sample
(pass@1), of majority voting (maj@n), coverage (pass@n: the best of n by the grader) and, for every verifier, the best
of n and the weighted vote; each is an average over random subsets of the pool.
"""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from metagen.errors import ConfigError, DataError, InputError
from metagen.generators.pool import records
from metagen.generators.pool_records import RecordFile
from metagen.generators.replay import ReplayGenerator
from metagen.generators.unit import UnitMap
from metagen.runs.declare import registry
from metagen.runs.declare.schema import parse_experiment
from metagen.runs.declare.source import Place, Source, nearest, parse, read
from metagen.runs.declare.specs import SECTIONS, Experiment
from metagen.verifiers.rules import answer_rule

#: Parts of every grading, by name.
POOL, SINGLE, MAJORITY, COVERAGE, GRADER = "recorded", "single", "majority", "pass", "grader"
#: Fields of counts, where there are no samples.
COUNTS: Final = ("successes", "n")
#: What an experiment file lends to a grading.
LENT: Final = ("task", "engines", "verifiers", "seed")
#: Where the experiment has what options say.
PLACES: Final = {
    "-n": ("grid", "n"),
    "--answer": ("task", "answer"),
    "--pattern": ("task", "pattern"),
    "--where": ("generators", POOL, "where"),
    "--unknown": ("generators", POOL, "unknown"),
    "--thought-end": ("generators", POOL, "thought_end"),
}
#: Usual names of fields with thoughts.
THOUGHTS: Final = ("reasoning", "reasoning_content", "thoughts", "thought", "thinking")
#: Fields that tell pools apart which stand in one file.
SETTINGS: Final = ("model", "model_name", "model_id", "engine", "filter", "strategy", "temperature", "run")


@dataclass(frozen=True, slots=True)
class Fields:
    """What the fields of a pool's records are called. None: as is usual, if there is one such."""

    id: str | None = None
    samples: str | None = None
    question: str | None = None
    reference: str | None = None


USUAL: Final = Fields(
    "id problem_id task_id unique_id question_id",
    "samples completions outputs texts generations responses answers sample completion output text generation response",
    "question problem prompt input puzzle",
    "answer gold reference target solution",
)


@dataclass(frozen=True, slots=True)
class Grading:
    """The experiment that grades a file, and what whoever reads its figures should know.

    pool: the file as it was read; who runs the experiment while this is held reads it no second time.
    """

    experiment: Experiment
    notes: tuple[str, ...] = ()
    pool: ReplayGenerator | None = None


def grading(
    file: Path,
    *,
    like: Path | None = None,
    task: str | None = None,
    named: Fields | None = None,
    answer: Mapping[str, Any] | None = None,
    scores: abc.Sequence[str] = (),
    correct: str | None = None,
    fields: Mapping[str, str] | None = None,
    thought_end: str = "",
    where: Mapping[str, str] | None = None,
    unknown: str = "exclude",
    maps: abc.Sequence[str] = (),
    partial: bool = False,
    n: abc.Sequence[int] = (),
    sets: abc.Sequence[str] = (),
) -> Grading:
    """How `file` is graded.

    like: an experiment file, or the beginning of one, whose task, engines and verifiers are used. task: the name of
    a task, or its definition in YAML, which comes before that of `like`. Without a task, questions and references
    stand in the pool's own records. answer: how answers are read, `answer` (a rule, as `answer_rule` takes it) and
    `pattern`; with a task in place of the task's own rule. scores:
    fields that hold a number for each sample, each a verifier of its own; or of lists of numbers, `FIELD[a:b]` and
    `FIELD~v` as of `read_pool`, whose verifiers are called `FIELD-a-b` and `FIELD-v`. correct: a field that says of
    each sample whether it is right, which is then the grader. fields: what else `read_pool` maps, such as
    `generated: output_tokens`. thought_end: the text that ends a thought within a sample. where: only records in
    which fields have these values. unknown: what becomes of samples without a verdict, and of failed calls (see
    ReplayGenerator). maps: how scores outside [0, 1] become weights of votes: one for all, or `SCORE=MAP`. partial:
    grade the problems that pool and task both have. n:
    numbers of candidates, besides the size of the largest pool; by default powers of two. A figure at n is over the
    problems that have n samples. sets: overrides.

    Raises DataError for a file that is no pool, or not one of this task, InputError for options that contradict each
    other, ConfigError that lists what is wrong with the rest.
    """
    source = read(like) if like else Source("metagen grade")
    lent: dict[str, Any] = {name: source.data[name] for name in LENT if name in source.data}
    if task is not None:
        lent["task"] = _task(source, task)
    own = "task" not in lent
    named, answer, fields, where = named or Fields(), answer or {}, dict(fields or {}), dict(where or {})
    given = {
        "--question": named.question,
        "--reference": named.reference,
        "--samples": named.samples,
        "--correct": correct,
        "--answer": answer.get("answer"),
        "--pattern": answer.get("pattern"),
        "--score": scores,
        "--thought-end": thought_end,
        "--unknown": unknown != "exclude",
        "--partial": partial,
        **{"--thoughts" if name == "thoughts" else f"--field {name}": name not in COUNTS for name in fields},
    }
    if like and not lent.keys() - ({"task"} if task else set()):
        *some, last = [name for name in LENT if name != "task" or not task]
        raise InputError(
            f"--like {like}: it has no {', '.join(some)} or {last}, so nothing of it is used; leave it out"
        )
    if own:
        _refuse(given, ["--partial"], "it is for a task beside the file (--task, --like)")
    else:
        _refuse(given, ["--question", "--reference"], "the task has its own questions and references")
    if not own and given["--pattern"] and not given["--answer"]:
        raise InputError(
            "--pattern: the task finds answers by a rule of its own; name another one by --answer, or set the pattern "
            "in the task, such as --set \"task.pattern='^A:(.*)$'\" for one that has such an option"
        )
    if "n" in fields and "successes" not in fields:
        raise InputError("--field n: it counts samples beside --field successes=…; give both")
    counted = "successes" in fields
    first = _first(file, fields | {"id": named.id or "id"}, where)
    if not counted and named.samples is None and _counts(first):
        fields |= {name: name for name in COUNTS}
        counted = True
    if counted:
        none = "the file has counts of right samples, and no texts to read"
        _refuse(given, given.keys() - {"--question", "--partial"}, none)
    judged = counted or correct is not None
    if judged:
        _refuse(given, ["--reference"], "the verdicts of --correct grade, and no reference is looked at")
    answer, recorded_field = _rule(answer, judged)
    found, notes = _find_fields(file, first, named, reference=own and not judged, samples=not counted)
    if own and not judged and not answer and re.fullmatch(r"\W*[A-J]\W*", str(first[str(found.reference)])):
        notes.append(
            f"the first reference is the letter {first[str(found.reference)]!r}, and answers are read as mathematics; "
            "--answer choice reads letters of options"
        )
    sources, scores = scores, tuple(re.sub(r"[^\w.+-]+", "-", score).strip("-") for score in scores)
    mapped = {f"scores.{name}": field for name, field in zip(scores, sources, strict=True)}
    _refuse_taken(
        fields, recorded_field | mapped, rule=not own or "answer" in answer, lent=bool(lent.get("verifiers"))
    )
    pool = {"id": str(found.id)} | fields | recorded_field | mapped
    if not counted:
        pool["texts"] = str(found.samples)
    if correct is not None:
        pool["correct"] = correct
    notes += _find_mixture(file, first, pool, where)
    notes += _unread_thoughts(first, pool, found)
    if own and not judged and "answer" not in answer:
        notes += _percentages(file, pool, where, str(found.reference))
    how: dict[str, Any] = {"unknown": unknown, "maps": _maps(maps, scores)}
    how |= {"where": where} if where else {}
    how |= {"thought_end": thought_end} if thought_end else {}
    recorded = ReplayGenerator.from_jsonl(file, pool, **how)
    verifiers = _verifiers(lent.get("verifiers") or {}, scores)
    waiting = [1]  # until it is known which problems count; an override takes its place
    source.data = {
        "name": "grade-"
        + "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "-" for c in file.stem),
        "task": _own(file, found, first, answer, fields if counted else {}, where, judged),
        **lent,
        "generators": {POOL: {"kind": "replay", "path": str(file.resolve()), "fields": pool, **how}},
        "verifiers": verifiers,
        "strategies": _strategies(verifiers, texts=not counted),
        "grid": {"n": waiting},
    }
    given |= {"-n": n, "--where": where}
    source.places |= {path: Place(option) for option, path in PLACES.items() if given[option]}
    for assignment in sets:
        source.assign(assignment, named=SECTIONS)
    base = like.parent if like else Path()
    experiment = parse_experiment(source, base)
    ids = list(recorded.problems)
    if not own:
        ids, differ = _shared_problems(file, experiment, ids, partial)
        if differ or judged or answer:
            source.data["task"] = _pool_task(experiment) | dict(answer)
    sizes, more = _sizes(file, recorded, ids, n)
    if source.data["grid"].get("n") is waiting:
        source.data["grid"]["n"] = sizes
    notes += more
    return Grading(parse_experiment(source, base), tuple(notes), recorded)


def _counts(first: Mapping[str, Any]) -> bool:
    """Whether a record has counts of right samples in place of samples."""
    return all(name in first for name in COUNTS) and not any(
        name in first for name in str(USUAL.samples).split()
    )


def _maps(given: abc.Sequence[str], scores: abc.Sequence[str]) -> dict[str, str]:
    """Maps by score: `SCORE=MAP`, which comes before one for all. InputError for what is no score, or has two."""
    every, own = dict[str, str](), dict[str, str]()
    for one in given:
        score, separator, name = one.rpartition("=")
        if separator and score not in scores:
            raise InputError(f"--map {one}: {score!r} is no --score (they are {', '.join(scores) or 'none'})")
        if not scores:
            raise InputError(f"--map {one}: there are no scores to map; name their field by --score")
        found = own if separator else every
        if found.get(score, name) != name:
            raise InputError(
                f"--map {one}: {score or 'every score'} is mapped by {found[score]}, too; give one of them"
            )
        found[score] = name
    return {score: str(UnitMap.of(own.get(score) or every[""])) for score in scores if score in own or every}


def _task(source: Source, text: str) -> dict[str, Any]:
    """The task that is meant by its name, or by its definition in YAML; its places become those of the option."""
    origin = f"--task {text}"
    if Path(text).suffix in (".yaml", ".yml"):
        raise InputError(f"{origin}: expected a task; an experiment file with one is given by --like")
    source.places = {path: place for path, place in source.places.items() if path[:1] != ("task",)}
    source.places[("task",)] = Place(origin)
    if re.fullmatch(r"[\w.:-]+", text):
        if ":" not in text and text not in (known := registry.kinds("task")):
            raise ConfigError(
                f"{origin}: expected one of {', '.join(known)}{nearest(text, known)}, or a task in YAML such as "
                "'{kind: gsm8k, path: gsm8k.jsonl}'"
            )
        return {"kind": text}
    given = parse(text, origin)
    source.faults += given.faults
    source.places.update({("task", *path): Place(origin) for path in given.places})
    path = given.data.get("path")
    # It begins where the command is given, whatever file lends the rest.
    return given.data | ({"path": str(Path(path).expanduser().resolve())} if isinstance(path, str) else {})


def _refuse(given: Mapping[str, Any], useless: abc.Collection[str], why: str) -> None:
    """InputError that names the useless options among those that are given."""
    if names := [name for name, value in given.items() if name in useless and value]:
        raise InputError(f"{', '.join(names)}: {why}; leave {'them' if len(names) > 1 else 'it'} out")


def _refuse_taken(fields: Mapping[str, str], mapped: Mapping[str, str], *, rule: bool, lent: bool) -> None:
    """InputError for a `--field` that another option says, or that nothing reads without it.

    mapped: what other options map. rule: whether a rule is named that may read recorded answers. lent: whether
    verifiers are, which may read recorded scores.
    """
    options = {"id": "--id", "texts": "--samples", "correct": "--correct"}
    for name in fields:
        kind = name.partition(".")[0]
        if kind == "scores" and (name in mapped or not lent):
            options[name] = "--score FIELD"
        if kind == "answers" and (name in mapped or not rule):
            options[name] = "--answer '{kind: recorded, field: FIELD}'"
        if name in options:
            raise InputError(f"--field {name}: {options[name]} says this; give that alone")


def _rule(answer: Mapping[str, Any], verdicts: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Options for reading answers, and what they map of the pool's fields: `field` of a recorded answer.

    InputError for a rule that cannot be made, and for one that reads verdicts without any.
    """
    options, mapped = dict(answer), dict[str, str]()
    given = options.get("answer")
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = parse(given, "--answer").data
    if isinstance(given, Mapping) and given.get("kind") == "recorded" and "field" in given:
        mapped = {"answers": str(given["field"])}
        given = {name: value for name, value in given.items() if name != "field"}
    if given is not None:
        rule = answer_rule(given, "--answer", pattern=options.get("pattern"))
        options["answer"] = given
        if rule.oracle and not verdicts:
            raise InputError(
                f"--answer {given}: it reads recorded verdicts; say which field has them by --correct"
            )
    return options, mapped


def _verifiers(given: Any, scores: abc.Sequence[str]) -> Any:
    """Those of the file that lends, those of recorded scores, and the grader. InputError for a name that two have."""
    if not isinstance(given, dict):
        return given
    for score in scores:
        if scores.count(score) > 1:
            raise InputError(f"--score {score}: the name is taken; give the field another one")
    for name in (GRADER, *scores):
        if name in given:
            what = "the task's grader" if name == GRADER else f"the recorded score of --score {name}"
            raise InputError(f"verifiers.{name}: {what} is called so too; give the verifier another name")
    recorded = {score: {"kind": "recorded", "score": score} for score in scores}
    return {**given, **recorded, GRADER: {"kind": "oracle"}}


def _strategies(verifiers: Any, *, texts: bool) -> dict[str, Any]:
    strategies: dict[str, Any] = {SINGLE: {"kind": "sample"}}
    if texts:
        strategies[MAJORITY] = {"kind": "majority"}
    strategies[COVERAGE] = {"kind": "best_of_n", "verifier": GRADER}
    for name in (name for name in verifiers if name != GRADER) if isinstance(verifiers, dict) else ():
        strategies[f"best-{name}"] = {"kind": "best_of_n", "verifier": name}
        strategies[f"weighted-{name}"] = {"kind": "weighted", "verifier": name}
    return strategies


def _own(
    file: Path,
    found: Fields,
    first: Mapping[str, Any],
    answer: Mapping[str, Any],
    counts: Mapping[str, str],
    where: Mapping[str, str],
    verdicts: bool,
) -> dict[str, Any]:
    """The records as problems: whoever gives no question is asked nothing, and its samples are graded all the same."""
    lines = file.suffix.lower() == ".jsonl" and not RecordFile(file).listed
    if lines and not verdicts and not where and isinstance(first[str(found.samples)], list):
        names = {"id": found.id, "question": found.question or found.id, "answer": found.reference}
        return {"kind": "jsonl", "path": str(file.resolve()), "fields": names, "answer": "math", **answer}
    names = {name: given for name in ("id", "question", "reference") if (given := getattr(found, name))}
    names |= {name: counts[name] for name in COUNTS if name in counts}
    own = {"kind": "recorded", "path": str(file.resolve()), "fields": names, "verdicts": verdicts, **answer}
    return own | ({"where": dict(where)} if where else {})


def _pool_task(experiment: Experiment) -> dict[str, Any]:
    """The task, as far as the pool goes."""
    (replay,) = experiment.generators.values()
    options = replay.options()
    return {
        "kind": "metagen.runs.declare.pooled:PooledTask",
        "task": experiment.task.model_dump(mode="json", exclude_none=True),
        **{name: options[name] for name in ("path", "fields", "where")},
    }


def _shared_problems(
    file: Path, experiment: Experiment, ids: list[str], partial: bool
) -> tuple[list[str], bool]:
    """The problems that pool and task both have, and whether one has others. DataError for that, unless `partial`."""
    spec = experiment.task
    asked = dict.fromkeys(p.id for p in registry.make("task", spec.kind, spec.options(), {}).problems())
    pool = dict.fromkeys(ids)
    both = [name for name in pool if name in asked]
    if len(both) == len(pool) == len(asked):
        return both, False
    if not both or not partial:
        others = (("pool", pool, asked), ("task", asked, pool))
        strange = [(next((n for n in one if n not in other), None), what) for what, one, other in others]
        examples = " nor ".join(f"{name!r} of the {what}" for name, what in strange if name is not None)
        remedy = "--partial grades those" if both else "give the pool's ids as the task names them"
        raise DataError(
            f"{str(file)!r} has samples of {len(pool):,} problems, and the task has {len(asked):,}; {len(both):,} are "
            f"in both, not {examples}; {remedy}"
        )
    return both, True


def _find_fields(
    file: Path, first: Mapping[str, Any], named: Fields, *, reference: bool, samples: bool
) -> tuple[Fields, list[str]]:
    """The names of the fields, checked against the first record, and what was chosen among several.

    reference, samples: references, and samples, are read from the records too.
    """
    wanted = ("id", *(("samples",) if samples else ()), *(("reference",) if reference else ()))
    chosen: dict[str, str | None] = {}
    notes = []
    for each in (f.name for f in fields(Fields)):
        given, usual = getattr(named, each), getattr(USUAL, each).split()
        if given is not None and given not in first:
            raise DataError(
                f"{str(file)!r}: the first record has no field {given!r} (it has {', '.join(first)})"
                f"{nearest(given, tuple(first))}; name the field by --{each}"
            )
        there = [name for name in usual if name in first]
        chosen[each] = given or next(iter(there), None)
        if chosen[each] is None and each in wanted:
            verdicts = ", or give one that holds the verdicts by --correct" if each == "reference" else ""
            raise DataError(
                f"{str(file)!r}: no field of the first record is usual for the {each} ({', '.join(usual)}; "
                f"it has {', '.join(first)}); name the field by --{each}{verdicts}"
            )
        read = each in wanted or each == "samples"
        others = [name for name in there[1:] if each == "samples" or first[name] != first[there[0]]]
        if read and given is None and others:
            what = {"samples": "is graded", "id": "is the id", "reference": "is the reference"}[each]
            notes.append(
                f"the records have {' and '.join(map(repr, [there[0], *others]))}; {there[0]!r} {what}, --{each} "
                f"{others[0]} takes the other"
            )
    return Fields(**chosen), notes


def _find_mixture(
    file: Path, first: Mapping[str, Any], pool: Mapping[str, str], where: Mapping[str, Any]
) -> list[str]:
    """What is graded together in a file of one sample a line that tells several models, or settings, apart."""
    told = [name for name in SETTINGS if name in first and name not in where and name not in pool.values()]
    if not told or "texts" not in pool or isinstance(first.get(pool["texts"]), list):
        return []
    values: dict[str, dict[str, None]] = {name: {} for name in told}
    for _, record in records(file, pool, where):
        for name in told:
            values[name][str(record.get(name))] = None
    return [
        f"samples with {len(found):,} values of {name!r} ({', '.join(map(repr, list(found)[:3]))}"
        f"{', …' if len(found) > 3 else ''}) are graded together; --where {name}={next(iter(found))} takes one of them"
        for name, found in values.items()
        if len(found) > 1
    ]


def _percentages(file: Path, pool: Mapping[str, str], where: Mapping[str, Any], reference: str) -> list[str]:
    """What is to know where a sample ends with its reference as a percentage, which is read as another number."""
    for _, record in records(file, pool, where):
        texts, right = record.get(pool["texts"]), str(record.get(reference))
        if not re.fullmatch(r"[\d.,]*\d", right):
            continue
        ends = re.compile(rf"(?<![\d.,]){re.escape(right)}\s?\\*%\W*\Z")
        if any(ends.search(str(one)) for one in (texts if isinstance(texts, list) else [texts])):
            return [
                f"a sample of {record.get(pool['id'])!r} says {right}%, and the reference is {right}: 25% is read as "
                "0.25; --answer '{kind: math, percent: dropped}' reads it as 25"
            ]
    return []


def _unread_thoughts(first: Mapping[str, Any], pool: Mapping[str, str], found: Fields) -> list[str]:
    """What looks like thoughts of samples, and is not read."""
    texts, read = first.get(pool.get("texts", "")), {*pool.values(), found.question, found.reference}
    objects = [one for one in (texts if isinstance(texts, list) else [texts]) if isinstance(one, dict)]
    for name in (name for name in THOUGHTS if name not in read):
        beside = first.get(name)
        like = isinstance(beside, str) and not isinstance(texts, list)
        like |= isinstance(beside, list) and isinstance(texts, list) and len(beside) == len(texts)
        if like or any(isinstance(one.get(name), str) for one in objects):
            return [
                f"{name!r} is not read; --thoughts {name} reads it as what was thought before each sample"
            ]
    return []


def _first(file: Path, fields: Mapping[str, str], where: Mapping[str, Any]) -> dict[str, Any]:
    names = {"successes": "successes", **fields}
    record = next((record for _, record in records(file, names, where)), None)
    if record is None:
        what = f"has no record with {dict(where)!r}" if where else "is empty"
        raise DataError(f"the pool {str(file)!r} {what}; expected a JSONL file, one problem a line")
    return record


def _sizes(
    file: Path, recorded: ReplayGenerator, problems: abc.Sequence[str], asked: abc.Sequence[int]
) -> tuple[list[int], list[str]]:
    """The numbers asked for, else 1, 2, 4, … and what every problem has; and what to know of problems that have more.

    The size of the largest pool is always among them: all samples make the estimates at smaller numbers.
    """
    sizes = {problem: recorded.size(problem) for problem in problems}
    # Of what has no sample left the generator's notes say why.
    sizes = {problem: size for problem, size in sizes.items() if problem not in recorded.emptied} or sizes
    least = min(sizes, key=lambda problem: sizes[problem])
    if not sizes[least]:
        raise DataError(
            f"{str(file)!r}: problem {least!r} has no samples; give it at least one, or remove it"
        )
    most, notes = max(sizes.values()), []
    if most > sizes[least]:
        notes.append(
            f"the problems have from {sizes[least]:,} ({least!r}) to {most:,} samples; figures at an n above "
            f"{sizes[least]:,} are over the problems that have as many"
        )
    usual = [1 << i for i in range(most.bit_length())]
    return sorted({*(asked or [*usual, sizes[least]]), most}), notes
