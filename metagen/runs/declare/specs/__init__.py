"""An experiment as a value: one pydantic model for each kind of part."""

from metagen.runs.declare.specs.definition import Definition, EngineGeneratorSpec, model_of
from metagen.runs.declare.specs.engines import AdapterSpec, LocalSpec, OpenAISpec, VLLMSpec
from metagen.runs.declare.specs.executor import ExecutorSpec, PoolSpec
from metagen.runs.declare.specs.experiment import SECTIONS, AllocationSpec, Experiment, GridSpec
from metagen.runs.declare.specs.fields import Context
from metagen.runs.declare.specs.generators import PluginGeneratorSpec, ReplaySpec
from metagen.runs.declare.specs.limits import BudgetSpec
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, Spec
from metagen.runs.declare.specs.strategies import OptionSpec
from metagen.runs.declare.specs.tasks import JsonlSpec
from metagen.runs.declare.specs.verifiers import PluginVerifierSpec
from metagen.values import Expects

__all__ = [
    "SECTIONS",
    "AdapterSpec",
    "AllocationSpec",
    "BudgetSpec",
    "Context",
    "Definition",
    "EngineGeneratorSpec",
    "ExecutorSpec",
    "Expects",
    "Experiment",
    "GridSpec",
    "JsonlSpec",
    "LocalSpec",
    "OpenAISpec",
    "OptionSpec",
    "PartSpec",
    "PluginGeneratorSpec",
    "PluginSpec",
    "PluginVerifierSpec",
    "PoolSpec",
    "ReplaySpec",
    "Spec",
    "VLLMSpec",
    "model_of",
]
