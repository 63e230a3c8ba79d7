"""Steps that generate: under a prompt of their own, or as a continuation of what is there."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Sequence, digest
from metagen.strategies.chain.step import ChainStep, Inputs, Output
from metagen.strategies.chain.template import Template


def posed(prefix: Sequence, *said: str, chat: bool = False) -> Sequence:
    """The beginning of an answer to what was `said` about the problem of `prefix`: its id and public data go along.

    said: by turns, the asker first. chat: as messages of user and assistant; else as one text, a line after the other.
    """
    given, public = prefix.prompt, prefix.prompt.public
    if chat:
        turns = tuple(Message("assistant" if i % 2 else "user", text) for i, text in enumerate(said))
        return Sequence(Prompt(given.problem_id, messages=turns, public=public))
    return Sequence(Prompt(given.problem_id, text="\n".join(said), public=public))


class Ask(ChainStep):
    r"""Asks a generator, or a strategy, under a prompt made of a template: `Ask(model, "{prompt}\nFirst, a plan:")`.

    Its places are steps, `{prompt}` (the problem in words) and `{prefix}`. chat: the prompt is a message of the user.
    """

    def __init__(self, generator: Generator, template: str, *, chat: bool = False) -> None:
        self.generator, self.template, self.chat = generator, Template(template), chat

    @property
    def needs(self) -> tuple[str, ...]:
        return self.template.places

    @property
    def fingerprint(self) -> str:
        return digest("ask", self.generator.fingerprint, self.template.text, str(self.chat)).hex()

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        asked = posed(inputs.prefix, self.template.fill(inputs.texts), chat=self.chat)
        (sequence,) = await self.generator.generate(asked, scope=scope)
        return Output(sequence.text, sequence)
