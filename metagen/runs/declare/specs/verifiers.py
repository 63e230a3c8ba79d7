"""Verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from metagen.runs.declare.specs.fields import (
    Context,
    EngineName,
    GeneratorName,
    Labels,
    VerifierName,
    distinct,
    some,
)
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, Spec, naming
from metagen.values import Amount, Count, Expects, Quantity, Size, Switch, Text
from metagen.verifiers.published import LAYOUTS
from metagen.verifiers.reward import Aggregation, Tags

LayoutName = Annotated[Literal[*LAYOUTS], Expects(f"one of the layouts {', '.join(LAYOUTS)}")]  # type: ignore[valid-type]  # the names of a table
Delimiter = Annotated[str, Field(min_length=1), Expects("the text that ends a step")]


class TagsSpec(Spec):
    """The tokens by which a reward model speaks; by default those that its config.json names."""

    tag: Text
    positive: Text
    negative: Text
    delimiter: Text = "\n"

    @property
    def tags(self) -> Tags:
        return Tags(**self.model_dump())


class OrmSpec(PartSpec):
    """An outcome reward model. layout: by default, what its config.json names."""

    uses = naming(engine="engines")
    by_hand = frozenset({"tags"})
    kind: Literal["orm"]
    engine: EngineName
    tags: TagsSpec | None = None
    layout: LayoutName | None = None


class PrmSpec(PartSpec):
    """A process reward model; `aggregation` makes one value of those of the steps.

    layout: by default, what its config.json names. delimiter: what ends a step, if not what the layout has.
    """

    uses = naming(engine="engines")
    by_hand = frozenset({"tags"})
    kind: Literal["prm"]
    engine: EngineName
    tags: TagsSpec | None = None
    layout: LayoutName | None = None
    delimiter: Delimiter | None = None
    aggregation: Aggregation = "last"


class ImplicitSpec(PartSpec):
    """A process reward that is the log-ratio of two language models."""

    uses = naming(engine="engines", reference="engines")
    kind: Literal["implicit"]
    engine: EngineName
    reference: EngineName
    beta: Annotated[float, Field(gt=0), Expects("a number > 0")]
    delimiter: Delimiter = "\n"
    cumulative: Switch = False
    aggregation: Aggregation = "last"


class OracleSpec(PartSpec):
    """The task's grader as a verifier: for upper bounds."""

    kind: Literal["oracle"]


class ConstraintMassSpec(PartSpec):
    """What masks left of a sample, whose generator keeps `log_mass`."""

    kind: Literal["constraint_mass"]


class RecordedSpec(PartSpec):
    """Scores that were recorded with a pool, under `scores.NAME` of the generator's fields."""

    kind: Literal["recorded"]
    score: Text

    def options(self) -> dict[str, Any]:
        return {"name": self.score}


class ExamplesSpec(PartSpec):
    """The share of the examples that a program of the embedded task passes, run by its own interpreter."""

    kind: Literal["examples"]


class PublicTestsSpec(PartSpec):
    """The share of a problem's public tests that a program passes, in a sandbox; with words on what failed."""

    kind: Literal["public_tests"]
    #: Of one execution: seconds of wall clock, and bytes.
    wall: Annotated[float, Field(gt=0), Expects("a number of seconds > 0")] | None = None
    memory: Size | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name in ("wall", "memory") if (value := getattr(self, name)) is not None}
        if not given:
            return {}
        from metagen.verifiers.code.limits import Limits

        return {"limits": Limits(**given)}


class DualAgreementSpec(PartSpec):
    """CodeT: programs and tests that a generator writes vouch for each other.

    n: samples of tests; most: tests. rule: a consensus set is worth |programs| · |tests|, or √|programs| · |tests|.
    """

    uses = naming(generator="generators")
    kind: Literal["dual_agreement"]
    generator: GeneratorName
    n: Count = 8
    most: Count = 64
    rule: Literal["product", "sqrt"] = "product"


class WordingSpec(PartSpec):
    """What judges are asked, in other words than their own, and how they come to a verdict.

    engine, or generator: who is asked; a generator only writes. by: `labels` reads the labels' probabilities,
    `samples` the verdicts in so many written answers; `auto` takes the labels where the engine tells them.
    """

    uses = naming(engine="engines", generator="generators")
    engine: EngineName | None = None
    generator: GeneratorName | None = None
    by: Literal["auto", "labels", "samples"] = "auto"
    samples: Count | None = None
    template: Text | None = None
    labels: Labels | None = None
    cue: Text | None = None
    join: Text | None = None
    chat: Switch | None = None
    #: Written before the verdict, which is averaged over them.
    critiques: Amount = 0
    temperature: Annotated[float, Field(ge=0), Expects("a number ≥ 0 (0 is greedy)")] = 1.0
    max_tokens: Count | None = None
    normalise: Switch = True

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if value is not None}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.engine is None) == (self.generator is None):
            raise ValueError("expected engine, or generator: one of both")
        return self


class JudgeSpec(WordingSpec):
    """A generative verifier: the probability of a label, or a rating from 1 to 5."""

    kind: Literal["judge"]
    ask: Literal["correct", "rubric"] = "correct"


class TournamentSpec(WordingSpec):
    """Candidates compared in pairs, in both orders."""

    kind: Literal["tournament"]
    meetings: Count | None = None
    merge: Literal["mean", "log-odds"] = "mean"
    strengths: Literal["win_rate", "bradley_terry"] = "win_rate"


class EnsembleSpec(PartSpec):
    """Several verifiers as one."""

    uses = naming(members="verifiers")
    kind: Literal["ensemble"]
    members: Annotated[tuple[VerifierName, ...], AfterValidator(some), AfterValidator(distinct)]
    combine: Literal["mean", "worst", "uncertainty", "lower-bound"] = "mean"
    penalty: Quantity = 1.0
    weights: tuple[Quantity, ...] | None = None


class WithThoughtSpec(PartSpec):
    """Another verifier that is shown the thought before the answer as well."""

    uses = naming(verifier="verifiers")
    kind: Literal["with_thought"]
    verifier: VerifierName


def _points(path: str, info: ValidationInfo) -> str:
    """The file itself, or the table of samples of a run's directory, as an absolute path."""
    base = info.context.base if isinstance(info.context, Context) else Path()
    given = (base / Path(path).expanduser()).resolve()
    file = given / "candidates.parquet" if given.is_dir() else given
    if not file.is_file():
        raise ValueError(
            f"there is no file {str(file)!r}; expected the directory of a finished run with pools, or a file, relative "
            "to the experiment file"
        )
    return str(file)


class CalibratedSpec(PartSpec):
    """A verifier whose scores are mapped monotonically.

    Either by what is given, p ↦ σ(logit(p) / temperature + bias), or by what is fitted on `points`: samples of other
    problems, of a run or in a file, with their scores and whether they are right. fit: a temperature with a bias, or an
    isotonic map. score: what the points call the score; by default the name of the verifier.
    """

    uses = naming(verifier="verifiers")
    kind: Literal["calibrated"]
    verifier: VerifierName
    temperature: Annotated[float, Field(gt=0), Expects("a number > 0")] = 1.0
    bias: Annotated[float, Expects("a number")] = 0.0
    points: Annotated[str, Expects("the path of a run or a file"), AfterValidator(_points)] | None = None
    fit: Literal["temperature", "isotonic"] = "temperature"
    score: Text | None = None
    steps: Switch = False

    def options(self) -> dict[str, Any]:
        given = super().options()
        names = ("temperature", "bias") if self.points is None else ("points", "fit")
        unused = {"temperature", "bias", "points", "fit", "score"}.difference(names)
        kept = {name: value for name, value in given.items() if name not in unused}
        return kept if self.points is None else kept | {"score": self.score or self.verifier}

    @model_validator(mode="after")
    def _given_or_fitted(self) -> Self:
        without = ("fit", "score") if self.points is None else ("temperature", "bias")
        # Not model_fields_set: the file that a run writes has the defaults too.
        if odd := [name for name in without if getattr(self, name) != type(self).model_fields[name].default]:
            needs = "needs points to fit" if self.points is None else "is fitted on the points"
            raise ValueError(f"{odd[0]} {needs}; give points, or a temperature and a bias")
        return self


class PluginVerifierSpec(PluginSpec):
    """A verifier of another package."""

    uses = naming(engine="engines")
    engine: EngineName | None = None
