"""Tasks."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from metagen.runs.declare.specs.fields import FileName, FolderName, Pattern, RuleName
from metagen.runs.declare.specs.parts import PartSpec
from metagen.runs.declare.specs.prompts import PromptedSpec, PublicPromptSpec
from metagen.runs.declare.specs.values import MadeSpec, dataclass_model
from metagen.tasks.records import Hub
from metagen.tasks.template import SHOWN
from metagen.values import Text
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import answer_rule


class Game24Spec(PromptedSpec):
    """Puzzles of the Game of 24 from a JSONL file. limit: the first problems only."""

    places = ("question", "numbers", "target")
    path: FileName


class AnswersSpec(PartSpec):
    """How the answers of a task are read and told apart: by a rule's name, or by its name with options.

    percent: a number with a percent sign is its hundredth part, or the sign is dropped; of mathematical answers.
    """

    by_hand = frozenset({"answer", "percent", "pattern"})
    percent: Literal["hundredths", "dropped"] = "hundredths"
    pattern: Pattern | None = None
    answer: RuleName = "number"

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        return given | {"answer": _rule(self.answer, self.pattern, self.percent)}

    @field_validator("answer")
    @classmethod
    def _makes_a_rule(cls, answer: RuleName, info: ValidationInfo) -> RuleName:
        """Made once here, so that faults are found before anything runs."""
        _rule(answer, info.data.get("pattern"), info.data.get("percent", "hundredths"))
        return answer


def _rule(answer: RuleName, pattern: str | None, percent: str) -> AnswerRule:
    # What is usual is no option: only mathematics has it.
    return answer_rule(answer, pattern=pattern, percent=None if percent == "hundredths" else percent)


class JsonlSpec(PromptedSpec, AnswersSpec):
    """Problems from a JSONL file, one a line; the fields are those of JsonlTask."""

    open = True
    path: FileName
    fields: dict[Literal["id", "question", "answer", "level"], Text] = Field(default={})
    reference: Pattern | None = None


class RecordedTaskSpec(AnswersSpec):
    """The problems that a file of recorded samples tells of itself; graded by its verdicts, or by references.

    answer: the rule that reads answers. where: only records in which fields have these values.
    """

    path: FileName
    fields: dict[Literal["id", "question", "reference", "successes", "n"], Text] = Field(default={})
    where: dict[Text, Any] = Field(default={})
    answer: RuleName = "math"


class GradedSpec(PartSpec):
    """A task with a grader of its own. answer: the rule by which votes compare answers."""

    answer: RuleName | None = None

    @field_validator("answer")
    @classmethod
    def _makes_a_rule(cls, answer: RuleName | None) -> RuleName | None:
        if answer is not None:
            answer_rule(answer)
        return answer


class LMEvalSpec(GradedSpec):
    """A task of lm-eval. include_path: a directory of YAML files that define tasks."""

    include_path: FolderName | None = None


class LightevalSpec(GradedSpec):
    """A task of lighteval. custom_tasks: a Python file with a TASKS_TABLE."""

    custom_tasks: FileName | None = None
    answer: RuleName = "number"


class VerifiersSpec(GradedSpec):
    """The tasks of a taskset of verifiers."""

    answer: RuleName = "math"


HubSpec = dataclass_model(Hub, MadeSpec)


class SourceSpec(PartSpec):
    """A task whose problems come from a local file (`path`), or from a data set on the hub.

    path: the file. hub: the data set; one of both is given, or none where the task is published.
    """

    by_hand = frozenset({"path"})
    filled = frozenset({"source", "shots", "program", "grader"})
    path: FileName | None = None
    hub: HubSpec | None = None  # type: ignore[valid-type]  # it is made above

    def options(self) -> dict[str, Any]:
        # None is the default of most; where it is not, it was said.
        fields = type(self).model_fields
        given = {
            name: value
            for name, value in super().options().items()
            if value is not None or (name in fields and fields[name].get_default() is not None)
        }
        source = given.pop("hub", self.path)
        return given if source is None else given | {"source": source}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path is not None and self.hub is not None:
            raise ValueError("there are a path and a hub; give one of them")
        return self


class TableSpec(PromptedSpec, SourceSpec, AnswersSpec):
    """Problems from a Parquet, CSV or TSV file, one a row; the other fields are those of JsonlSpec."""

    by_hand = SourceSpec.by_hand | AnswersSpec.by_hand
    open = True
    fields: dict[Literal["id", "question", "answer", "level"], Text] = Field(default={})
    reference: Pattern | None = None

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if self.path is None and self.hub is None:
            raise ValueError("there is no source; give path, a file, or hub, a data set")
        return self


class PublicSpec(PublicPromptSpec, SourceSpec):
    """A public data set; without a source it is fetched from where it is published."""


class SolutionsSpec(PublicSpec):
    """A public data set whose answers a rule reads: mathematics, unless another rule is named."""

    answer: RuleName | None = None

    @field_validator("answer")
    @classmethod
    def _makes_a_rule(cls, answer: RuleName | None) -> RuleName | None:
        if answer is not None:
            answer_rule(answer)
        return answer


class ExamplesSpec(PublicPromptSpec):
    """A public data set whose published worked examples stand in a file. examples: the file."""

    examples: FileName | None = None

    @model_validator(mode="after")
    def _shown(self) -> Self:
        if self.examples is not None and self.form not in SHOWN:
            raise ValueError(
                f"form: {self.form} shows no examples; give few_shot or few_shot_chat, or leave examples out"
            )
        return self


class BBHSpec(ExamplesSpec, SolutionsSpec):
    """A sub-task of BIG-Bench Hard."""

    @model_validator(mode="after")
    def _has_examples(self) -> Self:
        if self.form in SHOWN and self.examples is None:
            raise ValueError(
                f"form: {self.form} shows worked examples; give examples, the file of the sub-task's, such as "
                "cot-prompts/word_sorting.txt of the data set's repository"
            )
        return self


class MBPPSpec(ExamplesSpec, SourceSpec):
    """MBPP."""

    places = ("question", "tests")


class CRUXEvalSpec(PublicPromptSpec, SourceSpec):
    """CRUXEval: predict the output of a function, or an input."""

    places = ("question", "code", "input", "output")


class ContestSpec(PromptedSpec, SourceSpec):
    """Problems of programming contests."""

    places = ("question", "how", "starter")
    form: Literal["chat", "text", "auto"] = "chat"
