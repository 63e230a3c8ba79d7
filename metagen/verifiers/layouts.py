"""Layouts: how a solution becomes the input of a reward model, and where in it the model is read.

A layout is a value. It cuts a completion into steps, lays prompt and steps out as token ids with one position for each
step, and says what is read there: the log-probabilities of two label tokens, or the outputs of a head that scores.
An outcome model is the case in which the whole completion is the only step.

For causal models the input of a solution is a prefix of the input of what continues it, so scores are incremental:
each layout here keeps that, up to what stands after the last position.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import abc
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

from metagen.border import Part
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.engine import Engine
from metagen.sequence import Message, Prompt, Sequence
from metagen.verifiers.steps import steps_of, whole


@dataclass(frozen=True, slots=True)
class Laid:
    """ids: the input. positions: where each step is read, ascending."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]


class Encoder:
    """An engine's tokenizer, as layouts need it; what was encoded before is looked up.

    Raises UnsupportedError for an engine without token ids.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        if engine.tokenizer_fingerprint is None:
            raise UnsupportedError(
                f"{name}: a reward model needs an engine with token ids; {engine!r} has none"
            )
        self._engine, self._name = engine, name
        self.encode = lru_cache(1 << 14)(engine.encode)

    def render(self, prompt: Prompt, text: str = "") -> tuple[int, ...]:
        """Ids of a prompt and a completion, encoded as one text."""
        return self._engine.render(Sequence(prompt, text)) or ()

    def token(self, text: str) -> int:
        """The id of a text that is one token; ModelError if it is not."""
        ids = self.encode(text)
        if len(ids) != 1:
            raise ModelError(
                f"{self._name}: the tokenizer of {self._engine!r} has no token {text!r} (it makes {len(ids)} of it); "
                "give the tags that the model was trained with"
            )
        return ids[0]


class Layout(Part, ABC):
    """How a kind of reward model reads a solution."""

    __slots__ = ()

    delimiter: str
    """What ends a step; empty if there are no steps to tell apart."""

    @property
    def labels(self) -> tuple[str, str] | None:
        """Texts of the tokens that say right and wrong; None if the outputs of a head are read."""
        return None

    @property
    def right(self) -> int:
        """Of several outputs of a head, or of the labels, the one that says right."""
        return 0 if self.labels else 1

    @property
    def stepwise(self) -> bool:
        """Whether a value can be read after each step."""
        return True

    @property
    def chats(self) -> bool:
        """Whether prompts become a conversation, which control tokens in a candidate would forge."""
        return False

    @property
    def reserved(self) -> tuple[str, ...]:
        """Texts of its own that a candidate must not write."""
        return ()

    @property
    def identity(self) -> str:
        """Names the layout in fingerprints."""
        return repr(self)

    def cut_at(self, delimiter: str) -> Self:
        """This layout, with steps that end elsewhere. InputError if it has no steps, or the delimiter is empty."""
        if not delimiter or not self.stepwise:
            raise InputError(
                f"delimiter={delimiter!r}: expected the text that ends a step, for a layout of steps"
            )
        return dataclasses.replace(self, delimiter=delimiter)  # type: ignore[type-var]  # all layouts are dataclasses

    def split(self, text: str) -> list[str]:
        """The steps of a completion: what stands between delimiters, and is not blank."""
        return [step for step in text.split(self.delimiter) if step.strip()]

    @abstractmethod
    def lay(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str]) -> Laid | None:
        """The input for at least one step; None if its marks cannot be told from the text around them."""


@dataclass(frozen=True, slots=True)
class TaggedSteps(Layout):
    """A tag follows each step; at the tag, a language model says `positive` or `negative`.

    The tag stands after the step's delimiter. inline: before it, set off by a space, once trailing space is cut. That
    is the form of Math-Shepherd (Wang et al. 2024, arXiv:2312.08935; model card of
    peiyi9979/math-shepherd-mistral-7b-prm): the tag ки, the labels + and -, question and steps joined by a space,
    and the value p(+) / (p(+) + p(-)).

    A tag that is a token by itself cuts a text in two for any tokenizer, so steps are encoded one by one. An inline
    tag is ordinary text: prompt, steps and tags are encoded together, as they were in training. tag: stands behind
    each step. positive: the label of a right step. negative: the label of a wrong step. delimiter: ends a step. A
    delimiter that has the tag in it belongs to solutions that write the tag themselves (such as " ки"): theirs are
    read, and none is put in. Only an inline tag can be written so. Raises InputError for a delimiter with the tag in
    it, unless inline.
    """

    tag: str = "<step>"
    positive: str = "<+>"
    negative: str = "<->"
    delimiter: str = "\n"
    inline: bool = False

    def __post_init__(self) -> None:
        _expect(self, filled=("tag", "positive", "negative", "delimiter"), switches=("inline",))
        _distinct(self, "tag", "positive", "negative")
        if self._written and not self.inline:
            raise InputError(
                f"delimiter={self.delimiter!r} has the tag {self.tag!r} in it, so solutions write the tag themselves; "
                "give inline=True, or a delimiter without the tag"
            )

    @property
    def labels(self) -> tuple[str, str]:
        return self.positive, self.negative

    @property
    def reserved(self) -> tuple[str, ...]:
        return () if self._written else (self.tag,)

    @property
    def _written(self) -> bool:
        """Whether solutions write the tag themselves."""
        return self.tag in self.delimiter

    @property
    def identity(self) -> str:
        plain = (
            f"Tags(tag={self.tag!r}, positive={self.positive!r}, negative={self.negative!r}, "
            f"delimiter={self.delimiter!r})"
        )
        return f"inline {plain}" if self.inline else plain

    def split(self, text: str) -> list[str]:
        """Delimiters are kept, as `steps_of` does; inline, they are put back between the steps."""
        return Layout.split(self, text) if self.inline else steps_of(text, self.delimiter)

    def lay(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str]) -> Laid | None:
        tag = encoder.token(self.tag)
        if self.inline:
            return self._inline(encoder, prompt, steps, tag)
        ids, positions = list(encoder.render(prompt)), []
        for step in steps:
            ids += [*encoder.encode(step), tag]
            positions.append(len(ids) - 1)
        return Laid(tuple(ids), tuple(positions))

    def _inline(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str], tag: int) -> Laid | None:
        question = Prompt(prompt.problem_id, text=question_of(prompt))
        between = "" if self._written else self.delimiter
        text = between.join(f"{step.rstrip()} {self.tag}" for step in steps)
        ids = encoder.render(question, f" {text}")
        marks = [i for i, token in enumerate(ids) if token == tag]
        asked = encoder.render(question).count(tag)
        return Laid(ids, tuple(marks[asked:])) if len(marks) == asked + len(steps) else None


@dataclass(frozen=True, slots=True)
class ChatSteps(Layout):
    """Each step is a turn of the user, and the model answers with one token, `positive` or `negative`.

    The form of RLHFlow (Xiong et al. 2024; math-rm/prm_evaluate.py in RLHFlow/RLHF-Reward-Modeling): the first turn is
    the question, a space and the first step; before the next step stands the answer `positive`, whatever the model
    says; steps are stripped. It is read where the model would begin its answer to a step.
    With the whole solution as its only step it is the form of RLHFlow's outcome models.
    """

    positive: str = "+"
    negative: str = "-"
    delimiter: str = "\n\n"

    def __post_init__(self) -> None:
        _expect(self, filled=("positive", "negative", "delimiter"))
        _distinct(self, "positive", "negative")

    @property
    def labels(self) -> tuple[str, str]:
        return self.positive, self.negative

    @property
    def chats(self) -> bool:
        return True

    def lay(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str]) -> Laid | None:
        turns, inputs = conversation(prompt), []
        said = [f"{turns[-1].content} {steps[0].strip()}", *(step.strip() for step in steps[1:])]
        turns = turns[:-1]
        for text in said:
            # With its answer, as in training: some tokenizers cut the opening otherwise where nothing follows.
            turns = (*turns, Message("user", text), Message("assistant", self.positive))
            inputs.append(encoder.render(Prompt(prompt.problem_id, messages=turns))[:-1])
        ids = inputs[-1]
        if any(ids[: len(one)] != one for one in inputs):
            raise UnsupportedError(
                "the chat template writes earlier turns differently once later ones follow, so the steps of a solution "
                "cannot be read in one input; use the tokenizer that the reward model was trained with"
            )
        return Laid(ids, tuple(len(one) - 1 for one in inputs))


@dataclass(frozen=True, slots=True)
class SeparatorSteps(Layout):
    """A separator follows each step; at its last token, the outputs of a head are read. Delimiters are dropped.

    chat: the prompt becomes a conversation, whose open turn of the assistant the steps fill. Otherwise the input
    begins with `start`, and `gap` stands between question and solution, where one of them is given; else the prompt is
    rendered as a generator would have it. A separator that is not the delimiter is one token. Published forms, each
    with its source:

    - Qwen2.5-Math-PRM (Zhang et al. 2025, arXiv:2501.07301; model card): separator <extra_0>, chat, two outputs;
      the value is the softmax of the second.
    - Skywork-o1-Open-PRM (SkyworkAI/skywork-o1-prm-inference, model_utils/io_utils.py): start is the tokenizer's
      beginning-of-sequence token, gap and separator are a line break, one output; the value is its sigmoid
      (prm_model.py).
    - TRL's PRMTrainer (…ForTokenClassification): the separator is a line break, two outputs.
    """

    separator: str = "\n"
    delimiter: str = "\n"
    chat: bool = False
    start: str = ""
    gap: str = ""

    def __post_init__(self) -> None:
        _expect(self, filled=("separator", "delimiter"), texts=("start", "gap"), switches=("chat",))
        for name in ("start", "gap"):
            if self.chat and (value := getattr(self, name)):
                raise InputError(
                    f"{name}={value!r}: with chat=True the chat template stands around the question; leave it out, or "
                    "give chat=False"
                )

    @property
    def chats(self) -> bool:
        return self.chat

    @property
    def reserved(self) -> tuple[str, ...]:
        return () if self.separator == self.delimiter else (self.separator,)

    def lay(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str]) -> Laid | None:
        separator, positions = encoder.encode(self.separator), []
        ids = list(self._open(encoder, prompt, steps[0]))
        for i, step in enumerate(steps):
            ids += [*(encoder.encode(step) if i else ()), *separator]
            positions.append(len(ids) - 1)
        return Laid(tuple(ids), tuple(positions))

    def _open(self, encoder: Encoder, prompt: Prompt, first: str) -> tuple[int, ...]:
        """The prompt and the first step."""
        if self.chat:
            return encoder.render(Prompt(prompt.problem_id, messages=conversation(prompt)), first)
        asked = (
            encoder.encode(f"{self.start}{question_of(prompt)}{self.gap}")
            if self.start or self.gap
            else encoder.render(prompt)
        )
        return (*asked, *encoder.encode(first))


@dataclass(frozen=True, slots=True)
class WholeSolution(Layout):
    """The outputs of a head at the end of the whole solution: …ForSequenceClassification, Qwen2ForRewardModel.

    transformers reads such a head at the last token that is no padding. chat: the solution fills the assistant's turn,
    and `closing` is what the chat template puts behind it (such as <|im_end|> and a line break), which ends the input.
    opening: what it puts in front of it, behind the open turn that a generator would fill (such as an empty thought).
    """

    chat: bool = False
    closing: str = ""
    opening: str = ""
    delimiter: str = field(default="", init=False)

    def __post_init__(self) -> None:
        _expect(self, texts=("closing", "opening"), switches=("chat",))

    @property
    def identity(self) -> str:
        opening = f", opening={self.opening!r}" if self.opening else ""
        return f"WholeSolution(chat={self.chat!r}, closing={self.closing!r}{opening}, delimiter={self.delimiter!r})"

    @property
    def stepwise(self) -> bool:
        return False

    @property
    def chats(self) -> bool:
        return self.chat

    def split(self, text: str) -> list[str]:
        return whole(text)

    def lay(self, encoder: Encoder, prompt: Prompt, steps: abc.Sequence[str]) -> Laid | None:
        asked = Prompt(prompt.problem_id, messages=conversation(prompt)) if self.chat else prompt
        ids = (*encoder.render(asked, self.opening + "".join(steps)), *encoder.encode(self.closing))
        return Laid(ids, (len(ids) - 1,))


def _expect(
    layout: Layout,
    filled: abc.Sequence[str] = (),
    texts: abc.Sequence[str] = (),
    switches: abc.Sequence[str] = (),
) -> None:
    """The values of these fields are texts with something in them, texts, and true or false; else InputError."""
    for name in (*filled, *texts, *switches):
        value = getattr(layout, name)
        what = "true or false" if name in switches else "a text"
        if not isinstance(value, bool if name in switches else str):
            raise InputError(f"{name}={value!r}: expected {what} in {type(layout).__name__}")
        if name in filled and not value:
            raise InputError(
                f"{name}={value!r}: expected a text that is not empty in {type(layout).__name__}"
            )


def _distinct(layout: Layout, *names: str) -> None:
    values = [getattr(layout, name) for name in names]
    if len(set(values)) < len(values):
        given = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
        raise InputError(f"{given}: expected different texts; what is written the same says nothing")


def conversation(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as the turns of a chat; UnsupportedError if the last is not the user's."""
    turns = prompt.messages or (Message("user", prompt.text or ""),)
    if turns[-1].role != "user":
        raise UnsupportedError(
            f"prompt {prompt.problem_id!r} ends with a turn of the {turns[-1].role}; a reward model that reads chats "
            "needs one that ends with the user's question"
        )
    return turns


def question_of(prompt: Prompt) -> str:
    """The text of a prompt; of a chat, the last turn of the user."""
    return conversation(prompt)[-1].content
