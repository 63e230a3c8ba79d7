"""LiveCodeBench: problems of contests, by the date of the contest (Jain et al. 2024)."""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from collections.abc import Iterator
from datetime import date
from typing import Any, ClassVar, Final

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.code import Grader
from metagen.tasks.contest import PREAMBLE, Call, ContestTask, lines, parse_json
from metagen.tasks.records import Hub, Record, Source, field, question, text
from metagen.tasks.template import Form, Wording
from metagen.values import Count, Positive, Size, Text
from metagen.verifiers.code.program import ProgramRule

_LEVELS: Final = {"easy": 1, "medium": 2, "hard": 3}
#: Bytes of the hidden tests of one problem, at most.
_LARGEST: Final = 1 << 30
#: Instructions of a pickle that is one text and nothing else.
_TEXT: Final = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
_AROUND: Final = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"})


class LiveCodeBenchTask(ContestTask):
    """Fields `question_id`, `question_content`, `starter_code`, `difficulty`, `contest_date`, `metadata` and the tests.

    `public_test_cases` and `private_test_cases` hold tests as JSON: `input`, `output` and `testtype`, `stdin` or
    `functional`; the private ones may be compressed as they are published, and are read without being unpickled.
    Outputs are compared as by the benchmark's own judge: line by line, numbers by value, and a tuple that is a result
    as a list. Unlike there, numbers have their value beside words, too, and a program with another exit status than 0
    is wrong. since, until: of the contest's date, such as `2024-08-01`, both included. prompt, form, seconds, memory:
    as of ContestTask. Raises DataError as RecordTask does, InputError for dates that are none.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.livecodebench import LiveCodeBenchTask
        >>> tests = json.dumps([{"input": "2", "output": "4", "testtype": "stdin"}])
        >>> record = {"question_id": "1", "question_content": "Double x.", "private_test_cases": tests}
        >>> _ = Path("lcb.jsonl").write_text(json.dumps(record))
        >>> (problem,) = LiveCodeBenchTask("lcb.jsonl").problems()
        >>> problem.prompt.problem_id
        '1'
    """

    name = "livecodebench"
    hub: ClassVar[Hub] = Hub("livecodebench/code_generation_lite")

    def __init__(
        self,
        source: Source | None = None,
        *,
        since: Text | None = None,
        until: Text | None = None,
        prompt: Wording | None = None,
        form: Form = "chat",
        seconds: Positive | None = 6.0,
        memory: Size | None = None,
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        limit: Count | None = None,
    ) -> None:
        self._since, self._until = _date("since", since), _date("until", until)
        super().__init__(
            source,
            prompt=prompt,
            form=form,
            seconds=seconds,
            memory=memory,
            program=program,
            grader=grader,
            limit=limit,
        )

    def problem(self, record: Record, number: int) -> Problem:
        name, asked = text(record, "question_id"), question(record, "question_content")
        metadata = parse_json(record.get("metadata") or {}, "metadata")
        function = metadata.get("func_name") if isinstance(metadata, dict) else None
        shown = _cases(record.get("public_test_cases") or [], "public_test_cases")
        hidden = _cases(field(record, "private_test_cases"), "private_test_cases")
        level = _LEVELS.get(str(record.get("difficulty")).lower())
        if function is None and any(kind == "functional" for _, _, kind in shown + hidden):
            raise DataError("the tests are of a function, and metadata has no func_name")
        if function is not None:
            starter = str(record.get("starter_code") or "")
            made = self.call_problem(
                name, asked, str(function), starter, map(_call, shown), map(_call, hidden)
            )
        else:
            pairs = [[(given, expected) for given, expected, _ in cases] for cases in (shown, hidden)]
            made = self.io_problem(
                name, asked, pairs[0], pairs[1], preamble=PREAMBLE, compare="lines", tolerance=0.0
            )
        return Problem(made.prompt, made.reference, level)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        for number, record in super()._records():
            if isinstance(record, DataError) or self._within(record):
                yield number, record

    def _within(self, record: Record) -> bool:
        """Whether the contest was in the window; a problem whose date nobody knows is in none."""
        if self._since is None and self._until is None:
            return True
        try:
            day = date.fromisoformat(str(record.get("contest_date"))[:10])
        except ValueError:
            return False
        return (self._since or day) <= day <= (self._until or day)


def _date(name: str, value: str | None) -> date | None:
    try:
        return None if value is None else date.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"{name}={value!r}: expected a date such as 2024-08-01") from None


def _cases(value: Any, what: str) -> list[tuple[str, str, str]]:
    """Input, output and kind of each test."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = unpack(value, what)
    found = parse_json(value, what)
    if not isinstance(found, list) or not all(isinstance(case, dict) for case in found):
        raise DataError(f"{what} is {found!r:.80}; expected a list of tests with input, output and testtype")
    return [
        (
            lines(case.get("input"), "an input"),
            lines(case.get("output"), "an output"),
            str(case.get("testtype")),
        )
        for case in found
    ]


def unpack(packed: str, what: str) -> str:
    """The JSON of tests as they are published: a text, pickled, compressed, in base 64.

    The pickle is read as data: nothing in it is run. Raises DataError for one that is more than a text.
    """
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(packed, validate=True), _LARGEST)
        if unzip.unconsumed_tail or not unzip.eof:
            raise ValueError(f"more than {_LARGEST} bytes, or cut off")
        steps = [(step.name, value) for step, value, _ in pickletools.genops(data)]
    except (binascii.Error, zlib.error, ValueError, EOFError) as error:
        raise DataError(
            f"{what} is neither JSON nor tests as they are published ({error}): {packed!r:.60}"
        ) from None
    texts = [value for name, value in steps if name in _TEXT]
    if len(texts) != 1 or any(name not in _TEXT | _AROUND for name, _ in steps):
        raise DataError(
            f"{what} is a pickle of more than one text, which is not opened; give the tests as JSON, a list of objects "
            "with input, output and testtype"
        )
    return str(texts[0])


def _call(case: tuple[str, str, str]) -> Call:
    """A test of a function: a line of JSON for each argument, and the JSON of what it returns."""
    given, expected, _ = case
    args = [parse_json(line, "an argument") for line in given.split("\n") if line.strip()]
    return ", ".join(map(repr, args)), f"== {parse_json(expected, 'an output')!r}"
