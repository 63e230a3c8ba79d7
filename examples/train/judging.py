"""Validation samples, what reward models say of them, and the searches that they guide: made once, and kept.

Everything runs through the package: an engine opens the trained directory, and a verifier scores by its config.json.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import critique
import parts
from llama import load
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Step
from metagen.sequence import Sequence as Text
from metagen.strategies.tree.blockwise import Blockwise
from metagen.tasks.arithmetic import (
    DELIMITER,
    LEVELS,
    Form,
    Problem,
    Split,
    check,
    extract_answer,
    problems,
    prompt,
)
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative import judge
from metagen.verifiers.numbers import canonical
from metagen.verifiers.reward import OutcomeRewardModel, ProcessRewardModel, Tags
from parts import Record
from sample import sample
from setting import Setting
from tokenizer import characters

PER_LEVEL, SAMPLES, SEED, PARTS = 25, 16, 2, 6
WIDTH = 4
"""Candidates of each step in a search."""
LONGEST = 256
"""Tokens of a solution in a search."""
OUTCOME = Tags("<outcome>", "<+>", "<->", "\n")
T = TypeVar("T")


@dataclass(frozen=True)
class Judge:
    """A trained directory as a verifier. kind: `prm`, `orm` or `judge`; critiques: how many of a judge are averaged."""

    folder: Path
    kind: str
    critiques: int = 0

    @property
    def name(self) -> str:
        return f"{self.folder.name}.{self.kind}" + (f".{self.critiques}" if self.kind == "judge" else "")

    @property
    def stepwise(self) -> bool:
        return self.kind == "prm"

    @property
    def leads(self) -> bool:
        """Whether a search is tried: not with critiques of every candidate of every step."""
        return self.kind != "judge"

    @contextmanager
    def opened(self, run: Setting) -> Iterator[Verifier]:
        with TorchEngine(self.folder, threads=1) as engine:
            match self.kind:
                case "prm":
                    yield ProcessRewardModel(engine, name=self.name)
                case "orm":
                    yield OutcomeRewardModel(engine, OUTCOME, name=self.name)
                case _:
                    entry = _config(self.folder)["metagen"]
                    wording = {option: entry[option] for option in critique.OPTIONS}
                    wording["max_tokens"] = run.longest(wording["max_tokens"])
                    yield judge.Judge(engine, critiques=self.critiques, name=self.name, **wording)


def judges_of(folder: Path, critiques: Sequence[int] = (1, 4)) -> list[Judge]:
    """The verifiers that a directory can be."""
    kind = _config(folder)["metagen"]["kind"]
    if kind == "judge":
        return [Judge(folder, kind, k) for k in critiques]
    return [Judge(folder, kind), *([Judge(folder, "orm")] if "metagen_orm" in _config(folder) else [])]


def _config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def samples(run: Setting) -> int:
    """Samples of a problem, in a trial few."""
    return 4 if run.trial else SAMPLES


def asked(run: Setting) -> list[Problem]:
    each = run.share(PER_LEVEL)
    return [p for level in LEVELS for p in problems(Split.VALIDATION, level, each, SEED)]


def count(run: Setting) -> int:
    """Parts of one piece of work."""
    return 1 if run.trial else PARTS


def mine(run: Setting, index: int) -> list[tuple[int, Problem]]:
    """The problems of a part, with their places: problem i is in part i mod `count`."""
    return list(enumerate(asked(run)))[index :: count(run)]


@dataclass(frozen=True)
class Work:
    """One record for each problem, in parts: `make(run, …, part)`. name: of its files."""

    name: str
    make: Callable[[int], list[Record]]

    def paths(self, run: Setting) -> list[Path]:
        return [run.into / "compared" / f"{self.name}-{index}.jsonl" for index in range(count(run))]


def do(run: Setting, all_work: Sequence[Work]) -> None:
    """Whatever is missing of all work, side by side."""
    paths = [path for work in all_work for path in work.paths(run)]
    parts.make(paths, partial(_part, run, list(all_work)), "comparison", run.workers)


def _part(run: Setting, all_work: list[Work], index: int) -> list[Record]:
    return all_work[index // count(run)].make(index % count(run))


def done(run: Setting, work: Work) -> list[Record]:
    """The records, in the order of the problems."""
    do(run, [work])
    return sorted(parts.read(work.paths(run)), key=lambda record: record["problem"])


# ------------------------------------------------------------------------------------------------------- samples


def samples_of(run: Setting, generator: str) -> Work:
    """For each problem its samples at temperature 1: `text`, `right`, `key` of the answer, first `error`."""
    return Work(f"samples-of-{generator}", partial(_pool, run, generator))


def _pool(run: Setting, generator: str, index: int) -> list[Record]:
    here, each = mine(run, index), samples(run)
    prompts = [prompt(p) for _, p in here for _ in range(each)]
    model, longest, seed = load(run.trained(generator)), run.longest(LONGEST), SEED * 1000 + index
    outputs = sample(model, characters(), prompts, longest=longest, seed=seed)
    found = []
    for row, (place, problem) in enumerate(here):
        judgements = [judged(problem, *output) for output in outputs[row * each :][:each]]
        found.append({"problem": place, "level": problem.level, "samples": judgements})
    return found


def judged(problem: Problem, text: str, finished: bool) -> Record:
    """What the checker finds in a sample. error: the place of the first wrong step; -1 if there is none."""
    verdict = check(problem, text, finished=finished)
    answer = extract_answer(text, Form.STEPS, finished=finished)
    steps = list(verdict.steps)
    return {
        "text": text,
        "right": verdict.correct and finished,
        "key": None if answer is None or not finished else canonical(answer),
        "error": steps.index(False) if False in steps else -1,
    }


# -------------------------------------------------------------------------------------------------------- scores


def scores_of(run: Setting, generator: str, judge: Judge) -> Work:
    """For each problem the `values` of its samples, and the values of their `steps`, if the judge has such."""
    return Work(f"{judge.name}-on-{generator}", partial(_scored, run, generator, judge))


def _scored(run: Setting, generator: str, judge: Judge, index: int) -> list[Record]:
    here = mine(run, index)
    written = {record["problem"]: record["samples"] for record in done(run, samples_of(run, generator))}
    with judge.opened(run) as verifier:

        async def one(place: int, problem: Problem) -> Record:
            texts = [text(problem, place).extend(s["text"], finish="eos") for s in written[place]]
            scores = await verifier.score(texts, scope=Scope.root(f"validation/{place}", seed=SEED))
            steps = [list(s.steps or ()) for s in scores] if judge.stepwise else None
            return {"problem": place, "values": [s.value for s in scores], "steps": steps}

        return asyncio.run(all_of([one(*each) for each in here]))


async def all_of(work: list[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*work))


def text(problem: Problem, place: int) -> Text:
    return Text.of(Prompt(f"validation/{place}", text=prompt(problem)))


# ------------------------------------------------------------------------------------------------------ searches


def search_of(run: Setting, generator: str, judge: Judge) -> Work:
    """For each problem whether a search that keeps the best of `WIDTH` steps at a time comes to the `right` answer."""
    return Work(f"{judge.name}-leads-{generator}", partial(_searched, run, generator, judge))


class Anyway(Verifier):
    """Lets a verifier of whole solutions judge beginnings too: what comes of that is the question."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier, self.name = verifier, verifier.name

    @property
    def fingerprint(self) -> str:
        return self._verifier.fingerprint

    async def score(self, sequences: Sequence[Text], *, scope: Scope) -> list[Score]:
        return await self._verifier.score(sequences, scope=scope)


def _searched(run: Setting, generator: str, judge: Judge, index: int) -> list[Record]:
    rule = ArithmeticTask("validation").answer
    with judge.opened(run) as verifier, TorchEngine(run.trained(generator), threads=1) as engine:
        writer = engine.generator(temperature=1.0, max_tokens=run.longest(LONGEST))
        search = Blockwise(writer, WIDTH, verifier=Anyway(verifier), block=Step(DELIMITER), answer=rule)

        async def one(place: int, problem: Problem) -> Record:
            scope = Scope.root(f"validation/{place}", seed=SEED)
            (found,) = await search.generate(text(problem, place), scope=scope)
            verdict = judged(problem, found.text, found.finish == "eos")
            return {"problem": place, "right": verdict["right"], "generated": scope.trace.usage.generated}

        return asyncio.run(all_of([one(*each) for each in mine(run, index)]))
