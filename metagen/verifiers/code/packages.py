"""Packages that a program asks for and the sandbox has not got: then nobody knows whether it is right."""

from __future__ import annotations

import re
from typing import Final

#: Of the index, those that programs of models import; a module of another name is a program's own invention.
_MISSING: Final = re.compile(
    r"No module named '(attr|bs4|Crypto|cython|dateutil|gmpy2|jax|lxml|matplotlib|more_itertools|mpmath|nltk|networkx|"
    r"numba|numpy|pandas|primesieve|psutil|pydantic|pyrsistent|pytest|pytz|regex|requests|scipy|seaborn|shapely|"
    r"sklearn|sortedcontainers|sympy|tensorflow|toolz|torch|tqdm|typing_extensions|yaml)\b"
)


def lacks_package(kind: str, message: str) -> bool:
    """Whether an exception of this type, with this message, says that a known package is missing."""
    return kind == "ModuleNotFoundError" and _MISSING.match(message) is not None


def lacks_package_said(errors: str) -> bool:
    """The same, of the last line of a script's standard error."""
    kind, _, message = errors.rstrip().rpartition("\n")[2].partition(": ")
    return lacks_package(kind, message)
