"""What sampling parameters may be made of: their ranges, values of several fields, and adapters of other packages."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard

from annotated_types import Ge, Gt, Le, Lt, MinLen

from metagen import parts
from metagen.border import Part, promises
from metagen.values import Expects, Filled

if TYPE_CHECKING:
    from torch import Tensor

#: What biases and penalties add at most, either way: logits keep to numbers that float32 holds.
LARGE: Final = 1e9
#: The largest count that tensors hold, of whatever kind.
MOST: Final = 2**31 - 1
#: The largest number that floats hold.
_FINITE: Final = Le(sys.float_info.max)

Temperature = Annotated[float, Ge(0), _FINITE, Expects("a number ≥ 0 (0 is greedy)")]
#: A probability of which all is off.
Mass = Annotated[float, Gt(0), Le(1), Expects("a number in (0, 1] (1 is off)")]
#: A probability of which nothing is off.
Ratio = Annotated[float, Ge(0), Le(1), Expects("a number in [0, 1] (0 is off)")]
Threshold = Annotated[float, Ge(0), Lt(1), Expects("a number in [0, 1) (0 is off)")]
Deviations = Annotated[float, Ge(0), Le(LARGE), Expects("a number ≥ 0 (0 is off)")]
Factor = Annotated[
    float, Ge(1 / LARGE), Le(LARGE), Expects(f"a number > 0 (1 is off), from {1 / LARGE:g} to {LARGE:g}")
]
Weight = Annotated[float, Ge(-LARGE), Le(LARGE), Expects(f"a number (0 is off) up to ±{LARGE:g}")]
Limit = Annotated[int, Ge(0), Le(MOST), Expects(f"an integer from 0 (off) to {MOST}")]
Least = Annotated[int, Ge(1), Le(MOST), Expects(f"an integer from 1 to {MOST}")]
Id = Annotated[int, Ge(0), Expects("an id, an integer ≥ 0")]
Ids = tuple[Id, ...]
#: A text, or the ids of one.
Ban = Filled | Annotated[Ids, MinLen(1)]
Bans = Annotated[tuple[Ban, ...], Expects("a list of texts, or of lists of ids ≥ 0, none of them empty")]
Beginning = Annotated[Filled | Ids, Expects("a text that is not empty, or a list of ids ≥ 0")]
Bias = Annotated[
    tuple[tuple[Id | Filled, Weight], ...],
    Expects("a list of pairs [id ≥ 0 or text, number]"),
]
SequenceBias = Annotated[
    tuple[tuple[Ban, Weight], ...],
    Expects("a list of pairs [text or list of ids ≥ 0, number]"),
]


@dataclass(frozen=True, slots=True)
class Mirostat:
    """Mirostat 2.0 (Basu et al. 2021): keep the surprise of what is drawn near a target.

    tau: the target, in bits a token. eta: how fast the cut follows, from 2·tau on.
    """

    tau: Annotated[float, Gt(0), _FINITE, Expects("a number > 0, in bits")] = 5.0
    eta: Annotated[float, Gt(0), Le(1), Expects("a number in (0, 1]")] = 0.1

    def __post_init__(self) -> None:
        parts.check(self, "mirostat: ")


@dataclass(frozen=True, slots=True)
class Dry:
    """Don't repeat yourself (p-e-w 2024): a token that goes on with a repetition has a lower logit.

    It loses multiplier · base^(m − allowed_length).

    m: tokens at the end of prompt and completion that stood before the token earlier, where they are allowed_length
    or more; at most 50 are compared. breakers: texts whose last token no repetition runs across. last: how many of
    the newest tokens are looked at; 0 is all. multiplier: what the shortest repetition loses. base: how much more
    each further token loses. allowed_length: tokens that may repeat.
    """

    multiplier: Annotated[float, Gt(0), Le(LARGE), Expects(f"a number > 0 up to {LARGE:g}")] = 0.8
    base: Annotated[float, Ge(1), Le(4), Expects("a number from 1 to 4")] = 1.75
    allowed_length: Annotated[int, Ge(1), Le(MOST), Expects("an integer ≥ 1")] = 2
    breakers: Annotated[tuple[Filled, ...], Expects("several texts, none of them empty")] = (
        "\n", ":", '"', "*",
    )  # fmt: skip
    last: Annotated[int, Ge(0), Le(MOST), Expects("an integer ≥ 0 (0 looks at all tokens)")] = 0

    def __post_init__(self) -> None:
        parts.check(self, "dry: ")


@dataclass(frozen=True, slots=True)
class XTC:
    """Exclude top choices (p-e-w 2024): where several tokens have p ≥ threshold, all but the least of them are cut.

    probability: how often that is done, decided for each token anew. Draws come from the mixture of both
    distributions, which is the same as tossing a coin first. threshold: at most 0.5, for two tokens cannot have more.
    """

    probability: Annotated[float, Gt(0), Le(1), Expects("a number in (0, 1]")] = 0.5
    threshold: Annotated[float, Gt(0), Le(0.5), Expects("a number in (0, 0.5]")] = 0.1

    def __post_init__(self) -> None:
        parts.check(self, "xtc: ")


def _are_logits(result: Any, given: Mapping[str, Any]) -> str | None:
    logits = given["logits"]
    if not isinstance(result, type(logits)) or result.shape != logits.shape:
        return f"expected a tensor of the shape of logits, {tuple(logits.shape)}"
    # Where the model gave no numbers, or nothing is left, an adapter need not give any.
    if bool((logits.amax(-1).isfinite() & ~(result.amax(-1) < math.inf)).any()):
        return "it holds NaN or +inf; expected numbers, and −inf for a token that must not come"
    return None


class Adapter(Part):
    """A sampling adapter of another package. Its options are the fields of a class with `metagen.parts.part`.

    It works behind metagen's biases, penalties and bans, before grammars, temperature and what cuts tokens off. Greedy
    decoding obeys it. Two that are made alike are equal; `fingerprint` names both in journals.
    """

    @property
    def fingerprint(self) -> str:
        return parts.fingerprint(self, recorded=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adapter) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @abstractmethod
    @promises(_are_logits)
    def adapt(self, logits: Tensor, ids: Tensor, start: Tensor) -> Tensor:
        """Logits [N, V] of the next token of N rows, from those before; −inf for a token that must not come.

        ids: [N, L] int64, prompt and completion so far, padded by −1 behind. start: [N], where the completion begins.
        Each row must depend on itself alone. The tensors given are not to be changed. Where it raises, rows are given
        to it again one by one: a request fails if it raises for a row of its own.
        """


def in_order(bias: Any) -> Any:
    """A mapping of biases as pairs of floats in one order: ids first, then texts. What is none stays as it is."""
    pairs = tuple(bias.items()) if isinstance(bias, Mapping) else bias
    try:
        return tuple(
            sorted(
                ((key, float(value) if real(value) else value) for key, value in pairs),
                key=lambda p: (isinstance(p[0], str), p[0]),
            )
        )
    except (TypeError, ValueError):
        return pairs


def whole(value: object) -> TypeGuard[int]:
    """Whether it is an integer, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def real(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that floats hold, and no truth value."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -sys.float_info.max <= value <= sys.float_info.max
    )
