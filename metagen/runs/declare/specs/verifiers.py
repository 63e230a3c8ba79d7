"""What definitions of verifiers hold that no parameter says."""

from __future__ import annotations

from metagen.runs.declare.specs.fields import EngineName
from metagen.runs.declare.specs.parts import PluginSpec, ValueSpec, naming
from metagen.values import Text
from metagen.verifiers.reward import Tags


class TagsSpec(ValueSpec):
    """The tokens by which a reward model speaks; by default those that its config.json names."""

    tag: Text
    positive: Text
    negative: Text
    delimiter: Text = "\n"

    @property
    def value(self) -> Tags:
        return Tags(**self.model_dump())


class PluginVerifierSpec(PluginSpec):
    """A verifier of another package."""

    uses = naming(engine="engines")
    engine: EngineName | None = None
