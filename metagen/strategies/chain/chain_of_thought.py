"""Chain-of-thought (Wei et al. 2022; in two calls, Kojima et al. 2022): a thought, then the answer.

`direct` is what it is compared with: the answer at once.
"""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.go_on import Continue
from metagen.strategies.stop_text import also_stopping
from metagen.values import Count
from metagen.verifiers.base import AnswerRule


def chain_of_thought(
    generator: Generator,
    *,
    cue: str,
    thought: Count | None = None,
    thinker: Generator | None = None,
    answer: AnswerRule | None = None,
) -> Chain:
    """Goes on from the problem until the model would write `cue`, and from there with the cue to the answer.

    thought: max_tokens of the thought. The generator's own bound thought and answer together: only a thought that is
    cut before leaves room for an answer. thinker: writes the thought; by default the generator, stopped at the cue as
    well as at its own stop texts.
    """
    if thinker is None:
        thinker = also_stopping(generator, cue)
        thinker = thinker if thought is None else thinker.replace(max_tokens=thought)
    return Chain(
        {"thought": Continue(thinker), "answer": Continue(generator, cue, after="thought")}, answer=answer
    )


def direct(generator: Generator, *, cue: str = "", answer: AnswerRule | None = None) -> Chain:
    """The answer at once, behind the cue: what chain-of-thought is to be compared with."""
    return Chain({"answer": Continue(generator, cue)}, answer=answer)
