"""Reflexion: attempts that a verifier judges, and reflections on the failed ones as memory (Shinn et al. 2023)."""

from __future__ import annotations

from typing import Final

from metagen.errors import InputError
from metagen.generators.base import Generator, is_count
from metagen.strategies.prompts import FollowUp, Form
from metagen.strategies.refine.critique import REFLECT, Critique
from metagen.strategies.refine.refinement import Refinement
from metagen.verifiers.base import AnswerRule, Verifier

#: Asks for another attempt, after a reflection on the one before.
RETRY: Final = FollowUp("{feedback}\n\nWith this in mind, make another attempt: write the whole answer.")


class Reflexion(Refinement):
    """Try; a verifier judges; the model reflects on why it failed; try again with the last reflections in the prompt.

    reflector: who reflects; the generator itself by default. It is told the verifier's words (failed tests, a verdict).
    memory: how many attempts, with their reflections, a new attempt is told of, at least 1; the paper keeps 1 to 3.
    The best attempt by the verifier is returned. Raises InputError for memory < 1.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        verifier: Verifier,
        reflector: Generator | None = None,
        rounds: int = 3,
        accept: float = 1.0,
        reflect: Form[str, str | None] = REFLECT,
        ask: Form[str, str | None] = RETRY,
        memory: int = 3,
        answer: AnswerRule | None = None,
    ) -> None:
        if not is_count(memory, 1):
            raise InputError(
                f"Reflexion: memory={memory!r}; expected how many attempts it remembers, at least 1"
            )
        super().__init__(
            generator,
            verifier=verifier,
            feedback=Critique(reflector or generator, ask=reflect, stop=None),
            rounds=rounds,
            accept=accept,
            ask=ask,
            memory=memory - 1,
            answer=answer,
        )
