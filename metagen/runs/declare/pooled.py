"""A task as far as a pool of recorded samples goes."""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from metagen.errors import ConfigError, DataError
from metagen.generators.pool import PoolFile
from metagen.runs.declare import registry
from metagen.runs.declare.specs import Context, Definition, PartSpec
from metagen.runs.declare.subset import Subset
from metagen.sequence import Sequence
from metagen.tasks.base import Problem, Task
from metagen.tasks.recorded import verdicts_of
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import Rule, answer_rule
from metagen.verifiers.votes_only import VotesOnly


class PooledTask(Subset):
    """Of a task, the problems that a pool has samples of.

    task: its definition, as in an experiment file. path, fields, where: of the pool, as of `read_pool`. Where `fields`
    maps verdicts (`correct`) or counts (`successes`) these grade, in place of the task's own grader. answer, pattern:
    the rule that reads answers, in place of the task's own, as of JsonlTask; it grades too, where the task compares
    answers with references and nothing else. Raises DataError if they have no problem in common. Raises ConfigError
    for a task that is none.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        path: str | Path,
        *,
        fields: Mapping[str, str] | None = None,
        where: Mapping[str, Any] | None = None,
        answer: Rule | None = None,
        pattern: str | None = None,
    ) -> None:
        try:
            spec = TypeAdapter(Annotated[PartSpec, Definition("task")]).validate_json(
                json.dumps(dict(task)), context=Context({}, Path())
            )
        except ValidationError as error:
            raise ConfigError(f"task={dict(task)!r:.80}: {error}") from None
        whole = registry.make("task", spec.kind, spec.options(), {})
        there = PoolFile(Path(path), fields, where)
        problems = [problem for problem in whole.problems() if problem.id in there]
        if not problems:
            raise DataError(f"the pool {str(path)!r} has no problem of the task {whole.name!r}")
        super().__init__(whole, problems)
        self.program = getattr(whole, "program", None)
        self._verdicts = not {"correct", "successes"}.isdisjoint(fields or {})
        self._rule = None if answer is None else answer_rule(answer, pattern=pattern)

    @property
    def answer(self) -> AnswerRule:
        rule = self._rule or self.task.answer
        return VotesOnly(rule) if self._verdicts else rule

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        if self._verdicts:
            return verdicts_of(sequences)
        if self._rule is not None and type(self.task).grade is Task.grade:
            return await Task.grade(self, problem, sequences)
        return await super().grade(problem, sequences)

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool] | None:
        return self.task.check_steps(problem, text, finished=finished)
