"""Problems from a Parquet, CSV or TSV file, or from a data set on the hub, with the field mapping of JsonlTask."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from metagen.errors import DataError
from metagen.tasks.jsonl import JsonlTask
from metagen.tasks.records import Hub, Source, records
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.numeric import ANSWER_LINE


class TableTask(JsonlTask):
    """What JsonlTask is for JSONL: one problem a row, and the same options. Faults name rows, counted from 1.

    CSV knows texts only, so a level from CSV is read as a number where it is one.
    """

    def __init__(
        self,
        source: Source,
        *,
        fields: Mapping[str, str] | None = None,
        prompt: str = "{question}\n",
        answer: AnswerRule | None = None,
        pattern: str = ANSWER_LINE,
        reference: str | None = None,
        delimiter: str = "\n",
        limit: int | None = None,
    ) -> None:
        self._source = source
        super().__init__(
            str(source), fields=fields, prompt=prompt, answer=answer, pattern=pattern,
            reference=reference, delimiter=delimiter, limit=limit,
        )  # fmt: skip
        if isinstance(source, Hub):
            self.name = source.name.rpartition("/")[2]

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Rows as JSON texts, which is what the rest of the reading expects."""
        empty = True
        for number, record in records(self._source):
            empty = False
            level = self._fields.get("level", "level")
            row = dict(record)
            if isinstance(row.get(level), str) and row[level].strip().isdecimal():
                row[level] = int(row[level])
            yield number, json.dumps(row, default=str)
        if empty:
            raise DataError(f"{str(self._source)!r} holds no problems; expected one a row")
