"""Word problems of one or two steps, easier than GSM8K: SVAMP, ASDiv and MAWPS."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import ClassVar, Final

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.records import Hub, Record, nonblank, text

#: The number that an answer of ASDiv begins with; what follows in brackets is its unit.
_NUMBER: Final = re.compile(r"\s*(-?[\d.,/: ]*\d)\s*(?:\(.*\))?\s*", re.DOTALL)
#: The place of a number in a question of MAWPS.
_PLACE: Final = re.compile(r"\bnumber(\d+)\b")
#: An answer of MAWPS.
_PLAIN: Final = re.compile(r"-?[\d,]*\.?\d+(?:/\d+)?")
#: A decimal of so many places that it may be a fraction that was rounded.
_ROUNDED: Final = re.compile(r"-?\d+\.(\d{4,})")
#: What a tokenizer has set apart, and how people write it, in the order of the work.
_JOINED: Final = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        (r" (n['’]t|['’] ?(?:s|re|ve|ll|d|m))\b", r"\1"),
        (r"(?<=['’]) (?=(?:s|re|ve|ll|d|m)\b)", ""),
        (r"(?<!\S)' ([^'.?]+?) '(?!\S)", r"'\1'"),
        (r"(?<= ') (?=\d)", ""),
        (r" '(?= )", "'"),
        (r" - (?=(?:or|and)\b)", "- "),
        (r" - ", "-"),
        (r"\$ (?=\d)", "$"),
        (r" (?=[.,?!;:%])", ""),
    )
)


class WordProblemTask(GSM8KTask):
    """As GSM8KTask, whose prompts and answer rule it has; the fields are those of the data set.

    Raises DataError for an answer that is no number.
    """

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
    """Fields `Body`, `Question` and `Answer`, a number; `ID` (Patel et al. 2021).

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.word_problems import SVAMPTask
        >>> record = {
        ...     "ID": "1",
        ...     "Body": "Ann has 3 pens.",
        ...     "Question": "She buys 2. How many are there?",
        ...     "Answer": 5,
        ... }
        >>> _ = Path("svamp.jsonl").write_text(json.dumps(record))
        >>> (problem,) = SVAMPTask("svamp.jsonl").problems()
        >>> problem.reference
        '5'
    """

    name = "svamp"
    hub: ClassVar[Hub] = Hub("ChilleD/SVAMP")


class ASDivTask(WordProblemTask):
    """Fields `body`, `question` and `answer`, a number with its unit behind it, `9 (apples)` (Miao et al. 2020).

    Of the 2,305 published answers, 82 are none: two or three numbers (`9; 11`), a name, a time, yes or no.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.word_problems import ASDivTask
        >>> record = {
        ...     "body": "Ann has 7 pens.",
        ...     "question": "Bo has 2. How many are there?",
        ...     "answer": "9 (pens)",
        ... }
        >>> _ = Path("asdiv.jsonl").write_text(json.dumps(record))
        >>> (problem,) = ASDivTask("asdiv.jsonl").problems()
        >>> problem.reference
        '9'
    """

    name = "asdiv"
    hub: ClassVar[Hub] = Hub("EleutherAI/asdiv", "asdiv", "validation")

    def reference(self, record: Record) -> str:
        """The numbers before their units, or the words."""
        parts = [part.strip() for part in text(record, "answer", "Answer").split(";")]
        return ", ".join(found[1] if (found := _NUMBER.fullmatch(part)) else part for part in parts)


class MAWPSTask(WordProblemTask):
    """Fields `Question`, `Numbers` and `Answer`, or `question` and `result` (Koncel-Kedziorski et al. 2016).

    The first are those of the CSV files beside SVAMP: a question has places (`number0`, `number1`, …) for its numbers,
    and blanks around its punctuation. The numbers are put in, and the blanks are taken out. The second are those of
    Calc-MAWPS. A decimal such as 7.666666666666667 is a fraction that was rounded: questions say `7 2/3`.
    """

    name = "mawps"
    hub: ClassVar[Hub] = Hub("MU-NLPC/Calc-mawps", "default")

    def question(self, record: Record) -> str:
        """The question as people write it. DataError where it has a place for a number that is not there."""
        asked = nonblank(text(record, "Question", "question")).strip()
        given = record.get("Numbers")
        numbers = [] if given is None else text(record, "Numbers").split()
        if missing := [n for n in map(int, _PLACE.findall(asked)) if n >= len(numbers)]:
            raise DataError(
                f"the question has a place number{missing[0]}, and Numbers is {given!r}; expected a number for each"
            )
        asked = _PLACE.sub(lambda place: _spoken(numbers[int(place[1])]), asked)
        return tidy(asked) if re.search(r"\s[.,?]", asked) else asked

    def reference(self, record: Record) -> str:
        """The answer, as a fraction where it is one that was rounded."""
        answer = text(record, "Answer", "result").strip()
        if not _PLAIN.fullmatch(answer):
            raise DataError(f"the answer is {answer!r:.80}; expected a number, such as 6, 4.5 or 13/3")
        return str(found) if (found := _fraction(answer)) is not None else answer.removesuffix(".0")


def tidy(question: str) -> str:
    """A question without the blanks that a tokenizer put between its words and signs."""
    for pattern, said in _JOINED:
        question = pattern.sub(said, question)
    return question


def _fraction(number: str) -> Fraction | None:
    """The simple fraction that a decimal is to its last place, such as 23/3; None for all other numbers."""
    if (decimal := _ROUNDED.fullmatch(number)) is None:
        return None
    value = Fraction(number)
    near = value.limit_denominator(12)
    # A printed double may be off by more than its last place.
    off = max(Fraction(1, 10 ** len(decimal[1])), abs(value) / 2**50)
    return near if near != value and abs(near - value) < off else None


def _spoken(number: str) -> str:
    """A number within a question, such as `7`, `0.25` and `7 2/3`."""
    if (found := _fraction(number)) is None or found < 0:
        return number.removesuffix(".0")
    whole, rest = divmod(found, 1)
    return f"{whole} {rest}" if whole else str(rest)
