"""Steps that generate: under a prompt of their own, or as a continuation of what is there."""

from __future__ import annotations

from dataclasses import field

from metagen.errors import PromptError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.chain.step import PREFIX, PROMPT, ChainStep, Inputs, Output
from metagen.strategies.prompts import posed
from metagen.template import Template
from metagen.verifiers.generative.question import in_words


async def reply_to(
    prefix: Sequence, *said: str, generator: Generator, scope: Scope, chat: bool = False, start: int = 0
) -> Sequence:
    """What a generator replies, under `scope`, to what was said about the problem of `prefix` (`posed`).

    Raises PromptError where nothing is said.
    """
    task = prefix.prompt
    if not any(said):
        raise PromptError(
            f"the step {scope.path!r} asks nothing about problem {task.problem_id!r} ({in_words(task)!r:.60}): its "
            "template, filled, is empty; give it words of its own"
        )
    (reply,) = await generator.generate(Sequence(posed(task, *said, chat=chat)), start=start, scope=scope)
    return reply


@part
class Ask(ChainStep):
    r"""Asks a generator, or a strategy, under a prompt made of a template: `Ask(model, "{prompt}\nFirst, a plan:")`.

    Its places are steps, `{prompt}` (the problem in words) and `{prefix}`. chat: the prompt is a message of the user.
    Where other steps have written nothing to ask about, or more than the model's context holds, it fails: its text is
    empty, and as the result of the chain it is unfinished, and has no vote.
    """

    generator: Generator = field(kw_only=False)
    template: str = field(kw_only=False)
    chat: bool = False

    def __post_init__(self) -> None:
        self._template = Template(self.template)

    @property
    def needs(self) -> tuple[str, ...]:
        return self._template.places

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        said = self._template.fill(inputs.texts)
        try:
            sequence = await reply_to(
                inputs.prefix, said, generator=self.generator, scope=scope, chat=self.chat
            )
        except PromptError:
            if set(self.needs) <= {PROMPT, PREFIX}:
                raise
            return Output("", failed=True)
        return Output(sequence.text, sequence)
