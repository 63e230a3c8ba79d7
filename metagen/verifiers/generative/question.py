"""What a judge is asked: a template, the labels that it may answer by, and what a label follows on."""

from __future__ import annotations

import math
import re
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

from annotated_types import MinLen

from metagen.errors import InputError
from metagen.sequence import Message, Prompt, digest
from metagen.values import Expects, Number

#: What a judge may answer, and what each is worth.
Labels: TypeAlias = Annotated[Mapping[str, Number], MinLen(1), Expects("labels with what each is worth")]
PLACES: Final = re.compile(r"\{(task|candidate|first|second)\}")


@dataclass(frozen=True, slots=True)
class Question:
    """A judge's prompt that ends in a label.

    template: has {task}, and {candidate} or both of {first} and {second}. labels: what may follow the cue,
    character by character (" Yes", with the space that a tokenizer wants), and what each is worth, on any
    scale of at least two values. cue: the beginning of the answer that a label follows. join: what stands
    between a critique and the cue. chat: the template is a message of the user, and the cue opens the answer;
    else all is one text. Raises InputError for a template without its places, and for labels that do not tell
    anything apart.
    """

    template: str
    labels: Mapping[str, float] = field(hash=False)
    cue: str
    join: str = "\n"
    chat: bool = True

    def __post_init__(self) -> None:
        if self.places not in ({"task", "candidate"}, {"task", "first", "second"}):
            raise InputError(
                f"template={self.template!r:.80}: it has {sorted(self.places)}; "
                "expected {task} and {candidate}, or {task}, {first} and {second}"
            )
        worth = list(self.labels.values())
        names = [label.strip() for label in self.labels]
        if not all(names) or len(set(names)) < len(names) or not all(map(math.isfinite, worth)):
            raise InputError(
                f"labels={dict(self.labels)!r}: expected different texts, each with a finite value"
            )
        if len(set(worth)) < 2:
            raise InputError(f"labels={dict(self.labels)!r}: expected at least two different values")
        # A question is a value, and those that ship are shared by everybody.
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Views of mappings cannot be copied or sent; the mapping can."""
        return type(self), (self.template, dict(self.labels), self.cue, self.join, self.chat)

    @property
    def places(self) -> set[str]:
        """What the template has places for."""
        return set(PLACES.findall(self.template))

    @property
    def compares(self) -> bool:
        """Whether it is about two answers."""
        return "first" in self.places

    @property
    def wording(self) -> str:
        """Names what is asked, whatever the labels are worth."""
        return digest(self.template, self.cue, self.join, str(self.chat), *self.labels).hex()

    @property
    def fingerprint(self) -> str:
        return digest(self.wording, *(repr(float(worth)) for worth in self.labels.values())).hex()

    def prompt(self, task: Prompt, **texts: str) -> Prompt:
        """The judge's prompt about completions of `task`, without the cue."""
        given = {**texts, "task": in_words(task)}
        # One pass: what a candidate writes is never read as a place.
        text = PLACES.sub(lambda m: given[m[1]], self.template)
        if self.chat:
            return Prompt(task.problem_id, messages=(Message("user", text),))
        return Prompt(task.problem_id, text=text)

    def with_instructions(self, prompt: Prompt) -> Prompt:
        """Its prompt with the form of the answer said in words, for who writes the verdict: in a chat only."""
        if not (self.chat and self.cue.strip()):
            return prompt
        names = ", ".join(label.strip() for label in self.labels)
        *before, last = prompt.messages
        form = f'\nEnd with "{self.cue.strip()}" and one of: {names}.\n'
        return replace(prompt, messages=(*before, replace(last, content=last.content + form)))

    def is_forged(self, text: str) -> bool:
        """Whether a completion writes the judge's cue by itself, as if the judge had begun to answer."""
        return bool(self.cue.strip()) and self.cue.strip() in text

    def to_unit(self, worth: float) -> float:
        """A value of the labels' scale, in [0, 1]: the worst label is 0, the best 1."""
        low, high = min(self.labels.values()), max(self.labels.values())
        return min(1.0, max(0.0, (worth - low) / (high - low)))

    def mean_value(self, shares: abc.Sequence[float]) -> float:
        """The mean of the labels' values under their shares."""
        return math.fsum(p * v for p, v in zip(shares, self.labels.values(), strict=True))


def in_words(prompt: Prompt) -> str:
    """What was asked: the text, or the messages without the system's."""
    return prompt.text or "\n\n".join(m.content for m in prompt.messages if m.role != "system")


#: Is it right? The score is the probability of Yes (GenRM, Zhang et al. 2024).
CORRECT: Final = Question(
    """\
Here are a task and a solution that may be wrong.

Task:
{task}

Solution:
{candidate}

Check the solution step by step, and then say whether its answer is correct.
""",
    {" Yes": 1.0, " No": 0.0},
    "Is the answer correct (Yes/No)?",
)

#: How good is it, from 1 to 5? The score is the expected rating, less 1, over 4.
RUBRIC: Final = Question(
    """\
Here are a task and an answer to it.

Task:
{task}

Answer:
{candidate}

Rate the answer: 1 is useless or wrong, 2 has serious faults, 3 is right in part, 4 is right with small faults,
5 is right, complete and clear. Say what is good and what is missing, and then give the rating.
""",
    {" 1": 1.0, " 2": 2.0, " 3": 3.0, " 4": 4.0, " 5": 5.0},
    "Rating (1-5):",
)

#: Which of two is better? The score is the probability that the first is.
PREFERENCE: Final = Question(
    """\
Here are a task and two answers to it.

Task:
{task}

Answer A:
{first}

Answer B:
{second}

Compare the answers by what is right and what helps, not by their length or their order, and then name the better one.
""",
    {" A": 1.0, " B": 0.0},
    "The better answer (A/B):",
)
