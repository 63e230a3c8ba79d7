"""MBPP: mostly basic Python problems, each with three assertions (Austin et al. 2021)."""

from __future__ import annotations

import ast
import json
import re
from collections import abc
from collections.abc import Mapping
from typing import ClassVar, Final

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask, Grader, Until, code_tests
from metagen.tasks.records import Hub, Record, Source, field, question, text
from metagen.tasks.template import Asking, Form, Turns, Wording
from metagen.values import Amount, Count, Switch
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.source import parse

ASKING: Final = Asking(
    turns=Turns(
        "{question}\n\nThe code should pass these tests:\n\n```python\n{tests}\n```\n\n"
        "Answer with Python code, in one code block."
    ),
    example="Task: {question}\nTests:\n{tests}\nCode:\n```python\n",
    shots=(
        {
            "question": "Write a function that returns the words of a text in the opposite order.",
            "tests": "assert turn_around('a b c') == 'c b a'\nassert turn_around('one') == 'one'",
            "solution": "def turn_around(text):\n    return ' '.join(reversed(text.split()))\n```",
        },
        {
            "question": "Write a function that counts the numbers of a list between two bounds, both included.",
            "tests": "assert count_between([1, 5, 9], 2, 9) == 2\nassert count_between([], 0, 1) == 0",
            "solution": "def count_between(numbers, low, high):\n"
            "    return sum(low <= n <= high for n in numbers)\n```",
        },
        {
            "question": "Write a function to find the longest run of equal neighbours in a list.",
            "tests": "assert longest_run([1, 1, 2, 2, 2, 1]) == 3\nassert longest_run([]) == 0",
            "solution": "def longest_run(items):\n    best = run = 0\n    for i, item in enumerate(items):\n"
            "        run = run + 1 if i and items[i - 1] == item else 1\n        best = max(best, run)\n"
            "    return best\n```",
        },
    ),
    stop="```",
)  # fmt: skip
_CALLED: Final = re.compile(r"\b(\w+)\s*\(")


class MBPPTask(CodeTask):
    """Fields `text` (or `prompt`), `task_id`, `test_list`, and `test_setup_code` (or `test_imports`).

    shown: how many of the assertions the prompt shows, as public tests; all are hidden tests. The published protocol
    shows three of three, which makes a verifier that runs public tests an oracle in all but name: with 1, it is honest.
    challenge: test by `challenge_test_list` as well. prompt (with a place for {tests}, too), form, shots (`question`,
    `tests`, `solution`): as of GSM8KTask. Raises DataError as RecordTask does, InputError for a negative `shown` or an
    unknown form.
    """

    name = "mbpp"
    hub: ClassVar[Hub] = Hub("google-research-datasets/mbpp")

    def __init__(
        self,
        source: Source | None = None,
        *,
        prompt: Wording | None = None,
        form: Form = "chat",
        shown: Amount = 3,
        challenge: Switch = False,
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        if shown < 0:
            raise InputError(f"shown={shown!r}: expected how many tests the prompt shows, at least 0")
        self._shown, self._challenge = shown, challenge
        asking = ASKING.adapt("question", "tests", prompt=prompt, form=form, shots=shots)
        self.stop = asking.stops
        usual: ProgramRule = FencedProgram()
        if form == "few_shot":
            usual = Until(usual, asking.stop)
        super().__init__(source, asking=asking, program=program or usual, grader=grader, limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        asked, tests = question(record, "text", "prompt").strip(), _tests(record, "test_list")
        if not tests:
            raise DataError("test_list is empty; expected at least one assertion")
        setup = record.get("test_setup_code") or "\n".join(_tests(record, "test_imports"))
        solution = str(record.get("code") or "")
        setup = "\n".join(part for part in (*_imports(solution, tests), setup) if part)
        names = _entry_points(solution, tests)
        used = _other_names(solution, (setup, *tests), names)
        more = _tests(record, "challenge_test_list") if self._challenge else ()
        shown = tests[: self._shown]
        values = {
            "question": asked,
            "tests": "\n".join(shown) or f"# of {', '.join(names) or 'your function'}",
        }
        prompt = self._asking.prompt(
            f"mbpp/{text(record, 'task_id')}", values, code_tests(shown, setup, names, used)
        )
        return Problem(prompt, json.dumps(code_tests([*tests, *more], setup, names, used)))


def _definitions(code: str) -> set[str]:
    """The functions and classes of a solution."""
    try:
        nodes = ast.iter_child_nodes(parse(code))
    except SyntaxError:
        return set()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _entry_points(code: str, tests: abc.Sequence[str]) -> list[str]:
    """The functions of the solution that the tests call; one may have the name of a builtin, such as `sum`."""
    return sorted(_definitions(code).intersection(name for test in tests for name in _CALLED.findall(test)))


def _imports(code: str, tests: abc.Sequence[str]) -> list[str]:
    """Imports of the solution that its tests rely on: tests run apart from it, and import for themselves."""
    try:
        nodes = [n for n in ast.iter_child_nodes(parse(code)) if isinstance(n, ast.Import | ast.ImportFrom)]
    except SyntaxError:
        return []
    words = {word for test in tests for word in re.findall(r"\w+", test)}
    bound = [{(one.asname or one.name).partition(".")[0] for one in node.names} for node in nodes]
    return [ast.unparse(node) for node, names in zip(nodes, bound, strict=True) if names & words]


def _other_names(code: str, texts: abc.Sequence[str], points: abc.Sequence[str]) -> list[str]:
    """Other names of the solution's that setup and tests use, such as the class of a tree that they build."""
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return sorted(_definitions(code) & words - set(points))


def _tests(record: Record, name: str) -> tuple[str, ...]:
    if record.get(name) is None:
        return ()
    found = field(record, name)
    if not isinstance(found, list) or not all(isinstance(test, str) for test in found):
        raise DataError(f"{name} is {found!r:.80}; expected a list of texts")
    return tuple(found)
