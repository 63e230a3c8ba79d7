"""A toy task with a generator and verifiers made of functions, as another package would bring them.

`TOY_LOG` names a file to which each sample appends a line (so that a test counts calls across processes);
`TOY_DELAY` makes each sample take so many seconds. Behind `TOY_MOST` samples of a process the next ones never end.
"""

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from metagen.errors import PromptError
from metagen.generators.engine import Generated, GenerateRequest
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Score, Sequence, digest
from metagen.tasks.base import Problem, Task, check_problems
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule, FunctionVerifier

#: Counts the samples that this process begins.
_begun = itertools.count()


def _read(text: str) -> str | None:
    _, found, answer = text.rpartition("A:")
    return answer.strip() if found else None


def _key(answer: str) -> str | None:
    return str(int(answer)) if answer.removeprefix("-").isdecimal() else None


class ToyTask(Task):
    """Sums: the level is the number of terms."""

    name = "sums"

    def __init__(
        self,
        *,
        count: int = 12,
        seed: int = 0,
        limit: int | None = None,
        twice: bool = False,
        label: str = "sum",
    ) -> None:
        self.count, self.seed, self.twice, self.label = min(count, limit or count), seed, twice, label

    @property
    def answer(self) -> AnswerRule:
        return FunctionRule(_read, _key)

    def problems(self) -> Iterator[Problem]:
        return check_problems(self._draw(), "the toy task")

    def _draw(self) -> Iterator[Problem]:
        for i in range(self.count):
            rng = random.Random(f"{self.seed}/{i}")
            level = 1 + i % 3
            terms = [rng.randrange(1, 50) for _ in range(level + 1)]
            name = f"{self.label}-{0 if self.twice else i}"
            yield Problem(Prompt(name, text="+".join(map(str, terms)) + "=?\n"), str(sum(terms)), level)


def _truth(prompt: Prompt) -> int:
    return sum(map(int, (prompt.text or "").removesuffix("=?\n").split("+")))


def generator(
    *,
    skill: float = 0.6,
    name: str = "toy",
    fails_on: str = "",
    temperature: float = 1.0,
    surrogates: bool = False,
    gate: str = "",
) -> FunctionGenerator:
    """Right with a chance that falls with the number of terms; else one of four near misses, or no answer.

    surrogates: begins each text with half of a pair, which UTF-8 cannot hold. gate: a file; until it exists, each
    problem gets two samples.
    """

    async def function(prefix: Sequence, seed: int, index: int) -> str:
        if prefix.prompt.problem_id == fails_on:
            raise PromptError(f"the prompt of {fails_on!r} is too long; make it shorter")
        if next(_begun) >= float(os.environ.get("TOY_MOST", "inf")):
            await asyncio.Event().wait()
        if log := os.environ.get("TOY_LOG"):
            with open(log, "a") as file:  # noqa: ASYNC230, PTH123
                file.write(f"{name} {prefix.prompt.problem_id} {index}\n")
        await asyncio.sleep(float(os.environ.get("TOY_DELAY", "0")))
        while gate and index >= 2 and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
        rng, truth = random.Random(seed), _truth(prefix.prompt)
        luck = rng.random()
        if luck > 0.95:
            return "I do not know."
        chance = skill ** (prefix.prompt.text or "").count("+")
        right = luck < chance
        value = truth if right else truth + rng.choice((-10, -1, 1, 10))
        start = "\ud800step" if surrogates else "step"
        return f"{start} {rng.randrange(1000)}\nA:{value}" + (".0" if luck > 0.94 else "")

    return FunctionGenerator(function, name=f"{name} {skill}", count=len, max_tokens=24)


class Letters(EnumerableEngine):
    """Writes steps and answers by chance, without torch; it tells no ids, so that nobody needs its tokenizer."""

    def __init__(self, *, delay: float = 0.0) -> None:
        tokens, table = ("a", "b", "\nA:1", "\nA:2", "\nA:3", "$"), (0.45, 0.3, 0.1, 0.05, 0.05, 0.05)
        super().__init__(tokens, lambda prompt, done: table, name="letters")
        self._inner = EnumerableEngine(tokens, lambda prompt, done: table, name="letters", delay=delay)
        # Its class has the fingerprint of a tokenizer, and counts of its own.
        self.tokenizer_fingerprint, self.stats = None, self._inner.stats  # type: ignore[assignment]

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return super().__enter__()

    def render(self, prefix: Sequence) -> None:  # type: ignore[override]  # as of an engine without ids
        return None

    async def generate(self, request: GenerateRequest) -> Generated:
        made = await self._inner.generate(request)
        samples = tuple(replace(sample, ids=None) for sample in made.samples)
        return replace(made, samples=samples, prefix_ids=None)


def verifier(*, quality: float = 0.7, name: str = "judge") -> FunctionVerifier:
    """Scores that are higher for right answers, by chance."""

    def function(sequence: Sequence) -> Score:
        rng = random.Random(digest(sequence.prompt.text or "", sequence.text))
        right = (_read(sequence.text) or "") == str(_truth(sequence.prompt))
        value = rng.betavariate(4, 2) if right or rng.random() > quality else rng.betavariate(2, 4)
        return Score(value, steps=(0.9, value))

    return FunctionVerifier(function, name=name)
