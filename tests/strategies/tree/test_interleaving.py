"""The same search, whoever is fast: without a limit, under limits, and from the journal."""

from __future__ import annotations

import asyncio
import random
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from metagen.budget import Budget
from metagen.call import Ended, Outcome
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, digest
from metagen.strategies.base import Result, Strategy
from metagen.strategies.parallel import Sample
from metagen.strategies.refine.feedback import WordsOf
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.blockwise import Blockwise
from metagen.strategies.tree.gibbs import ParticleGibbs
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.particles import ParticleFilter
from metagen.strategies.tree.rebase import Rebase
from metagen.strategies.tree.search import TreeStrategy
from metagen.strategies.tree.split import Split
from metagen.strategies.tree.treefinement import Treefinement
from metagen.testing import CountingJournal
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.tree.checks import PROMPT
from tests.strategies.tree.toys import Jittery, Shape, step

STEP = Step("|")


class Pace:
    """How long things take: nothing, or what a seed says."""

    def __init__(self, seed: int | None) -> None:
        rng = random.Random(seed)
        self.delays = [rng.random() * 0.004 for _ in range(31)] if seed is not None else []

    async def wait(self, number: int) -> None:
        if self.delays:
            await asyncio.sleep(self.delays[number % len(self.delays)])


def steps(pace: Pace) -> FunctionGenerator:
    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        await pace.wait(seed)
        rng = random.Random(seed)
        if prefix.text.count("|") >= 3 or rng.random() < 0.2:
            return Drawn(rng.choice("xyz") + ".", None, 2, finish="eos")
        return Drawn(rng.choice("abc") + "|", None, 2)

    return FunctionGenerator(write, name="steps", count=len, max_tokens=2)


def mends(pace: Pace) -> FunctionGenerator:
    async def write(prefix: Sequence, seed: int, index: int) -> str:
        await pace.wait(seed)
        return (prefix.prompt.text or "")[-1] + random.Random(seed).choice("abcd")

    return FunctionGenerator(write, name="mends", count=len, max_tokens=2)


class Paced(FunctionVerifier):
    """A value without sense, after a while."""

    def __init__(self, pace: Pace, name: str) -> None:
        super().__init__(lambda s: int.from_bytes(digest(name, s.text)[:2], "little") / 65536, name=name)
        self._pace = pace

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        await self._pace.wait(sequences[0].digest[0])
        return await super().evaluate(sequences, scope, ended)


def make(name: str, pace: Pace) -> Strategy:
    g, v, w = steps(pace), Paced(pace, "v"), Paced(pace, "w")
    match name:
        case "mcts":
            return MCTS(g, 5, verifier=v, width=2, in_flight=3, until=STEP)
        case "rollouts":
            return MCTS(g, 3, width=2, rollouts=2, outcome=w, in_flight=2, until=STEP)
        case "mixed":
            return MCTS(g, 3, verifier=v, width=2, rollouts=1, outcome=w, in_flight=2, until=STEP)
        case "particles":
            return ParticleFilter(g, 4, verifier=v, until=STEP)
        case "gibbs":
            return ParticleGibbs(g, 3, verifier=v, iterations=2, until=STEP)
        case "lookahead":
            return Lookahead(g, 4, m=2, ahead=2, verifier=v, until=STEP)
        case "blockwise":
            return Blockwise(g, 3, verifier=v, block=STEP)
        case "treefinement":
            return Treefinement(g, 4, verifier=v, corrector=mends(pace), rounds=2, ask=candidate_alone)
    raise AssertionError(name)


def candidate_alone(task: object, candidate: str, feedback: str | None) -> object:
    return replace(task, text=candidate)  # type: ignore[type-var]  # a Prompt


def budgets(free: Result, seed: int) -> Iterator[Budget]:
    rng = random.Random(seed)
    calls, generated = free.usage.calls, free.usage.generated or 1
    yield Budget()
    for _ in range(3):
        yield Budget(calls=rng.randrange(calls))
        yield Budget(generated=rng.randrange(generated))
    yield Budget(calls=rng.randrange(1, calls), generated=rng.randrange(1, generated))


NAMES = ("mcts", "rollouts", "mixed", "particles", "gibbs", "lookahead", "blockwise", "treefinement")


@pytest.mark.parametrize("name", NAMES)
def test_what_takes_how_long_changes_nothing(name: str) -> None:
    alone = make(name, Pace(None))
    for seed in range(3):
        for budget in budgets(alone.solve(PROMPT), seed):
            expected = alone.solve(PROMPT, budget=budget)
            journal = CountingJournal()
            paced = make(name, Pace(seed))
            found = paced.solve(PROMPT, budget=budget, journal=journal)
            assert (found.sequence, found.candidates) == (expected.sequence, expected.candidates)
            paid = journal.recorded
            again = paced.solve(PROMPT, budget=budget, journal=journal)
            assert (again.sequence, again.candidates) == (found.sequence, found.candidates)
            assert journal.recorded == paid


def words(moods: random.Random) -> FunctionGenerator:
    """Letters one by one: a step is several calls."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        if len(prefix.text) > 8:
            return Drawn("=1", None, 2, finish="eos")
        return Drawn(random.Random(seed).choice("abc;"), None, 1)

    return Moody(write, moods)


class Moody(FunctionGenerator):
    """Takes its time, by chance, and may always write more than it does."""

    def __init__(self, write: Callable[[Sequence, int, int], str | Drawn], moods: random.Random) -> None:
        async def moody(prefix: Sequence, seed: int, index: int) -> str | Drawn:
            for _ in range(moods.randrange(9)):
                await asyncio.sleep(0)
            return write(prefix, seed, index)

        super().__init__(moody, name="moody", count=len, max_tokens=7)


def mended(prefix: Sequence, seed: int, index: int) -> str:
    return (prefix.prompt.text or "")[-1] + random.Random(seed).choice("abcd")


#: Each with the limits under which its tree hung on who was faster.
CONTENDED: dict[str, tuple[Callable[[random.Random], TreeStrategy], list[Budget]]] = {
    "calls of a step": (
        lambda m: Rebase(words(m), 3, verifier=Jittery(m), until=Split(semicolon, "semicolon", 1, 4)),
        [Budget(calls=n) for n in (16, 18, 28, 31)],
    ),
    "members of a verifier": (
        lambda m: Rebase(Moody(step, m), 6, verifier=Ensemble([Named("a", m), Named("b", m)])),
        [Budget(calls=n) for n in (26, 32, 38)],
    ),
    "a strategy that writes the steps": (
        lambda m: Rebase(Sample(Moody(step, m)), 6, verifier=Jittery(m)),
        [Budget(calls=12), Budget(calls=13), Budget(generated=23)],
    ),
    "tokens kept for what may be written": (
        lambda m: BeamSearch(Moody(step, m), 6, m=2, verifier=Jittery(m)),
        [Budget(generated=n) for n in (35, 36, 37, 45, 46, 49)],
    ),
    "words of another verifier": (
        lambda m: Treefinement(
            Moody(mended, m), 4, verifier=Named("c", m), feedback=WordsOf(Named("d", m)), rounds=3
        ),
        [Budget(calls=n) for n in (10, 12, 18, 21)],
    ),
}  # fmt: skip


def semicolon(text: str) -> int | None:
    return text.find(";") + 1 or None


class Named(Jittery):
    """Each has an opinion of its own."""

    def __init__(self, name: str, moods: random.Random) -> None:
        super().__init__(moods, lambda s: int.from_bytes(digest(name, s.text)[:2], "little") / 65536, name)


@pytest.mark.parametrize("name", CONTENDED)
def test_what_draws_on_one_limit_does_not_depend_on_who_is_faster(name: str) -> None:
    make, limits = CONTENDED[name]
    for budget in limits:
        shapes = set()
        for seed in range(16):
            tree = make(random.Random(seed)).tree(PROMPT, seed=2, budget=budget)
            assert tree.chosen is not None and tree.chosen.exhausted
            shapes.add(Shape.of(tree))
        assert len(shapes) == 1, budget


@pytest.mark.parametrize("name", NAMES)
def test_a_deadline_is_replayed_as_it_fell(name: str) -> None:
    for seconds in (0.004, 0.012):
        journal, strategy = CountingJournal(), make(name, Pace(7))
        found = strategy.solve(PROMPT, budget=Budget(seconds=seconds), journal=journal)
        paid = journal.recorded
        again = strategy.solve(PROMPT, budget=Budget(seconds=seconds), journal=journal)
        assert (again.sequence, journal.recorded) == (found.sequence, paid)
