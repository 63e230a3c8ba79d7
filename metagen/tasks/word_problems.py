"""Word problems of one or two steps, easier than GSM8K: SVAMP (Patel et al. 2021) and ASDiv (Miao et al. 2020)."""

from __future__ import annotations

import re
from typing import ClassVar, Final

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.records import Hub, Record, text

#: The number that an answer of ASDiv begins with; what follows in brackets is its unit.
_NUMBER: Final = re.compile(r"\s*(-?[\d.,/: ]*\d)\s*(?:\(.*\))?\s*", re.DOTALL)


class WordProblemTask(GSM8KTask):
    """As GSM8KTask, whose prompts and answer rule it has; the fields are those of the data set."""

    def problem(self, record: Record, number: int) -> Problem:
        name = next((record[n] for n in ("ID", "id") if record.get(n) is not None), number - 1)
        asked = self.question(record)
        prompt = self._asking.prompt(f"{self.name}/{name}", {"question": asked})
        return Problem(prompt, self.reference(record))

    def question(self, record: Record) -> str:
        """Body and question, as one text."""
        body, asked = text(record, "Body", "body").strip(), text(record, "Question", "question").strip()
        return f"{body} {asked}" if body.endswith((".", "?", "!", ",")) else f"{body}, {asked}"

    def reference(self, record: Record) -> str:
        """The answer as a number without a point that says nothing."""
        value = record.get("Answer", record.get("answer"))
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise DataError(f"the answer is {value!r}; expected a number")
        said = str(value).strip()
        return said.removesuffix(".0")


class SVAMPTask(WordProblemTask):
    """Fields `Body`, `Question` and `Answer`, a number; `ID`."""

    name = "svamp"
    hub: ClassVar[Hub] = Hub("ChilleD/SVAMP")


class ASDivTask(WordProblemTask):
    """Fields `body`, `question` and `answer`, a number with its unit in brackets, as `9 (apples)`."""

    name = "asdiv"
    hub: ClassVar[Hub] = Hub("EleutherAI/asdiv", "asdiv", "validation")

    def reference(self, record: Record) -> str:
        """The number before the unit."""
        answer = text(record, "answer", "Answer")
        found = _NUMBER.fullmatch(answer)
        if found is None:
            raise DataError(f"the answer is {answer!r}; expected a number, perhaps with its unit in brackets")
        return found[1].strip()
