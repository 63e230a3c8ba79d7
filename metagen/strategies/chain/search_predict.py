"""Search and predict (demonstrate–search–predict, Khattab et al. 2022): hops of query and passages, then an answer."""

from __future__ import annotations

from metagen.errors import InputError
from metagen.generators.base import Generator, is_count
from metagen.strategies.chain.ask import Ask
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.step import ChainStep
from metagen.strategies.chain.use import Use
from metagen.strategies.tools import Function, Tool
from metagen.verifiers.base import AnswerRule


def search_predict(
    generator: Generator, search: Tool | Function, *, hops: int = 2, answer: AnswerRule | None = None
) -> Chain:
    """Steps `query_1`, `passages_1`, … and `answer`; each query sees the passages of the hops before it.

    search: takes a `query`. `demonstrate` puts worked examples before the queries and the answer.
    """
    if not is_count(hops, 1):
        raise InputError(f"hops={hops!r}: expected how often to search, at least 1")
    steps: dict[str, ChainStep] = {}
    context = ""
    for hop in range(1, hops + 1):
        steps[f"query_{hop}"] = Ask(generator, f"{context}Question: {{prompt}}\nSearch query:")
        steps[f"passages_{hop}"] = Use(search, query=f"{{query_{hop}}}")
        context += f"Context: {{passages_{hop}}}\n"
    steps["answer"] = Ask(generator, f"{context}Question: {{prompt}}\nAnswer:")
    return Chain(steps, answer=answer)
