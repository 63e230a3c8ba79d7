"""Wrong programs to learn from: what the generators write for training problems, and near misses of right programs.

Each with the first public example that it fails, and with what it gave instead, by the task's interpreter.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from functools import partial

from fragments import tokenizer
from specs import any_problem

from llama import load
from metagen.tasks.programs import grammar
from metagen.tasks.programs.problems import Problem
from metagen.tasks.programs.repair import failure_of
from parts import Record, made
from sample import sample
from setting import Setting

CHUNK = 500
"""Problems of one part."""
PROBLEMS = 4000
SAMPLES = {"tiny-code-0.5m": 3, "tiny-code-2m": 5}
"""Samples of each generator for a problem, at temperature 1."""
NEAR = 2
"""Near misses of a problem: another operation of the same kind, or one line less."""
LONGEST = 192
"""Tokens of a sample."""


def wrong(run: Setting) -> list[Record]:
    """`prompt`, `wrong`, `failure` and `right` of each distinct wrong program."""
    paths = [run.solutions / f"wrong-{index:03d}.jsonl" for index in range(count(run))]
    return made(paths, partial(_part, run), "wrong programs", run.workers)


def count(run: Setting) -> int:
    """Parts; in a trial one."""
    return 1 if run.trial else PROBLEMS // CHUNK


def _part(run: Setting, index: int) -> list[Record]:
    rng = random.Random(f"wrong/{run.seed}/{index}")
    problems = [any_problem(rng) for _ in range(run.share(CHUNK))]
    written: list[list[str]] = [_near_misses(p, rng) for p in problems]
    for number, (name, samples) in enumerate(SAMPLES.items()):
        prompts = [p.prompt for p in problems for _ in range(samples)]
        seed = rng.randrange(2**32) + number
        found = sample(load(run.models / name), tokenizer(), prompts, longest=run.longest(LONGEST), seed=seed)
        for i, (text, _) in enumerate(found):
            written[i // samples].append(text)
    return [record for p, texts in zip(problems, written, strict=True) for record in records(p, texts)]


def records(problem: Problem, texts: list[str]) -> list[Record]:
    """One record for each distinct text that fails a public example."""
    failures = [(text, failure_of(text, problem.public)) for text in dict.fromkeys(texts) if text.strip()]
    return [
        {"prompt": problem.prompt, "wrong": text, "failure": str(failed), "right": problem.solution}
        for text, failed in failures
        if failed is not None
    ]


def _near_misses(problem: Problem, rng: random.Random) -> list[str]:
    near = [*grammar.siblings(problem.program), *grammar.without_one(problem.program)]
    return [str(program) for program in rng.sample(near, min(NEAR, len(near)))]
