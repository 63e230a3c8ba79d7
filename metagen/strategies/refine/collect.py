"""Collecting pairs (bad, better) from chains: the exploring half of self-corrective learning (Welleck et al. 2023)."""

from __future__ import annotations

import asyncio
import math
from collections import abc, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from metagen.budget import Budget, BudgetLike
from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.journal import Journal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, digest
from metagen.strategies.base import wait
from metagen.strategies.refine.feedback import OwnWords, Remark, words
from metagen.strategies.refine.pair_file import PairFile
from metagen.strategies.refine.pairs import Pair, Pairing
from metagen.strategies.refine.refinement import RefinementStrategy
from metagen.strategies.refine.trajectory import Round
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.edit import EditSimilarity


@dataclass(frozen=True, slots=True)
class Collected:
    """What a file of pairs holds, those of earlier calls included.

    revisions: of all chains; copies: those that were equal to what they were to mend. exhausted: problems whose budget
    ended first. oracle: the verifier knows the reference answers, as it may on problems to train on.
    """

    path: Path
    problems: int
    pairs: int
    revisions: int
    copies: int
    exhausted: int
    oracle: bool


@dataclass(frozen=True, slots=True)
class _Collecting:
    """What is done for each problem."""

    strategy: RefinementStrategy
    n: int
    pairing: Pairing
    budget: Budget | None
    seed: int
    journal: Journal | None

    @property
    def fingerprint(self) -> str:
        pairing, utility = self.pairing, self.pairing.utility
        how = (
            repr(float(pairing.alpha)),
            repr(float(pairing.beta)),
            str(pairing.most),
            utility.fingerprint if utility else "",
        )
        return digest(self.strategy.fingerprint, str(self.n), *how, repr(self.budget), str(self.seed)).hex()

    async def one(self, prompt: Prompt) -> tuple[list[Pair], dict[str, int]]:
        """The pairs of a problem, and what is noted of its chains."""
        strategy = self.strategy
        scope = Scope.root(
            prompt.problem_id,
            seed=self.seed,
            journal=self.journal,
            budget=self.budget,
            label=strategy.fingerprint,
        )
        prefix = Sequence.of(prompt)
        chains = await scope.batch(
            range(self.n), lambda i: strategy.trajectory(prefix, scope.child(str(i))), whole=True
        )
        rounds = [one for chain in chains.whole() for one in _with_questions(strategy, prompt, chain.rounds)]
        pairs = await self.pairing.pairs(rounds, scope)
        return pairs, {
            "revisions": sum(max(0, len(chain.rounds) - 1) for chain in chains.whole()),
            "copies": sum(chain.copies for chain in chains.whole()),
            "exhausted": int(scope.exhausted),
        }


def collect(
    strategy: RefinementStrategy, problems: Iterable[Prompt | str], path: str | Path, **options: Any
) -> Collected:
    """`acollect` with the same options, for scripts and notebooks: waits for it on a background loop."""
    return wait(acollect(strategy, problems, path, **options))


async def acollect(
    strategy: RefinementStrategy,
    problems: Iterable[Prompt | str],
    path: str | Path,
    *,
    n: int = 4,
    alpha: float = 1.0,
    beta: float = 0.0,
    utility: Utility | None = None,
    most: int | None = None,
    budget: BudgetLike = None,
    seed: int = 0,
    journal: Journal | None = None,
    concurrency: int = 8,
) -> Collected:
    """Run n chains for each problem; append its pairs with v(bad) < v(better) to a JSONL file, in training form.

    Candidates of all chains of a problem are paired, so that a draft may learn from another draft. A pair weighs
    exp(α·Δv + β·s): alpha and beta weigh the gain in value and the similarity s = `utility`'s u(better, bad), which is
    `EditSimilarity` by default and is not computed for β = 0. most: pairs kept for each bad candidate.

    The file grows problem by problem, in order, and called again after an interruption the work goes on where it
    stopped: problems that are whole are not run again, and what a journal has recorded is not paid for again.
    budget: for each problem. concurrency: problems at a time.
    Raises InputError for a strategy without a verifier and for options out of range, DataError for a file that
    something else has made.
    """
    if strategy.verifier is None:
        raise InputError("collecting pairs: the strategy has no verifier, and pairs need values; give it one")
    for name, value in (("n", n), ("concurrency", concurrency), ("most", 1 if most is None else most)):
        if not is_count(value, 1):
            raise InputError(f"collecting pairs: {name}={value!r}; expected at least 1")
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        raise InputError(f"collecting pairs: alpha={alpha!r}, beta={beta!r}; expected finite numbers")
    near = (utility or EditSimilarity()) if beta else utility
    work = _Collecting(strategy, n, Pairing(alpha, beta, near, most), Budget.of(budget), seed, journal)
    with PairFile(Path(path), work.fingerprint) as file:
        await _in_order(work, _unfinished_problems(problems, file), file, concurrency)
        return _summary(strategy, file)


def _unfinished_problems(problems: Iterable[Prompt | str], file: PairFile) -> Iterator[Prompt]:
    """Problems that are not whole yet, each once."""
    begun = set(file.finished)
    for prompt in map(Prompt.of, problems):
        if (name := file.name(prompt)) not in begun:
            begun.add(name)
            yield prompt


async def _in_order(work: _Collecting, prompts: Iterator[Prompt], file: PairFile, concurrency: int) -> None:
    """Several problems at a time, written in their order."""
    running: deque[tuple[Prompt, asyncio.Task[tuple[list[Pair], dict[str, int]]]]] = deque()
    try:
        async with asyncio.TaskGroup() as group:
            for prompt in prompts:
                running.append((prompt, group.create_task(work.one(prompt))))
                if len(running) == concurrency:
                    first, task = running.popleft()
                    file.add(first, *await task)
            for first, task in running:
                file.add(first, *await task)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__


def _with_questions(
    strategy: RefinementStrategy, task: Prompt, rounds: abc.Sequence[Round]
) -> Iterator[Round]:
    """The rounds of a chain with the prompts of their revisions.

    Of a candidate that was not revised it is the one that would have been asked, where what would have been said of it
    is known: because it was said, or because the score says it.
    """
    told: list[Round] = []
    for one in rounds:
        if one.remark is None and isinstance(strategy.remarker, OwnWords):
            one = replace(one, remark=Remark(words(one.candidate.score)))
        told.append(one)
        known = one.asked is not None or one.remark is None
        yield one if known else replace(one, asked=strategy.question(task, told, strategy.remembers))


def _summary(strategy: RefinementStrategy, file: PairFile) -> Collected:
    notes = file.finished.values()
    sums = {name: sum(note[name] for note in notes) for name in ("pairs", "revisions", "copies", "exhausted")}
    return Collected(file.path, len(notes), **sums, oracle=strategy.oracle)
