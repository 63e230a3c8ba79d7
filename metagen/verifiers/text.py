"""Answers that are plain text: the same if they are written the same."""

from __future__ import annotations

import unicodedata
from collections import abc
from typing import Final

from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.pattern import last_match, one_group

#: A longer key is replaced by its digest.
LONGEST: Final = 200


class TextRule(AnswerRule):
    """Reads the text itself, in Unicode's form NFC and without the blanks around it.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last match is
    the answer, and without one there is none. fold_case: upper and lower case are the same. fold_blanks: so are all
    runs of blanks and line ends. A text that was cut off, or a match that reaches its end, does not count.
    Verdict: `missing` where there is nothing. Raises InputError for a pattern without one group.
    """

    def __init__(
        self, pattern: str | None = None, *, fold_case: bool = False, fold_blanks: bool = False
    ) -> None:
        self._pattern = one_group("pattern", pattern) if pattern is not None else None
        self._case, self._blanks = fold_case, fold_blanks

    @property
    def fingerprint(self) -> str:
        pattern = self._pattern.pattern if self._pattern else ""
        return digest("text rule 2", pattern, str(self._case), str(self._blanks)).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [self._answer(sequence) for sequence in sequences]

    async def key(self, answer: str) -> str | None:
        return self.canonical(answer)

    def canonical(self, answer: str) -> str | None:
        """The key of an answer that stands by itself; None if it is empty."""
        text = " ".join(answer.split()) if self._blanks else answer.strip()
        text = unicodedata.normalize("NFC", text.casefold() if self._case else text)
        if len(text) > LONGEST:
            return f"text {digest(text).hex()}"
        return text or None

    def _answer(self, sequence: Sequence) -> Answer:
        ended = sequence.finish in ("eos", "stop")
        if self._pattern is not None:
            found = last_match(self._pattern, sequence.text, ended=ended)
        else:
            found = sequence.text if ended else None
        key = self.canonical(found) if found else None
        return Answer(verdict="missing") if found is None or key is None else Answer(found.strip(), key)
