"""Self-Refine: one model writes, criticises itself, and revises (Madaan et al. 2023)."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.strategies.prompts import REVISE, Form
from metagen.strategies.refine.critique import CRITIQUE, STOP, Critique
from metagen.strategies.refine.refinement import Refinement
from metagen.verifiers.base import AnswerRule, Verifier


class SelfRefine(Refinement):
    """f_k ~ g(x, y_k) and y_{k+1} ~ g(x, y_0, f_0, …, y_k, f_k), until f_k says that nothing is left to mend.

    critic: who writes f; the generator itself by default. stop: what it writes in the end. memory: how many of the
    earlier attempts stay in the prompt; all by default. Without a verifier the last y is returned, with one the best.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        critic: Generator | None = None,
        verifier: Verifier | None = None,
        rounds: int = 3,
        accept: float = 1.0,
        critique: Form[str, str | None] = CRITIQUE,
        ask: Form[str, str | None] = REVISE,
        stop: str | None = STOP,
        memory: int | None = None,
        answer: AnswerRule | None = None,
    ) -> None:
        super().__init__(
            generator,
            verifier=verifier,
            feedback=Critique(critic or generator, ask=critique, stop=stop),
            rounds=rounds,
            accept=accept,
            ask=ask,
            memory=rounds if memory is None else memory,
            answer=answer,
        )
