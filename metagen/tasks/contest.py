"""Problems of programming contests: programs that read standard input, and functions that a judge calls."""

from __future__ import annotations

import json
import sys
from collections import abc
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask, Grader, WithPreamble, code_tests
from metagen.tasks.records import Source
from metagen.tasks.template import Asking, Form, Turns, Wording
from metagen.values import Count, Positive, Size
from metagen.verifiers.code.io_tests import IOTests
from metagen.verifiers.code.program import FencedProgram, ProgramRule

#: Places: the statement, how to answer it, and the code to begin with, which is empty where there is none.
PLACES: Final = ("question", "how", "starter")
ASKING: Final = Asking(turns=Turns("{question}\n\n{how}"), example="", shots=(), stop="")
READS: Final = (
    "Write a Python program that reads the input from standard input and writes the answer to standard output. Answer "
    "with the whole program, in one code block."
)
CALLED: Final = "Complete this Python code. Answer with the whole code, in one code block."
#: Modules that programs of contests may use without an import, as in the judges of LiveCodeBench and APPS.
_MODULES: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
PREAMBLE: Final = "\n".join(
    [
        *(f"from {name} import *" for name in _MODULES),
        f"import {', '.join(_MODULES)}",
        "sys.setrecursionlimit(50000)",
        # As in LiveCodeBench's judge; an older Python has no limit.
        "getattr(sys, 'set_int_max_str_digits', int)(50000)",
    ]
)
#: Run beside the tests of a function: it is a method of the class `Solution`, or stands by itself. JSON has no tuples.
#: It may have the name of a builtin.
_ANSWER: Final = """\
import builtins as _metagen


def _metagen_answer(*_metagen_args):
    try:
        _metagen_class = Solution
    except _metagen.NameError:
        return _metagen_lists({name}(*_metagen_args))
    return _metagen_lists(_metagen.getattr(_metagen_class(), {name!r})(*_metagen_args))


def _metagen_lists(value):
"""
_OUTER: Final = "    return _metagen.list(value) if _metagen.isinstance(value, _metagen.tuple) else value\n"
_NESTED: Final = """\
    if _metagen.isinstance(value, (_metagen.list, _metagen.tuple)):
        return [_metagen_lists(v) for v in value]
    held = _metagen.type(value) is _metagen.dict
    return {k: _metagen_lists(v) for k, v in value.items()} if held else value
"""
#: The same function in the program itself.
_FUNCTION: Final = "(Solution().{name} if 'Solution' in globals() else {name})"


class ContestTask(CodeTask):
    """Problems with a statement, and tests by standard input or of a function.

    prompt: as of GSM8KTask, with places for {question}, {how} (to answer) and {starter} (code to begin with).
    seconds, memory: of each test, processor time and bytes; None: the problem's own limits, if it has them, else those
    of the sandbox. Raises DataError as RecordTask does, InputError for the form `few_shot`.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        prompt: Wording | None = None,
        form: Form = "chat",
        seconds: Positive | None = None,
        memory: Size | None = None,
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        limit: Count | None = None,
    ) -> None:
        given = {"seconds": seconds, "memory": memory}
        self._limits = {name: value for name, value in given.items() if value is not None}
        if form == "few_shot":
            raise InputError("form='few_shot': these problems have no examples; expected chat, text or auto")
        asking = ASKING.adapt(*PLACES, prompt=prompt, form=form)
        rule = program or WithPreamble(FencedProgram())
        super().__init__(source, asking=asking, program=rule, grader=grader, limit=limit)

    def io_problem(
        self, name: str, question: str, shown: Pairs, hidden: Pairs, *, preamble: str = "", **options: Any
    ) -> Problem:
        """A problem whose programs read standard input. shown, hidden: inputs and outputs. options: of IOTests."""
        options |= self._limits
        if not shown + hidden:
            raise DataError("there are no tests; remove the problem")
        tests = _tests(shown + hidden, options)
        public: dict[str, Any] = _tests(shown, options).data if shown else {"io": None}
        values = {"question": question.strip(), "how": READS, "starter": ""}
        public |= {"preamble": preamble} if preamble else {}
        return Problem(self._asking.prompt(name, values, public), json.dumps(tests.data))

    def call_problem(
        self,
        name: str,
        question: str,
        function: str,
        starter: str,
        shown: Iterable[Call],
        hidden: Iterable[Call],
        *,
        nested: bool = False,
    ) -> Problem:
        """A problem whose programs define a function, alone or in a class `Solution`.

        shown, hidden: the calls that are tests. nested: tuples within a result are lists as well, as a whole one is.
        """
        if not function.isidentifier():
            raise DataError(f"the function to test is {function!r}; expected a name")
        setup, shown = _ANSWER.format(name=function) + (_NESTED if nested else _OUTER), list(shown)
        calls = [*shown, *hidden]
        if not calls:
            raise DataError("there are no tests; remove the problem")

        def data(calls: abc.Sequence[Call]) -> dict[str, Any]:
            tests = [f"assert _metagen_answer({args}) {holds}" for args, holds in calls]
            return code_tests(tests, setup, (), ("Solution", function)) | {"objects": True} | self._limits

        starter = starter.rstrip() or f"def {function}"
        how = f"{CALLED}\n\n```python\n{starter}\n```"
        values = {"question": question.strip(), "how": how, "starter": starter}
        inputs = [f"{_FUNCTION.format(name=function)}({args})" for args, _ in shown]
        public = data(shown) | {"inputs": inputs, "preamble": PREAMBLE}
        return Problem(self._asking.prompt(name, values, public), json.dumps(data(calls)))


def _tests(pairs: Pairs, options: Mapping[str, Any]) -> IOTests:
    return IOTests(tuple(given for given, _ in pairs), tuple(wanted for _, wanted in pairs), **options)


#: Inputs and outputs.
Pairs = list[tuple[str, str]]
#: Code: the arguments of a call, and what is to hold of its result, such as `== 4`.
Call = tuple[str, str]


#: Digits of an integer that Python reads and writes, whatever its settings.
_DIGITS: Final = sys.int_info.str_digits_check_threshold


class _Long(int):
    """An integer of more digits than Python may read: its code is hexadecimal."""

    def __repr__(self) -> str:
        return hex(self)


def parse_json(value: Any, what: str) -> Any:
    """The value of a field, which may be written as JSON. DataError that names it.

    Integers may be longer than Python reads, and are code by their `repr` all the same.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} is no JSON ({error}): {value!r:.80}") from None


def _integer(digits: str) -> int:
    # A decimal has no limit on its digits.
    return int(digits) if len(digits) <= _DIGITS else _Long(Decimal(digits))


def lines(value: Any, what: str) -> str:
    """A text, or a list of its lines as one. Raises DataError for anything else."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise DataError(f"{what} is {value!r:.80}; expected a text, or a list of lines")
    return value
