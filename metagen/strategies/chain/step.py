"""What a chain is made of: steps that read the outputs of others by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metagen.border import Part
from metagen.parts import fingerprint
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.verifiers.generative.question import in_words

#: Names that every step may read: what is asked, in words, and what has been written of the answer so far.
PROMPT: Final = "prompt"
PREFIX: Final = "prefix"


@dataclass(frozen=True, slots=True)
class Output:
    """What a step has made. text: what `{name}` stands for. sequence: of a generator. value: of a tool, as JSON.

    failed: it could not be done, and the text says at most why. No answer to the problem: it is never finished.
    """

    text: str
    sequence: Sequence | None = None
    value: Any = None
    failed: bool = False


class Inputs:
    """What one step reads: the outputs that it needs, and the problem."""

    def __init__(self, prefix: Sequence, outputs: Mapping[str, Output]) -> None:
        self.prefix, self.outputs = prefix, outputs
        self.texts: dict[str, str] = {PROMPT: in_words(prefix.prompt), PREFIX: prefix.text}
        self.texts |= {name: output.text for name, output in outputs.items()}

    def sequence(self, name: str) -> Sequence:
        """The output of a step as a completion of the problem, whatever prompt it was written under."""
        output = self.outputs[name]
        if output.sequence is not None:
            return output.sequence.rooted(self.prefix)
        return self.prefix.extend(output.text, finish=None if output.failed else "eos")


class ChainStep(Part, ABC):
    """A step of a chain: configuration only. Its place in the chain has a scope of its own."""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Names of what it reads: steps, `prompt` and `prefix`."""

    @property
    def fingerprint(self) -> str:
        """Names the step: equal fingerprints promise equal outputs."""
        return fingerprint(self)

    def fault(self, steps: Mapping[str, ChainStep]) -> str | None:
        """What can be seen wrong among the steps of a chain, beyond names that are missing; None for nothing."""
        return None

    @abstractmethod
    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        """Make the output."""
