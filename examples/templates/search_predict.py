"""Demonstrate, search, predict: two hops of query and passages, then the answer.

`demonstrate` puts the chain's own right solutions of training problems before its queries and answers; it needs the
model, so it runs after `build`: see docs/strategies/patterns.md.
"""

from __future__ import annotations

import sys

from model import solve
from self_ask import CORPUS

import metagen as mg
from metagen.strategies.chain.patterns import search_predict
from metagen.strategies.chain.retriever import BM25


def build(generator: mg.Generator) -> mg.Strategy:
    # Queries and answers are lines.
    return search_predict(generator.replace(stop=("\n",)), BM25(CORPUS).tool(k=2), hops=2)


if __name__ == "__main__":
    solve(build, sys.argv[1:])
