"""Program of thought: the model writes a program, and the sandbox runs it. Needs bubblewrap."""

from __future__ import annotations

import sys

from model import solve

import metagen as mg
from metagen.strategies.chain.patterns import program_of_thought
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.sandbox import Sandbox


def build(generator: mg.Generator) -> mg.Strategy:
    return program_of_thought(
        generator,
        Sandbox(limits=Limits(wall=5.0)),
        conclude="{prompt}\n\nA program found: {result}\nThe answer is",
    )


if __name__ == "__main__":
    solve(build, sys.argv[1:])
