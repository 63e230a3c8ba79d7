"""Reflexion: attempts that a verifier judges, and reflections on the failed ones as memory (Shinn et al. 2023)."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from metagen.generators.base import Generator
from metagen.parts import part
from metagen.strategies.prompts import FollowUp, Form
from metagen.strategies.refine.feedback import REFLECT, Critique, Feedback
from metagen.strategies.refine.refinement import RefinementStrategy
from metagen.values import Count
from metagen.verifiers.base import Verifier

#: Asks for another attempt, after a reflection on the one before.
RETRY: Final = FollowUp("{feedback}\n\nWith this in mind, make another attempt: write the whole answer.")


@part
class Reflexion(RefinementStrategy):
    """Try; a verifier judges; the model reflects on why it failed; try again with the last reflections in the prompt.

    reflector: who reflects; the generator itself by default. It is told the verifier's words (failed tests, a
    verdict). memory: how many attempts, with their reflections, a new attempt is told of, at least 1; the paper keeps
    1 to 3. The best attempt by the verifier is returned. reflect: makes the prompt for a reflection. rounds: further
    tries at most. accept: the score that ends it. Raises InputError for memory < 1.
    """

    judges = frozenset({"reflector"})

    verifier: Verifier = field()
    reflector: Generator | None = None
    reflect: Form[str, str | None] = REFLECT
    ask: Form[str, str | None] = RETRY
    memory: Count = 3

    @property
    def remarker(self) -> Feedback:
        return Critique(self.reflector or self.generator, ask=self.reflect, stop=None)

    @property
    def remembers(self) -> int:
        return self.memory - 1
