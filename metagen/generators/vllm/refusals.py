"""What vLLM cannot do that other engines can, found out before it hears of it."""

from __future__ import annotations

from metagen.errors import UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest


def generates(request: GenerateRequest) -> None:
    """UnsupportedError for a grammar behind a text. What parameters alone say is refused by `VLLMDeclared`."""
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
