"""System 2 attention (Weston & Sukhbaatar 2023): rewrite the problem without what distracts, then answer that."""

from __future__ import annotations

from typing import Final

from metagen.generators.base import Generator
from metagen.strategies.chain.ask import Ask
from metagen.strategies.chain.chain import Chain
from metagen.verifiers.base import AnswerRule

REWRITE: Final = (
    "Here is a problem. Write it again with all that is needed to solve it, and without opinions or anything else that "
    "is beside the point. Do not solve it.\n\n{prompt}\n\nThe problem, written again:\n"
)


def system_two_attention(
    generator: Generator,
    *,
    rewriter: Generator | None = None,
    rewrite: str = REWRITE,
    ask: str = "{rewritten}",
    chat: bool = False,
    answer: AnswerRule | None = None,
) -> Chain:
    """Two steps, `rewritten` and `answer`; the second does not see the first form of the problem.

    rewriter: writes the problem again; by default the generator itself.
    """
    steps = {
        "rewritten": Ask(rewriter or generator, rewrite, chat=chat),
        "answer": Ask(generator, ask, chat=chat),
    }
    return Chain(steps, answer=answer)
