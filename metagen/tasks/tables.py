"""Problems from a Parquet, CSV or TSV file, or from a data set on the hub, with the field mapping of JsonlTask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metagen.errors import DataError
from metagen.tasks.jsonl import TABLES, JsonlTask
from metagen.tasks.records import Hub, Source


class TableTask(JsonlTask):
    r"""JsonlTask, with its options, for a file whose name says what it is, and for the hub.

    Raises DataError for a file whose name ends otherwise.

    Examples:
        >>> from pathlib import Path
        >>> from metagen.tasks.tables import TableTask
        >>> _ = Path("sums.csv").write_text("id,question,reference\n1,What is 2 + 3?,5\n")
        >>> (problem,) = TableTask("sums.csv", fields={"answer": "reference"}).problems()
        >>> problem.reference
        '5'
    """

    def __init__(self, source: Source, **options: Any) -> None:
        known = (".jsonl", *TABLES)
        if not isinstance(source, Hub) and Path(source).suffix.lower() not in known:
            raise DataError(f"{str(source)!r}: expected a file that ends in {', '.join(known)}")
        super().__init__(source, **options)
