"""System 2 attention: the problem is written again without what distracts, and then answered."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.patterns import system_two_attention


def build(generator: mg.Generator) -> mg.Strategy:
    return system_two_attention(
        generator, rewriter=generator.replace(temperature=0.0), ask="{rewritten}\nAnswer:"
    )


if __name__ == "__main__":
    solve(build, sys.argv[1:])
