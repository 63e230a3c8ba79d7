"""Least-to-most prompting (Zhou et al. 2023): smaller questions first, each with the answers so far."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import conclude
from metagen.strategies.chain.steps import reply_to
from metagen.template import Template
from metagen.values import Count
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.generative.question import in_words

DECOMPOSE: Final = (
    "{prompt}\n\nWhich questions have to be answered first? Write one on each line, the easiest first, "
    "and the problem's own question last.\n"
)
SOLVE: Final = "{prompt}\n\n{solved}Question: {question}\nAnswer:"
SOLVED: Final = "Question: {question}\nAnswer: {reply}\n\n"
#: A line of a list, and what it says.
_LISTED: Final = re.compile(r"(?:\d+[.)]|[-*•])\s+(.+)")


class LeastToMost(Strategy):
    """Decomposes a problem into questions, one a line, and answers one after the other; the last answer is the result.

    decompose: has the place {prompt}. solve: may have {prompt}, {question} and {solved}, the earlier questions with
    their answers, each written as `solved`. solver: answers the questions; by default the generator itself. At most
    `most` questions are asked: of more, the first, and the last in any case. If the budget ends before the last
    question, or what is solved outgrows the model's context, the last reply is returned, unfinished: it answers
    another question. solved: how a solved question is written down. most: questions at most.

    Where lines of the plan are numbered or have bullets, these are the questions, and the others are talk around them;
    else every line is one. Of a plan that was cut the last line is none, and the problem itself is asked in its place.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        solver: Generator | None = None,
        decompose: str = DECOMPOSE,
        solve: str = SOLVE,
        solved: str = SOLVED,
        most: Count = 8,
        chat: bool = False,
        answer: AnswerRule | None = None,
    ) -> None:
        self.generator, self.solver, self.answer = generator, solver or generator, answer
        self.decomposing = Template(decompose).expecting("prompt", name="decompose")
        self.asking = Template(solve).expecting("question", optional=("prompt", "solved"), name="solve")
        if solved != SOLVED and "solved" not in self.asking.places:
            raise InputError("solved: solve has no place {solved} for it; add it, or leave solved out")
        self.telling = Template(solved).expecting("reply", optional=("question",), name="solved")
        self.most, self.chat = most, chat

    @property
    def fingerprint(self) -> str:
        texts = (self.decomposing.text, self.asking.text, self.telling.text, str(self.most), str(self.chat))
        rule = self.answer.fingerprint if self.answer else ""
        return digest(
            "least to most", self.generator.fingerprint, self.solver.fingerprint, *texts, rule
        ).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        values = {"prompt": in_words(prefix.prompt) + prefix.text, "solved": ""}
        plan = await reply_to(
            prefix, self.decomposing.fill(values), generator=self.generator, scope=scope.child("decompose"),
            chat=self.chat,
        )  # fmt: skip
        questions = self._questions(plan, values["prompt"])
        sequence = prefix
        for i, question in enumerate(questions):
            said, below = self.asking.fill({**values, "question": question}), scope.child(f"solve/{i}")
            try:
                reply = await reply_to(prefix, said, generator=self.solver, scope=below, chat=self.chat)
            except PromptError:  # longer than the context, by what was planned and solved
                break
            values["solved"] += self.telling.fill({"question": question, "reply": reply.text.strip()})
            sequence = reply.reroot(prefix)
            if i + 1 < len(questions):
                sequence = replace(sequence, finish=None)
                scope.offers.clear()
                scope.offer(sequence)
        return await conclude(sequence, scope, self.answer)

    def _questions(self, plan: Sequence, problem: str) -> list[str]:
        lines = [line.strip() for line in plan.text.splitlines() if line.strip()]
        cut = plan.finish == "length"
        whole = lines[:-1] if cut else lines
        asked = [found[1] for line in whole if (found := _LISTED.fullmatch(line))] or whole
        if cut or not asked:
            asked = [*asked, problem]
        return [*asked[: self.most - 1], *asked[-1:]] if len(asked) > self.most else asked
