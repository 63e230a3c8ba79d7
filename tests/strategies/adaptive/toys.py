"""Writers and questions that the tests of adaptive strategies are made of."""

from __future__ import annotations

import numpy as np

from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt
from metagen.strategies.adaptive.stopping import StoppingRule
from metagen.strategies.base import Strategy
from metagen.verifiers.function import FunctionRule

PROMPT = Prompt("p", text="?")


ANSWER = FunctionRule(
    lambda text: text.partition("=")[2][:1] or None,
    lambda answer: answer if answer.isdigit() else None,
    name="after =",
)


def writes(answers: str, name: str = "writes") -> FunctionGenerator:
    """Sample i answers the i-th digit; "-" answers nothing."""
    texts = [f"{i}={a}" if a != "-" else f"{i}" for i, a in enumerate(answers)]
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=8, name=f"{name} {answers}")


def stops(rule: StoppingRule, answers: str, weights: list[float] | None = None) -> bool:
    classes = np.array([[-1 if a == "-" else int(a) for a in answers]])
    return bool(rule.stops(classes, np.array([weights or [1.0] * len(answers)]))[0])


def drawn(strategy: Strategy, **kwargs: object) -> str:
    return "".join(c.key or "-" for c in strategy.solve(PROMPT, **kwargs).candidates)  # type: ignore[arg-type]
