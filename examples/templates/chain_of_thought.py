"""Chain-of-thought: a thought, then the answer behind a cue; several of them, and a vote."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.patterns import chain_of_thought
from metagen.strategies.chain.steps import Ask

PROMPT = "{prompt}\n\nThink step by step, and end with a line that begins with 'The answer is'.\n"


def build(generator: mg.Generator) -> mg.Strategy:
    thinking = chain_of_thought(generator, cue="\nThe answer is", thought=400)
    return mg.MajorityVote(
        Chain({"answer": Ask(thinking, PROMPT)}), n=5, answer=mg.NumberRule(r"The answer is (.*)")
    )


if __name__ == "__main__":
    solve(build, sys.argv[1:])
