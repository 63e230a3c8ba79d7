"""Problems from a JSONL file: one a line, with an id, a question and a reference answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Ordered
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final

from metagen.errors import DataError, InputError
from metagen.sequence import Prompt
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.numeric import ANSWER_LINE, NumberRule, one_group

FIELDS: Final = ("id", "question", "answer", "level")
#: Faults that a message lists; more are only counted.
SHOWN: Final = 10


class JsonlTask(Task):
    """The problems of a file, read and checked when the task is made.

    fields: names in the file for `id`, `question`, `answer` and `level`, where they differ; a level is optional.
    prompt: what the question is put into. answer: the answer rule; a NumberRule with `pattern` by default.
    reference: a regular expression whose group is the reference inside the answer field, such as `#### (.*)`.
    limit: the first problems only.

    Raises DataError for a file that is missing, empty or not JSONL, an id that occurs twice, a field that is
    missing, and a reference that the answer rule cannot read; all faulty lines are named.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        fields: Mapping[str, str] | None = None,
        prompt: str = "{question}\n",
        answer: AnswerRule | None = None,
        pattern: str = ANSWER_LINE,
        reference: str | None = None,
        delimiter: str = "\n",
        limit: int | None = None,
    ) -> None:
        self.path, self.name, self.delimiter = Path(path), Path(path).stem, delimiter
        self._fields, self._prompt = dict(fields or {}), prompt
        self._answer = answer or NumberRule(pattern, prose=True)
        self._reference_part = None if reference is None else one_group("reference", reference)
        if unknown := sorted(set(self._fields) - set(FIELDS)):
            raise InputError(f"fields={dict(fields or {})!r}: {unknown[0]!r} is none of {', '.join(FIELDS)}")
        if "{question}" not in prompt:
            raise InputError(f"prompt={prompt!r}: expected a text with {{question}} in it")
        if limit is not None and limit < 1:
            raise InputError(f"limit={limit!r}: expected a number of problems, at least 1, or None for all")
        self._problems = tuple(islice(self._read(), limit))

    @property
    def answer(self) -> AnswerRule:
        return self._answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    # -- reading ---------------------------------------------------------------------------------------

    def _read(self) -> list[Problem]:
        """All problems of the file; DataError that lists every faulty line."""
        found: dict[str, tuple[int, Problem]] = {}
        faults: list[tuple[int, str]] = []
        for number, line in self._lines():
            try:
                problem = self._problem(line)
                if problem.id in found:
                    first = found[problem.id][0]
                    raise DataError(f"id {problem.id!r} is that of line {first} too; ids must be unique")
                found[problem.id] = number, problem
            except DataError as error:
                faults.append((number, str(error)))
        lines, problems = zip(*found.values(), strict=True) if found else ((), ())
        for number, problem, key in zip(lines, problems, self._keys(problems), strict=True):
            if key is None:
                faults.append((number, f"the reference {problem.reference!r:.60} cannot be read; "
                               "mend it, or say with reference= where in the field it stands"))  # fmt: skip
        if faults:
            shown = [f"{self.path}:{number}: {fault}" for number, fault in sorted(faults)[:SHOWN]]
            more = [f"… and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
            raise DataError("\n".join([f"{str(self.path)!r} has faulty problems:", *shown, *more]))
        if not problems:
            raise DataError(f"{str(self.path)!r} holds no problems; expected one JSON object a line")
        return list(problems)

    def _lines(self) -> Iterator[tuple[int, str]]:
        try:
            with self.path.open(encoding="utf-8-sig") as stream:
                yield from ((n, line) for n, line in enumerate(stream, 1) if line.strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{str(self.path)!r} is not UTF-8 ({error.reason}); save it as UTF-8") from error
        except OSError as error:
            raise DataError(
                f"cannot read {str(self.path)!r}: {error.strerror}; give the path of a JSONL file"
            ) from error

    def _problem(self, line: str) -> Problem:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({error}); expected one object a line") from None
        if not isinstance(record, dict):
            raise DataError(
                f"holds a {type(record).__name__}; expected an object with {', '.join(FIELDS[:3])}"
            )
        name, question, reference = (_text(self._field(record, field), field) for field in FIELDS[:3])
        for field, text in (("id", name), ("question", question)):
            if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
                raise DataError(f"the {field} {text!r:.60} holds half a character; write it as UTF-8")
        if not question.strip():
            raise DataError("the question is empty; give it a text or remove the problem")
        if self._reference_part is not None and (match := self._reference_part.search(reference)):
            reference = match[1].strip()
        prompt = Prompt(name, text=self._prompt.replace("{question}", question))
        return Problem(prompt, reference, self._level(record))

    def _field(self, record: Mapping[str, Any], field: str) -> Any:
        name = self._fields.get(field, field)
        if name not in record:
            near = get_close_matches(name, record, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(record) or 'none'}"
            raise DataError(f"there is no field {name!r}, {hint}; map it with fields={{{field!r}: …}}")
        return record[name]

    def _level(self, record: Mapping[str, Any]) -> int | None:
        if "level" not in self._fields:
            level = record.get("level")
            return level if type(level) is int else None
        level = self._field(record, "level")
        if type(level) is not int:
            raise DataError(f"{self._fields['level']} is {level!r}; expected an integer as level")
        return level

    def _keys(self, problems: Ordered[Problem]) -> list[str | None]:
        """The references as the answer rule reads them. In a thread: the caller may be in an event loop."""

        async def keys() -> list[str | None]:
            return [await self._answer.key(problem.reference) for problem in problems]

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, keys()).result()


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise DataError(f"the {field} is {value!r}; expected a text or a number")
    return str(value)
