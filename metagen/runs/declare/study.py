"""The section `study:` of an experiment file, as values. Analyses that are not given are left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from metagen.cost import HARDWARE, Hardware
from metagen.runs.declare.source import Path as Place
from metagen.runs.declare.source import nearest
from metagen.runs.declare.specs import Expects, Experiment, Spec
from metagen.runs.declare.specs.fields import (
    EngineName,
    GeneratorName,
    Name,
    StrategyName,
    VerifierName,
    distinct,
    some,
)
from metagen.values import Count, Integer, Positive, Quantity, Switch

#: samples: candidates or leaves; calls but those of verifiers, where a strategy has no n or may end early. generated:
#: tokens written. tokens: those and the prefilled, verifiers' included. flops (exact), flops_2n, money: all of it.
#: seconds: of calls, as measured; not of pools. `roofline:NAME` and `latency:NAME`: modelled seconds of work, and of
#: waiting with unlimited replicas, on the accelerator NAME.
COSTS: Final = ("samples", "generated", "tokens", "flops", "flops_2n", "money", "seconds")
MODELLED: Final = ("roofline", "latency")
#: What a setting changes: a field of the strategy, or `generator.FIELD`; {} is as the file has it.
Setting = dict[str, Any]
GENERATOR: Final = "generator."
#: Tokens that were really computed; of what ran by itself alone.
PHYSICAL: Final = "physical"


def _cost(name: str) -> str:
    if name in (*COSTS, PHYSICAL) or name.partition(":")[0] in MODELLED:
        return name
    modelled = ", ".join(f"{kind}:NAME" for kind in MODELLED)
    raise ValueError(
        f"expected one of {', '.join(COSTS)}, {PHYSICAL}, {modelled}{nearest(name, (*COSTS, PHYSICAL))}"
    )


def _hardware(name: str) -> str:
    if name not in HARDWARE:
        raise ValueError(f"expected one of {', '.join(HARDWARE)}{nearest(name, HARDWARE)}")
    return name


def _ascending(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(values))


Cost = Annotated[str, AfterValidator(_cost)]
HardwareName = Annotated[str, Expects("the name of an accelerator"), AfterValidator(_hardware)]
Budgets = Annotated[
    tuple[Positive, ...], AfterValidator(some), AfterValidator(distinct), AfterValidator(_ascending)
]
Ladder = Annotated[
    tuple[Count, ...], AfterValidator(some), AfterValidator(distinct), AfterValidator(_ascending)
]
Models = Annotated[tuple[GeneratorName, ...], AfterValidator(some), AfterValidator(distinct)]
Data = Annotated[dict[str, Any], Expects("a mapping that is laid over task:")]


class AcceleratorSpec(Spec):
    """An accelerator for modelled costs. hardware: its name, in place of peak and bandwidth.

    batch: the number of sequences that it serves at a time. peak: its speed in FLOP/s. bandwidth: the speed of
    its memory in bytes/s.
    """

    hardware: HardwareName | None = None
    peak: Positive | None = None
    bandwidth: Positive | None = None
    batch: Count = 1

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        own = [self.peak is not None, self.bandwidth is not None]
        if (self.hardware is None) != all(own) or (self.hardware is not None and any(own)):
            raise ValueError("expected hardware, or both peak (FLOP/s) and bandwidth (bytes/s)")
        return self

    def to_hardware(self, name: str) -> Hardware:
        """The hardware; what has no name of its own bears that of its definition."""
        if self.hardware is not None:
            return Hardware.find(self.hardware)
        return Hardware(name, self.peak or 0.0, self.bandwidth or 0.0)


class SizeSpec(Spec):
    """The size of a model with recorded samples. parameters: N of the 2N rule. tokens: the mean length of a sample."""

    parameters: Positive
    tokens: Positive | None = None


class DevelopmentSpec(Spec):
    """The tuning of strategies: all on the same problems, with at most `trials` settings each.

    task: the fields of `task:` that differ for development problems, such as `{split: validation, seed: 70}`. share: in
    place of `task`, the share of the problems that are used for tuning and not for the test. trials: the largest number
    of settings of a strategy. n: a setting is judged by its mean accuracy over the strategy's n up to this one.
    settings: by strategy, the settings to try, such as `[{}, {generator.temperature: 0.7}]`; `{}` changes nothing, and
    the first wins a tie.
    """

    task: Data | None = None
    share: Annotated[float, Field(gt=0, lt=1), Expects("a number in (0, 1)")] | None = None
    trials: Count = 3
    n: Count = 16
    settings: Annotated[
        dict[StrategyName, Annotated[tuple[Setting, ...], AfterValidator(some)]], AfterValidator(some)
    ]

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if (self.task is None) == (self.share is None):
            raise ValueError(
                "expected task (other problems, such as {split: validation, seed: 70}) or share (of these)"
            )
        return self


class LimitSpec(Spec):
    """Samples for the limits of voting: an independent pool of n, drawn with another seed, or half of each pool.

    n: the number of samples of the independent pool. seed: the seed of that pool. halves: half of each pool takes the
    place of the independent pool.
    """

    n: Count | None = None
    seed: Integer = 1
    halves: Switch = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.halves == (self.n is not None):
            raise ValueError("expected n (an independent pool of so many samples) or halves: true")
        if self.halves and self.seed != type(self).model_fields["seed"].default:
            raise ValueError(
                f"seed = {self.seed} is that of an independent pool; with halves nothing is drawn; leave it out"
            )
        return self


class TemperatureSpec(Spec):
    """Decoding against coverage, vote and diversity: at several temperatures, and with several adapters.

    models: the generators to measure. values: temperatures. adapters: fields of the generator that differ, such as
    `{top_p: 0.9}`. engines: by generator, engines in place of its own, such as a model tilted token by token; the
    divergence of each from the model is measured. n: the number of samples of each setting. task: the fields of `task:`
    that differ.
    """

    models: Models
    values: Annotated[tuple[Quantity, ...], AfterValidator(some), AfterValidator(distinct)]
    adapters: tuple[Setting, ...] = ()
    engines: dict[GeneratorName, Annotated[tuple[EngineName, ...], AfterValidator(some)]] = Field(default={})
    n: Count
    task: Data | None = None

    def settings_of(self, model: str) -> list[tuple[Place, Setting]]:
        """The settings of a model, each with its place in this section."""
        return [
            *((("values", at), {"temperature": value}) for at, value in enumerate(self.values)),
            *((("adapters", at), setting) for at, setting in enumerate(self.adapters)),
            *(
                (("engines", model, at), {"engine": one})
                for at, one in enumerate(self.engines.get(model, ()))
            ),
        ]


class SplittingSpec(Spec):
    """Compute split between generating and verifying: n samples, each verified with k critiques.

    models: the generators to measure. aggregate: the rule that picks an answer among the samples. critiques:
    for each k, the verifier with k critiques. n: numbers of samples. cost_of_critique: the cost of one critique
    as a share of the cost of a sample, for pools that do not record it.
    """

    models: Models
    aggregate: Literal["weighted", "best_of_n"] = "weighted"
    critiques: Annotated[
        dict[Annotated[int, Field(ge=0), Expects("an integer ≥ 0")], VerifierName], AfterValidator(some)
    ]
    n: Ladder
    cost_of_critique: Quantity | None = None


class AlignmentSpec(Spec):
    """Reward against KL. models: the generators to measure. proxy: the reward that chooses among samples.

    gold: the reward that counts. enumerable: adds toy models with exact figures.
    """

    models: Models
    proxy: VerifierName | None = None
    gold: Annotated[str, Expects("correct, or the name of a verifier")] = "correct"
    enumerable: Switch = False


class StudySpec(Spec):
    """The questions of a study, beyond its experiment. budgets: by cost, amounts per problem to compare strategies at.

    baselines: adds greedy decoding and one tuned sample for each model, if the file has none. accelerators: by name,
    hardware for modelled costs. sizes: by generator, sizes of models with recorded samples.
    """

    baselines: Switch = True
    budgets: dict[Cost, Budgets] = Field(default={})
    accelerators: dict[Name, AcceleratorSpec] = Field(default={})
    sizes: dict[GeneratorName, SizeSpec] = Field(default={})
    development: DevelopmentSpec | None = None
    limit: LimitSpec | None = None
    temperature: TemperatureSpec | None = None
    splitting: SplittingSpec | None = None
    alignment: AlignmentSpec | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """A study as its file describes it. base: where relative paths of settings begin."""

    experiment: Experiment
    spec: StudySpec
    base: Path
