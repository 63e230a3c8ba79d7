"""What is no request of a model: found out before anything runs, in the same words on every engine with tokens."""

from __future__ import annotations

from collections import abc

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest


class Checks:
    """Of a model with this name, vocabulary and context. Raises InputError, and PromptError for what does not fit."""

    def __init__(self, name: str, vocabulary: int, context: int) -> None:
        self._name, self._vocabulary, self._context = name, vocabulary, context

    def generates(self, request: GenerateRequest) -> None:
        """A Generate request, but for its prefix."""
        if not request.seeds:
            raise InputError("a Generate request has no seeds; give one per sample")
        if request.max_tokens < 1:
            raise InputError(f"max_tokens={request.max_tokens!r}: expected an integer ≥ 1")
        if request.params.search is not None and len(request.ranks) != len(request.seeds):
            raise InputError(
                f"ranks={request.ranks!r}: a search needs one for each of its {len(request.seeds)} seeds; 0 is the "
                "best"
            )
        if bad := [i for i in request.params.stop_token_ids if not 0 <= i < self._vocabulary]:
            raise InputError(
                f"stop_token_ids: {bad[0]!r} is no id of {self._name!r} (0 … {self._vocabulary - 1})"
            )
        if (k := request.params.top_logprobs) > self._vocabulary:
            raise InputError(
                f"top_logprobs={k!r}: {self._name!r} has {self._vocabulary} tokens; ask for no more"
            )

    def ids(self, ids: abc.Sequence[int]) -> None:
        if not ids:
            raise PromptError("the prompt has no tokens; give it at least one character")
        top, low = max(ids), min(ids)
        if top >= self._vocabulary or low < 0:
            raise InputError(
                f"token id {top if top >= self._vocabulary else low} is not in the vocabulary of "
                f"{self._name!r} (0 … {self._vocabulary - 1}); encode the text with this model's tokenizer"
            )

    def fits(self, prefix: int, new: int) -> None:
        """So many tokens of a prefix, and so many new ones."""
        if prefix + new > self._context:
            raise PromptError(
                f"{prefix} tokens of prefix and max_tokens={new} exceed the context of {self._context} tokens "
                f"of {self._name!r}; shorten the prompt"
                + (f" or give max_tokens ≤ {self._context - prefix}" if prefix < self._context else "")
            )

    def reads(self, request: EvaluateRequest) -> None:
        """An Evaluate request, whatever the model's head can be asked for."""
        self.ids(request.ids)
        self.fits(len(request.ids), 0)
        if request.outputs and request.entropies:
            raise InputError(
                "entropies=True with outputs=True: a head that scores has no distribution; ask for one"
            )
        adapts(request)
        following = request.labels is None and not request.outputs
        last = len(request.ids) - following
        if not request.positions or min(request.positions) < 0 or max(request.positions) >= last:
            raise InputError(
                f"positions={request.positions!r}: expected indices from 0 to {last - 1} of an input of "
                f"{len(request.ids)} tokens (the last one is followed by no token, unless labels are given)"
            )
        if request.labels is not None:
            if not request.labels:
                raise InputError("labels are empty; give at least one id, or None for the token that follows")
            self.ids(request.labels)


def adapts(request: EvaluateRequest) -> None:
    """What an Evaluate request asks of adapters, on any engine that has them.

    Raises InputError for positions that no completion has, and UnsupportedError under mirostat for all but the first.
    """
    if (params := request.params) is None:
        return
    if request.outputs:
        raise InputError(
            "params with outputs=True: a head that scores has no distribution to adapt; leave them out"
        )
    first = min(request.positions, default=0)
    if not 0 <= request.start <= first + 1:
        raise InputError(
            f"start={request.start!r}: expected where the completion begins, from 0 to {first + 1}, the first position "
            "that is read and one more"
        )
    if getattr(params, "mirostat", None) is not None and set(request.positions) != {request.start - 1}:
        raise UnsupportedError(
            "mirostat cuts by what was drawn before, so only the first token of a completion can be read under it; "
            "leave it out, or read that one"
        )
