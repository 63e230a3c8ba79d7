"""What is expected of a value beyond its type.

A type such as `Count` says it once: constructors, experiment files and the pages of reference read it there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from annotated_types import Ge, Gt, Le, Lt, MinLen

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: Samples of one call, candidates of one strategy, tokens of one sample: beyond that it is a slip.
MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Expects:
    """Says in words what a type expects; messages repeat it."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.custom_error_schema(
            handler(source), custom_error_type="expected", custom_error_message=f"expected {self.what}"
        )


@dataclass(frozen=True, slots=True)
class AtMost:
    """The largest value that anybody can mean: what is larger has a message of its own."""

    value: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        def check(given: Any) -> Any:
            if given > self.value:
                raise ValueError(self.what)
            return given

        return core_schema.no_info_after_validator_function(check, handler(source))

    @property
    def what(self) -> str:
        return f"expected at most {self.value:,}"


Text = Annotated[str, Expects("a text")]
Filled = Annotated[str, MinLen(1), Expects("a text that is not empty")]
Switch = Annotated[bool, Expects("true or false")]
Integer = Annotated[int, Expects("an integer")]
Number = Annotated[float, Expects("a number")]
Count = Annotated[int, Ge(1), Expects("an integer ≥ 1"), AtMost(MOST)]
Amount = Annotated[int, Ge(0), Expects("an integer ≥ 0"), AtMost(MOST)]
#: What may be larger than any number of samples, steps or tokens of a text: bytes, contexts, totals.
Size = Annotated[int, Ge(1), Expects("an integer ≥ 1")]
Total = Annotated[int, Ge(0), Expects("an integer ≥ 0")]
Quantity = Annotated[float, Ge(0), Lt(float("inf")), Expects("a number ≥ 0")]
Positive = Annotated[float, Gt(0), Lt(float("inf")), Expects("a number > 0")]
#: Of scores, probabilities and parts of a whole.
Share = Annotated[float, Ge(0), Le(1), Expects("a number in [0, 1]")]
#: A part of a whole that is not nothing.
Fraction = Annotated[float, Gt(0), Le(1), Expects("a number in (0, 1]")]
#: More likely than not, and not certain.
Certainty = Annotated[float, Gt(0.5), Lt(1), Expects("a probability in (0.5, 1)")]


def within(value: Any, notes: Sequence[Any]) -> bool:
    """Whether a value of the right type keeps to what is noted beside the type."""
    for note in notes:
        match note:
            case Ge(ge=bound) if not value >= bound:
                return False
            case Gt(gt=bound) if not value > bound:
                return False
            case Le(le=bound) | AtMost(value=bound) if not value <= bound:
                return False
            case Lt(lt=bound) if not value < bound:
                return False
            case MinLen(min_length=least) if len(value) < least:
                return False
    return True


def said(notes: Sequence[Any], value: Any = None) -> str | None:
    """What is noted beside a type, in words: of a value that is too large by far, only that."""
    for note in notes:
        if isinstance(note, AtMost) and isinstance(value, int) and value > note.value:
            return note.what.removeprefix("expected ")
    what = next((note.what for note in notes if isinstance(note, Expects)), None)
    endless = isinstance(value, float) and math.isinf(value)
    return what.replace("a number", "a finite number") if what and endless else what
