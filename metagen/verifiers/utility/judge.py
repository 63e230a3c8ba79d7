"""A language model as judge: it rates each candidate against each reference, from 1 to 5."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Final

from metagen.errors import InputError
from metagen.logs import logger
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import digest
from metagen.verifiers.generative.question import Question
from metagen.verifiers.generative.respondent import Asked, Respondent
from metagen.verifiers.utility.pairs import Pair, PairUtility

_LOG = logger(__name__)
#: How good is the second answer if the first is right? The value is the expected rating, less 1, over 4.
AGAINST_REFERENCE: Final = Question(
    """\
Here are a task, a reference answer that you may take to be right, and another answer.

Task:
{task}

Reference answer:
{first}

Answer to rate:
{second}

How good is the answer, if the reference is right? 1 is useless or contradicts the reference, 3 agrees in part, 5 is
as good as the reference. The wording need not be the same.
""",
    {" 1": 1.0, " 2": 2.0, " 3": 3.0, " 4": 4.0, " 5": 5.0},
    "Rating (1-5):",
)


@part
class JudgeUtility(PairUtility):
    """u(y, y') from a judge whose question has {first}, the reference, and {second}, the candidate.

    A LabelRespondent takes the expectation over its distribution on the labels, in one evaluation; a WritingRespondent
    needs nothing but a generator, and takes the mean of what it writes. Ratings are recorded under what is asked, so
    they stay the same whatever else is compared. A pair of which there is no rating (nothing readable, too long for
    the context, no budget) is not known; where a limit left out all, its refusal is raised. A candidate that writes
    the judge's cue by itself gets 0. Raises InputError for a question about one answer.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.generative.respondent import WritingRespondent
        >>> from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
        >>> critic = mg.FunctionGenerator(lambda prefix, seed, index: "Rating (1-5): 4", name="critic")
        >>> utility = JudgeUtility(WritingRespondent(critic, AGAINST_REFERENCE))
        >>> texts = [mg.Sequence(mg.Prompt("1", text="Say hello."), t, finish="eos") for t in ("Hello", "Hi")]
        >>> asyncio.run(utility.matrix(texts[:1], texts[1:], scope=mg.Scope.root("1"))).tolist()
        [[0.75]]
    """

    name = "judge"

    respondent: Respondent = field(kw_only=False)

    def __post_init__(self) -> None:
        if not self.respondent.question.compares:
            raise InputError(
                "the judge's question is about one answer; use AGAINST_REFERENCE, or one with {first}, the "
                "reference, and {second}, the candidate"
            )

    @property
    def fingerprint(self) -> str:
        return digest("judge utility", self.respondent.fingerprint).hex()

    async def rate(self, pairs: list[Pair], scope: Scope) -> list[float]:
        question = self.respondent.question
        pairs = [(y.answered, z.answered) for y, z in pairs]
        forged = {s.digest for pair in pairs for s in pair if self.respondent.is_forged(s.text)}
        honest = [(y, z) for y, z in pairs if not {y.digest, z.digest} & forged]
        asked = [
            Asked(digest(z.digest, y.digest), question.prompt(y.prompt, first=z.text, second=y.text))
            for y, z in honest
        ]
        answers = await self.respondent.ask(asked, scope)
        if unread := sum(score.unread for score in answers):
            _LOG.warning("ratings cannot be read", extra={"unread": unread, "pairs": len(answers)})
        scores = iter(answers)
        # A forger is worth nothing, and nothing is known of who would be measured by one.
        values = [
            0.0 if y.digest in forged else None if z.digest in forged else next(scores).value
            for y, z in pairs
        ]
        return [math.nan if value is None else value for value in values]
