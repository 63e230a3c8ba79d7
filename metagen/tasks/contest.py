"""Problems of programming contests: programs that read standard input, and functions that a judge calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from typing import Any, Final

from metagen.errors import DataError
from metagen.sequence import Message, Prompt
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask, Grader, WithPreamble, code_tests
from metagen.tasks.records import Source
from metagen.verifiers.code.io_tests import IOTests
from metagen.verifiers.code.program import FencedProgram, ProgramRule

READS: Final = (
    "{question}\n\nWrite a Python program that reads the input from standard input and writes the answer to standard "
    "output. Answer with the whole program, in one code block."
)
CALLED: Final = (
    "{question}\n\nComplete this Python code. Answer with the whole code, in one code block.\n\n"
    "```python\n{starter}\n```"
)
#: What programs of contests may use without an import, as in the judges of LiveCodeBench and APPS.
_MODULES: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
PREAMBLE: Final = "\n".join(
    [
        *(f"from {name} import *" for name in _MODULES),
        f"import {', '.join(_MODULES)}",
        "sys.setrecursionlimit(50000)",
    ]
)
#: Run beside the tests of a function: it is a method of the class `Solution`, or stands by itself; JSON has no tuples.
_ANSWER: Final = """\
def answer(*args):
    try:
        target = Solution
    except NameError:
        return lists({name}(*args))
    return lists(getattr(target(), {name!r})(*args))


def lists(value):
    if isinstance(value, (list, tuple)):
        return [lists(v) for v in value]
    return {{k: lists(v) for k, v in value.items()}} if type(value) is dict else value
"""


class ContestTask(CodeTask):
    """Problems with a statement, and tests by standard input or of a function. Asked as one message of the user.

    seconds, memory: of each test, processor time and bytes; None: the problem's own limits, if it has them, else those
    of the sandbox. Raises DataError as RecordTask does.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        seconds: float | None = None,
        memory: int | None = None,
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        limit: int | None = None,
    ) -> None:
        self._seconds, self._memory = seconds, memory
        rule = program or WithPreamble(FencedProgram())
        super().__init__(source, form="chat", program=rule, grader=grader, limit=limit)

    def reading(
        self, name: str, question: str, shown: Pairs, hidden: Pairs, *, preamble: str = "", **options: Any
    ) -> Problem:
        """A problem whose programs read standard input. shown, hidden: inputs and outputs. options: of IOTests."""
        given = {"seconds": self._seconds, "memory": self._memory}
        options |= {k: v for k, v in given.items() if v is not None}
        tests = IOTests(*zip(*(shown + hidden), strict=True), **options) if shown + hidden else None
        if tests is None:
            raise DataError("there are no tests; remove the problem")
        public = IOTests(*zip(*shown, strict=True), **options).data if shown else {}
        message = Message("user", READS.replace("{question}", question.strip()))
        prompt = Prompt(
            name, messages=(message,), public=public | ({"preamble": preamble} if preamble else {})
        )
        return Problem(prompt, json.dumps(tests.data))

    def called(
        self,
        name: str,
        question: str,
        function: str,
        starter: str,
        shown: Iterable[str],
        hidden: Iterable[str],
    ) -> Problem:
        """A problem whose programs define a function, alone or in a class `Solution`. shown, hidden: assertions."""
        if not function.isidentifier():
            raise DataError(f"the function to test is {function!r}; expected a name")
        setup, shown = _ANSWER.format(name=function), list(shown)
        tests = [*shown, *hidden]
        if not tests:
            raise DataError("there are no tests; remove the problem")
        asked = CALLED.replace("{starter}", starter.rstrip() or f"def {function}").replace(
            "{question}", question.strip()
        )

        def data(tests: Ordered[str]) -> dict[str, Any]:
            return code_tests(tests, setup, (), ("Solution", function)) | {"objects": True}

        public = data(shown) | {"preamble": PREAMBLE}
        return Problem(
            Prompt(name, messages=(Message("user", asked),), public=public), json.dumps(data(tests))
        )


#: Inputs and outputs.
Pairs = list[tuple[str, str]]


def parsed_json(value: Any, what: str) -> Any:
    """What a field holds, which may be written as JSON. DataError that names it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} is no JSON ({error}): {value!r:.80}") from None


def lines(value: Any, what: str) -> str:
    """A text, or a list of its lines as one."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise DataError(f"{what} is {value!r:.80}; expected a text, or a list of lines")
    return value
