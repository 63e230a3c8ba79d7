"""Search and predict (demonstrate–search–predict, Khattab et al. 2022): hops of query and passages, then an answer."""

from __future__ import annotations

from metagen.border import checked
from metagen.generators.base import Generator
from metagen.strategies.chain.ask import Ask
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.step import ChainStep
from metagen.strategies.chain.use import Use
from metagen.strategies.tools import Function, Tool
from metagen.values import Count
from metagen.verifiers.base import AnswerRule


@checked
def search_predict(
    generator: Generator, search: Tool | Function, *, hops: Count = 2, answer: AnswerRule | None = None
) -> Chain:
    """Steps `query_1`, `passages_1`, … and `answer`; each query sees the passages of the hops before it.

    search: takes a `query`. `demonstrate` puts worked examples before the queries and the answer.
    """
    steps: dict[str, ChainStep] = {}
    context = ""
    for hop in range(1, hops + 1):
        steps[f"query_{hop}"] = Ask(generator, f"{context}Question: {{prompt}}\nSearch query:")
        steps[f"passages_{hop}"] = Use(search, query=f"{{query_{hop}}}")
        context += f"Context: {{passages_{hop}}}\n"
    steps["answer"] = Ask(generator, f"{context}Question: {{prompt}}\nAnswer:")
    return Chain(steps, answer=answer)
