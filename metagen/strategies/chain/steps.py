"""The steps of a chain: each reads the outputs of others by name, and generates, calls a tool or scores."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from metagen.border import Part
from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.strategies.prompts import pose
from metagen.strategies.reopen import reopen
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.template import Template
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.question import in_words

#: Names that every step may read: what is asked, in words, and what has been written of the answer so far.
PROMPT: Final = "prompt"
PREFIX: Final = "prefix"


@dataclass(frozen=True, slots=True)
class Output:
    """What a step has made. text: what `{name}` stands for. sequence: of a generator. value: of a tool, as JSON.

    failed: it could not be done, and the text says at most why. No answer to the problem: it is never finished.
    returned: the value is what a tool has returned, None included.
    """

    text: str
    sequence: Sequence | None = None
    value: Any = None
    failed: bool = False
    returned: bool = False


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
            return output.sequence.reroot(self.prefix)
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


async def reply_to(
    prefix: Sequence, *said: str, generator: Generator, scope: Scope, chat: bool = False, start: int = 0
) -> Sequence:
    """What a generator replies, under `scope`, to what was said about the problem of `prefix` (`pose`).

    Raises PromptError where nothing is said.
    """
    task = prefix.prompt
    if not any(said):
        raise PromptError(
            f"the step {scope.path!r} asks nothing about problem {task.problem_id!r} ({in_words(task)!r:.60}): its "
            "template, filled, is empty; give it words of its own"
        )
    (reply,) = await generator.generate(Sequence(pose(task, *said, chat=chat)), start=start, scope=scope)
    return reply


@part
class Ask(ChainStep):
    r"""Asks a generator, or a strategy, under a prompt made of a template: `Ask(model, "{prompt}\nFirst, a plan:")`.

    Its places are steps, `{prompt}` (the problem in words) and `{prefix}`. chat: the prompt is a message of the user.
    Where other steps have written nothing to ask about, or more than the model's context holds, it fails: its text is
    empty, and as the result of the chain it is unfinished, and has no vote. template: the prompt, with places for the
    problem and for outputs of other steps.
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
        score_text = self._template.fill(inputs.texts)
        try:
            sequence = await reply_to(
                inputs.prefix, score_text, generator=self.generator, scope=scope, chat=self.chat
            )
        except PromptError:
            if set(self.needs) <= {PROMPT, PREFIX}:
                raise
            return Output("", failed=True)
        return Output(sequence.text, sequence)


@part
class Continue(ChainStep):
    r"""Continues the problem's own sequence, or that of the step `after`, with the text `cue` put at its end first.

    `Continue(model, "\nSo the answer is", after="thought")`. The cue may have places for steps. What had ended the
    sequence no longer does (`reopen`). The text of the output is what is new, the cue not included. Where the step
    `after` has failed, so does this one. cue: the text that is put at the end first. after: the step whose sequence
    goes on. Raises UnsupportedError for a generator that starts from a prompt only.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.chain.steps import Continue
        >>> think = mg.FunctionGenerator(lambda prefix, seed, index: " 6 * 7.", name="think")
        >>> answer = mg.FunctionGenerator(lambda prefix, seed, index: " 42", name="answer")
        >>> chain = mg.Chain({"thought": Continue(think), "answer": Continue(answer, " So:", after="thought")})
        >>> chain.solve("6 times 7?").text
        ' 6 * 7. So: 42'
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
        opened = reopen(base, self._cue.fill(inputs.texts))
        (sequence,) = await self.generator.generate(opened, scope=scope)
        return Output(sequence.text[len(opened.text) :], sequence)


class Use(ChainStep):
    """Calls a tool: `Use(search, query="{question}")`.

    An argument is a template, or a JSON value as it is. Arguments of the tool that are not given, and have no default,
    are read from the steps of their names; from a tool's step they get its value, from others the text.
    tell: an error that the tool reports becomes the text of the output, for other steps to read; as the result of the
    chain it is unfinished, and has no vote. False lets it end the chain.
    Raises InputError for arguments that the tool does not take, or that are no JSON.
    """

    def __init__(self, tool: Tool | Function, /, *, tell: bool = True, **given: Any) -> None:
        self.tool, self.tell = as_tool(tool), tell
        known = (*self.tool.required, *self.tool.optional)
        if unknown := sorted(set(given) - set(known)):
            raise InputError(
                f"the tool {self.tool.name!r} has no argument {unknown[0]!r}; it takes {', '.join(known) or 'none'}"
            )
        for name, value in given.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"the tool {self.tool.name!r} is given {name}={value!r:.60}, which is not JSON ({error}); "
                    "give texts, numbers, lists and dictionaries of these"
                ) from None
        self.given = {name: Template(v) if isinstance(v, str) else v for name, v in given.items()}
        self.read = tuple(name for name in self.tool.required if name not in given)

    @property
    def needs(self) -> tuple[str, ...]:
        places = [place for v in self.given.values() if isinstance(v, Template) for place in v.places]
        return tuple(dict.fromkeys((*places, *self.read)))

    @property
    def fingerprint(self) -> str:
        given = {name: v.text if isinstance(v, Template) else v for name, v in self.given.items()}
        return digest("use", self.tool.fingerprint, json.dumps(given, sort_keys=True), str(self.tell)).hex()

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        try:
            value = await self.tool.call(self._arguments(inputs), scope)
        except ToolError as error:
            if not self.tell:
                raise
            return Output(str(error), failed=True)
        return Output(to_text(value), value=value, returned=True)

    def _arguments(self, inputs: Inputs) -> Mapping[str, Any]:
        filled = {n: v.fill(inputs.texts) if isinstance(v, Template) else v for n, v in self.given.items()}
        return filled | {name: _read(inputs, name) for name in self.read}


def use(tool: Tool | Function, *, given: Mapping[str, Any] | None = None, tell: bool = True) -> Use:
    """`Use` with its arguments by name in a mapping: for experiment files.

    tool: a function. given: its arguments by name.
    """
    return Use(tool, tell=tell, **(given or {}))


def _read(inputs: Inputs, name: str) -> Any:
    output = inputs.outputs.get(name)
    if output is None or isinstance(output.value, Score) or not (output.returned or output.value is not None):
        return inputs.texts[name]
    return output.value


def to_text(value: Any) -> str:
    """A tool's result as text: a text as it is, a list of texts line by line, and the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False)


@part
class Verify(ChainStep):
    """Scores the output of the step `of`, as an answer to the problem.

    Its text is the verifier's feedback, or its value, or its verdict. If `of` is what the chain returns, the score
    goes into the result. of: the step whose output is scored.
    """

    verifier: Verifier = field(kw_only=False)
    of: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.of,)

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        (score,) = await self.verifier.score([inputs.sequence(self.of)], scope=scope)
        return Output(score_text(score), value=score)


def score_text(score: Score) -> str:
    """A score in words."""
    if score.feedback:
        return score.feedback
    return score.verdict or "" if score.value is None else f"{score.value:.3g}"
