"""The experiment as a whole: which kinds there are, and the grid."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from metagen.runs.declare.specs.definition import Definition
from metagen.runs.declare.specs.executor import ExecutorSpec
from metagen.runs.declare.specs.fields import (
    FolderName,
    GeneratorName,
    Name,
    RunName,
    StrategyName,
    distinct,
    some,
)
from metagen.runs.declare.specs.limits import BudgetSpec
from metagen.runs.declare.specs.parts import PartSpec, Spec
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.values import Count, Integer

SECTIONS: Final = ("engines", "generators", "verifiers", "strategies")


EngineSpec = Annotated[PartSpec, Definition("engines")]
GeneratorSpec = Annotated[PartSpec, Definition("generators")]
VerifierSpec = Annotated[PartSpec, Definition("verifiers")]
AnyStrategySpec = Annotated[PartSpec, Definition("strategies")]
TaskSpec = Annotated[PartSpec, Definition("task")]


def _pairs(given: Any) -> Any:
    """The pairs, as tuples; ValueError unless each has two sides."""
    if not (isinstance(given, list | tuple) and given and all(_is_pair(one) for one in given)):
        raise ValueError("expected a list of [generator, strategy]")
    return tuple(map(tuple, given))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


Pairs = Annotated[
    tuple[tuple[GeneratorName, StrategyName], ...], AfterValidator(distinct), BeforeValidator(_pairs)
]


class GridSpec(Spec):
    """The configurations: every generator with every strategy, at every n. Without names, all that are defined.

    pairs: these generators with these strategies only. generators: their names, or `all`. strategies: their names, or
    `all`. n: for strategies that have one and do not give their own.
    """

    generators: Annotated[tuple[GeneratorName, ...], AfterValidator(some), AfterValidator(distinct)]
    strategies: Annotated[tuple[StrategyName, ...], AfterValidator(some), AfterValidator(distinct)]
    n: Annotated[tuple[Count, ...], AfterValidator(distinct)] = ()
    pairs: Pairs | None = None

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """Generators, each with its strategies."""
        return self.pairs or tuple(product(self.generators, self.strategies))

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        """Names beside pairs say the same: what is chosen but in no pair would not be run."""
        if self.pairs is not None:
            for what, chosen, used in (
                ("generators", self.generators, {g for g, _ in self.pairs}),
                ("strategies", self.strategies, {s for _, s in self.pairs}),
            ):
                if left := [name for name in chosen if name not in used] + sorted(used - set(chosen)):
                    raise ValueError(f"{what} and pairs differ in {left[0]!r}; give pairs alone, or no pairs")
        return self


def _check_divisible(total: BudgetSpec) -> BudgetSpec:
    if total.seconds is not None:
        raise ValueError("a deadline is not divided; give seconds under budget, for each problem")
    if not total.divisible:
        raise ValueError("expected at least one limit, such as {generated: 200000}")
    return total


class AllocationSpec(Spec):
    """The limit of each configuration, over all problems together.

    Equal shares; of these strategies larger ones where more is expected to be gained, going by the `first` samples of
    each problem and by what the problems of another run, in so many `groups`, gained from more. total: of all
    problems. strategies: those with larger shares where more is to be gained. held_out: the run on other problems
    that shares are learned from. first: samples that tell problems apart. groups: of problems that gain alike.
    """

    total: Annotated[BudgetSpec, AfterValidator(_check_divisible)]
    strategies: Annotated[tuple[StrategyName, ...], AfterValidator(distinct)] = ()
    held_out: RunName | None = None
    first: Count = 4
    groups: Count = 6

    @model_validator(mode="after")
    def _check_held_out(self) -> Self:
        if bool(self.strategies) != (self.held_out is not None):
            raise ValueError(
                "strategies and held_out go together: the run on other problems that these strategies' shares are "
                "learned from; without both, all shares are equal"
            )
        for name in () if self.strategies else ("first", "groups"):
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} = {value} is for shares by difficulty; give strategies and held_out, or leave {name} out"
                )
        if self.strategies and len(self.total.divisible) > 1:
            limits = ", ".join(self.total.divisible)
            raise ValueError(
                f"gains are compared by what they cost in one unit, total limits {limits}; keep one"
            )
        return self


class Experiment(Spec):
    """One experiment: what is asked, of what, how, and at which cost.

    budget: for each problem and configuration; when served, for each request. allocation: for each configuration,
    over all problems. cache: where runs share their records; each pays for all that it records itself by default.
    name: of the run. seed: what all draws come from. task: what is asked. engines: what runs models; only those that
    the grid needs are opened. generators: what writes. verifiers: what scores. strategies: how to answer. serve: how
    `metagen serve` serves them.
    """

    name: Name
    seed: Integer = 0
    task: TaskSpec
    engines: dict[Name, EngineSpec] = Field(default={})
    generators: Annotated[dict[Name, GeneratorSpec], AfterValidator(some)]
    verifiers: dict[Name, VerifierSpec] = Field(default={})
    strategies: Annotated[dict[Name, AnyStrategySpec], AfterValidator(some)]
    grid: GridSpec
    budget: BudgetSpec | None = None
    allocation: AllocationSpec | None = None
    executor: ExecutorSpec = ExecutorSpec()
    cache: FolderName | None = None
    serve: ServeSpec | None = None
