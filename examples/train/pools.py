"""Labelled solutions for the reward models: samples of the generators, cut-off samples, and near misses.

Every step gets its label from the task's step checker. Nothing here looks at validation or test problems.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import track
from tokenizers import Tokenizer

from corpus import wide
from llama import load
from metagen.tasks.arithmetic import Form, Problem, Split, check, draw, prompt, reference_solution, steps_of
from sample import sample

TEMPERATURES = (0.7, 1.0, 1.0, 1.3)


@dataclass(frozen=True)
class Solution:
    """A completion, its steps judged; `correct` is the outcome."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[bool, ...]
    correct: bool


def judge(problem: Problem, form: Form, text: str, *, finished: bool) -> Solution:
    verdict = check(problem, text, form, finished=finished)
    return Solution(prompt(problem, form), tuple(steps_of(text)), verdict.steps, verdict.correct and finished)


def problems_for(count: int, rng: random.Random) -> list[tuple[Problem, Form]]:
    """Training problems with something to decide, as long as those of the levels; a few are asked directly."""
    found = []
    while len(found) < count:
        difficulty = replace(wide(rng), shuffled=rng.random() < 0.1)
        if 2 <= difficulty.definitions[0] <= 7:
            form = Form.DIRECT if rng.random() < 0.05 else Form.STEPS
            found.append((draw(difficulty, rng, Split.TRAIN), form))
    return found


def sampled(folders: Sequence[Path], count: int, each: int, seed: int) -> list[list[Solution]]:
    """For each of `count` problems, `each` samples of every generator, at various temperatures."""
    rng = random.Random(f"pools/{seed}")
    asked = problems_for(count, rng)
    pools: list[list[Solution]] = [[] for _ in asked]
    for folder in folders:
        model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
        for draw_ in track(range(each), f"samples of {folder.name}"):
            temperature = TEMPERATURES[draw_ % len(TEMPERATURES)]
            prompts = [prompt(*ask) for ask in asked]
            outputs = sample(model, tokenizer, prompts, temperature=temperature, seed=rng.getrandbits(31))
            for pool, (problem, form), (text, ended) in zip(pools, asked, outputs, strict=True):
                pool.append(judge(problem, form, text, finished=ended))
    return pools


def cut_off(solution: Solution, rng: random.Random) -> Solution:
    """The solution cut at a random character: never right as a whole, its last piece never a right step."""
    text = "".join(solution.steps)
    kept = steps_of(text[: rng.randrange(1, max(2, len(text)))])
    whole = kept[-1].endswith("\n")
    labels = solution.labels[: len(kept)] if whole else (*solution.labels[: len(kept) - 1], False)
    return Solution(solution.prompt, tuple(kept), labels, False)


def near_miss(problem: Problem, rng: random.Random) -> Solution:
    """A reference solution with one number slightly wrong somewhere; judged like any other."""
    text = reference_solution(problem, Form.STEPS, rng)
    places = list(re.finditer(r"[0-9]+", text))
    place = rng.choice(places)
    changed = slip(place[0], rng)
    if rng.random() < 0.15:
        changed = "-" + changed if text[place.start() - 1] in "=:" else changed
    return judge(problem, Form.STEPS, text[: place.start()] + changed + text[place.end() :], finished=True)


def slip(digits: str, rng: random.Random) -> str:
    """A number that is easily taken for another: off by a little or by a ten, digits swapped or dropped."""
    value = int(digits)
    options = [
        value + 1,
        value - 1,
        value + 10,
        value - 10,
        value + 2,
        value - 2,
        int(digits[::-1]),
        value + rng.randint(3, 9),
    ]
    options = [option for option in options if option >= 0 and option != value]
    return str(rng.choice(options))


def near_misses(count: int, seed: int) -> list[Solution]:
    rng = random.Random(f"near/{seed}")
    return [near_miss(draw(wide(rng), rng, Split.TRAIN), rng) for _ in range(count)]
