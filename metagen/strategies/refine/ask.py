"""What a corrector is asked: the prompt that a revision is written under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from metagen.errors import InputError
from metagen.sequence import Message, Prompt, Sequence
from metagen.strategies.template import Template
from metagen.verifiers.naming import name_of

#: From the task, a candidate's text and what was said of it (None: nothing) to the prompt of its revision. A corrector
#: that was trained on a form of its own takes a function that writes this form; fingerprints hold its name (`name_of`).
Ask = Callable[[Prompt, str, str | None], Prompt]


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
            begun = tuple(before)
            answer = last.content + candidate
        else:
            begun, answer = task.messages, candidate
        return replace(task, messages=(*begun, Message("assistant", answer), Message("user", turn)))


#: Asks for the whole answer again.
REVISE: Final = FollowUp(
    "{feedback}\n\nTaking this into account, write the whole answer again.",
    "Something in this answer is not right. Find it, and write the whole answer again.",
)


def asked(ask: Ask, task: Prompt, candidate: str, feedback: str | None) -> Prompt:
    """What `ask` makes; InputError where that is no prompt."""
    prompt = ask(task, candidate, feedback)
    if not isinstance(prompt, Prompt):
        raise InputError(
            f"{name_of(ask)} returned {prompt!r:.60} for problem {task.problem_id!r}; expected a Prompt, such as "
            "dataclasses.replace(prompt, text=…)"
        )
    return prompt


def begun(prefix: Sequence, prompt: Prompt) -> Sequence:
    """What `prefix` has committed to, under another prompt: a revision begins with it."""
    if not prefix.text:
        return Sequence.of(prompt)
    return replace(prefix, prompt=prompt, logprob=None, token_logprobs=None, scores={})
