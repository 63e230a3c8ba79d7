"""Whether a server draws each sample by itself, or gives several of them one text."""

from __future__ import annotations

from typing import Final

from metagen.generators.engine import GenerateRequest
from metagen.sequence import digest

#: Characters, thought included, from which on a sample counts.
LONG: Final = 256
#: The temperature from which on it does.
WARM: Final = 0.5
#: Copies, and prompts that have some, that make it sure.
COPIES: Final = 16
PROMPTS: Final = 4
#: Prompts that are remembered at a time.
KEPT: Final = 256


class Copies:
    """Compares samples of one prompt that ought to be drawn apart, until two differ or it is sure that none will.

    It is sure when 16 samples of 4 prompts have repeated another one of their prompt, and no two have differed. Samples
    count that have 256 characters or more, and were drawn at a temperature of 0.5 or more without a grammar. False
    alarms: even where one text of every prompt has 70 % of all samples, and another the rest, less than one run in
    1,000 (at worst five samples of a prompt: (0.7⁵ + 0.3⁵)⁴).
    """

    def __init__(self) -> None:
        self._over = False
        self._prompts: list[bytes] = []
        self._first: dict[bytes, tuple[str, set[int]]] = {}

    def alike(self, request: GenerateRequest, texts: list[str]) -> str:
        """What to say of the texts of one answer: the copies, when it has become sure of them, or nothing."""
        return "".join([self._compare(request, texts[0], text) for text in texts[1:]])

    def again(self, request: GenerateRequest, seed: int, text: str) -> str:
        """The same of a text, beside one that was drawn for the same prompt by another seed."""
        if self._over or not _is_random(request):
            return ""
        if len(self._first) >= KEPT:
            del self._first[next(iter(self._first))]
        first, seeds = self._first.setdefault(_name(request), (text, set()))
        known = not seeds or seed in seeds
        seeds.add(seed)
        return "" if known else self._compare(request, first, text)

    def _compare(self, request: GenerateRequest, one: str, other: str) -> str:
        if self._over or not _is_random(request):
            return ""
        if one != other:
            self._over = True
        elif len(one) >= LONG:
            self._prompts.append(_name(request))
            prompts = len(set(self._prompts))
            if len(self._prompts) >= COPIES and prompts >= PROMPTS:
                self._over = True
                return f"{len(self._prompts)} samples of {prompts} prompts repeat another, and none differs"
        return ""


def _name(request: GenerateRequest) -> bytes:
    return digest(request.prefix.digest, request.params.fingerprint, repr(request.until))


def _is_random(request: GenerateRequest) -> bool:
    """Whether chance has a say in a completion."""
    params = request.params
    sharp = params.top_k == 1 or params.top_p < WARM or params.min_p > WARM
    return params.temperature >= WARM and params.grammar is None and not sharp
