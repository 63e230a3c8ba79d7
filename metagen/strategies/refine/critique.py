"""Intrinsic feedback: a model's critique of a candidate, or its reflection on why it failed."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from metagen.errors import PromptError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.prompts import FollowUp, Form, asked
from metagen.strategies.refine.feedback import Feedback, Remark, words

#: What a critic writes, on a line of its own, where nothing is left to mend.
STOP: Final = "NOTHING TO MEND"

#: What is wrong? Asked of the model that wrote the answer, or of another.
CRITIQUE: Final = FollowUp(
    "{feedback}\n\nCheck this answer step by step. Say what is wrong or missing, where, and how to mend it. "
    f"If nothing is, write {STOP} on a line of its own.",
    "Check this answer step by step. Say what is wrong or missing, where, and how to mend it. "
    f"If nothing is, write {STOP} on a line of its own.",
)

#: Why did it fail, and what is to be done otherwise?
REFLECT: Final = FollowUp(
    "{feedback}\n\nSo this attempt has failed. In a few sentences, say why, and what to do otherwise in the next "
    "attempt. Do not write the attempt itself.",
    "This attempt has failed. In a few sentences, say why, and what to do otherwise in the next attempt. "
    "Do not write the attempt itself.",
)


@part
class Critique(Feedback):
    """A generator's words on a candidate. It is told what the strategy's verifier has said, where that has words.

    ask: from task, candidate and these words to the critic's prompt. stop: the critic means that nothing is left to
    mend where a line of its critique is this text, whatever its case and punctuation; None: it cannot stop.
    What does not fit the critic's context gets no words.
    """

    generator: Generator = field(kw_only=False)
    ask: Form[str, str | None] = CRITIQUE
    stop: str | None = STOP

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        prompt = asked(self.ask, candidate.prompt, candidate.text, words(score))
        try:
            (said,) = await self.generator.generate(Sequence.of(prompt), scope=scope)
        except PromptError:  # longer than the context
            return Remark()
        return Remark(said.text.strip() or None, self._stops(said.text))

    def _stops(self, text: str) -> bool:
        if self.stop is None:
            return False
        line = re.compile(rf"\W*{re.escape(self.stop)}\W*", re.IGNORECASE)
        return any(line.fullmatch(each.strip()) for each in text.splitlines())
