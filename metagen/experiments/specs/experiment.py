"""The experiment as a whole: which kinds there are, and the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from metagen.budget import Budget
from metagen.experiments import registry
from metagen.experiments.registry import Section
from metagen.experiments.specs.engines import OpenAISpec, TorchSpec, VLLMSpec
from metagen.experiments.specs.executor import ExecutorSpec
from metagen.experiments.specs.fields import (
    Count,
    Expects,
    FolderName,
    GeneratorName,
    Integer,
    Name,
    Quantity,
    RunName,
    StrategyName,
    Total,
    distinct,
    some,
)
from metagen.experiments.specs.generators import EngineGeneratorSpec, PluginGeneratorSpec, ReplaySpec
from metagen.experiments.specs.parts import PluginSpec, Spec
from metagen.experiments.specs.strategies import (
    AdaptiveConsistencySpec,
    BeamSpec,
    BestFirstSpec,
    BlockwiseSpec,
    BordaSpec,
    BudgetForcingSpec,
    ByDifficultySpec,
    ChainOfThoughtSpec,
    ConfidentSpec,
    DeepConfSpec,
    DepthFirstSpec,
    DirectSpec,
    EarlyStoppingSpec,
    GibbsSpec,
    KnockOutSpec,
    LeastToMostSpec,
    LengthControlSpec,
    LookaheadSpec,
    MBRSpec,
    MCTSSpec,
    MixtureSpec,
    ParticlesSpec,
    PlainStrategySpec,
    PluginStrategySpec,
    RebaseSpec,
    RefinementSpec,
    ReflexionSpec,
    RejectionSpec,
    ScoredStrategySpec,
    SelfRefineSpec,
    SoftBestSpec,
    SystemTwoAttentionSpec,
    TreefinementSpec,
    UniversalSpec,
    UntilSureSpec,
    VoteSpec,
)
from metagen.experiments.specs.tasks import (
    APPSSpec,
    ArithmeticSpec,
    CodeContestsSpec,
    CountdownSpec,
    CRUXEvalSpec,
    Game24Spec,
    JsonlSpec,
    LiveCodeBenchSpec,
    MBPPSpec,
    ProgramsSpec,
    PublicSpec,
    RecordedTaskSpec,
    SolutionsSpec,
    TableSpec,
)
from metagen.experiments.specs.verifiers import (
    CalibratedSpec,
    ConstraintMassSpec,
    DualAgreementSpec,
    EnsembleSpec,
    ExamplesSpec,
    ImplicitSpec,
    JudgeSpec,
    OracleSpec,
    OrmSpec,
    PluginVerifierSpec,
    PrmSpec,
    PublicTestsSpec,
    RecordedSpec,
    TournamentSpec,
    WithThoughtSpec,
)

SECTIONS: Final = ("engines", "generators", "verifiers", "strategies")


def _kind(section: Section, default: str | None = None) -> Callable[[Any], str | None]:
    """The tag of a definition: its kind, or `plugin`."""

    def tag(value: Any) -> str | None:
        kind = value.get("kind", default) if isinstance(value, Mapping) else getattr(value, "kind", None)
        if not isinstance(kind, str):
            return None
        return "plugin" if registry.external(section, kind) else kind

    return tag


EngineSpec = Annotated[
    Annotated[TorchSpec, Tag("torch")]
    | Annotated[VLLMSpec, Tag("vllm")]
    | Annotated[OpenAISpec, Tag("openai")]
    | Annotated[PluginSpec, Tag("plugin")],
    Discriminator(_kind("engines")),
]
GeneratorSpec = Annotated[
    Annotated[EngineGeneratorSpec, Tag("engine")]
    | Annotated[ReplaySpec, Tag("replay")]
    | Annotated[PluginGeneratorSpec, Tag("plugin")],
    Discriminator(_kind("generators", default="engine")),
]
VerifierSpec = Annotated[
    Annotated[PrmSpec, Tag("prm")]
    | Annotated[ImplicitSpec, Tag("implicit")]
    | Annotated[OrmSpec, Tag("orm")]
    | Annotated[OracleSpec, Tag("oracle")]
    | Annotated[RecordedSpec, Tag("recorded")]
    | Annotated[ConstraintMassSpec, Tag("constraint_mass")]
    | Annotated[ExamplesSpec, Tag("examples")]
    | Annotated[DualAgreementSpec, Tag("dual_agreement")]
    | Annotated[PublicTestsSpec, Tag("public_tests")]
    | Annotated[JudgeSpec, Tag("judge")]
    | Annotated[TournamentSpec, Tag("tournament")]
    | Annotated[EnsembleSpec, Tag("ensemble")]
    | Annotated[WithThoughtSpec, Tag("with_thought")]
    | Annotated[CalibratedSpec, Tag("calibrated")]
    | Annotated[PluginVerifierSpec, Tag("plugin")],
    Discriminator(_kind("verifiers")),
]
AnyStrategySpec = Annotated[
    Annotated[PlainStrategySpec, Tag("sample")]
    | Annotated[PlainStrategySpec, Tag("greedy")]
    | Annotated[VoteSpec, Tag("majority")]
    | Annotated[ScoredStrategySpec, Tag("best_of_n")]
    | Annotated[ScoredStrategySpec, Tag("weighted")]
    | Annotated[SoftBestSpec, Tag("soft_best_of_n")]
    | Annotated[BordaSpec, Tag("borda")]
    | Annotated[RejectionSpec, Tag("rejection")]
    | Annotated[MBRSpec, Tag("mbr")]
    | Annotated[UniversalSpec, Tag("universal")]
    | Annotated[KnockOutSpec, Tag("knockout")]
    | Annotated[MixtureSpec, Tag("mixture")]
    | Annotated[RefinementSpec, Tag("refinement")]
    | Annotated[SelfRefineSpec, Tag("self_refine")]
    | Annotated[ReflexionSpec, Tag("reflexion")]
    | Annotated[DirectSpec, Tag("direct")]
    | Annotated[ChainOfThoughtSpec, Tag("chain_of_thought")]
    | Annotated[BudgetForcingSpec, Tag("budget_forcing")]
    | Annotated[LengthControlSpec, Tag("length_control")]
    | Annotated[LeastToMostSpec, Tag("least_to_most")]
    | Annotated[SystemTwoAttentionSpec, Tag("system_two_attention")]
    | Annotated[AdaptiveConsistencySpec, Tag("adaptive_consistency")]
    | Annotated[EarlyStoppingSpec, Tag("esc")]
    | Annotated[UntilSureSpec, Tag("until_sure")]
    | Annotated[ConfidentSpec, Tag("confident")]
    | Annotated[DeepConfSpec, Tag("deepconf")]
    | Annotated[ByDifficultySpec, Tag("by_difficulty")]
    | Annotated[RebaseSpec, Tag("rebase")]
    | Annotated[RebaseSpec, Tag("async_rebase")]
    | Annotated[BeamSpec, Tag("beam")]
    | Annotated[BeamSpec, Tag("dvts")]
    | Annotated[BestFirstSpec, Tag("best_first")]
    | Annotated[DepthFirstSpec, Tag("depth_first")]
    | Annotated[MCTSSpec, Tag("mcts")]
    | Annotated[ParticlesSpec, Tag("particles")]
    | Annotated[GibbsSpec, Tag("gibbs")]
    | Annotated[BlockwiseSpec, Tag("blockwise")]
    | Annotated[LookaheadSpec, Tag("lookahead")]
    | Annotated[TreefinementSpec, Tag("treefinement")]
    | Annotated[PluginStrategySpec, Tag("plugin")],
    Discriminator(_kind("strategies")),
]
TaskSpec = Annotated[
    Annotated[ArithmeticSpec, Tag("arithmetic")]
    | Annotated[ProgramsSpec, Tag("programs")]
    | Annotated[CountdownSpec, Tag("countdown")]
    | Annotated[Game24Spec, Tag("game24")]
    | Annotated[JsonlSpec, Tag("jsonl")]
    | Annotated[TableSpec, Tag("table")]
    | Annotated[RecordedTaskSpec, Tag("recorded")]
    | Annotated[SolutionsSpec, Tag("gsm8k")]
    | Annotated[SolutionsSpec, Tag("math")]
    | Annotated[SolutionsSpec, Tag("aime")]
    | Annotated[PublicSpec, Tag("humaneval")]
    | Annotated[MBPPSpec, Tag("mbpp")]
    | Annotated[CRUXEvalSpec, Tag("cruxeval")]
    | Annotated[LiveCodeBenchSpec, Tag("livecodebench")]
    | Annotated[APPSSpec, Tag("apps")]
    | Annotated[CodeContestsSpec, Tag("code_contests")]
    | Annotated[PluginSpec, Tag("plugin")],
    Discriminator(_kind("task")),
]
UNIONS: Final[Mapping[Section, Any]] = {
    "engines": EngineSpec,
    "generators": GeneratorSpec,
    "verifiers": VerifierSpec,
    "strategies": AnyStrategySpec,
    "task": TaskSpec,
}


Pairs = Annotated[
    tuple[tuple[GeneratorName, StrategyName], ...],
    Field(min_length=1),
    Expects("a list of [generator, strategy]"),
    AfterValidator(distinct),
]


class GridSpec(Spec):
    """What is run: every generator with every strategy, at every n. Without names, all that are defined.

    pairs: these generators with these strategies only.
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
    def _paired(self) -> Self:
        """Names beside pairs say the same: what is chosen but in no pair would not be run."""
        if self.pairs is not None:
            for what, chosen, used in (
                ("generators", self.generators, {g for g, _ in self.pairs}),
                ("strategies", self.strategies, {s for _, s in self.pairs}),
            ):
                if left := [name for name in chosen if name not in used] + sorted(used - set(chosen)):
                    raise ValueError(f"{what} and pairs differ in {left[0]!r}; give pairs alone, or no pairs")
        return self


@dataclass(frozen=True, slots=True)
class BudgetSpec(Budget):
    """A Budget as read from outside."""

    generated: Total | None = None
    prefilled: Total | None = None
    calls: Total | None = None
    flops: Quantity | None = None
    money: Quantity | None = None
    seconds: Quantity | None = None


def _divided(total: BudgetSpec) -> BudgetSpec:
    if total.seconds is not None:
        raise ValueError("a deadline is not divided; give seconds under budget, for each problem")
    if not total.divisible:
        raise ValueError("expected at least one limit, such as {generated: 200000}")
    return total


class AllocationSpec(Spec):
    """What each configuration may spend on all problems together.

    Equal shares; of these strategies larger ones where more is expected to be gained, going by the `first` samples of
    each problem and by what the problems of another run, in so many `groups`, gained from more.
    """

    total: Annotated[BudgetSpec, AfterValidator(_divided)]
    strategies: Annotated[tuple[StrategyName, ...], AfterValidator(distinct)] = ()
    held_out: RunName | None = None
    first: Count = 4
    groups: Count = 6

    @model_validator(mode="after")
    def _learned(self) -> Self:
        if bool(self.strategies) != (self.held_out is not None):
            raise ValueError(
                "strategies and held_out go together: the run on other problems that these strategies' shares are "
                "learned from; without both, all shares are equal"
            )
        if self.strategies and len(self.total.divisible) > 1:
            limits = ", ".join(self.total.divisible)
            raise ValueError(
                f"gains are compared by what they cost in one unit, total limits {limits}; keep one"
            )
        return self


class Experiment(Spec):
    """One experiment: what is asked, of what, how, and at which cost.

    budget: for each problem and configuration. allocation: for each configuration, over all problems. cache: where runs
    share their records; each pays for all that it records itself by default.
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

    @model_validator(mode="after")
    def _on_one_machine(self) -> Self:
        if self.cache is not None and self.executor.shards is not None and self.executor.address is not None:
            raise ValueError(
                "cache and executor.shards with an address: drivers on other machines cannot share a file of SQLite; "
                "leave out one of them"
            )
        return self
