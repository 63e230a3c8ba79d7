"""Self-ask (Press et al. 2023): the model asks itself what it needs to know, and a retriever answers."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.strategies.chain.interleaved import Interleaved
from metagen.strategies.stop_text import also_stopping
from metagen.strategies.tools import Function, Tool
from metagen.verifiers.base import AnswerRule

FOLLOW_UP = "Follow up:"
INTERMEDIATE = "Intermediate answer:"


def self_ask(
    generator: Generator, search: Tool | Function, *, most: int = 5, answer: AnswerRule | None = None
) -> Interleaved:
    """Puts "Intermediate answer: …" of `search(query)` after each "Follow up: …" of the model, until it answers.

    generator: is told to stop before "Intermediate answer:" too. Its prompts should show the form by worked examples,
    which models without training for it need.
    """
    return Interleaved(
        also_stopping(generator, INTERMEDIATE),
        search,
        call=rf"{FOLLOW_UP}[ \t]*(?P<query>[^\n]+)\s*",
        result=INTERMEDIATE + " {result}\n",
        most=most,
        answer=answer,
    )
