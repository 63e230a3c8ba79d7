"""Reasoning Gym: a hundred kinds of drawn problems, each with a verifier of its own (Stojanovski et al. 2025)."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from metagen.errors import InputError, install, lacks
from metagen.parts import part
from metagen.sequence import Message, Prompt, Sequence
from metagen.tasks.base import Problem, Task
from metagen.values import Amount, Count, Text
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.text import TextRule

SYSTEM: Final = (
    "Think step by step. Then give the final answer between <answer> and </answer>, and nothing after it."
)
#: The answer is what stands in the last pair of tags, or behind the last one where it is not closed.
PATTERN: Final = r"<answer>\s*([\s\S]*?)\s*(?:</answer>|\Z)"


@part
class ReasoningGymTask(Task):
    """`size` problems of a data set of the library `reasoning-gym`, asked as a chat.

    dataset: its name there, such as `leg_counting`. config: of the data set, as its configuration names its fields.
    Answers stand between <answer> and </answer>; equal texts vote together. An answer is right if the data set's own
    verifier gives it 1, its highest score. size: problems. seed: another seed, other problems. system: what the model
    is told first. shots: so many worked examples, drawn by another seed, stand before each question as turns of a chat:
    small chat models write the tags only where they see them. Raises InputError for a name or an option that there is
    not.
    """

    dataset: Text = field(kw_only=False)
    size: Count = 100
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    system: Text = SYSTEM
    shots: Amount = 0

    name = "reasoning_gym"

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        """What its fields cannot be to each other: see `Strategy.conflict`."""
        twice = next((name for name in ("size", "seed") if name in given["config"]), None)
        return twice and f"config.{twice}: is given by {twice}, outside of config; leave it out there"

    def __post_init__(self) -> None:
        self._data = _create(self.dataset, {"size": self.size, "seed": self.seed, **self.config})
        self._rule = TextRule(pattern=PATTERN)
        self._entries = {f"{self.dataset}/{i}": entry for i, entry in enumerate(self._data)}
        self._shots = self._examples()

    def _examples(self) -> tuple[Message, ...]:
        """Turns of user and assistant. InputError for a data set whose problems tell no answer."""
        if not self.shots:
            return ()
        asked = {entry["question"] for entry in self._entries.values()}
        drawn = _create(self.dataset, {"size": 8 * self.shots, "seed": self.seed + 1, **self.config})
        turns: list[Message] = []
        for entry in drawn:
            if entry.get("answer") and entry["question"] not in asked and len(turns) < 2 * self.shots:
                asked.add(entry["question"])
                turns += [
                    Message("user", entry["question"].strip()),
                    Message("assistant", _tagged(entry["answer"])),
                ]
        if len(turns) < 2 * self.shots:
            raise InputError(
                f"shots={self.shots}: the data set {self.dataset!r} has {len(turns) // 2} other problems that tell an "
                "answer; lower shots"
            )
        return tuple(turns)

    @property
    def answer(self) -> AnswerRule:
        return self._rule

    def problems(self) -> Iterator[Problem]:
        for name, entry in self._entries.items():
            turns = (Message("system", self.system), *self._shots, Message("user", entry["question"].strip()))
            # Some problems have many answers and tell none of them.
            yield Problem(
                Prompt(name, messages=turns, form="auto"), str(entry.get("answer") or "(any that is right)")
            )

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """1 where the data set's verifier gives the answer 1, else 0."""
        entry = self._entries[problem.id]
        answers = await self._rule.read(sequences)
        return [
            float(a.text is not None and self._data.score_answer(answer=a.text, entry=entry) >= 1.0)
            for a in answers
        ]


def _tagged(answer: Any) -> str:
    return f"<answer>{str(answer).strip()}</answer>"


def _create(name: str, options: Mapping[str, Any]) -> Any:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise InputError(f"a reasoning_gym task needs {lacks(error)}; {install('reasoning-gym')}") from None
    if name not in DATASETS:
        raise InputError(f"dataset={name!r}: reasoning-gym has {', '.join(sorted(DATASETS))}")
    try:
        return reasoning_gym.create_dataset(name, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise InputError(f"dataset={name!r} with {dict(options)!r}: {error}") from None
