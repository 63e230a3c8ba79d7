"""Draft, sketch, fill, check: a function with holes, whose public tests are the check.

The question is what to write; the tests stand below, where a data set would bring its own.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from model import solve

import metagen as mg
from metagen.strategies.chain.draft_sketch_fill import DraftSketchFill
from metagen.strategies.chain.function import FunctionStrategy
from metagen.verifiers.code.public import PublicTests
from metagen.verifiers.code.sandbox import Sandbox

TESTS = {
    "tests": ["assert middle([3, 1, 2]) == 2", "assert middle([4, 1]) == 2.5"],
    "entry_points": ["middle"],
}


def build(generator: mg.Generator) -> mg.Strategy:
    filling = DraftSketchFill(generator, PublicTests(Sandbox()), hole="HOLE", tries=4)

    async def with_tests(prefix: mg.Sequence, scope: mg.Scope) -> mg.Sequence:
        asked = mg.Sequence(replace(prefix.prompt, public=prefix.prompt.public or TESTS))
        (written,) = await filling.generate(asked, scope=scope.child("program"))
        return written

    return FunctionStrategy(with_tests)


if __name__ == "__main__":
    solve(build, sys.argv[1:])
