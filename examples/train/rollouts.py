"""Step values by Monte Carlo: from each step on, how often does a generator come to the right answer?

Math-Shepherd (Wang et al. 2024): the completer goes on K times from the prefix that ends with a step. The *soft* value
is the share of right answers, the *hard* one is 1 if any is right. No checker of steps is asked, only the answer's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from llama import Llama
from metagen.tasks.arithmetic import check, read_prompt
from pools import LONGEST, Solution
from sample import sample


@dataclass(frozen=True)
class Valued:
    """A solution, and for each of its steps the share of right answers among the completions from there.

    The last step ends the solution: its value is whether that is correct.
    """

    solution: Solution
    soft: tuple[float, ...]

    @property
    def hard(self) -> tuple[float, ...]:
        return tuple(float(value > 0) for value in self.soft)


def prefixes(solution: Solution) -> list[str]:
    """The texts after which a completer goes on: the prompt and the first k steps, k = 1 … all but one."""
    return [solution.prompt + "".join(solution.steps[:k]) for k in range(1, len(solution.steps))]


def shares(
    model: Llama, tokenizer: Tokenizer, asked: Sequence[Solution], count: int, seed: int, longest: int
) -> dict[str, float]:
    """For each prefix of these solutions, the share of right answers among `count` completions at temperature 1.

    A prefix that several solutions have is completed once.
    """
    prompts = {text: solution.prompt for solution in asked for text in prefixes(solution)}
    texts = [text for text in prompts for _ in range(count)]
    right = dict.fromkeys(prompts, 0)
    for text, (completion, ended) in zip(
        texts, sample(model, tokenizer, texts, longest=longest, seed=seed), strict=True
    ):
        prompt = prompts[text]
        problem, form = read_prompt(prompt)
        right[text] += ended and check(problem, text.removeprefix(prompt) + completion, form).correct
    return {text: number / count for text, number in right.items()}


def valued(
    model: Llama,
    tokenizer: Tokenizer,
    solutions: Sequence[Solution],
    count: int,
    seed: str,
    longest: int = LONGEST,
) -> list[Valued]:
    """The solutions with the values of their steps."""
    found = shares(
        model, tokenizer, solutions, count, random.Random(f"rollouts/{seed}").getrandbits(31), longest
    )
    return [Valued(s, (*(found[text] for text in prefixes(s)), float(s.correct))) for s in solutions]
