"""What a grammar costs: masks by themselves, and decoding held to one beside decoding that is free.

In CPU time of one thread, which other programs on the machine do not change.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.row import RUNS, Row
from metagen.generators.decoding.constraint import Held, masks
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.tasks.arithmetic.task import ArithmeticTask

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
#: All that a free model writes, too, so that both sides decode alike.
ANY = Grammar.regex(r"(?s:.)*")
ROWS, TOKENS, MODEL = 64, 96, "tiny-bpe"


def rows() -> Iterator[Row]:
    """Overheads in microseconds a row and token."""
    with TorchEngine(MODEL, threads=1) as engine:
        constraints = engine._tokenizer.constraints()
        for name, grammar in (("a regular expression", ANY), ("a JSON schema", Grammar.json(SCHEMA))):
            taken, tokens = _masks(constraints, grammar)
            how = f"{MODEL}, {ROWS} rows at once: forced tokens, masks and the step to the next; {tokens} tokens"
            yield Row(f"masks of {name}, a row and token", 1e6 * taken / tokens, "µs", how, "≤ 50")
        free, held = _decoded(engine, None), _decoded(engine, ANY)
        how = f"{MODEL}, {ROWS} samples of {TOKENS} tokens, median of {RUNS}, both sides one after another"
        yield Row("decoding without a grammar, a row and token", 1e6 * free, "µs", how)
        yield Row("what a grammar adds, a row and token", 1e6 * (held - free), "µs", how, "≤ 50")


def _masks(constraints: Any, grammar: Grammar) -> tuple[float, int]:
    """CPU seconds and tokens of random walks, all of them a token on at a time."""
    tokens = 0

    def walk() -> None:
        nonlocal tokens
        rng, tokens = np.random.default_rng(0), 0
        held: list[Held] = [constraints.matcher(grammar) for _ in range(ROWS)]
        for _ in range(TOKENS):
            for matcher in held:
                matcher.forced_tokens()
            allowed, _ = masks(held, [None] * ROWS)
            picked = (rng.random(allowed.shape) * allowed).argmax(1)
            for matcher, token in zip(held, picked.tolist(), strict=True):
                matcher.consume([token])
            tokens += ROWS

    walk()
    taken = []
    for _ in range(RUNS):
        start = time.process_time()
        walk()
        taken.append(time.process_time() - start)
    return statistics.median(taken), tokens


def _decoded(engine: TorchEngine, grammar: Grammar | None) -> float:
    """CPU seconds a row and token; a few tokens more or less are drawn, as samples end where they end."""
    (problem,) = ArithmeticTask("validation", levels=[3], per_level=1).problems()
    generator = engine.generator(max_tokens=TOKENS, grammar=grammar, temperature=1.5)

    def once(seed: int) -> float:
        before, start = engine.stats.generated, time.process_time()
        scope = Scope.root("grammar", seed=seed)
        asyncio.run(generator.generate(Sequence(problem.prompt), n=ROWS, scope=scope))
        return (time.process_time() - start) / (engine.stats.generated - before)

    once(0)
    return statistics.median(once(seed) for seed in range(1, RUNS + 1))
