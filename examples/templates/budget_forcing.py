"""Budget forcing: a reasoning model thinks from 500 to 2,000 tokens, whatever it would do by itself."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask
from metagen.strategies.sequential.budget_forcing import BudgetForcing, Thinking


def build(generator: mg.Generator) -> mg.Strategy:
    room = generator.replace(max_tokens=3000)
    forced = BudgetForcing(
        room, Thinking(least=500, most=2000, waits=4), end="</think>", wait="\nWait,", cue="\n\nFinal answer:"
    )
    return Chain({"answer": Ask(forced, "{prompt}\n<think>\n")})


if __name__ == "__main__":
    solve(build, sys.argv[1:])
