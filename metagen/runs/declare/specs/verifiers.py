"""What definitions of verifiers hold that no parameter says."""

from __future__ import annotations

from metagen.runs.declare.specs.fields import EngineName
from metagen.runs.declare.specs.parts import PluginSpec, naming
from metagen.runs.declare.specs.values import MadeSpec, dataclass_model
from metagen.verifiers.reward import Tags

TagsSpec = dataclass_model(Tags, MadeSpec)


class PluginVerifierSpec(PluginSpec):
    """A verifier of another package."""

    uses = naming(engine="engines")
    engine: EngineName | None = None
