"""CRUXEval: say what a function returns, or with which arguments it returns that (Gu et al. 2024)."""

from __future__ import annotations

import asyncio
import math
from collections import abc
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, get_args

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.base import Problem
from metagen.tasks.code import Grader
from metagen.tasks.records import Hub, Record, RecordTask, Source, text
from metagen.tasks.template import Asking, Form, Turns, Wording, before, whole
from metagen.template import Template
from metagen.values import Count
from metagen.verifiers.literal import LiteralRule

Mode = Literal["output", "input"]
PATTERN: Final = r"^[ \t]*(?:\*\*)?Answer(?:\*\*)?:[ \t]*(?:\*\*)?[ \t]*(.+?)[ \t]*(?:\*\*)?[ \t]*$"
_FUNCTION: Final = "def f(text, n):\n    parts = text.split('-')\n    return parts[-n:] + [n]"
_OTHER: Final = (
    "def f(d):\n    for k in list(d):\n        if d[k] > 1:\n            d[k + '!'] = d.pop(k)\n    return d"
)
ASKINGS: Final[Mapping[Mode, Asking]] = {
    "output": Asking(
        turns=Turns("{question} Think step by step, and end with a line `Answer: ` and the value as a Python literal."),
        example="```python\n{code}\n```\nWhat does f({input}) return?\n",
        shots=(
            {
                "code": _FUNCTION, "input": "'a-b-c', 2",
                "solution": "Split at '-', the text gives ['a', 'b', 'c']. The last 2 are ['b', 'c'], and 2 is added.\n"
                "Answer: ['b', 'c', 2]",
            },
            {
                "code": _OTHER, "input": "{'a': 1, 'b': 3}",
                "solution": "The value of 'a' is 1, not above 1, so it stays. 'b' has 3, and becomes 'b!'.\n"
                "Answer: {'a': 1, 'b!': 3}",
            },
        ),
        stop="\n\n```",
    ),
    "input": Asking(
        turns=Turns(
            "{question} Think step by step, and end with a line `Answer: f(…)`, with the arguments as Python literals."
        ),
        example="```python\n{code}\n```\nWith which arguments does f return {output}?\n",
        shots=(
            {
                "code": _FUNCTION, "output": "['b', 'c', 2]",
                "solution": "The number at the end is n, so n is 2, and the last 2 parts are 'b' and 'c'. "
                "The text 'a-b-c' has them.\nAnswer: f('a-b-c', 2)",
            },
            {
                "code": _OTHER, "output": "{'a': 1, 'b!': 3}",
                "solution": "'b!' comes from a key 'b' whose value 3 is above 1; 'a' stays.\n"
                "Answer: f({'a': 1, 'b': 3})",
            },
        ),
        stop="\n\n```",
    ),
}  # fmt: skip


#: Questions about the code.
QUESTIONS: Final[Mapping[Mode, str]] = {
    "output": "```python\n{code}\n```\n\nWhat does f({input}) return?",
    "input": "```python\n{code}\n```\n\nFind arguments with which f returns {output}.",
}


class CRUXEvalTask(RecordTask):
    r"""Fields `code`, which defines `f`, `input`, `output` and `id`; the answer is what stands behind `Answer:`.

    mode: `output` asks what f(input) returns. `input` asks for arguments: those of the data set are right, and any
    others with which f returns the same; those are run, by `grader`, which makes a sandbox by default.
    prompt, form, shots (`code`, `input` or `output`, `solution`): as of GSM8KTask; a prompt may have places for `code`
    and `input` or `output`, too, of which {question} is made. Raises DataError as RecordTask does,
    InputError for an unknown mode or form.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.cruxeval import CRUXEvalTask
        >>> record = {"id": "1", "code": "def f(x):\n    return x + 1", "input": "4", "output": "5"}
        >>> _ = Path("crux.jsonl").write_text(json.dumps(record))
        >>> (problem,) = CRUXEvalTask("crux.jsonl").problems()
        >>> problem.reference
        '5'
    """

    name = "cruxeval"
    hub: ClassVar[Hub] = Hub("cruxeval-org/cruxeval")

    def __init__(
        self,
        source: Source | None = None,
        *,
        mode: Mode = "output",
        prompt: Wording | None = None,
        form: Form = "chat",
        grader: Grader | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise InputError(f"mode={mode!r}: expected one of {', '.join(get_args(Mode))}")
        if mode == "output" and grader is not None:
            raise InputError("grader is for mode='input'; leave it out")
        self.mode, self._grader = mode, grader or sandbox_grader()
        given = "input" if mode == "output" else "output"
        self._asking = ASKINGS[mode].adapt("question", "code", given, prompt=prompt, form=form, shots=shots)
        self.stop = self._asking.stops
        rule = LiteralRule(PATTERN, arguments=mode == "input")
        super().__init__(source, answer=self._asking.answer(rule), limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        code, given, returned = (text(record, name) for name in ("code", "input", "output"))
        if "def f(" not in code:
            raise DataError(f"the code defines no function f: {code!r:.80}")
        asked = (
            {"code": code, "input": given} if self.mode == "output" else {"code": code, "output": returned}
        )
        name = text(record, "id")
        # A grader that runs calls needs no more than what the prompt shows.
        said = Template(QUESTIONS[self.mode]).fill(asked)
        prompt = self._asking.prompt(name, {**asked, "question": said}, asked)
        return Problem(prompt, returned if self.mode == "output" else given)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        grades = await super().grade(problem, sequences)
        if self.mode == "output":
            return grades
        others = [i for i, grade in enumerate(grades) if not grade]
        few, stop = self._asking.form == "few_shot", self._asking.stop
        seen = [before(sequences[i], stop) if few else whole(sequences[i]) for i in others]
        ran = await self._grader(problem, seen) if others else []
        for i, grade in zip(others, ran, strict=True):
            grades[i] = grade
        return grades


def sandbox_grader() -> Grader:
    """Runs f on the arguments that a sequence gives, where these are literals, and compares what it returns."""
    rule, made = LiteralRule(PATTERN, arguments=True), list[Any]()

    async def grade(problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        from metagen.verifiers.code.check import Suite, check, syntax_fault
        from metagen.verifiers.code.sandbox import Sandbox

        if not made:
            made.append(Sandbox())
        public = problem.prompt.public
        calls = [rule.call(a.text) if a.text else None for a in await rule.read(sequences)]

        async def one(call: str | None) -> float:
            # On lines of its own: a comment behind it hides nothing.
            called = f"(\n{call}\n)"
            if call is None or syntax_fault(called) is not None:
                return 0.0
            suite = Suite((f"assert {called} == {public['output']}",), entry_points=("f",))
            report = await check(made[0], public["code"], suite)
            return math.nan if report.ungraded else float(report.verdict == "passed")

        return list(await asyncio.gather(*map(one, calls)))

    return grade
