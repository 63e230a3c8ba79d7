"""What is no request of this model: found out before vLLM hears of it, in the words of the other engines."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest


class Checks:
    """Requests of a model with this name, vocabulary and context. Raises PromptError, InputError, UnsupportedError."""

    def __init__(self, name: str, vocabulary: int, context: int) -> None:
        self._name, self._vocabulary, self._context = name, vocabulary, context

    def asked(self, request: GenerateRequest) -> None:
        if not request.seeds:
            raise InputError("a Generate request has no seeds; give one per sample")
        if request.max_tokens < 1:
            raise InputError(f"max_tokens={request.max_tokens!r}: expected an integer ≥ 1")
        if request.params.grammar is not None and request.prefix.text:
            raise UnsupportedError(
                f"vLLM holds a completion to a grammar from its first token on, and cannot go on with the "
                f"{len(request.prefix.text)} characters of problem {request.prefix.prompt.problem_id!r}; start from "
                "the prompt, or use TorchEngine"
            )

    def ids(self, ids: Ordered[int]) -> None:
        if not ids:
            raise PromptError("the prompt has no tokens; give it at least one character")
        top, low = max(ids), min(ids)
        if top >= self._vocabulary or low < 0:
            raise InputError(
                f"token id {top if top >= self._vocabulary else low} is not in the vocabulary of "
                f"{self._name!r} (0 … {self._vocabulary - 1}); encode the text with this model's tokenizer"
            )

    def fits(self, prefix: int, new: int) -> None:
        if prefix + new > self._context:
            raise PromptError(
                f"{prefix} tokens of prefix and max_tokens={new} exceed the context of {self._context} tokens "
                f"of {self._name!r}; shorten the prompt"
                + (f" or give max_tokens ≤ {self._context - prefix}" if prefix < self._context else "")
            )

    def evaluated(self, request: EvaluateRequest) -> None:
        if request.outputs:
            raise UnsupportedError(
                f"{self._name!r} in vLLM gives log-probabilities, by labels or of the tokens that follow, and no "
                "outputs of a head that scores; use TorchEngine for a model with such a head"
            )
        self.ids(request.ids)
        self.fits(len(request.ids), 0)
        last = len(request.ids) - (request.labels is None)
        if not request.positions or min(request.positions) < 0 or max(request.positions) >= last:
            raise InputError(
                f"positions={request.positions!r}: expected indices from 0 to {last - 1} of an input of "
                f"{len(request.ids)} tokens (the last one is followed by no token, unless labels are given)"
            )
        if request.labels is not None:
            if not request.labels:
                raise InputError("labels are empty; give at least one id, or None for the token that follows")
            self.ids(request.labels)
