"""Answers that a regular expression finds: what its group holds in the last match."""

from __future__ import annotations

import re

from metagen import matching
from metagen.errors import InputError


def one_group(name: str, pattern: str) -> re.Pattern[str]:
    """A regular expression with one group, in which `^` and `$` stand for the ends of lines.

    Raises InputError, which calls the pattern `name`, for anything else.
    """
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise InputError(f"{name}={pattern!r} is not a regular expression: {error}") from error
    if compiled.groups != 1:
        raise InputError(f"{name}={pattern!r} has {compiled.groups} groups; expected one, around the answer")
    return compiled


def last_match(pattern: re.Pattern[str], text: str, *, ended: bool) -> str | None:
    """The group of the last match; None without a match, or where the group took no part in it.

    ended: as of `matching.last_match`, which ends a match that takes too long.
    """
    found = matching.last_match(pattern, text, ended=ended)
    return None if found is None else found.groups[0]
