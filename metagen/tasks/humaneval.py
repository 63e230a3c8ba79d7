"""HumanEval: functions to complete from their signature and docstring (Chen et al. 2021)."""

from __future__ import annotations

import ast
import doctest
import json
from dataclasses import replace
from typing import ClassVar, Final

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask, Grader, OrBody, WithPreamble, code_tests
from metagen.tasks.records import Hub, Record, Source, text
from metagen.tasks.template import Asking, Form, Turns, Wording
from metagen.values import Count
from metagen.verifiers.code.definitions import Definitions
from metagen.verifiers.code.program import CompletedProgram, FencedProgram, ProgramRule
from metagen.verifiers.source import parse

#: The few-shot text is the prompt itself: the data set has no examples.
ASKING: Final = Asking(
    turns=Turns(
        "Complete this Python function. Answer with the whole function, in one code block.\n\n"
        "```python\n{question}\n```"
    ),
    example="{question}",
    shots=(),
    stop="",
)
_TYPING: Final = "from typing import List\n\n\n"
#: Worked examples as turns of a chat, for small chat models: each answers with the whole function.
SHOWN: Final = replace(
    ASKING,
    shots=(
        {
            "question": f"{_TYPING}def count_long(words: List[str], length: int) -> int:\n"
            '    """ Return how many words have more than length characters.\n'
            "    >>> count_long(['sun', 'river'], 3)\n    1\n"
            '    """',
            "solution": f"{_TYPING}def count_long(words: List[str], length: int) -> int:\n"
            "    return sum(1 for word in words if len(word) > length)\n",
        },
        {
            "question": f"{_TYPING}def running_total(numbers: List[int]) -> List[int]:\n"
            '    """ For each place of the list, give the sum of the numbers up to there.\n'
            "    >>> running_total([2, 5, 1])\n    [2, 7, 8]\n"
            '    """',
            "solution": f"{_TYPING}def running_total(numbers: List[int]) -> List[int]:\n"
            "    total, totals = 0, []\n    for number in numbers:\n        total += number\n"
            "        totals.append(total)\n    return totals\n",
        },
    ),
    asked=ASKING.turns.user,
    answered="```python\n{solution}\n```",
)
#: Docstrings whose examples contradict the data set's own tests.
WRONG_EXAMPLES: Final = frozenset({"HumanEval/47"})


class HumanEvalTask(CodeTask):
    r"""Fields `task_id`, `prompt`, `entry_point` and `test`, which defines `check(candidate)`.

    form: `chat`, `text` and `auto` ask for the whole function, and take a body alone as well, as recorded completions
    are; `few_shot_chat` does so after two examples as turns of a chat; `few_shot` is the prompt itself, which a base
    model continues (the data set has no examples). prompt: as of GSM8KTask, {question} is the function.
    What a model writes below its function to try it (`print`, `assert`) is no part of the program. Public tests are
    the examples (`>>>`) of the docstring whose results are plain values; 97 of the 164 problems have none.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.humaneval import HumanEvalTask
        >>> record = {
        ...     "task_id": "HumanEval/0",
        ...     "prompt": "def double(x):\n    'Double x.'\n",
        ...     "entry_point": "double",
        ...     "test": "def check(candidate):\n    assert candidate(2) == 4\n",
        ... }
        >>> _ = Path("humaneval.jsonl").write_text(json.dumps(record))
        >>> (problem,) = HumanEvalTask("humaneval.jsonl").problems()
        >>> problem.prompt.problem_id
        'HumanEval/0'
    """

    name = "humaneval"
    hub: ClassVar[Hub] = Hub("openai/openai_humaneval")

    def __init__(
        self,
        source: Source | None = None,
        *,
        prompt: Wording | None = None,
        form: Form = "chat",
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        limit: Count | None = None,
    ) -> None:
        shown = SHOWN if form == "few_shot_chat" else ASKING
        asking = shown.adapt("question", prompt=prompt, form=form)
        whole = OrBody(WithPreamble(Definitions(FencedProgram())))
        usual = CompletedProgram() if form == "few_shot" else whole
        super().__init__(source, asking=asking, program=program or usual, grader=grader, limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        name, prompt = text(record, "task_id"), text(record, "prompt")
        point, test = text(record, "entry_point"), text(record, "test")
        try:
            function = _function(prompt, point)
        except SyntaxError as error:
            raise DataError(f"the prompt is no Python ({error.msg} in line {error.lineno})") from None
        _checks(test)
        # The stub makes helpers of the prompt known to the tests; the function itself is the candidate's.
        reference = json.dumps(code_tests([f"check({point})"], f"{prompt}\n\n{test}", [point]))
        examples = [] if name in WRONG_EXAMPLES else _examples(ast.get_docstring(function) or "", point)
        public = code_tests(examples, prompt, [point])
        public["preamble"] = "\n".join(prompt.splitlines()[: _first_line(function) - 1]).strip()
        shown = prompt if self._asking.form == "few_shot" else prompt.strip()
        return Problem(self._asking.prompt(name, {"question": shown}, public), reference)


def _function(prompt: str, point: str) -> ast.FunctionDef:
    nodes = ast.iter_child_nodes(parse(prompt))
    found = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == point]
    if not found:
        raise DataError(f"the prompt defines no function {point!r}, its entry point")
    return found[-1]


def _checks(test: str) -> None:
    """DataError unless the tests are Python that defines `check`, without which nothing would be tested."""
    try:
        nodes = list(ast.iter_child_nodes(parse(test)))
    except SyntaxError as error:
        raise DataError(f"the test is no Python ({error.msg} in line {error.lineno})") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in nodes):
        raise DataError(
            f"the test {test!r:.80} defines no function 'check'; expected def check(candidate): …"
        )


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _examples(docstring: str, point: str) -> list[str]:
    """Assertions from the examples that call the function once and show a literal."""
    try:
        found = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return []
    return [f"assert {e.source.strip()} == {e.want.strip()}" for e in found if _shows_a_value(e, point)]


def _shows_a_value(example: doctest.Example, point: str) -> bool:
    try:
        call = next(ast.iter_child_nodes(parse(example.source.strip(), "eval")))
        ast.literal_eval(next(ast.iter_child_nodes(parse(example.want.strip(), "eval"))))
    except (SyntaxError, ValueError):
        return False
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == point
