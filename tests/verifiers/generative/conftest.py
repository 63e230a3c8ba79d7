"""A judge that is a table, so that the probability of every label is known."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from metagen.generators.enumerable import EnumerableEngine
from metagen.verifiers.generative.question import Question

TOKENS = ("Yes", "No", "fine", "bad", "?", "<end>")


class Judged(EnumerableEngine):
    """Writes one word of critique, and a verdict after '?'. A prompt with 'right' in it is liked better.

    `says`: p(Yes) after the critique '', 'fine' or 'bad', by whether the prompt is liked. `likes`: p('fine').
    """

    says: ClassVar = {
        (True, ""): 0.7, (True, "fine"): 0.9, (True, "bad"): 0.4,
        (False, ""): 0.2, (False, "fine"): 0.5, (False, "bad"): 0.1,
    }  # fmt: skip
    likes: ClassVar = {True: 0.8, False: 0.3}
    #: Probability of anything but a label where a label is due.
    beside = 0.25

    def __init__(self, *, max_context: int | None = None, name: str = "judge") -> None:
        super().__init__(TOKENS, self._row, name=name, max_context=max_context)

    def _row(self, prompt: str, done: tuple[str, ...]) -> np.ndarray:
        liked = "right" in prompt
        p = np.zeros(len(TOKENS))
        if not done:
            p[2], p[3] = self.likes[liked], 1 - self.likes[liked]
        elif done[-1] == "?":
            yes = self.says[liked, "".join(done[:-1])]
            p[0], p[1], p[5] = yes * (1 - self.beside), (1 - yes) * (1 - self.beside), self.beside
        else:
            p[5] = 1.0
        return p

    def mean(self, liked: bool) -> float:
        """E[p(Yes | critique)]."""
        fine = self.likes[liked]
        return fine * self.says[liked, "fine"] + (1 - fine) * self.says[liked, "bad"]


QUESTION = Question("{task} {candidate}", {"Yes": 1.0, "No": 0.0}, "?", join="", chat=False)


@pytest.fixture
def judged() -> type[Judged]:
    return Judged


@pytest.fixture
def question() -> Question:
    return QUESTION
