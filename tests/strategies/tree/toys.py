"""Trees that are known beforehand, and ones that are made by chance: what searches are tried on."""

from __future__ import annotations

import asyncio
import random
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metagen.generators.engine import Sample
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Sequence, digest
from metagen.strategies.tree.node import Tree
from metagen.verifiers.function import FunctionRule, FunctionVerifier

PROMPT = Prompt("toy", text="?")


def table(steps: Mapping[str, abc.Sequence[str | Sample]], *, name: str = "table") -> FunctionGenerator:
    """Draw i after a text is entry i of its row, round and round. A step that ends in "$" ends the sequence."""

    def write(prefix: Sequence, seed: int, index: int) -> Sample:
        row = steps[prefix.text]
        written = row[index % len(row)]
        if isinstance(written, Sample):
            return written
        text = written.removesuffix("$")
        return Sample(
            text, None, len(text), finish="eos" if text != written else None, step_end=len(text) or None
        )

    return FunctionGenerator(write, name=name, count=len, max_tokens=16)


def values(given: Mapping[str, float], *, seen: list[str] | None = None) -> FunctionVerifier:
    """Scores by text."""

    def look(sequence: Sequence) -> float:
        if seen is not None:
            seen.append(sequence.text)
        return given[sequence.text]

    return FunctionVerifier(look, name="values")


#: The text behind the last "=", up to the end of its word.
ANSWER = FunctionRule(lambda text: text.rpartition("=")[2].strip() or None if "=" in text else None)


def step(prefix: Sequence, seed: int, index: int) -> Sample:
    """One of six steps, as the seed says; from the third on a sequence may end, and at the sixth it does."""
    draw = random.Random(seed)
    depth = prefix.text.count(";")
    if depth >= 2 and (depth >= 5 or draw.random() < 0.4):
        text = f"={draw.randrange(3)}"
        return Sample(text, None, len(text), finish="eos")
    text = f"{draw.choice('abcdef')};"
    return Sample(text, None, len(text), step_end=len(text))


def chance() -> FunctionGenerator:
    return FunctionGenerator(step, name="chance", count=len, max_tokens=5)


def insight(sequence: Sequence) -> float:
    """A fixed value of any text, with no insight at all."""
    return int.from_bytes(digest(sequence.text)[:2], "little") / 65535


class Jittery(FunctionVerifier):
    """Takes its time, by chance."""

    def __init__(
        self, chance: random.Random, value: Callable[[Sequence], float] = insight, name: str = "insight"
    ) -> None:
        async def jittery(sequence: Sequence) -> float:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            return value(sequence)

        super().__init__(jittery, name=name)


@dataclass(frozen=True)
class Shape:
    """A tree, as far as two may be compared."""

    nodes: tuple[tuple[str, str, float | None, str, int], ...]

    @classmethod
    def of(cls, tree: Tree) -> Shape:
        return cls(tuple((n.name, n.sequence.text, n.value, n.state, n.multiplicity) for n in tree))
