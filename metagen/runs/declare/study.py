"""The section `study:` of an experiment file, as values. What is not given is not done."""

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

#: samples: candidates or leaves. generated: tokens written. tokens: those and the prefilled, verifiers' included.
#: flops (exact), flops_2n, money: all of it. seconds: of calls, as measured; not of pools. `roofline:NAME` and
#: `latency:NAME`: modelled seconds of work, and of waiting with unlimited replicas, on the accelerator NAME.
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
    """One that costs are modelled for. hardware: its name; or peak in FLOP/s and bandwidth in bytes/s.

    batch: sequences that it serves at a time. peak: FLOP/s. bandwidth: bytes/s.
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
    """Of a model whose samples were recorded elsewhere. parameters: N of the 2N rule; tokens: of a sample."""

    parameters: Positive
    tokens: Positive | None = None


class DevelopmentSpec(Spec):
    """Where strategies are tuned: every one on the same problems, with at most `trials` settings.

    task: laid over `task:`; share: of the problems of a task without splits, which are no test problems then. n:
    settings are judged by the mean over their n up to it. settings: of a strategy; ties go to the first. trials:
    settings of a strategy at most.
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
    """Samples that limits are judged by: an independent pool of n, drawn with another seed, or half of each pool.

    n: samples of the independent pool. seed: of that pool. halves: take half of each pool instead.
    """

    n: Count | None = None
    seed: Integer = 1
    halves: Switch = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.halves == (self.n is not None):
            raise ValueError("expected n (an independent pool of so many samples) or halves: true")
        return self


class TemperatureSpec(Spec):
    """Decoding against coverage, vote and diversity: at these temperatures, and with these adapters as written.

    adapters: what each changes in the generator, such as `{top_p: 0.9}`. engines: of a model, others that run in the
    place of its own, such as one tilted token by token; how far each goes from it is measured. models: generators.
    values: temperatures. n: samples of each. task: laid over `task:`.
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

    critiques: k → the verifier with so many. cost_of_critique: of one, where a pool does not tell, as a share of what
    a sample costs. models: generators. aggregate: how the samples are aggregated. n: numbers of samples.
    """

    models: Models
    aggregate: Literal["weighted", "best_of_n"] = "weighted"
    critiques: Annotated[
        dict[Annotated[int, Field(ge=0), Expects("an integer ≥ 0")], VerifierName], AfterValidator(some)
    ]
    n: Ladder
    cost_of_critique: Quantity | None = None


class AlignmentSpec(Spec):
    """Reward against KL. proxy: the reward that is chosen by; gold: what is meant. enumerable: exact toy models too.

    models: generators.
    """

    models: Models
    proxy: VerifierName | None = None
    gold: Annotated[str, Expects("correct, or the name of a verifier")] = "correct"
    enumerable: Switch = False


class StudySpec(Spec):
    """The questions of a study, beyond its experiment. budgets: by cost, where strategies are compared.

    baselines: every model is given greedy decoding and one sample, tuned, where the file has none. accelerators: by
    name, hardware for modelled costs. sizes: by generator, of models whose samples were recorded elsewhere.
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
