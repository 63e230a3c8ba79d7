"""Self-Refine: one model writes, criticises itself, and revises (Madaan et al. 2023)."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.parts import part
from metagen.strategies.prompts import Form
from metagen.strategies.refine.feedback import CRITIQUE, STOP, Critique, Feedback
from metagen.strategies.refine.refinement import RefinementStrategy
from metagen.values import Amount, Filled


@part
class SelfRefine(RefinementStrategy):
    """f_k ~ g(x, y_k) and y_{k+1} ~ g(x, y_0, f_0, …, y_k, f_k), until f_k says that nothing is left to mend.

    critic: who writes f; the generator itself by default. stop: what it writes in the end. memory: how many of the
    earlier attempts stay in the prompt; all by default. Without a verifier the last y is returned, with one the best.
    critique: makes the prompt for the critic of task and candidate.
    """

    judges = frozenset({"critic"})

    critic: Generator | None = None
    critique: Form[str, str | None] = CRITIQUE
    stop: Filled | None = STOP
    memory: Amount | None = None

    @property
    def remarker(self) -> Feedback:
        return Critique(self.critic or self.generator, ask=self.critique, stop=self.stop)

    @property
    def remembers(self) -> int:
        return self.rounds if self.memory is None else self.memory
