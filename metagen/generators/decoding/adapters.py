"""Sampling adapters as a user names them: their values when they are off, and what a value may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from metagen.errors import InputError

#: Adapters beyond temperature, top_k and top_p in the order in which they work, each with the value that is off.
ADAPTERS: Final[Mapping[str, Any]] = {
    "logit_bias": (),
    "sequence_bias": (),
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry": None,
    "no_repeat_ngram": 0,
    "banned": (),
    "min_tokens": 0,
    "forced": (),
    "min_tokens_to_keep": 1,
    "top_n_sigma": 0.0,
    "top_h": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "xtc": None,
    "mirostat": None,
}

#: What an engine may declare beyond plain sampling.
BEYOND: Final = frozenset({"grammar", "closing", "healing", "top_logprobs", "search", "log_mass", *ADAPTERS})

#: What biases and penalties add at most, either way: logits keep to numbers that float32 holds.
LARGE: Final = 1e9
#: The largest count that tensors hold, of whatever kind.
MOST: Final = 2**31 - 1

Bias = tuple[tuple[int | str, float], ...]
Ban = str | tuple[int, ...]
SequenceBias = tuple[tuple[Ban, float], ...]


@dataclass(frozen=True, slots=True)
class Mirostat:
    """Mirostat 2.0 (Basu et al. 2021): keep the surprise of what is drawn near a target.

    tau: the target, in bits a token. eta: how fast the cut follows, from 2·tau on.
    """

    tau: float = 5.0
    eta: float = 0.1

    def __post_init__(self) -> None:
        if not (real(self.tau) and self.tau > 0.0):
            raise InputError(f"mirostat: tau={self.tau!r}: expected a number > 0, in bits")
        if not (real(self.eta) and 0.0 < self.eta <= 1.0):
            raise InputError(f"mirostat: eta={self.eta!r}: expected a number in (0, 1]")


@dataclass(frozen=True, slots=True)
class Dry:
    """Don't repeat yourself (p-e-w 2024): a token that goes on with a repetition has a lower logit.

    It loses multiplier · base^(m − allowed_length).

    m: tokens at the end of prompt and completion that stood before the token earlier, where they are allowed_length or
    more; at most 50 are compared. breakers: texts whose last token no repetition runs across. last: how many of the
    newest tokens are looked at; 0 is all.
    """

    multiplier: float = 0.8
    base: float = 1.75
    allowed_length: int = 2
    breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    last: int = 0

    def __post_init__(self) -> None:
        if not (real(self.multiplier) and 0.0 < self.multiplier <= LARGE):
            raise InputError(f"dry: multiplier={self.multiplier!r}: expected a number > 0 up to {LARGE:g}")
        if not (real(self.base) and 1.0 <= self.base <= 4.0):
            raise InputError(f"dry: base={self.base!r}: expected a number from 1 to 4")
        if not (count(self.allowed_length) and self.allowed_length >= 1):
            raise InputError(f"dry: allowed_length={self.allowed_length!r}: expected an integer ≥ 1")
        if not (count(self.last)):
            raise InputError(f"dry: last={self.last!r}: expected an integer ≥ 0 (0 looks at all tokens)")
        breakers: Any = self.breakers
        if not (isinstance(breakers, tuple) and all(isinstance(one, str) and one for one in breakers)):
            raise InputError(
                f"dry: breakers={self.breakers!r}: expected a tuple of texts, none of them empty"
            )


@dataclass(frozen=True, slots=True)
class XTC:
    """Exclude top choices (p-e-w 2024): where several tokens have p ≥ threshold, all but the least of them are cut.

    probability: how often that is done, decided for each token anew. Draws come from the mixture of both
    distributions, which is the same as tossing a coin first.
    """

    probability: float = 0.5
    threshold: float = 0.1

    def __post_init__(self) -> None:
        if not (real(self.probability) and 0.0 < self.probability <= 1.0):
            raise InputError(f"xtc: probability={self.probability!r}: expected a number in (0, 1]")
        if not (real(self.threshold) and 0.0 < self.threshold <= 0.5):
            raise InputError(
                f"xtc: threshold={self.threshold!r}: expected a number in (0, 0.5]; two tokens cannot have more each"
            )


def in_order(bias: Any) -> Any:
    """A mapping of biases as pairs of floats in one order: ids first, then texts. What is none stays as it is."""
    pairs = bias.items() if isinstance(bias, Mapping) else bias
    try:
        return tuple(
            sorted(
                ((key, float(value) if real(value) else value) for key, value in pairs),
                key=lambda p: (isinstance(p[0], str), p[0]),
            )
        )
    except (TypeError, ValueError):
        return bias


def check_adapters(params: Any, expect: Callable[[bool, str, str], None]) -> None:
    """expect(ok, name, what) for each of them."""
    for name in ("top_h", "typical_p"):
        value = getattr(params, name)
        expect(real(value) and 0.0 < value <= 1.0, name, "expected a number in (0, 1] (1 is off)")
    value = params.top_n_sigma
    expect(real(value) and 0.0 <= value <= LARGE, "top_n_sigma", "expected a number ≥ 0 (0 is off)")
    value = params.min_tokens_to_keep
    expect(count(value) and value >= 1, "min_tokens_to_keep", f"expected an integer from 1 to {MOST}")
    for name, kind in (("dry", Dry), ("xtc", XTC)):
        value = getattr(params, name)
        expect(value is None or isinstance(value, kind), name, f"expected {kind.__name__}(…), or None")
    value = params.min_p
    expect(real(value) and 0.0 <= value <= 1.0, "min_p", "expected a number in [0, 1] (0 is off)")
    for name in ("epsilon_cutoff", "eta_cutoff"):
        value = getattr(params, name)
        expect(real(value) and 0.0 <= value < 1.0, name, "expected a number in [0, 1) (0 is off)")
    value = params.mirostat
    expect(value is None or isinstance(value, Mirostat), "mirostat", "expected Mirostat(tau, eta), or None")
    value = params.repetition_penalty
    strong = real(value) and 1 / LARGE <= value <= LARGE
    expect(strong, "repetition_penalty", f"expected a number > 0 (1 is off), from {1 / LARGE:g} to {LARGE:g}")
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(params, name)
        expect(_weight(value), name, f"expected a number (0 is off) up to ±{LARGE:g}")
    expect(count(params.no_repeat_ngram), "no_repeat_ngram", f"expected an integer from 0 (off) to {MOST}")
    expect(count(params.min_tokens), "min_tokens", f"expected an integer from 0 (off) to {MOST}")
    room = f"max_tokens={params.max_tokens!r} leaves no room for it; expected no more than that"
    expect(params.min_tokens <= params.max_tokens, "min_tokens", room)
    _check_tokens(params, expect)


def _check_tokens(params: Any, expect: Callable[[bool, str, str], None]) -> None:
    bias = params.logit_bias
    pairs = isinstance(bias, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in bias)
    what = f"expected a mapping of ids or texts to numbers up to ±{LARGE:g}; to forbid a token, use banned"
    fine = pairs and all((whole(k) or (isinstance(k, str) and k)) and _weight(v) for k, v in bias)
    expect(fine, "logit_bias", what)
    once = len({key for key, _ in bias}) == len(bias)
    expect(once, "logit_bias", "an id or a text is given twice; give each one bias")
    bias = params.sequence_bias
    pairs = isinstance(bias, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in bias)
    fine = pairs and all(key and _written(key) and _weight(value) for key, value in bias)
    what = f"expected a mapping of texts, or tuples of ids, to numbers up to ±{LARGE:g}"
    expect(fine and len({key for key, _ in bias}) == len(bias), "sequence_bias", what)
    banned = params.banned
    what = "expected a tuple of texts, or of tuples of ids, none of them empty"
    expect(isinstance(banned, tuple) and all(one and _written(one) for one in banned), "banned", what)
    expect(_written(params.forced), "forced", "expected a text, or a tuple of ids")
    fits = isinstance(params.forced, str) or len(params.forced) <= params.max_tokens
    expect(fits, "forced", f"it does not fit in max_tokens={params.max_tokens!r}; raise that")


def _written(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(map(whole, value)))


def _weight(value: object) -> bool:
    return real(value) and abs(value) <= LARGE


def whole(value: object) -> TypeGuard[int]:
    """Whether it is an integer, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def count(value: object) -> bool:
    """Whether it is a number of things that tensors hold."""
    return whole(value) and 0 <= value <= MOST


def real(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that floats hold, and no truth value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
