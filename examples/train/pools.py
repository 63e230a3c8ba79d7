"""Labelled solutions for the reward models: samples of the generators, cut-off samples, and near misses.

Every step gets its label from the task's step checker. Nothing here looks at validation or test problems.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

from tokenizers import Tokenizer

from corpus import wide
from llama import load
from metagen.tasks.arithmetic import (
    Form,
    Problem,
    Split,
    check,
    draw,
    prompt,
    read_prompt,
    reference_solution,
    steps_of,
    values,
    write_number,
)
from metagen.verifiers.numbers import parse
from sample import sample

TEMPERATURES = (0.7, 1.0, 1.0, 1.3)


@dataclass(frozen=True)
class Solution:
    """A completion, its steps judged; `correct` is the outcome."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[bool, ...]
    correct: bool

    @property
    def lucky(self) -> bool:
        """Whether the answer is right in spite of a wrong step. Few samples are so, but nine of ten near misses."""
        return self.correct and not all(self.labels)


def judge(problem: Problem, form: Form, text: str, *, finished: bool) -> Solution:
    verdict = check(problem, text, form, finished=finished)
    return Solution(prompt(problem, form), tuple(steps_of(text)), verdict.steps, verdict.correct and finished)


def first_wrong(solution: Solution) -> int | None:
    """Where in the first wrong step the first character stands that no right step could have there.

    `None` if there is none: all steps are right, or the step is wrong only in that it stops short.
    """
    if all(solution.labels):
        return None
    problem, form = read_prompt(solution.prompt)
    index = solution.labels.index(False)
    derived = {line[0] for line in solution.steps[:index]}
    if any(line.startswith("A:") for line in solution.steps[:index]):
        return 0
    step = solution.steps[index]
    agreed = max((agreement(step, line) for line in right_lines(problem, form, derived)), default=0)
    return agreed if agreed < len(step) else None


def agreement(a: str, b: str) -> int:
    """Characters that two texts have in common at their beginnings."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def right_lines(problem: Problem, form: Form, derived: set[str]) -> Iterator[str]:
    """The right next lines in all the forms that reference solutions write, names for values included."""
    known = values(problem)
    if form is Form.DIRECT:
        yield from (f"{number}\n" for number in written(known[problem.target]))
        return
    if problem.target in derived:
        yield from (f"A:{number}\n" for number in written(known[problem.target]))

    def operand(text: str) -> list[str]:
        value = known.get(text)
        numbers = written(value) if value is not None else {text, *written(number(text))}
        return [text] * (value is not None) + [f"({n})" if "/" in n or n[0] == "-" else n for n in numbers]

    for d in problem.definitions:
        if all(o in derived for o in (d.left, d.right) if o in known):
            for left, right in product(operand(d.left), operand(d.right)):
                for a, b in {(left, right), (right, left)} if d.op in "+*" else {(left, right)}:
                    yield from (f"{d.name}={a}{d.op}{b}={result}\n" for result in written(known[d.name]))


@cache
def number(text: str) -> Fraction:
    value = parse(text)
    assert value is not None, text
    return value


@cache
def written(value: Fraction) -> frozenset[str]:
    """The forms that a number takes in reference solutions."""
    rng = random.Random(0)
    return frozenset(write_number(value, rng, answer=a) for a in (True, False) for _ in range(60))


def problems_for(count: int, rng: random.Random) -> list[tuple[Problem, Form]]:
    """Training problems with something to decide, as long as those of the levels; a few are asked directly."""
    found = []
    while len(found) < count:
        difficulty = replace(wide(rng), shuffled=rng.random() < 0.1)
        if 2 <= difficulty.definitions[0] <= 7:
            form = Form.DIRECT if rng.random() < 0.05 else Form.STEPS
            found.append((draw(difficulty, rng, Split.TRAIN), form))
    return found


LONGEST = 256
"""Tokens of a sample."""


def sampled(
    folders: Sequence[Path], count: int, each: int, seed: str, longest: int = LONGEST
) -> list[list[Solution]]:
    """For each of `count` problems, `each` samples of every generator, at various temperatures."""
    rng = random.Random(f"pools/{seed}")
    asked = problems_for(count, rng)
    pools: list[list[Solution]] = [[] for _ in asked]
    for folder in folders:
        model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
        for draw_ in range(each):
            temperature = TEMPERATURES[draw_ % len(TEMPERATURES)]
            prompts = [prompt(*ask) for ask in asked]
            seed_ = rng.getrandbits(31)
            outputs = sample(model, tokenizer, prompts, temperature=temperature, longest=longest, seed=seed_)
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


def near_misses(count: int, seed: str) -> list[Solution]:
    rng = random.Random(f"near/{seed}")
    return [near_miss(draw(wide(rng), rng, Split.TRAIN), rng) for _ in range(count)]
