"""What a killed experiment is made of: a task, an engine and a verifier that keep a ledger of their own.

A line of the ledger is appended when a sample or a score is finished, before metagen hears of it. So the ledger tells
what was paid for, and the journal what was kept.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from metagen.generators.engine import Generated, GenerateRequest
from metagen.generators.enumerable import EnumerableEngine
from metagen.journal import Row
from metagen.sequence import Prompt, Score, Sequence, digest
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule, FunctionVerifier

HEX, ANSWERS = "0123456789abcdef", 4
#: Letters of the name that begins each line of a sample, the lines of a sample, and the tokens that write them.
NAME, LINES = 8, 3
TOKENS = (*HEX, ":", "\n", "$")


@dataclass(frozen=True, slots=True)
class Entry:
    """What an engine or verifier noted, and when, by the clock of the machine.

    kind: `sample` (its text) and `score` (what was scored) were finished; `seen` (a line of a sample) was handed on to
    a verifier, so that somebody was told that it is on disk.
    """

    at: float
    kind: str
    key: str


def note(ledger: str | Path, *entries: tuple[str, str]) -> None:
    text = "".join(f"{time.monotonic():.6f} {kind} {key}\n" for kind, key in entries)
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def entries(ledger: Path) -> list[Entry]:
    if not ledger.exists():
        return []
    lines = (line.split() for line in ledger.read_text().splitlines())
    return [Entry(float(at), kind, key) for at, kind, key in lines]


def named(text: str) -> str:
    """A sample's key; no two samples of an experiment are alike, since their lines begin with long random names."""
    return digest(text).hex()[:16]


def names(text: str) -> Iterator[str]:
    """The names of the lines of a text."""
    return (line[:NAME] for line in text.split("\n") if len(line) >= NAME)


def keys(rows: Iterable[Row]) -> Counter[tuple[str, str]]:
    """What is recorded, as the ledger names it."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.payload is None:
            continue
        if row.kind == "generate":
            found["sample", named(row.payload["text"])] += 1
            found.update({("seen", name) for name in names(row.payload["text"])})
        else:
            found["score", row.content.hex()] += 1
    return found


class Digits(Task):
    """Problems whose answer is a digit; samples are lines of random names with a digit at the end."""

    name = "digits"
    mark = ":"

    def __init__(self, *, count: int = 6) -> None:
        self.count = count

    @property
    def answer(self) -> AnswerRule:
        return FunctionRule(lambda text: text.rpartition(":")[2] or None)

    def problems(self) -> Iterator[Problem]:
        for i in range(self.count):
            yield Problem(Prompt(f"digit-{i}", text=f"{i % ANSWERS}? {i}\n"), str(i % ANSWERS), 1 + i % 2)


def table(prompt: str, done: tuple[str, ...]) -> list[float]:
    """p(· | prompt, completion): names, and behind the last one the right digit with probability 1/2."""
    line = done[len(done) - done[::-1].index("\n") :] if "\n" in done else done
    if len(line) < NAME:
        return [1 / 16] * 16 + [0, 0, 0]
    if len(line) == NAME:
        last = done.count("\n") == LINES - 1
        return [0.0] * 16 + [float(last), float(not last), 0]
    if len(line) == NAME + 1:
        right = next(int(letter) for letter in prompt if letter.isdigit())
        return [(0.5 if i == right else 0.5 / (ANSWERS - 1)) if i < ANSWERS else 0 for i in range(19)]
    return [0.0] * 18 + [1]


class Billed(EnumerableEngine):
    """Notes each sample when it is finished.

    slow: milliseconds that one takes on average, by its seed. ids: whether it tells token ids, as searches need it; a
    pool takes ids only of an engine whose tokenizer lies in a directory.
    """

    def __init__(self, *, ledger: str, slow: float = 10.0, ids: bool = True) -> None:
        super().__init__(TOKENS, table, name="billed")
        self._model = EnumerableEngine(TOKENS, table, name="billed")
        self._ledger, self._slow, self._ids = ledger, slow, ids
        if not ids:
            self.tokenizer_fingerprint = None

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        return super().render(prefix) if self._ids else None

    def __enter__(self) -> Self:
        self._model.__enter__()
        return super().__enter__()

    async def generate(self, request: GenerateRequest) -> Generated:
        async def one(number: int, seed: int) -> Generated:
            await asyncio.sleep(random.Random(seed).expovariate(1000 / self._slow))
            made = await self._model.generate(replace(request, seeds=(seed,), heard=None, ended={}))
            sample = made.samples[0] if self._ids else replace(made.samples[0], ids=None)
            note(self._ledger, ("sample", named(sample.text)))
            request.note(number, sample, None if self._ids else made.prefix_tokens)
            return replace(made, samples=(sample,), prefix_ids=made.prefix_ids if self._ids else None)

        made = await asyncio.gather(*(one(number, seed) for number, seed in enumerate(request.seeds)))
        prefilled, cached = (sum(getattr(m, name) or 0 for m in made) for name in ("prefilled", "cached"))
        samples = tuple(m.samples[0] for m in made)
        return replace(made[0], samples=samples, prefilled=prefilled, cached=cached)


def verifier(*, ledger: str, slow: float = 3.0) -> FunctionVerifier:
    """Notes what it is handed, and each score when it is finished."""

    async def judge(sequence: Sequence) -> Score:
        note(ledger, *(("seen", name) for name in names(sequence.text)))
        content = sequence.digest
        drawn = random.Random(content)
        await asyncio.sleep(drawn.expovariate(1000 / slow))
        note(ledger, ("score", content.hex()))
        return Score(drawn.random(), feedback="Write other names.")

    return FunctionVerifier(judge, name="judge")
