"""Recorded samples in a file: one problem a line with a list of samples, or one sample a line."""

from __future__ import annotations

import math
import random
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from metagen.errors import DataError
from metagen.generators.engine import Sample
from metagen.generators.pool_records import Place, Record, RecordFile
from metagen.generators.primitive import split_thought
from metagen.sequence import Thought

#: Where an object that is a sample has its text.
TEXT: Final = ("text", "completion", "content", "output", "response", "generation", "answer")
#: A part of each sample's list of numbers: `NAME[a:b]`.
PART: Final = re.compile(r"(?P<name>.+)\[(?P<start>\d+):(?P<end>\d+)\]")
#: Some of each sample's list of numbers, drawn at random: `NAME~v`.
SOME: Final = re.compile(r"(?P<name>.+)~(?P<count>\d+)")
#: What a file may say of a sample beside its text and scores.
COUNTS: Final = ("generated", "prefilled")
AMOUNTS: Final = ("seconds", "money")
#: What `fields` may map; scores besides, as `scores.NAME`.
FIELDS: Final = ("id", "texts", "correct", "successes", "n", "answers", "thoughts", *COUNTS, *AMOUNTS)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded sample. None: unknown, or not recorded.

    text: None is an abstention. generated, prefilled: its tokens, and those of its prompt. scores: recorded with
    it, by name. correct: its recorded verdict from 0 to 1, right above ½. seconds, money: what its call took.
    failed: the call gave no sample at all. answer: its recorded answer, empty for an abstention. thought: what stands
    before the text, which does not hold it; where it has no end, the text is empty and no abstention.
    """

    text: str | None
    generated: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    correct: float | None = None
    failed: bool = False
    prefilled: int | None = None
    seconds: float | None = None
    money: float | None = None
    answer: str | None = None
    thought: Thought | None = None


def read_pool(
    path: str | Path,
    fields: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    thought_end: str = "",
) -> dict[str, list[Recorded]]:
    """The samples of each problem, in the order of the file.

    fields: names in the file for `id`, `texts` and, if there are, `correct` (verdicts), `answers` (what each sample
    answers: a text, a number or null), `thoughts` (what was thought before each: a text or null), `generated` and
    `prefilled` (token counts), `seconds` and `money`; `scores.NAME` maps numbers. With one problem a line all but the
    id are lists, one entry a sample; what is no field of the record may be one of samples that are objects. With one
    sample a line, `texts` is its text, the rest is a value each, and an id comes as often as it has samples.
    `successes` and `n` map counts in place of texts: of n samples so many were right. where: only records in which
    fields have these values. thought_end: the text that ends a thought, such as "</think>": what a sample has up to it
    is its thought, as of `SamplingParams.thought_end`; off while it is empty.

    A sample is a text, a number, an object with a `text` (`completion`, …), or null. A verdict is true or false, or
    a number from 0 to 1, right above ½. A score is a number, true or false, null where a sample has none, or a list
    of numbers: their mean. Where `scores.NAME` maps `FIELD[a:b]` it is the mean of numbers a … b−1 of each sample's
    list: so many verifications of one sample. Such a list of lists may be shorter than that of the texts; the
    samples behind it have no score.

    A null sample is an abstention; a call that failed, where verdicts or scores are mapped and nothing of these, nor a
    token count, nor a thought, was recorded with it. So is an object with an `error`, and neither text nor verdict. A
    thought without a text behind it was cut: that is no abstention.
    A file with samples of many problems is better read problem by problem: `PoolFile`.
    Raises DataError, which names the line.
    """
    pool = PoolFile(Path(path), fields, where, thought_end)
    return {problem: pool[problem] for problem in pool}


class PoolFile:
    """By problem, the samples of a file in its order; a problem is in memory while somebody holds it.

    The whole file is read and checked once, when something of it is asked for first. What is kept of a problem are the
    places of its records: one, or with one sample a line one for each stretch of its lines. fields, where: as of
    `read_pool`, whose errors these are. judged: whether verdicts are recorded. thoughts: where thoughts are looked for:
    `fields.thoughts`, `thought_end`, and what a sample without one has there. Raises DataError for fields that a pool
    does not have, and for those that counts leave unread.
    """

    def __init__(
        self,
        path: Path,
        fields: Mapping[str, str] | None = None,
        where: Mapping[str, Any] | None = None,
        thought_end: str = "",
    ) -> None:
        self._names = {"id": "id", **(fields or {})}
        if "successes" not in self._names:
            self._names.setdefault("texts", "texts")
        self._where = dict(where or {})
        unknown = [n for n in self._names if n not in FIELDS and not n.startswith("scores.")]
        if unknown:
            raise DataError(f"fields maps {unknown[0]!r}; expected {', '.join(FIELDS)} or scores.NAME")
        beside = [name for name in self._names if name not in ("id", "successes", "n")]
        if "successes" in self._names and beside:
            raise DataError(
                f"fields maps 'successes' and {beside[0]!r}: a record of counts has no samples to read that from; "
                "leave one of both out"
            )
        if "n" in self._names and "successes" not in self._names:
            raise DataError(
                "fields maps 'n', which counts samples beside 'successes'; map successes too, or leave n out"
            )
        self.judged = "correct" in self._names or "successes" in self._names
        self._end = thought_end
        self.thoughts: dict[str, str] = {}
        if "thoughts" in self._names:
            self.thoughts["fields.thoughts"] = f"{self._names['thoughts']!r} is null"
        if thought_end:
            self.thoughts["thought_end"] = f"no {thought_end!r} in the text"
        self._file = RecordFile(path)
        self._known: dict[str, array[int]] | None = None
        #: The place that was read last, and its records: of a list of counts each problem is one.
        self._last: tuple[Place, list[tuple[str, Record]]] | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, problem: str) -> bool:
        return problem in self._places

    def __getitem__(self, problem: str) -> list[Recorded]:
        numbers = self._places[problem]
        found: list[Recorded] = []
        for at in range(0, len(numbers), 3):
            for place, record in self._read(Place(*numbers[at : at + 3])):
                if str(record[self._names["id"]]) == problem:
                    found += samples_of(record, self._names, place, self._end)
        return found

    def each(self, seen: Callable[[str, list[Recorded]], None]) -> None:
        """Tell of every problem its samples; where the file is read for the first time, in the course of that."""
        told = set[str]()
        if self._known is None:

            def tell(problem: str, samples: list[Recorded]) -> None:
                told.add(problem)
                seen(problem, samples)

            self._known = self._index(tell)
        for problem in self._known:
            if problem not in told:
                seen(problem, self[problem])

    @property
    def _places(self) -> dict[str, array[int]]:
        """Where the records of each problem stand: the numbers of one place after another."""
        if self._known is None:
            self._known = self._index(lambda problem, samples: None)
        return self._known

    def _read(self, place: Place) -> list[tuple[str, Record]]:
        if self._last is None or self._last[0] != place:
            found = [
                (said, one)
                for said, record in self._file.at(place)
                for one in expand(record, self._names, self._where)
            ]
            if "successes" not in self._names:
                return found
            self._last = place, found
        return self._last[1]

    def _index(self, seen: Callable[[str, list[Recorded]], None]) -> dict[str, array[int]]:
        """The places of all problems. seen: is told those that stand in one record each."""
        places: dict[str, array[int]] = {}
        alone: set[str] = set()
        before, judged = "", False
        for place, record in self._file:
            said = self._file.describe_place(place.number)
            for one in expand(record, self._names, self._where):
                problem = problem_of(one, self._names, said)
                is_single = single(one, self._names)
                if problem in places and not (is_single and problem in alone):
                    raise DataError(
                        f"{said}: problem id {problem!r} occurs twice; ids must be unique; if the file "
                        f"holds several pools, where: {{FIELD: VALUE}} takes one (--where FIELD=VALUE)"
                    )
                samples = samples_of(one, self._names, said, self._end)
                judged = judged or any(sample.correct is not None for sample in samples)
                ours = places.setdefault(problem, array("q"))
                if is_single and problem == before:
                    ours[-1] = place.end
                else:
                    ours.extend(place)
                if is_single:
                    alone.add(problem)
                else:
                    seen(problem, samples)
                before = problem
        if not places:
            what = f" with {self._where!r}" if self._where else ""
            raise DataError(
                f"{str(self._file.path)!r} holds no samples{what}; expected one problem a line, or one sample"
            )
        if "correct" in self._names and not judged:
            name = self._names["correct"]
            raise DataError(
                f"{str(self._file.path)!r}: every verdict {name!r} is null; leave it out of fields"
            )
        return places


def records(
    path: Path, names: Mapping[str, str], where: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record, and where it stands: the lines of a file, or the entries of one JSON list. As of `expand`."""
    file = RecordFile(path)
    for place, record in file:
        yield from ((file.describe_place(place.number), one) for one in expand(record, names, where))


def expand(record: Record, names: Mapping[str, str], where: Mapping[str, Any]) -> Iterator[Record]:
    """A record by itself; none if it is not one of those that are asked for (`where`).

    A record whose `successes` are a list holds so many problems, which are named by its id, if it has one, and their
    number.
    """
    if any(str(record.get(name)) != str(value) for name, value in where.items()):
        return
    counts = record.get(names["successes"]) if "successes" in names else None
    if not isinstance(counts, list):
        yield record
        return
    name, many = names["id"], record.get(names.get("n", "n"))
    head = "" if record.get(name) is None else f"{record[name]}/"
    for number, count in enumerate(counts):
        each = many[number] if isinstance(many, list) and number < len(many) else many
        yield {name: f"{head}{number}", names["successes"]: count, names.get("n", "n"): each}


def problem_of(record: Record, names: Mapping[str, str], place: str) -> str:
    """The id of a record; DataError for what is none."""
    problem = _field(record, names["id"], place)
    if isinstance(problem, bool) or not isinstance(problem, str | int):
        raise DataError(f"{place}: the id is {problem!r:.60}; expected a text or a number")
    return str(problem)


def samples_of(record: Record, names: Mapping[str, str], place: str, end: str = "") -> list[Recorded]:
    """The samples in a record, of which equal ones are one object."""
    if "successes" in names:
        return _samples_from_counts(record, names, place)
    if single(record, names):
        given = {_source(name, record)[0] for name in names.values()}
        failed = [{"error": record["error"]}] if record.get("error") else [None]
        record = {name: [record[name]] if name in record else None for name in given}
        if record[names["texts"]] == [None]:
            record[names["texts"]] = failed
    return _samples(record, names, place, end)


def single(record: Record, names: Mapping[str, str]) -> bool:
    """Whether a record is one sample: its text is no list. A null is one where nothing else is a list either."""
    if "texts" not in names or (name := names["texts"]) not in record:
        return False
    text = record[name]
    if text is None:
        others = (record.get(_source(given, record)[0]) for field, given in names.items() if field != "id")
        return not any(isinstance(value, list) for value in others)
    return isinstance(text, str | dict) or (isinstance(text, int | float) and not isinstance(text, bool))


def _samples_from_counts(record: Mapping[str, Any], names: Mapping[str, str], place: str) -> list[Recorded]:
    """Make as many samples without texts as a record counts, of which some are right."""
    n, right = (_field(record, names.get(name, name), place) for name in ("n", "successes"))
    if any(isinstance(x, bool) or not isinstance(x, int) for x in (n, right)) or not 0 <= right <= n:
        raise DataError(
            f"{place}: {right!r} of {n!r} samples are right; expected integers, 0 ≤ successes ≤ n"
        )
    return [Recorded(None, correct=True)] * right + [Recorded(None, correct=False)] * (n - right)


def _samples(record: Mapping[str, Any], names: Mapping[str, str], place: str, end: str) -> list[Recorded]:
    whole = _list(record, names["texts"], place)
    found: dict[str, list[Any]] = {
        "text": [value if type(value) is str else _text(value, place) for value in whole]
    }
    for name in COUNTS:
        if name in names:
            found[name] = [_count(v, place) for v in _list(record, names[name], place, whole)]
    for name in AMOUNTS:
        if name in names:
            found[name] = [_amount(v, name, place) for v in _list(record, names[name], place, whole)]
    if "correct" in names:
        found["correct"] = [_verdict(v, place) for v in _list(record, names["correct"], place, whole)]
    scores = {
        name: [_number(value, f"a score {name!r}", place) for value in _scores(record, given, place, whole)]
        for field, given in names.items()
        if (name := field.removeprefix("scores.")) != field
    }
    if "answers" in names:
        found["answer"] = [_text(v, place) or "" for v in _list(record, names["answers"], place, whole)]
    if "thoughts" in names or end:
        given = _list(record, names["thoughts"], place, whole) if "thoughts" in names else [None] * len(whole)
        thoughts = [
            None if _is_broken(v) else _read_thought(thought, place)
            for v, thought in zip(whole, given, strict=True)
        ]
        tokens = found.get("generated", [None] * len(whole))
        apart = list(map(partial(_apart, end), found["text"], thoughts, tokens))
        found["text"], found["thought"] = [one[0] for one in apart], [one[1] for one in apart]
    judged = "correct" in found or bool(scores)
    columns = [*found.values(), *scores.values()]
    made: dict[tuple[Any, ...], Recorded] = {}
    samples = []
    for value, row in zip(whole, zip(*columns, strict=True), strict=True):
        broken = _is_broken(value)
        if (one := made.get((broken, *row))) is None:
            known, mine = (
                dict(zip(found, row, strict=False)),
                dict(zip(scores, row[len(found) :], strict=True)),
            )
            told = (known.get("correct"), known.get("generated"), known.get("answer") or None, *mine.values())
            textless = known["text"] is None
            nothing = judged and textless and all(one is None for one in told)
            lost = nothing or (broken and known.get("correct") is None)
            one = made[broken, *row] = Recorded(**known, scores=mine, failed=lost)
        samples.append(one)
    return samples


def _source(given: str, record: Mapping[str, Any]) -> tuple[str, slice | int | None]:
    """The field that is meant, and which of each sample's numbers; a field of that very name is itself."""
    if given in record:
        return given, None
    if part := PART.fullmatch(given):
        return part["name"], slice(int(part["start"]), int(part["end"]))
    some = SOME.fullmatch(given)
    return (some["name"], int(some["count"])) if some else (given, None)


def _scores(record: Mapping[str, Any], given: str, place: str, texts: list[Any]) -> list[Any]:
    """What was recorded of each sample under a name, or some of each list of numbers: `NAME[a:b]`, `NAME~v`."""
    name, part = _source(given, record)
    if part is None:
        return _list(record, name, place, texts)
    if part == 0 or (isinstance(part, slice) and part.start >= part.stop):
        raise DataError(
            f"{given!r} is an empty part; expected [a:b] with a < b, such as {name}[0:4], or ~v with v ≥ 1"
        )
    least = part if isinstance(part, int) else part.stop
    lists = _list(record, name, place)
    if len(lists) > len(texts):
        raise DataError(
            f"{place}: {name!r} has {len(lists)} entries for {len(texts)} samples; expected at most one a sample"
        )
    for number, values in enumerate(lists):
        if values is not None and not (isinstance(values, list) and len(values) >= least):
            found = f"has {len(values)} numbers" if isinstance(values, list) else f"is {values!r:.60}"
            raise DataError(
                f"{place}: entry {number} of {name!r} {found}, {given!r} takes {least} of each; write "
                "null for a sample without them, or take fewer"
            )
    # Named by what is drawn from, and not by where the file lies.
    line = place.rpartition(", ")[2]
    parts = [
        None if values is None else values[part] if isinstance(part, slice)
        else random.Random(f"{line}, {number}, {given}").sample(values, part)
        for number, values in enumerate(lists)
    ]  # fmt: skip
    return parts + [None] * (len(texts) - len(parts))


def _text(value: Any, place: str) -> str | None:
    if isinstance(value, dict):
        name = next((name for name in TEXT if value.get(name) is not None), None)
        if name is None and (value.get("error") is not None or any(name in value for name in TEXT)):
            return None
        if name is None:
            raise DataError(
                f"{place}: a sample is an object with {', '.join(value) or 'nothing'}; expected a text, or an object "
                f"whose text is called {', '.join(TEXT)}"
            )
        value = value[name]
    if isinstance(value, list) and value and all(isinstance(v, dict) and "text" in v for v in value):
        value = "".join(_text(part, place) or "" for part in value)  # a message's parts
    if value is not None and not isinstance(value, str | int | float):
        raise DataError(
            f"{place}: a sample is {value!r:.60}; expected a text, an object with a text, or null for an abstention"
        )
    return None if value is None else str(value)


def _is_broken(value: Any) -> bool:
    """Whether a sample is an object with an error, and no text."""
    return (
        isinstance(value, dict) and bool(value.get("error")) and all(value.get(name) is None for name in TEXT)
    )


def _read_thought(value: Any, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value if value and not value.isspace() else None
    raise DataError(f"{place}: a thought is {value!r:.60}; expected a text, or null for a sample without one")


def _apart(
    end: str, text: str | None, thought: str | None, generated: int | None
) -> tuple[str | None, Thought | None]:
    """A sample's answer, and what was thought before it: as recorded, or else as its text has it up to `end`."""
    if thought is not None:
        answer = text if text and not text.isspace() else ""
        return answer, Thought(thought, ended=bool(answer))
    if not end or text is None:
        return text, None
    sample = split_thought(Sample(text, None, generated), end)
    return sample.text, sample.thought


def _count(value: Any, place: str) -> int | None:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if whole is not None and (isinstance(whole, bool) or not isinstance(whole, int) or whole < 0):
        raise DataError(f"{place}: a token count is {value!r:.60}; expected an integer ≥ 0, or null")
    return whole


def _amount(value: Any, name: str, place: str) -> float | None:
    found = None if isinstance(value, list) else _number(value, name, place)
    if isinstance(value, list | bool) or (found is not None and found < 0):
        raise DataError(f"{place}: {name} of a sample is {value!r:.60}; expected a number ≥ 0, or null")
    return found


def _verdict(value: Any, place: str) -> float | None:
    """0 to 1. A list may hold the results of tests, of which all count, or of graders: no mean of it is a verdict."""
    if value is None or (isinstance(value, int | float) and 0.0 <= value <= 1.0):
        return None if value is None else float(value)
    raise DataError(
        f"{place}: a verdict is {value!r:.60}; expected true, false, a number from 0 to 1, or null, one a sample"
    )


def _number(value: Any, what: str, place: str) -> float | None:
    """A number, the mean of several, or None. Nulls among several do not count."""
    several = value if isinstance(value, list) and value else [value]
    if not (several := [one for one in several if one is not None]):
        return None
    if not all(isinstance(one, int | float) and _finite(one) for one in several):
        raise DataError(
            f"{place}: {what} is {value!r:.60}; expected numbers, lists of them, or null for a sample without"
        )
    return math.fsum(map(float, several)) / len(several)


def _list(record: Mapping[str, Any], name: str, place: str, like: list[Any] | None = None) -> list[Any]:
    inside = name not in record and like is not None and any(isinstance(v, dict) and name in v for v in like)
    values = (
        [v.get(name) if isinstance(v, dict) else None for v in like or ()]
        if inside
        else _field(record, name, place)
    )
    if not isinstance(values, list):
        raise DataError(
            f"{place}: {name!r} is {values!r:.60}; expected a list with one entry a sample (or, with one sample a "
            "line, its text)"
        )
    if like is not None and len(values) != len(like):
        raise DataError(
            f"{place}: {name!r} is {values!r:.60}; expected a list with one entry a sample: it has {len(values)} for "
            f"{len(like)} samples; write null for those without"
        )
    return values


def _field(record: Mapping[str, Any], name: str, place: str) -> Any:
    if record.get(name) is None:
        known = ", ".join(sorted(name for name, value in record.items() if value is not None))
        raise DataError(f"{place} has no field {name!r} (it has {known}); map it with fields=")
    return record[name]


def _finite(value: float) -> bool:
    """Whether a number is one that a float can hold."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
