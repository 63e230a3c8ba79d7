"""AIME: the American Invitational Mathematics Examination; every answer is an integer from 0 to 999."""

from __future__ import annotations

from typing import ClassVar

from metagen.errors import DataError
from metagen.tasks.math_dataset import BoxedTask
from metagen.tasks.records import Hub, Record


class AIMETask(BoxedTask):
    """Fields as of MathTask, also as `Problem`, `Answer` and `ID`; references such as `025` are the number 25.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.aime import AIMETask
        >>> record = {"ID": "2024-I-1", "Problem": "Find 5 * 5.", "Answer": "025"}
        >>> _ = Path("aime.jsonl").write_text(json.dumps(record))
        >>> (problem,) = AIMETask("aime.jsonl").problems()
        >>> problem.reference
        '25'
    """

    name = "aime"
    hub: ClassVar[Hub] = Hub("Maxwell-Jia/AIME_2024", split="train")

    def reference(self, record: Record) -> str:
        answer = super().reference(record)
        if not (answer.isascii() and answer.isdigit() and int(answer) <= 999):
            raise DataError(f"the answer is {answer!r}; expected an integer from 0 to 999")
        return str(int(answer))
