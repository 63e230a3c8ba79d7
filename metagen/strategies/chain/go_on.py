"""A step that goes on where another ended, in the same sequence."""

from __future__ import annotations

from collections.abc import Mapping

from metagen.errors import UnsupportedError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import digest
from metagen.strategies.chain.step import ChainStep, Inputs, Output
from metagen.strategies.reopen import reopened
from metagen.template import Template


class Continue(ChainStep):
    r"""Continues the problem's own sequence, or that of the step `after`, with the text `cue` put at its end first.

    `Continue(model, "\nSo the answer is", after="thought")`. The cue may have places for steps. What had ended the
    sequence no longer does (`reopened`). The text of the output is what is new, the cue not included. Where the step
    `after` has failed, so does this one.
    """

    def __init__(self, generator: Generator, cue: str = "", *, after: str | None = None) -> None:
        if not generator.accepts_prefix and (cue or after is not None):
            raise UnsupportedError(
                f"{type(generator).__name__} starts from a prompt only and cannot go on after {after or cue!r}; "
                "use Ask with a template"
            )
        self.generator, self.cue, self.after = generator, Template(cue), after

    @property
    def needs(self) -> tuple[str, ...]:
        places = self.cue.places
        return places if self.after is None or self.after in places else (*places, self.after)

    @property
    def fingerprint(self) -> str:
        return digest("continue", self.generator.fingerprint, self.cue.text, self.after or "").hex()

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
        opened = reopened(base, self.cue.fill(inputs.texts))
        (sequence,) = await self.generator.generate(opened, scope=scope)
        return Output(sequence.text[len(opened.text) :], sequence)
