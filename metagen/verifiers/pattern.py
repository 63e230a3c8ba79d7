"""Answers that a regular expression finds: what its group holds in the last match."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import abc
from dataclasses import field

from metagen import matching
from metagen.errors import InputError
from metagen.parts import part
from metagen.sequence import Sequence
from metagen.verifiers.base import Answer, AnswerRule


@part
class PatternRule(AnswerRule):
    """An answer rule that may look for answers by a pattern.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last match is
    the answer. In a text that was cut off, a match that reaches the end does not count: more might have followed.
    Raises InputError for a pattern without one group.
    """

    pattern: str | None = field(default=None, kw_only=False)

    def __post_init__(self) -> None:
        self._regex = one_group("pattern", self.pattern) if self.pattern is not None else None

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        texts = [(s.text, s.finish in ("eos", "stop")) for s in sequences]
        found = {one: self.answer(*one) for one in dict.fromkeys(texts)}
        return [found[one] for one in texts]

    async def key(self, answer: str) -> str | None:
        return self.canonical(answer)

    @abstractmethod
    def canonical(self, answer: str) -> str | None:
        """The key of an answer that stands by itself; None if it cannot be read."""

    @abstractmethod
    def answer(self, text: str, ended: bool) -> Answer:
        """The answer in a text. ended: it was not cut off."""

    def to_answer(self, found: str | None) -> Answer:
        """The answer that stands there by itself; `missing` if nothing does, `unparsable` if it has no key."""
        if not found or not (text := found.strip()):
            return Answer(verdict="missing")
        key = self.canonical(text)
        return Answer(text, key, None if key is not None else "unparsable")

    def match(self, text: str, ended: bool) -> str | None:
        """What the pattern finds; None without a match, and without a pattern."""
        return None if self._regex is None else last_match(self._regex, text, ended=ended)


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
