"""Records of a data set, from a local file or the Hugging Face hub, and tasks that are made of them."""

from __future__ import annotations

import asyncio
import csv
import json
from abc import abstractmethod
from collections import abc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from metagen.errors import DataError, InputError, PromptError, UnsupportedError
from metagen.sequence import Message, Prompt, words
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule

Record: TypeAlias = Mapping[str, Any]
#: Faults that a message lists; more are only counted.
SHOWN: Final = 10
#: A cell of a CSV file may be as long as a solution.
_CELL: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Hub:
    """A data set for the library `datasets`: a name on the hub, or a directory that it can read.

    revision: a commit, so that a run can be repeated; None takes the newest. name: of the data set, or its directory.
    config: of the data set, where it has several. split: which part is read.
    """

    name: str
    config: str | None = None
    split: str = "test"
    revision: str | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.name, self.config, self.split) if part)


Source: TypeAlias = str | Path | Hub


def records(source: Source) -> Iterator[tuple[int, Record]]:
    """The records of a source with their numbers: lines of a JSONL file, rows (from 1) of anything else.

    A path ends in .jsonl, .parquet, .csv or .tsv. The cells of CSV are texts, and an empty one is None; JSONL skips
    blank lines. Raises DataError for what cannot be read, UnsupportedError where `datasets` is not installed.
    """
    for number, record in read(source):
        if isinstance(record, DataError):
            raise DataError(f"{source}:{number}: {record}")
        yield number, record


def read(source: Source) -> Iterator[tuple[int, Record | DataError]]:
    """The same, with the fault of a line of JSONL in the place of its record, so that the rest can be read.

    Raises DataError for a file of another form, and for one that cannot be read at all.
    """
    if isinstance(source, Hub):
        return _hub(source)
    path = Path(source)
    readers = {".jsonl": jsonl, ".parquet": _parquet, ".csv": _csv, ".tsv": _csv}
    if path.suffix.lower() not in readers:
        raise DataError(f"{str(path)!r}: expected a file that ends in {', '.join(readers)}")
    return readers[path.suffix.lower()](path)


def jsonl(path: Path) -> Iterator[tuple[int, Record | DataError]]:
    """Lines of a JSONL file, of whatever name, as `read` gives them."""
    for number, line in enumerate(_text_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, DataError(f"not JSON ({error}); expected one object a line")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, DataError(f"holds a {type(record).__name__}; expected one object a line")


def _csv(path: Path) -> Iterator[tuple[int, Record]]:
    csv.field_size_limit(_CELL)
    reader = csv.reader(
        _text_lines(path), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
    )
    try:
        head = next(reader, [])
        if twice := sorted({name for name in head if head.count(name) > 1}):
            raise DataError(
                f"{str(path)!r}: the head has {twice[0]!r} more than once; give each column a name of its own"
            )
        for number, row in enumerate((row for row in reader if row), 1):
            if len(row) != len(head):
                raise DataError(
                    f"{path}:{number}: a row of {len(row)} cells under a head of {len(head)}; "
                    "expected one cell each; quote texts that hold the delimiter"
                )
            yield number, {name: cell or None for name, cell in zip(head, row, strict=True)}
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV ({error}); mend its quotes") from None


def _text_lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from stream
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise DataError(
            f"cannot read {str(path)!r}: {error.strerror}; give the path of a data file"
        ) from error


def _parquet(path: Path) -> Iterator[tuple[int, Record]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches():
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error}; give the path of a Parquet file") from error
    except pyarrow.ArrowException as error:
        raise DataError(f"{str(path)!r} is not Parquet ({error}); save it again") from error


def _hub(source: Hub) -> Iterator[tuple[int, Record]]:
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        raise UnsupportedError(
            f"the data set {str(source)!r} is read by the library 'datasets', which cannot be imported ({error}); "
            "pip install datasets, or give the path of a local file"
        ) from error
    # RuntimeError: of a data set with a script, which the library no longer runs.
    own = getattr(getattr(datasets, "exceptions", None), "DatasetsError", RuntimeError)
    try:
        rows = datasets.load_dataset(
            source.name, source.config, split=source.split, revision=source.revision, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, own) as error:
        raise DataError(
            f"cannot load the data set {str(source)!r}: {error}; give its name, or download its files and give the "
            "path of one as the source (`path` in an experiment file)"
        ) from error
    yield from enumerate(rows, 1)


class RecordTask(Task):
    """The problems of a source, read and checked when the task is made; `problem` makes one of a record.

    source: None takes the published data set, which `datasets` fetches. limit: the first problems only.
    Raises DataError that lists all faulty records: a field that is missing or wrong, an id that occurs twice,
    a reference that the answer rule cannot read. InputError for a limit below 1.
    """

    #: The published data set.
    hub: ClassVar[Hub]
    #: Stop strings: the text behind a solution in a few-shot prompt. They save a base model's tokens.
    stop: tuple[str, ...] = ()
    #: In words: the expected content of an empty source, and the remedy for a reference that cannot be read.
    one: ClassVar[str] = "at least one"
    remedy: ClassVar[str] = "mend it"

    def __init__(self, source: Source | None, *, answer: AnswerRule, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"limit={limit!r}: expected a number of problems, at least 1, or None for all")
        self.source: Source = self.hub if source is None else source
        self._answer = answer
        self._problems = tuple(islice(self._read(), limit))

    @property
    def answer(self) -> AnswerRule:
        return self._answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    @abstractmethod
    def problem(self, record: Record, number: int) -> Problem:
        """The problem in a record; DataError if there is none. number: as `records` counts."""

    def _read(self) -> list[Problem]:
        kept: dict[str, tuple[int, Problem]] = {}
        faults: list[tuple[int, str]] = []
        for number, record in self._records():
            try:
                if isinstance(record, DataError):
                    raise record
                problem = self.problem(record, number)
                if problem.id in kept:
                    first = kept[problem.id][0]
                    raise DataError(f"id {problem.id!r} is that of {first} too; ids must be unique")
                kept[problem.id] = number, problem
            except DataError as error:
                faults.append((number, str(error)))
        for (number, problem), readable in zip(kept.values(), self._readable(kept), strict=True):
            if not readable:
                reason = f"the reference {problem.reference!r:.200} cannot be read; {self.remedy}"
                faults.append((number, reason))
        if faults:
            shown = [f"{self.source}:{number}: {fault}" for number, fault in sorted(faults)[:SHOWN]]
            more = [f"… and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
            raise DataError("\n".join([f"{str(self.source)!r} has faulty problems:", *shown, *more]))
        if not kept:
            raise DataError(f"{str(self.source)!r} holds no problems; expected {self.one}")
        return [problem for _, problem in kept.values()]

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        return read(self.source)

    def _readable(self, found: Mapping[str, tuple[int, Problem]]) -> abc.Sequence[bool]:
        """Whether the answer rule reads each reference. In a thread: the caller may be in an event loop."""

        async def keys() -> list[bool]:
            return [await self._answer.key(problem.reference) is not None for _, problem in found.values()]

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, keys()).result()


def field(record: Record, *names: str) -> Any:
    """The first of these fields that is there and not null; DataError that lists them."""
    for name in names:
        if record.get(name) is not None:
            return record[name]
    wanted = " or ".join(map(repr, names))
    raise DataError(f"there is no field {wanted}; it has {', '.join(record) or 'none'}")


def text(record: Record, *names: str) -> str:
    """The same, which must be a text or a number."""
    return as_text(field(record, *names), " or ".join(names))


def as_text(value: Any, what: str) -> str:
    """A text, or a number as one; DataError for anything else, and for a text that UTF-8 cannot hold."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise DataError(f"{what} is {value!r:.80}; expected a text or a number")
    text = str(value)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise DataError(f"{what} {text!r:.60} holds half a character; write it as UTF-8")
    return text


def in_text(value: Any, what: str) -> str | tuple[Message, ...]:
    """A text, also from parts that are texts, as OpenAI's API has them; or a chat's messages. DataError for others."""
    if not isinstance(value, list | tuple) or not value:
        return as_text(value, what)
    try:
        if any(isinstance(part, Mapping) and "role" in part for part in value):
            return Prompt.of(value).messages
        if any(isinstance(part, Mapping) and "type" in part for part in value):
            return words(value, what)
    except PromptError as error:
        raise DataError(str(error)) from None
    return as_text(value, what)


def question(record: Record, *names: str) -> str:
    """The same, and not blank."""
    return nonblank(text(record, *names))


def nonblank(question: str) -> str:
    """A question that is not blank; else DataError."""
    if not question.strip():
        raise DataError("the question is empty; give it a text or remove the problem")
    return question
