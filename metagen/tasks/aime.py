"""AIME: the American Invitational Mathematics Examination; every answer is an integer from 0 to 999."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from typing import ClassVar

from metagen.errors import DataError
from metagen.tasks.math_dataset import MathTask
from metagen.tasks.records import Hub, Record, Source
from metagen.tasks.template import Form, Wording
from metagen.values import Count
from metagen.verifiers.rules import Rule


class AIMETask(MathTask):
    """The fields of MathTask, also as `Problem`, `Answer` and `ID`; references such as `025` are the number 25.

    prompt, form, answer, shots: as of MathTask. limit: the first problems only.
    """

    name = "aime"
    hub: ClassVar[Hub] = Hub("Maxwell-Jia/AIME_2024", split="train")

    def __init__(
        self,
        source: Source | None = None,
        *,
        prompt: Wording | None = None,
        form: Form = "chat",
        answer: Rule | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        super().__init__(source, prompt=prompt, form=form, answer=answer, shots=shots, limit=limit)

    def reference(self, record: Record) -> str:
        answer = super().reference(record)
        if not (answer.isascii() and answer.isdigit() and int(answer) <= 999):
            raise DataError(f"the answer is {answer!r}; expected an integer from 0 to 999")
        return str(int(answer))
