"""What vLLM cannot do that other engines can, found out before it hears of it."""

from __future__ import annotations

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest

#: What vLLM takes for a temperature, besides 0.
TEMPERATURES = (0.01, 2.0)


def generates(request: GenerateRequest) -> None:
    """InputError for a temperature that vLLM would change; UnsupportedError for a grammar behind a text."""
    low, high = TEMPERATURES
    temperature = request.params.temperature
    if temperature and not low <= temperature <= high:
        raise InputError(
            f"temperature={temperature!r}: vLLM takes 0 (greedy), or {low} to {high}; choose one of these"
        )
    if request.params.grammar is not None and request.prefix.text:
        raise UnsupportedError(
            f"vLLM holds a completion to a grammar from its first token on, and cannot go on with the "
            f"{len(request.prefix.text)} characters of problem {request.prefix.prompt.problem_id!r}; start from "
            "the prompt, or use TorchEngine"
        )


def reads(request: EvaluateRequest, name: str) -> None:
    """UnsupportedError for the outputs of a head that scores."""
    if request.outputs:
        raise UnsupportedError(
            f"{name!r} in vLLM gives log-probabilities, by labels or of the tokens that follow, and no "
            "outputs of a head that scores; use TorchEngine for a model with such a head"
        )
