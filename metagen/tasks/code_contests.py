"""CodeContests: problems of programming contests with generated tests (Li et al. 2022, AlphaCode)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from metagen.errors import DataError
from metagen.tasks.base import Problem
from metagen.tasks.code import Grader
from metagen.tasks.contest import ContestTask, Pairs, lines, parse_json
from metagen.tasks.records import Hub, Record, Source, question, text
from metagen.tasks.template import Form, Wording
from metagen.values import Count, Positive, Size, Switch
from metagen.verifiers.code.program import FencedProgram, ProgramRule


class CodeContestsTask(ContestTask):
    """Fields `name`, `description`, `public_tests`, `private_tests`, `generated_tests`, and the problem's limits.

    Tests are parallel lists `input` and `output`, or a list of pairs. Public tests are shown; all are hidden tests,
    of the generated ones none unless `generated`. Outputs are compared as by the data set's own judge: token by
    token, in either case of letters, numbers within 1e-5. seconds, memory: instead of `time_limit`, which was set for
    C++ as a rule, and `memory_limit_bytes`. prompt, form: as of ContestTask. generated: whether generated tests are
    hidden tests as well. Raises DataError as RecordTask does, also for problems that read files.
    """

    name = "code_contests"
    hub: ClassVar[Hub] = Hub("deepmind/code_contests")

    def __init__(
        self,
        source: Source | None = None,
        *,
        generated: Switch = True,
        prompt: Wording | None = None,
        form: Form = "chat",
        seconds: Positive | None = None,
        memory: Size | None = None,
        program: ProgramRule | None = None,
        grader: Grader | None = None,
        limit: Count | None = None,
    ) -> None:
        self._generated = generated
        rule = program or FencedProgram()
        super().__init__(
            source,
            prompt=prompt,
            form=form,
            seconds=seconds,
            memory=memory,
            program=rule,
            grader=grader,
            limit=limit,
        )

    def problem(self, record: Record, number: int) -> Problem:
        if record.get("input_file") or record.get("output_file"):
            raise DataError(
                "its programs read or write files, not standard input and output; remove the problem"
            )
        shown = _pairs(record, "public_tests")
        hidden = _pairs(record, "private_tests")
        hidden += _pairs(record, "generated_tests") if self._generated else []
        options: dict[str, Any] = {"compare": "tokens", "tolerance": 1e-5, "fold_case": True}
        if (seconds := _seconds(record.get("time_limit"))) is not None:
            options["seconds"] = seconds
        if memory := record.get("memory_limit_bytes"):
            options["memory"] = int(memory)
        name, asked = text(record, "name"), question(record, "description")
        return self.io_problem(name, asked, shown, hidden, **options)


def _pairs(record: Record, name: str) -> Pairs:
    """The tests under one name; none where the field is missing or null."""
    found = parse_json(record.get(name), name) or []
    if isinstance(found, Mapping):
        given, expected = found.get("input"), found.get("output")
        if not (isinstance(given, list) and isinstance(expected, list) and len(given) == len(expected)):
            raise DataError(f"{name} is {found!r:.80}; expected lists input and output, of one length")
    elif isinstance(found, list) and all(isinstance(case, Mapping) for case in found):
        given, expected = ([case.get(part) for case in found] for part in ("input", "output"))
    else:
        raise DataError(f"{name} is {found!r:.80}; expected lists input and output")
    inputs, outputs = ([lines(text, f"a test of {name}") for text in texts] for texts in (given, expected))
    return list(zip(inputs, outputs, strict=True))


def _seconds(value: Any) -> float | None:
    """A time limit: a number, or `seconds` and `nanos`."""
    if isinstance(value, Mapping):
        return float(value.get("seconds") or 0) + float(value.get("nanos") or 0) / 1e9 or None
    return float(value) if isinstance(value, int | float) and value else None
