"""How a task asks: a chat message for models that follow instructions, worked examples for base models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from metagen.errors import InputError
from metagen.sequence import Message, Prompt, Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule

#: `chat`: zero-shot, one message of the user. `few_shot`: a text with worked examples that the model continues.
Form = Literal["chat", "few_shot"]


@dataclass(frozen=True, slots=True)
class Template:
    """The wording of a task. Fields such as {question} are filled in from a problem, all at once.

    chat: the user's message. example: one problem of the few-shot text, which ends where the solution begins.
    shots: values of the fields for each example, and its `solution`. stop: what follows on a solution in the few-shot
    text; a generator that ends there saves tokens, and what comes after it is never read.
    """

    chat: str
    example: str
    shots: tuple[Mapping[str, str], ...]
    stop: str

    def prompt(
        self, name: str, form: Form, values: Mapping[str, str], public: Mapping[str, Any] | None = None
    ) -> Prompt:
        """The prompt of a problem with this id."""
        if form == "chat":
            return Prompt(name, messages=(Message("user", _filled(self.chat, values)),), public=public or {})
        shots = [_filled(self.example, shot) + shot["solution"] for shot in self.shots]
        separator = "\n\n"
        return Prompt(name, text=separator.join([*shots, _filled(self.example, values)]), public=public or {})

    def with_shots(self, shots: Ordered[Mapping[str, str]] | None) -> Template:
        """With other examples; None keeps these."""
        if shots is None:
            return self
        wanted = {*re.findall(r"{(\w+)}", self.example), "solution"}
        for shot in shots:
            if missing := sorted(wanted - set(shot)):
                raise InputError(
                    f"shots: an example has no {missing[0]!r}; expected {', '.join(sorted(wanted))}"
                )
        return replace(self, shots=tuple(shots))


def form_of(form: str) -> Form:
    """A known form; else InputError."""
    if form not in get_args(Form):
        raise InputError(f"form={form!r}: expected one of {', '.join(get_args(Form))}")
    return form  # type: ignore[return-value]  # it has just been looked up


class Before(AnswerRule):
    """Reads by another rule what comes before `stop`: a base model goes on with a next problem of its own."""

    def __init__(self, rule: AnswerRule, stop: str) -> None:
        self._rule, self._stop = rule, stop

    @property
    def fingerprint(self) -> str:
        return digest("before", self._rule.fingerprint, self._stop).hex()

    async def read(self, sequences: Ordered[Sequence]) -> list[Answer]:
        return await self._rule.read([before(s, self._stop) for s in sequences])

    async def key(self, answer: str) -> str | None:
        return await self._rule.key(answer)


def before(sequence: Sequence, stop: str) -> Sequence:
    """The sequence as if it had been stopped at the first `stop`."""
    head, found, _ = sequence.text.partition(stop)
    if not found:
        return sequence
    return Sequence(sequence.prompt, head, logprob=None, finish="stop")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """One pass: what stands in braces inside of a value is left as it is."""
    return re.sub(r"{(\w+)}", lambda match: values.get(match[1], match[0]), template)
