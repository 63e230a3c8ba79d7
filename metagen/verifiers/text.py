"""Answers that are plain text: the same if they are written the same."""

from __future__ import annotations

import unicodedata
from typing import Final

from metagen.parts import part
from metagen.sequence import digest
from metagen.verifiers.base import Answer
from metagen.verifiers.pattern import PatternRule

#: A longer key is replaced by its digest.
LONGEST: Final = 200


@part
class TextRule(PatternRule):
    """Reads the text itself, in Unicode's form NFC and without the blanks around it.

    pattern: as of `PatternRule`; without a match there is no answer. fold_case: upper and lower case are the same.
    fold_blanks: so are all runs of blanks and line ends. Without a pattern, a text that was cut off does not count.
    Verdict: `missing` where there is nothing.

    Examples:
        >>> from metagen.verifiers.text import TextRule
        >>> TextRule(r"Capital: (.+)", fold_case=True).answer("Capital: Paris ", ended=True).key
        'paris'
    """

    fold_case: bool = False
    fold_blanks: bool = False

    @property
    def fingerprint(self) -> str:
        return digest("text rule 2", self.pattern or "", str(self.fold_case), str(self.fold_blanks)).hex()

    def canonical(self, answer: str) -> str | None:
        text = " ".join(answer.split()) if self.fold_blanks else answer.strip()
        text = unicodedata.normalize("NFC", text.casefold() if self.fold_case else text)
        if len(text) > LONGEST:
            return f"text {digest(text).hex()}"
        return text or None

    def answer(self, text: str, ended: bool) -> Answer:
        found = self.match(text, ended) if self.pattern is not None else text if ended else None
        key = self.canonical(found) if found else None
        return Answer(verdict="missing") if found is None or key is None else Answer(found.strip(), key)
