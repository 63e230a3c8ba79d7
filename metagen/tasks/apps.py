"""APPS: problems of contests and interviews, from introductory to competition (Hendrycks et al. 2021)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.contest import PREAMBLE, Call, ContestTask, lines, parse_json
from metagen.tasks.records import Hub, Record, field, question, text

_LEVELS: Final = {"introductory": 1, "interview": 2, "competition": 3}


class APPSTask(ContestTask):
    """Fields `problem_id`, `question`, `starter_code`, `difficulty` and `input_output`, JSON of inputs and outputs.

    With `fn_name` the inputs are arguments of that function, and a result may stand in a list; else they are standard
    input. Nothing of the tests is shown. Outputs are compared token by token, numbers within 1e-5; unlike the data
    set's own judge, in order. prompt, form, seconds, memory: as of ContestTask. Raises DataError as RecordTask does,
    also for a problem without tests.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.apps import APPSTask
        >>> record = {
        ...     "problem_id": 1,
        ...     "question": "Double x.",
        ...     "input_output": json.dumps({"inputs": ["2"],
        ...     "outputs": ["4"]}),
        ... }
        >>> _ = Path("apps.jsonl").write_text(json.dumps(record))
        >>> (problem,) = APPSTask("apps.jsonl").problems()
        >>> problem.prompt.problem_id
        'apps/1'
    """

    name = "apps"
    hub: ClassVar[Hub] = Hub("codeparrot/apps")

    def problem(self, record: Record, number: int) -> Problem:
        name = f"apps/{text(record, 'problem_id', 'id')}"
        tests = parse_json(field(record, "input_output"), "input_output")
        if not isinstance(tests, dict) or not all(
            isinstance(tests.get(k), list) for k in ("inputs", "outputs")
        ):
            raise DataError(f"input_output is {tests!r:.80}; expected inputs and outputs, lists")
        given, expected = tests["inputs"], tests["outputs"]
        if len(given) != len(expected):
            raise DataError(f"input_output has {len(given)} inputs and {len(expected)} outputs")
        asked, function = question(record, "question"), tests.get("fn_name")
        if function is not None:
            hidden = [_call(a, b) for a, b in zip(given, expected, strict=True)]
            starter = str(record.get("starter_code") or "")
            made = self.call_problem(name, asked, str(function), starter, [], hidden, nested=True)
        else:
            pairs = [
                (lines(a, "an input"), lines(b, "an output")) for a, b in zip(given, expected, strict=True)
            ]
            made = self.io_problem(
                name, asked, [], pairs, preamble=PREAMBLE, compare="tokens", tolerance=1e-5
            )
        return Problem(made.prompt, made.reference, _LEVELS.get(str(record.get("difficulty"))))


def _call(given: Any, expected: Any) -> Call:
    """One test. The data set's results stand in a list or not, and JSON has made texts of whole keys."""
    args = [_whole(given[0]), *given[1:]] if isinstance(given, list) and given else given or []
    if not isinstance(args, list):
        raise DataError(f"the arguments are {given!r:.80}; expected a list")
    wanted = [_whole(expected)]
    wanted += [_whole(expected[0])] if isinstance(expected, list) and expected else []
    return ", ".join(map(repr, args)), f"in {wanted!r}"


def _whole(value: Any) -> Any:
    if isinstance(value, dict) and all(key.lstrip("-").isdecimal() for key in value):
        return {int(key): v for key, v in value.items()}
    return value
