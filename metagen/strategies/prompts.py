"""Prompts of a strategy's own making: how a task, and what has been written on it, become what a model is asked."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Concatenate, Final, ParamSpec

from metagen.errors import InputError
from metagen.parts import name_of
from metagen.sequence import Form as Turned
from metagen.sequence import Message, Prompt, Sequence
from metagen.template import Template
from metagen.verifiers.generative.question import in_words

P = ParamSpec("P")
#: From a task, and what there is on it, to a prompt. `Form[str, str | None]`: a candidate, and what was said of it
#: (None: nothing). `Form[abc.Sequence[str]]`: several candidates. A model that was trained on a form of its own takes a
#: function that writes this form; fingerprints hold its name (`name_of`).
Form = Callable[Concatenate[Prompt, P], Prompt]
#: A form of a candidate and what was said of it, as experiment files know it.
Correction = Callable[[Prompt, str, str | None], Prompt]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Goes on with the conversation: the task, the candidate as its answer, then a turn of ours.

    words: our turn, with a place for {feedback} (as in every template, {{feedback}} is the word in braces). unsaid: our
    turn where there is no feedback; `words` without it by default. A task of messages gets two more of them; a task
    of text is one text still. What a strategy may see of the task (`Prompt.public`) stays with it. Raises InputError
    for words without that place, or with others.
    """

    words: str
    unsaid: str | None = None

    def __post_init__(self) -> None:
        Template(self.words).expecting("feedback", name="words")
        Template(self.unsaid or "").expecting(name="unsaid")

    def __call__(self, task: Prompt, candidate: str, feedback: str | None) -> Prompt:
        turn = self.words if feedback is not None or self.unsaid is None else self.unsaid
        turn = Template(turn).fill({"feedback": feedback or ""}).strip()
        if task.text is not None:
            return replace(task, text=f"{task.text}{candidate.rstrip()}\n\n{turn}\n\n")
        *before, last = task.messages
        if last.role == "assistant":  # a turn that was begun for the model
            begin = tuple(before)
            answer = last.content + candidate
        else:
            begin, answer = task.messages, candidate
        return replace(task, messages=(*begin, Message("assistant", answer), Message("user", turn)))


#: Asks for the whole answer again.
REVISE: Final = FollowUp(
    "{feedback}\n\nTaking this into account, write the whole answer again.",
    "Something in this answer is not right. Find it, and write the whole answer again.",
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Begins anew, and shows the task with all candidates, each as "Response 1:" and its text, numbered from 1.

    words: has the places {task} and {responses}, and perhaps {count}. chat: as a message of the user, or as one text;
    None: as the task is. Raises InputError for words without these places, or with others.
    """

    words: str
    chat: bool | None = None

    def __post_init__(self) -> None:
        Template(self.words).expecting("task", "responses", optional=("count",), name="words")

    def but(self, words: str | None, chat: bool | None) -> Listing:
        """With other words, or as a chat or a text; None leaves what there is."""
        return Listing(self.words if words is None else words, self.chat if chat is None else chat)

    def __call__(self, task: Prompt, candidates: abc.Sequence[str]) -> Prompt:
        listed = "\n\n".join(f"Response {i}:\n{text}" for i, text in enumerate(candidates, 1))
        values = {"task": in_words(task), "responses": listed, "count": str(len(candidates))}
        said = Template(self.words).fill(values)
        chat = bool(task.messages) if self.chat is None else self.chat
        return pose(task, said if chat else f"{said.rstrip()}\n\n", chat=chat)


def pose(task: Prompt, *said: str, chat: bool = False) -> Prompt:
    """A prompt of what was `said` about a task, by turns, the asker first; the task's id and public data go along.

    chat: as messages of user and assistant; else as one text, a line after the other.
    """
    if chat:
        turns = tuple(Message("assistant" if i % 2 else "user", text) for i, text in enumerate(said))
        return Prompt(task.problem_id, messages=turns, public=task.public)
    meant: Turned | None = "text" if task.form == "text" else None
    return Prompt(task.problem_id, text="\n".join(said), public=task.public, form=meant)


def ask_by(form: Form[P], task: Prompt, *given: P.args, **named: P.kwargs) -> Prompt:
    """What a form makes of a task and what there is on it; InputError where that is no prompt."""
    prompt = form(task, *given, **named)
    if not isinstance(prompt, Prompt):
        raise InputError(
            f"{name_of(form)} returned {prompt!r:.60} for problem {task.problem_id!r}; expected a Prompt, such as "
            "dataclasses.replace(prompt, text=…)"
        )
    return prompt


def begin(prefix: Sequence, prompt: Prompt) -> Sequence:
    """What `prefix` has committed to, under another prompt: what is asked for begins with it."""
    if not prefix.text:
        return Sequence.of(prompt)
    return replace(
        prefix, prompt=prompt, logprob=None, token_logprobs=None, token_confidences=None, log_mass=None,
        scores={},
    )  # fmt: skip
