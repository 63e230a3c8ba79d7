"""Problems from a file of one's own: one a line or row, with an id, a question and a reference answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Final

from metagen.errors import DataError, InputError
from metagen.matching import first_match
from metagen.sequence import Form, Prompt
from metagen.tasks.base import LARGEST, Problem
from metagen.tasks.records import Hub, Record, RecordTask, Source, as_text, in_text, jsonl, nonblank, read
from metagen.tasks.template import Turns, Whole, Wording, turn_form
from metagen.values import Count, Text
from metagen.verifiers.pattern import one_group
from metagen.verifiers.rules import Rule, answer_rule

FIELDS: Final = ("id", "question", "answer", "level")
#: Files of other forms; whatever else a file is called, it is read as JSONL.
TABLES: Final = (".parquet", ".csv", ".tsv")
#: An integer, as CSV has it.
LEVEL: Final = re.compile(r"(\d+)(?:\.0*)?", re.ASCII)


class JsonlTask(RecordTask):
    """The problems of a file, read and checked when the task is made: JSONL, or a table (Parquet, CSV, TSV).

    fields: names in the file for `id`, `question`, `answer` and `level`, where they differ; a level is an integer from
    0 up, and optional. A question is a text, or a chat's messages, which are the prompt. prompt: what a text is put
    into: a line of its own, another text, or a mapping of turns (`user`, `system`, `shots`, `assistant`). Other places
    than {question} are filled from fields of the record. form: how the prompt is sent, as of a Prompt; by default a
    text as it is, and turns as `auto`. answer: the answer rule, or its name with options, as `answer_rule` takes it;
    pattern: where it finds the answer, for a rule given by name.
    reference: a regular expression whose group is the reference inside the answer field, such as `#### (.*)`.
    delimiter: what ends a step of a solution. mark: what the step with the answer has in its text, such as `####`; a
    search ends a sequence with it. limit: the first problems only.

    Raises DataError for a file that is missing, empty or not of its form, an id that occurs twice, a field that is
    missing, and a reference that the answer rule cannot read; all faulty lines (rows, counted from 1) are named.
    InputError for unknown `fields`, a prompt without {question} or with a place for the answer, and a pattern without
    one group.
    """

    one: ClassVar[str] = "one JSON object a line, or one problem a row"
    remedy: ClassVar[str] = (
        "mend it, or say where in the field it stands: a regular expression with one group, reference=, which from "
        "the command line is --set \"task.reference='#### (.*)'\""
    )

    def __init__(
        self,
        path: Source,
        *,
        fields: Mapping[str, str] | None = None,
        prompt: Wording | None = None,
        form: Form | None = None,
        answer: Rule = "number",
        pattern: str | None = None,
        reference: str | None = None,
        delimiter: Text = "\n",
        mark: Text | None = None,
        limit: Count | None = None,
    ) -> None:
        self._fields, self.delimiter, self.mark = dict(fields or {}), delimiter, mark
        self._reference_part = None if reference is None else one_group("reference", reference)
        if unknown := sorted(set(self._fields) - set(FIELDS)):
            raise InputError(f"fields={dict(fields or {})!r}: {unknown[0]!r} is none of {', '.join(FIELDS)}")
        self._bare = prompt is None
        wording: Wording = (
            ("{question}\n" if form in (None, "text") else "{question}") if prompt is None else prompt
        )
        self._turns = Turns.of(wording).expecting("question", others=True)
        self._form = turn_form(wording, form)
        if (shown := self._fields.get("answer", "answer")) in self._turns.places:
            raise InputError(
                f"prompt: the place {{{shown}}} would show the model the right answer; for the braces themselves write "
                f"{{{{{shown}}}}}"
            )
        self.name = path.name.rpartition("/")[2] if isinstance(path, Hub) else Path(path).stem
        rule = answer_rule(answer, pattern=pattern)
        rule = rule if self._turns.assistant is None else Whole(rule)
        super().__init__(path if isinstance(path, Hub) else Path(path), answer=rule, limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        name, reference = (as_text(self._field(record, f), f"the {f}") for f in ("id", "answer"))
        if self._reference_part is not None:
            found = first_match(self._reference_part, reference)
            if found is None:
                pattern = self._reference_part.pattern
                raise DataError(
                    f"reference={pattern!r} does not match the answer {reference!r:.80}; mend one of them"
                )
            reference = (found.groups[0] or "").strip()
        return Problem(self._prompt_of(record, name), reference, self._level(record))

    def _prompt_of(self, record: Record, name: str) -> Prompt:
        question = in_text(self._field(record, "question"), "the question")
        if not isinstance(question, str):
            if not self._bare:
                raise DataError("the question is a chat's messages, which need no prompt=; leave it out")
            return Prompt(name, messages=question, form=self._form or "auto")
        values = {"question": nonblank(question)}
        for place in self._turns.places:
            if place not in values:
                values[place] = as_text(self._field(record, place, f"{{{place}}}"), f"the {place}")
        return self._turns.prompt(name, self._form, values)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        source = self.source
        if isinstance(source, Hub) or Path(source).suffix.lower() in TABLES:
            return read(source)
        return jsonl(Path(source))

    def _field(self, record: Record, field: str, place: str = "") -> Any:
        """place: of the prompt, which it fills."""
        name = field if place else self._fields.get(field, field)
        if name not in record:
            near = get_close_matches(name, record, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(record) or 'none'}"
            remedy = f"map it with fields={{{field!r}: …}}"
            if place:
                remedy = f"it fills {place} of the prompt, where {{{place}}} writes the braces themselves"
            raise DataError(f"there is no field {name!r}, {hint}; {remedy}")
        return record[name]

    def _level(self, record: Record) -> int | None:
        """An integer, as tables may write it (`3.0`, and texts in CSV); None where there is none.

        What else a field `level` holds that is not mapped is somebody else's level.
        """
        mapped = "level" in self._fields
        given = self._field(record, "level") if mapped else record.get("level")
        if given is None or given != given:  # as tables write what is missing
            return None
        if isinstance(given, str) and (written := LEVEL.fullmatch(given.strip())):
            level = int(written[1])
        elif type(given) is int or (isinstance(given, float) and given.is_integer()):
            level = int(given)
        else:
            level = -1
        if 0 <= level <= LARGEST:
            return level
        if mapped:
            raise DataError(
                f"{self._fields['level']} is {given!r}; expected an integer from 0 to {LARGEST:,} as level, or null"
            )
        return None
