"""An experiment as a value: one pydantic model for each kind of part."""

from metagen.experiments.specs.definition import Definition, model_of
from metagen.experiments.specs.engines import LocalSpec, OpenAISpec, TorchSpec, VLLMSpec
from metagen.experiments.specs.executor import ExecutorSpec, PoolSpec
from metagen.experiments.specs.experiment import (
    SECTIONS,
    AllocationSpec,
    BudgetSpec,
    Experiment,
    GridSpec,
)
from metagen.experiments.specs.fields import Context
from metagen.experiments.specs.generators import EngineGeneratorSpec, PluginGeneratorSpec, ReplaySpec
from metagen.experiments.specs.parts import PartSpec, PluginSpec, Spec
from metagen.experiments.specs.strategies import (
    ByDifficultySpec,
    OptionSpec,
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
from metagen.values import Expects

__all__ = [
    "SECTIONS",
    "AllocationSpec",
    "ArithmeticSpec",
    "BudgetSpec",
    "ByDifficultySpec",
    "CalibratedSpec",
    "ConstraintMassSpec",
    "Context",
    "Definition",
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
    "PluginGeneratorSpec",
    "PluginSpec",
    "PluginVerifierSpec",
    "PoolSpec",
    "PrmSpec",
    "RecordedSpec",
    "ReplaySpec",
    "Spec",
    "TorchSpec",
    "VLLMSpec",
    "WithThoughtSpec",
    "model_of",
]
