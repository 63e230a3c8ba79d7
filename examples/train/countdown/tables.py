"""What the value model learns from: the proposer's own attempts, each step labelled by the solver."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from functools import partial

from games import any_problem
from tokenizers import Tokenizer

import parts
from llama import load
from metagen.tasks.countdown import notation
from pools import Solution
from sample import sample
from setting import Setting

PROBLEMS, SAMPLES, CHUNK = 8000, 8, 1000
LONGEST = 128
"""Tokens of a sample."""


def attempts(run: Setting, proposer: str) -> list[Solution]:
    """`SAMPLES` of the proposer for each of `PROBLEMS` training problems, judged step by step."""
    part = partial(_attempts, run, proposer)
    found: list[Solution] = parts.made_for(
        run.share(PROBLEMS), CHUNK, run.solutions / "attempts", part, run.workers
    )
    random.Random(run.seed).shuffle(found)
    return found


def _attempts(run: Setting, proposer: str, index: int, count: int) -> list[Solution]:
    rng = random.Random(f"countdown/attempts/{run.seed}/{index}")
    folder = run.trained(proposer)
    model, text = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    problems = [any_problem(rng) for _ in range(count)]
    asked = [problem for problem in problems for _ in range(run.samples(SAMPLES))]
    written = sample(
        model, text, [p.prompt for p in asked], longest=run.longest(LONGEST), seed=rng.getrandbits(31)
    )
    # Equal attempts at a problem say nothing new.
    return list(
        dict.fromkeys(
            judged(p.table, p.target, p.prompt, *one) for p, one in zip(asked, written, strict=True)
        )
    )


def judged(table: notation.Table, target: int, prompt: str, text: str, ended: bool) -> Solution:
    """An attempt with its labels: a step is right while the target can still be reached."""
    steps = tuple(line + notation.DELIMITER for line in text.split(notation.DELIMITER) if line)
    whole = text if text.endswith(notation.DELIMITER) or not ended else text + notation.DELIMITER
    labels = notation.check(table, target, whole, finished=ended)
    played = notation.replay(table, whole, finished=ended)
    kept = steps[: len(labels)]
    right = ended and played.complete and all(labels)
    return Solution(prompt, kept, tuple(labels[: len(kept)]), right)
