"""Answers that a regular expression finds: what its group holds in the last match."""

from __future__ import annotations

import re

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

    ended: the text was not cut off. In one that was, a match that reaches its end does not count: more might have
    followed.
    """
    found = None
    for match in pattern.finditer(text):
        if ended or match.end() < len(text):
            found = match[1]
    return found
