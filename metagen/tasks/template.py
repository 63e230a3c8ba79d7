"""The wording of a task: the turns of a chat, for models that follow instructions; worked examples, for base models."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from metagen.errors import InputError
from metagen.sequence import Form as Turned
from metagen.sequence import Message, Prompt, Sequence, digest
from metagen.template import Template
from metagen.verifiers.base import Answer, AnswerRule

#: `chat`, `text` and `auto` as of a Prompt. `few_shot`: a text with worked examples that the model continues.
#: `few_shot_chat`: the same examples as turns of a chat, for small chat models, which follow examples better.
Form = Literal["chat", "text", "auto", "few_shot", "few_shot_chat"]
#: The forms with worked examples.
SHOWN: Final = ("few_shot", "few_shot_chat")
#: A prompt as a user gives it: the user's turn, or a mapping with `user` and perhaps `system`, `shots`, `assistant`.
Wording: TypeAlias = str | Mapping[str, Any]
TURNS: Final = ("system", "shots", "user", "assistant")
#: The box around an answer where a wording asks for it.
BOX: Final = "\\boxed"


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns that ask: templates, whose places such as {question} are filled from a problem, all at once.

    shots: turns of user and assistant that stand before the question, as they are. assistant: how the model's own turn
    begins, which it continues.
    """

    user: str
    system: str | None = None
    shots: tuple[tuple[str, str], ...] = ()
    assistant: str | None = None

    @classmethod
    def of(cls, given: Wording) -> Self:
        """Raises InputError for what is no such mapping."""
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping) or "user" not in given:  # type: ignore[redundant-expr]
            raise InputError(
                f"prompt={given!r:.80}: expected a text, or a mapping with user: a text with places"
            )
        if unknown := [name for name in given if name not in TURNS]:
            near = _near(unknown[0], TURNS)
            raise InputError(
                f"prompt: there is no turn {unknown[0]!r}; expected some of {', '.join(TURNS)}{near}"
            )
        for name in ("user", "system", "assistant"):
            text = given.get(name)
            if text is not None and not (isinstance(text, str) and text):
                raise InputError(
                    f"prompt.{name} is {text!r:.60}; expected a text that is not empty, or leave it out"
                )
        return cls(
            given["user"], given.get("system"), _shots(given.get("shots") or ()), given.get("assistant")
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Names of what is filled in, each once."""
        texts = (text for text in (self.system, self.user, self.assistant) if text)
        return tuple(dict.fromkeys(place for text in texts for place in Template(text).places))

    def expecting(self, *known: str, others: bool = False) -> Self:
        """These turns, if the user's has one of the `known` places; InputError if not.

        others: there may be places beside, which the problem's own record fills; else these are an InputError too.
        """
        wanted = " or ".join(f"{{{name}}}" for name in known)
        unknown = [place for place in self.places if place not in known]
        if not set(known) & set(Template(self.user).places):
            near = next((near for place in unknown if (near := _near(place, known))), "")
            raise InputError(f"prompt={self.user!r:.80}: expected a text with {wanted} in it{near}")
        if unknown and not others:
            raise InputError(
                f"prompt: nothing fills {{{unknown[0]}}}; expected {wanted}{_near(unknown[0], known)}. "
                f"For the braces themselves write {{{{{unknown[0]}}}}}"
            )
        return self

    def prompt(
        self,
        name: str,
        form: Turned | None,
        values: Mapping[str, str],
        public: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of a problem with this id. form: None is a text without a word on how it is meant."""
        user = Template(self.user).fill(values)
        if form is None:
            return Prompt(name, text=user, public=public or {})
        turns = [Message("system", Template(self.system).fill(values))] if self.system else []
        for shot in self.shots:
            turns += [Message("user", shot[0]), Message("assistant", shot[1])]
        turns.append(Message("user", user))
        if self.assistant:
            turns.append(Message("assistant", Template(self.assistant).fill(values)))
        if len(turns) == 1 and form == "text":
            return Prompt(name, text=user, public=public or {}, form=form)
        return Prompt(name, messages=tuple(turns), public=public or {}, form=form)


def _shots(given: Any) -> tuple[tuple[str, str], ...]:
    found = []
    for number, shot in enumerate(given if isinstance(given, list | tuple) else [given]):
        texts = (
            list(shot.values()) if isinstance(shot, Mapping) and set(shot) == {"user", "assistant"} else []
        )
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise InputError(
                f"prompt.shots.{number} is {shot!r:.60}; expected a mapping with user: and assistant:, two texts"
            )
        if "question" in Template(shot["user"]).places:
            raise InputError(
                f"prompt.shots.{number}.user has a place for {{question}}, and an example is sent as it is; write its "
                "question out"
            )
        found.append((shot["user"], shot["assistant"]))
    return tuple(found)


def _near(name: str, known: abc.Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True)
class Asking:
    """The wording of a task.

    turns: of the chat. example: one problem of the few-shot text, which ends where the solution begins.
    shots: values of the fields for each example, and its `solution`. stop: the text behind a solution in the few-shot
    text; a generator that ends there saves tokens, and what comes after it is never read. form: in which it asks.
    asked: the user's turns where examples are turns of a chat; None for tasks whose examples cannot be. answered: the
    assistant's turns there. head: what the few-shot text says before its examples.
    """

    turns: Turns
    example: str
    shots: tuple[Mapping[str, str], ...]
    stop: str
    form: Form = "chat"
    asked: str | None = None
    answered: str = "{solution}"
    head: str = ""

    def adapt(
        self,
        *places: str,
        prompt: Wording | None = None,
        form: str = "chat",
        shots: abc.Sequence[Mapping[str, str]] | None = None,
    ) -> Self:
        """With what a user gave; None keeps what there is.

        places: those that `prompt` may have, and has one of at least. Raises InputError for what does not go
        together.
        """
        kept = replace(self, form=form_of(form))
        if form == "few_shot_chat" and self.asked is None:
            raise InputError(
                f"form={form!r}: this task has no examples for turns of a chat; expected chat, text, auto or few_shot"
            )
        if prompt is not None:
            if form in SHOWN:
                raise InputError(
                    f"prompt: form={form!r} has a wording of its own; leave one of them out: turns have their "
                    "examples under shots"
                )
            kept = replace(kept, turns=Turns.of(prompt).expecting(*places))
        if shots is None:
            return kept
        if form not in SHOWN:
            raise InputError(
                f"shots are the examples of form='few_shot' and 'few_shot_chat', and form={form!r}; leave them out, "
                "or give prompt={'shots': …, 'user': …}"
            )
        wanted = {*Template(self.example).places, "solution"}
        for shot in shots:
            if missing := sorted(wanted - set(shot)):
                raise InputError(
                    f"shots: an example has no {missing[0]!r}; expected {', '.join(sorted(wanted))}"
                )
        return replace(kept, shots=tuple(shots))

    def prompt(self, name: str, values: Mapping[str, str], public: Mapping[str, Any] | None = None) -> Prompt:
        """The prompt of a problem with this id."""
        if self.form == "few_shot_chat" and self.asked is not None:
            question, answer = Template(self.asked), Template(self.answered)
            examples = tuple(
                (question.fill(shot), answer.fill({"solution": shot["solution"].strip()}))
                for shot in self.shots
            )
            return Turns(self.asked, shots=examples).prompt(name, "chat", values, public)
        if self.form == "chat" or self.form == "text" or self.form == "auto":
            return self.turns.prompt(name, self.form, values, public)
        example = Template(self.example)
        head = [self.head] if self.head else []
        shots = [example.fill(shot) + shot["solution"] for shot in self.shots]
        return Prompt(name, text="\n\n".join([*head, *shots, example.fill(values)]), public=public or {})

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts at which a generator may end."""
        return (self.stop,) if self.form == "few_shot" and self.stop else ()

    @property
    def mark(self) -> str | None:
        """Text within the answer's step, where the wording asks for it, or every example shows it."""
        if self.form in SHOWN:
            shown = bool(self.shots) and all(BOX in shot["solution"] for shot in self.shots)
        else:
            shown = BOX in self.turns.user or BOX in (self.turns.system or "")
        return f"{BOX}{{" if shown else None

    def answer(self, rule: AnswerRule) -> AnswerRule:
        """The rule for what is written after this prompt."""
        if self.form == "few_shot":
            return Before(rule, self.stop)
        return rule if self.turns.assistant is None or self.form in SHOWN else Whole(rule)


def turn_form(prompt: Wording, form: Turned | None) -> Turned | None:
    """The form of a user's prompt: `auto` for turns, and what is given. None: a text, sent as it is.

    InputError for an unknown form.
    """
    if form is not None and form not in get_args(Turned):
        raise InputError(f"form={form!r}: expected one of {', '.join(get_args(Turned))}")
    return form if form is not None or isinstance(prompt, str) else "auto"


def form_of(form: str) -> Form:
    """A known form; else InputError."""
    if form not in get_args(Form):
        raise InputError(f"form={form!r}: expected one of {', '.join(get_args(Form))}")
    return form  # type: ignore[return-value]  # it has just been looked up


class Before(AnswerRule):
    """Reads by another rule what comes before `stop`: a base model goes on with a next problem of its own."""

    def __init__(self, rule: AnswerRule, stop: str) -> None:
        self._rule, self._stop, self.oracle = rule, stop, rule.oracle

    @property
    def fingerprint(self) -> str:
        return digest("before", self._rule.fingerprint, self._stop).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return await self._rule.read([before(s, self._stop) for s in sequences])

    async def key(self, answer: str) -> str | None:
        return await self._rule.key(answer)


class Whole(AnswerRule):
    """Reads by another rule the whole turn of the assistant: how the prompt begins it, and what the model wrote.

    Where that has no answer, the model's own text alone: a revision may begin its turn anew.
    """

    def __init__(self, rule: AnswerRule) -> None:
        self._rule, self.oracle = rule, rule.oracle

    @property
    def fingerprint(self) -> str:
        return digest("whole turn", self._rule.fingerprint).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        answers = await self._rule.read([whole(s) for s in sequences])
        if unread := [i for i, answer in enumerate(answers) if answer.key is None]:
            alone = await self._rule.read([sequences[i] for i in unread])
            for i, answer in zip(unread, alone, strict=True):
                answers[i] = answers[i] if answer.key is None else answer
        return answers

    async def key(self, answer: str) -> str | None:
        return await self._rule.key(answer)


def before(sequence: Sequence, stop: str) -> Sequence:
    """The sequence as if it had been stopped at the first `stop`."""
    head, found, _ = sequence.text.partition(stop)
    if not found:
        return sequence
    return Sequence(sequence.prompt, head, logprob=None, finish="stop")


def whole(sequence: Sequence) -> Sequence:
    """The sequence with what the prompt has begun of the assistant's turn, as if the model had written all of it."""
    last = sequence.prompt.messages[-1:]
    if not last or last[0].role != "assistant":
        return sequence
    return replace(sequence, text=last[0].content + sequence.text, steps=())
