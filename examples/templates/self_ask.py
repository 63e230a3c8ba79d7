"""Self-ask with a retriever: the model asks follow-up questions, and BM25 over a local corpus answers them."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.interleaved import self_ask
from metagen.strategies.chain.retriever import BM25
from metagen.strategies.chain.steps import Ask

#: Put your own passages here, such as the paragraphs of a folder of texts.
CORPUS = [
    "The Danube rises at Donaueschingen, in the Black Forest.",
    "The Danube flows into the Black Sea.",
    "The Black Forest lies in the south-west of Germany.",
]
#: The form is shown by one example; the question follows it.
PROMPT = """\
Question: Which is longer, the river through Cologne or the river through Vienna?
Follow up: Which river flows through Cologne?
Intermediate answer: Cologne lies on the Rhine, which is 1,230 km long.
Follow up: Which river flows through Vienna?
Intermediate answer: Vienna lies on the Danube, which is 2,850 km long.
So the final answer is: the river through Vienna

Question: {prompt}
"""


def build(generator: mg.Generator) -> mg.Strategy:
    asking = self_ask(generator, BM25(CORPUS).tool(), most=4)
    return Chain({"answer": Ask(asking, PROMPT)})


if __name__ == "__main__":
    solve(build, sys.argv[1:])
