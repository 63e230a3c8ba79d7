"""Recorded samples in a file: one problem a line with a list of samples, or one sample a line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from metagen.errors import DataError

#: Where an object that is a sample has its text.
TEXT: Final = ("text", "completion", "content", "output", "response", "generation", "answer")
#: A part of each sample's list of numbers: `NAME[a:b]`.
PART: Final = re.compile(r"(?P<name>.+)\[(?P<start>\d+):(?P<end>\d+)\]")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded sample.

    generated: its tokens, if known. scores: recorded with it, by name; None where it has none.
    """

    text: str
    generated: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)


def read_pool(path: str | Path, fields: Mapping[str, str] | None = None) -> dict[str, list[Recorded]]:
    """The samples of each problem, in the order of the file.

    fields: names in the file for `id`, `texts` and, if there are, `generated` (token counts); `scores.NAME` maps
    numbers. With one problem a line all but the id are lists, one entry a sample. With one sample a line, `texts` is
    its text, the rest is a number each, and an id comes as often as it has samples.

    A sample is a text, a number, an object with a `text` (`completion`, …), or null: an abstention, which is an empty
    text. A score is a number, true or false, null where a sample has none, or a list of numbers: their mean. Where
    `scores.NAME` maps `FIELD[a:b]` it is the mean of numbers a … b−1 of each sample's list: so many verifications of
    one sample. Such a list of lists may be shorter than that of the texts; the samples behind it have no score.
    Raises DataError, which names the line.
    """
    names = {"id": "id", "texts": "texts", **(fields or {})}
    unknown = [n for n in names if n not in ("id", "texts", "generated") and not n.startswith("scores.")]
    if unknown:
        raise DataError(f"fields maps {unknown[0]!r}; expected id, texts, generated or scores.NAME")
    pool: dict[str, list[Recorded]] = {}
    single: set[str] = set()
    for where, record in _records(Path(path)):
        problem = _field(record, names["id"], where)
        if isinstance(problem, bool) or not isinstance(problem, str | int):
            raise DataError(f"{where}: the id is {problem!r:.60}; expected a text or a number")
        alone = isinstance(_field(record, names["texts"], where), str)
        if (problem := str(problem)) in pool and not (alone and problem in single):
            raise DataError(f"{where}: problem id {problem!r} occurs twice; ids must be unique")
        if alone:
            single.add(problem)
            given = {_source(name, record)[0] for name in names.values()}
            record = {name: [record[name]] if name in record else None for name in given}
        pool.setdefault(problem, []).extend(_samples(record, names, where))
    if not pool:
        raise DataError(f"{str(path)!r} holds no samples; expected one problem a line, or one sample")
    return pool


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each record, and where it stands."""
    try:
        # Lines end at "\n" alone: texts may hold other characters that end lines elsewhere.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read the pool {str(path)!r}: {error}; expected a JSONL file in UTF-8"
        ) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{str(path)!r}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is not JSON ({error}); expected one object a line") from error
        if not isinstance(record, dict):
            raise DataError(f"{where} is {record!r:.60}; expected one object a line")
        yield where, record


def _samples(record: Mapping[str, Any], names: Mapping[str, str], where: str) -> list[Recorded]:
    texts = [_text(value, where) for value in _list(record, names["texts"], where)]
    counts = _list(record, names["generated"], where, texts) if "generated" in names else [None] * len(texts)
    for count in counts:
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise DataError(f"{where}: a token count is {count!r}; expected an integer ≥ 0, or null")
    scores = {
        name: [_number(value, name, where) for value in _scores(record, given, where, texts)]
        for field, given in names.items()
        if (name := field.removeprefix("scores.")) != field
    }
    return [Recorded(text, counts[i], {k: v[i] for k, v in scores.items()}) for i, text in enumerate(texts)]


def _source(given: str, record: Mapping[str, Any]) -> tuple[str, slice | None]:
    """The field that is meant, and which part of each sample's list; a field of that very name is itself."""
    part = None if given in record else PART.fullmatch(given)
    return (part["name"], slice(int(part["start"]), int(part["end"]))) if part else (given, None)


def _scores(record: Mapping[str, Any], given: str, where: str, texts: list[Any]) -> list[Any]:
    """What was recorded of each sample under a name, or under a part `NAME[a:b]` of what it names."""
    name, part = _source(given, record)
    if part is None:
        return _list(record, name, where, texts)
    if part.start >= part.stop:
        raise DataError(f"{given!r} is an empty part; expected [a:b] with a < b, such as {name}[0:4]")
    lists = _list(record, name, where)
    if len(lists) > len(texts):
        raise DataError(
            f"{where}: {name!r} has {len(lists)} entries for {len(texts)} samples; expected at most one a sample"
        )
    for number, values in enumerate(lists):
        if values is not None and not (isinstance(values, list) and len(values) >= part.stop):
            found = f"has {len(values)} numbers" if isinstance(values, list) else f"is {values!r:.60}"
            raise DataError(
                f"{where}: entry {number} of {name!r} {found}, {given!r} takes the first {part.stop} of each; write "
                "null for a sample without them, or take fewer"
            )
    parts = [None if values is None else values[part] for values in lists]
    return parts + [None] * (len(texts) - len(parts))


def _text(value: Any, where: str) -> str:
    if isinstance(value, dict):
        name = next((name for name in TEXT if isinstance(value.get(name), str)), None)
        if name is None:
            raise DataError(
                f"{where}: a sample is an object with {', '.join(value) or 'nothing'}; expected a text, or an object "
                f"whose text is called {', '.join(TEXT)}"
            )
        value = value[name]
    if value is not None and not isinstance(value, str | int | float):
        raise DataError(
            f"{where}: a sample is {value!r:.60}; expected a text, an object with a text, or null for an abstention"
        )
    return "" if value is None else str(value)


def _number(value: Any, name: str, where: str) -> float | None:
    """A score, the mean of several, or None. Nulls among several do not count."""
    several = value if isinstance(value, list) and value else [value]
    if not (several := [one for one in several if one is not None]):
        return None
    if not all(isinstance(one, int | float) and _finite(one) for one in several):
        raise DataError(
            f"{where}: a score {name!r} is {value!r:.60}; expected numbers, lists of them, or null for a sample without"
        )
    return math.fsum(map(float, several)) / len(several)


def _list(record: Mapping[str, Any], name: str, where: str, like: list[Any] | None = None) -> list[Any]:
    values = _field(record, name, where)
    if not isinstance(values, list):
        raise DataError(
            f"{where}: {name!r} is {values!r:.60}; expected a list with one entry a sample (or, with one sample a "
            "line, its text)"
        )
    if like is not None and len(values) != len(like):
        raise DataError(
            f"{where}: {name!r} is {values!r:.60}; expected a list with one entry a sample: it has {len(values)} for "
            f"{len(like)} samples; write null for those without"
        )
    return values


def _field(record: Mapping[str, Any], name: str, where: str) -> Any:
    if record.get(name) is None:
        known = ", ".join(sorted(name for name, value in record.items() if value is not None))
        raise DataError(f"{where} has no field {name!r} (it has {known}); map it with fields=")
    return record[name]


def _finite(value: float) -> bool:
    """Whether a number is one that a float can hold."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
