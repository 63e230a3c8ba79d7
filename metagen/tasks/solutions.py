"""Public data sets of problems that a worked solution answers."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from typing import ClassVar, Final

from metagen.tasks.records import RecordTask, Source
from metagen.tasks.template import Asking, Form, Wording
from metagen.values import Count
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import Rule, answer_rule

STEP_BY_STEP: Final = "{question}\n\nSolve it step by step, and put the final answer in \\boxed{}."


class SolutionsTask(RecordTask):
    """Problems with a reference that a rule for mathematics reads.

    answer: a MathRule by default, for which `50%` is 50: most references leave the sign out.
    form: `chat`, `text` or `auto` (zero-shot, as of a Prompt), or `few_shot`, a text with four worked examples, or
    those of `shots` (`question`, `solution`); `few_shot_chat` has the examples as turns of a chat.
    prompt: another wording than the task's own, with a place for {question}: the user's turn, or a mapping of turns
    (`user`, `system`, `shots`, `assistant`). The answer is read from all of the assistant's turn, with what the prompt
    has begun of it. limit: the first problems only.
    """

    #: The task's own wording.
    asking: ClassVar[Asking]

    def __init__(
        self,
        source: Source | None = None,
        *,
        prompt: Wording | None = None,
        form: Form = "chat",
        answer: Rule | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        self._asking = self.asking.adapt("question", prompt=prompt, form=form, shots=shots)
        self.stop, self.mark = self._asking.stops, self._asking.mark
        rule = math_rule() if answer is None else answer_rule(answer)
        super().__init__(source, answer=self._asking.answer(rule), limit=limit)


def math_rule() -> AnswerRule:
    """The rule for mathematics whose references leave percent signs out."""
    from metagen.verifiers.math import MathRule

    return MathRule(percent="dropped")
