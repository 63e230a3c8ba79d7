"""What vLLM cannot do that other engines can, found out before it hears of it."""

from __future__ import annotations

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest
from metagen.generators.vllm.sampling import ADAPTERS

#: What vLLM takes for a temperature, besides 0.
TEMPERATURES = (0.01, 2.0)


def generates(request: GenerateRequest) -> None:
    """InputError for a temperature that vLLM would change; UnsupportedError for a grammar behind a text, and for
    top_p with min_p.
    """
    low, high = TEMPERATURES
    temperature = request.params.temperature
    if temperature and not low <= temperature <= high:
        raise InputError(
            f"temperature={temperature!r}: vLLM takes 0 (greedy), or {low} to {high}; choose one of these"
        )
    if lacking := [name for name in request.params.adapters if name not in ADAPTERS]:
        raise UnsupportedError(
            f"{lacking[0]}={getattr(request.params, lacking[0])!r}: vLLM has this in another meaning, or not at all; "
            "leave it out, or use TorchEngine"
        )
    if request.params.min_p and request.params.top_p != 1:
        raise UnsupportedError(
            f"min_p={request.params.min_p!r} with top_p={request.params.top_p!r}: vLLM cuts by min_p first, which "
            "makes another distribution; leave one of them out, or use TorchEngine"
        )
    if request.params.grammar is not None and request.prefix.text:
        raise UnsupportedError(
            f"vLLM holds a completion to a grammar from its first token on, and cannot go on with the "
            f"{len(request.prefix.text)} characters of problem {request.prefix.prompt.problem_id!r}; start from "
            "the prompt, or use TorchEngine"
        )


def reads(request: EvaluateRequest, name: str) -> None:
    """UnsupportedError for the outputs of a head that scores, and for what takes a whole distribution."""
    if request.entropies or request.params is not None:
        raise UnsupportedError(
            f"{'entropies=True' if request.entropies else 'params'}: vLLM tells log-probabilities of some tokens, not "
            f"of all, so {name!r} has no entropies and adapts nothing that is read; leave that out, or use TorchEngine"
        )
    if request.outputs:
        raise UnsupportedError(
            f"{name!r} in vLLM gives log-probabilities, by labels or of the tokens that follow, and no "
            "outputs of a head that scores; use TorchEngine for a model with such a head"
        )
