"""An experiment as a value: one pydantic model for each kind of part."""

from metagen.experiments.specs.engines import LocalSpec, OpenAISpec, TorchSpec, VLLMSpec
from metagen.experiments.specs.executor import ExecutorSpec, PoolSpec
from metagen.experiments.specs.experiment import (
    SECTIONS,
    UNIONS,
    AllocationSpec,
    BudgetSpec,
    Experiment,
    GridSpec,
)
from metagen.experiments.specs.fields import Context, Expects
from metagen.experiments.specs.generators import EngineGeneratorSpec, PluginGeneratorSpec, ReplaySpec
from metagen.experiments.specs.parts import PartSpec, PluginSpec, Spec
from metagen.experiments.specs.strategies import (
    ByDifficultySpec,
    OptionSpec,
    PlainStrategySpec,
    PluginStrategySpec,
    ScoredStrategySpec,
)
from metagen.experiments.specs.tasks import ArithmeticSpec, JsonlSpec
from metagen.experiments.specs.verifiers import (
    CalibratedSpec,
    ConstraintMassSpec,
    EnsembleSpec,
    OrmSpec,
    PluginVerifierSpec,
    PrmSpec,
    RecordedSpec,
    WithThoughtSpec,
)

__all__ = [
    "SECTIONS",
    "UNIONS",
    "AllocationSpec",
    "ArithmeticSpec",
    "BudgetSpec",
    "ByDifficultySpec",
    "CalibratedSpec",
    "ConstraintMassSpec",
    "Context",
    "EngineGeneratorSpec",
    "EnsembleSpec",
    "ExecutorSpec",
    "Expects",
    "Experiment",
    "GridSpec",
    "JsonlSpec",
    "LocalSpec",
    "OpenAISpec",
    "OptionSpec",
    "OrmSpec",
    "PartSpec",
    "PlainStrategySpec",
    "PluginGeneratorSpec",
    "PluginSpec",
    "PluginStrategySpec",
    "PluginVerifierSpec",
    "PoolSpec",
    "PrmSpec",
    "RecordedSpec",
    "ReplaySpec",
    "ScoredStrategySpec",
    "Spec",
    "TorchSpec",
    "VLLMSpec",
    "WithThoughtSpec",
]
