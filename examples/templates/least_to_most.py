"""Least-to-most: smaller questions first, each with the answers so far."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.least_to_most import LeastToMost


def build(generator: mg.Generator) -> mg.Strategy:
    # The answer to a question ends where the next one would begin.
    return LeastToMost(generator, solver=generator.replace(stop=("\nQuestion:",)), most=6)


if __name__ == "__main__":
    solve(build, sys.argv[1:])
