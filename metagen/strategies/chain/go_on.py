"""A step that goes on where another ended, in the same sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from metagen.errors import UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.strategies.chain.step import ChainStep, Inputs, Output
from metagen.strategies.reopen import reopened
from metagen.template import Template


@part
class Continue(ChainStep):
    r"""Continues the problem's own sequence, or that of the step `after`, with the text `cue` put at its end first.

    `Continue(model, "\nSo the answer is", after="thought")`. The cue may have places for steps. What had ended the
    sequence no longer does (`reopened`). The text of the output is what is new, the cue not included. Where the step
    `after` has failed, so does this one.
    """

    generator: Generator = field(kw_only=False)
    cue: str = field(default="", kw_only=False)
    after: str | None = None

    def __post_init__(self) -> None:
        if not self.generator.accepts_prefix and (self.cue or self.after is not None):
            raise UnsupportedError(
                f"{type(self.generator).__name__} starts from a prompt only and cannot go on after "
                f"{self.after or self.cue!r}; use Ask with a template"
            )
        self._cue = Template(self.cue)

    @property
    def needs(self) -> tuple[str, ...]:
        places = self._cue.places
        return places if self.after is None or self.after in places else (*places, self.after)

    def fault(self, steps: Mapping[str, ChainStep]) -> str | None:
        before = steps.get(self.after) if self.after is not None else None
        if before is None or hasattr(before, "generator"):
            return None
        return (
            f"goes on after {self.after!r}, which is {type(before).__name__} and writes no sequence; "
            f"name a step that generates, or put {{{self.after}}} into the cue"
        )

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        base = inputs.prefix if self.after is None else inputs.outputs[self.after].sequence
        if base is None:  # it has failed: that it generates, `fault` has seen to
            return Output("", failed=True)
        opened = reopened(base, self._cue.fill(inputs.texts))
        (sequence,) = await self.generator.generate(opened, scope=scope)
        return Output(sequence.text[len(opened.text) :], sequence)
