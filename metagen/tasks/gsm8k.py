"""GSM8K: word problems of grade-school mathematics (Cobbe et al. 2021)."""

from __future__ import annotations

from typing import ClassVar, Final

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.records import Hub, Record, question, text
from metagen.tasks.solutions import STEP_BY_STEP, SolutionsTask
from metagen.tasks.template import Asking, Turns

ASKING: Final = Asking(
    turns=Turns(STEP_BY_STEP),
    example="Question: {question}\nAnswer:",
    shots=(
        {
            "question": "A library lends 14 books in the morning and twice as many in the afternoon. In the evening "
            "9 books come back. How many of the books lent that day are still out?",
            "solution": " In the afternoon it lends 2 * 14 = 28 books. In all it lends 14 + 28 = 42 books. After "
            "9 come back, 42 - 9 = 33 are still out. The answer is 33.",
        },
        {
            "question": "Tickets cost $12 for adults and half as much for children. What do 3 adults and "
            "4 children pay?",
            "solution": " A child's ticket costs 12 / 2 = 6 dollars. The adults pay 3 * 12 = 36 dollars and the "
            "children 4 * 6 = 24 dollars. Together they pay 36 + 24 = 60 dollars. The answer is 60.",
        },
        {
            "question": "Nadia cycles 18 km an hour. She rides for 2 hours and 30 minutes, and then walks 3 km. How "
            "many kilometres does she cover?",
            "solution": " 2 hours and 30 minutes are 2.5 hours. She rides 18 * 2.5 = 45 km. With the walk she covers "
            "45 + 3 = 48 km. The answer is 48.",
        },
        {
            "question": "A tank of 240 litres is 75% full. Each bucket takes 15 litres out of it. How many "
            "buckets empty it?",
            "solution": " The tank holds 240 * 0.75 = 180 litres. That makes 180 / 15 = 12 buckets. The answer is 12.",
        },
    ),
    stop="\n\nQuestion:",
    asked="{question}",
)


class GSM8KTask(SolutionsTask):
    """Fields `question` and `answer`, of which the reference is what follows `####`, if it is there."""

    name = "gsm8k"
    hub: ClassVar[Hub] = Hub("openai/gsm8k", "main")
    asking = ASKING

    def problem(self, record: Record, number: int) -> Problem:
        asked, solution = question(record, "question"), text(record, "answer")
        _, mark, reference = (part.strip() for part in solution.rpartition("####"))
        if not reference:
            raise DataError(
                "the answer is empty; expected a number, or a solution that ends in '#### number'"
            )
        if not mark and len(reference.split()) > 1:
            raise DataError(
                f"the answer {reference!r:.80} is a text without '####'; expected a number, or a solution that ends in "
                "'#### number'"
            )
        name = record.get("id")
        name = f"{self.name}/{number - 1}" if name is None else name
        return Problem(self._asking.prompt(str(name), {"question": asked.strip()}), reference)
