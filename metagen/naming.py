"""Names of functions, for fingerprints: two that may do something else are never named the same."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from metagen.sequence import digest


def name_of(function: Callable[..., Any]) -> str:
    """Where a function is defined; of a lambda, or one inside of another, what it does and is given as well.

    Other callables are named by their `fingerprint`, else by their repr, which may be another in another process: then
    what was recorded is not found again, and nothing wrong is.
    """
    if (known := getattr(function, "fingerprint", None)) is not None:
        return str(known)
    if not isinstance(function, FunctionType):
        return repr(function)
    place = f"{function.__module__}.{function.__qualname__}"
    if "<" not in place:
        return place
    cells = [repr(cell.cell_contents) for cell in function.__closure__ or ()]
    given = (repr(function.__defaults__), repr(function.__kwdefaults__), *cells)
    return f"{place} {digest(*_code(function.__code__), *given).hex()}"


def _code(code: CodeType) -> list[str | bytes]:
    """Instructions, names and constants, those of inner functions too."""
    parts: list[str | bytes] = [code.co_code, repr(code.co_names), repr(code.co_varnames)]
    for constant in code.co_consts:
        parts += _code(constant) if isinstance(constant, CodeType) else [repr(constant)]
    return parts
