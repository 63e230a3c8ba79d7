"""MBPP: mostly basic Python problems, each with three assertions (Austin et al. 2021)."""

from __future__ import annotations

import ast
import json
import re
from collections import abc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask, Grader, Until, code_tests
from metagen.tasks.records import Hub, Record, Source, field, question, records, text
from metagen.tasks.template import SHOWN, Asking, Form, Turns, Wording
from metagen.values import Amount, Count, Switch
from metagen.verifiers.code.definitions import Definitions
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.source import parse

ASKED: Final = (
    "{question}\n\nThe code should pass these tests:\n\n```python\n{tests}\n```\n\n"
    "Answer with Python code, in one code block."
)
ASKING: Final = Asking(
    turns=Turns(ASKED),
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
    asked=ASKED,
    answered="```python\n{solution}",
)  # fmt: skip
#: The tasks that the paper's prompt shows as worked examples.
EXAMPLES: Final = ("2", "3", "4")
_CALLED: Final = re.compile(r"\b(\w+)\s*\(")


class MBPPTask(CodeTask):
    r"""Fields `text` (or `prompt`), `task_id`, `test_list`, and `test_setup_code` (or `test_imports`).

    shown: how many of the assertions the prompt shows, as public tests; all are hidden tests. The published protocol
    shows three of three, which makes a verifier that runs public tests an oracle in all but name: with 1, it is honest.
    challenge: test by `challenge_test_list` as well. prompt (with a place for {tests}, too), form, shots (`question`,
    `tests`, `solution`): as of GSM8KTask.
    examples: a file of the data set in which the paper's three worked examples stand, tasks 2, 3 and 4; `few_shot` and
    `few_shot_chat` show them in place of the task's own, and do not ask them.
    What a model writes below its function to try it (`print`, `assert`) is no part of the program. Raises DataError as
    RecordTask does, InputError for a negative `shown` or an unknown form.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.mbpp import MBPPTask
        >>> record = {
        ...     "task_id": 1,
        ...     "text": "Double x.",
        ...     "code": "def double(x):\n    return 2 * x",
        ...     "test_list": ["assert double(2) == 4"],
        ... }
        >>> _ = Path("mbpp.jsonl").write_text(json.dumps(record))
        >>> (problem,) = MBPPTask("mbpp.jsonl", shown=1).problems()
        >>> problem.prompt.problem_id
        'mbpp/1'
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
        examples: str | Path | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        if shown < 0:
            raise InputError(f"shown={shown!r}: expected how many tests the prompt shows, at least 0")
        self._shown, self._challenge = shown, challenge
        self._left_out = EXAMPLES if examples is not None else ()
        if examples is not None:
            if shots is not None or form not in SHOWN:
                raise InputError(
                    f"examples={str(examples)!r} are those of form few_shot and few_shot_chat, in place of shots, and "
                    f"form={form!r}{' with shots' if shots is not None else ''}; leave one of them out"
                )
            shots = read_examples(examples, shown)
        asking = ASKING.adapt("question", "tests", prompt=prompt, form=form, shots=shots)
        self.stop = asking.stops
        usual: ProgramRule = Definitions(FencedProgram())
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
        if self._challenge and "challenge_test_list" not in record:
            raise DataError("challenge=True: there is no challenge_test_list; leave challenge out")
        more = _tests(record, "challenge_test_list") if self._challenge else ()
        shown = tests[: self._shown]
        values = {"question": asked, "tests": _shown(shown, names)}
        prompt = self._asking.prompt(
            f"mbpp/{text(record, 'task_id')}", values, code_tests(shown, setup, names, used)
        )
        return Problem(prompt, json.dumps(code_tests([*tests, *more], setup, names, used)))

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        for number, record in super()._records():
            if isinstance(record, DataError) or str(record.get("task_id")) not in self._left_out:
                yield number, record


def read_examples(path: str | Path, shown: int) -> list[dict[str, str]]:
    """The worked examples of the paper's prompt, out of a file of the data set, as `shots`.

    shown: so many of their tests are shown. Raises DataError where one is missing, or has no `code`.
    """
    found: dict[str, dict[str, str]] = {}
    for number, record in records(path):
        if (name := str(record.get("task_id"))) in EXAMPLES:
            try:
                asked, code = question(record, "text", "prompt").strip(), text(record, "code").strip()
                tests = _tests(record, "test_list")
            except DataError as error:
                raise DataError(f"{path}:{number}: {error}") from None
            shots = _shown(tests[:shown], _entry_points(code, tests))
            found[name] = {"question": asked, "tests": shots, "solution": f"{code.replace(chr(13), '')}\n```"}
    if missing := [name for name in EXAMPLES if name not in found]:
        raise DataError(
            f"{str(path)!r} has no task {missing[0]}; the worked examples are tasks {', '.join(EXAMPLES)}, which are "
            "in the data set's whole file and in its split `prompt`"
        )
    return [found[name] for name in EXAMPLES]


def _shown(tests: abc.Sequence[str], names: abc.Sequence[str]) -> str:
    """What a prompt shows of a problem's tests; without any, what they call."""
    return "\n".join(tests) or f"# of {', '.join(names) or 'your function'}"


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
