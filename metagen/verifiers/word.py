"""Answers that are one of a few words, such as yes and no, however a model announces and dresses them."""

from __future__ import annotations

import re
from collections import abc
from typing import Annotated, Final

from annotated_types import MinLen

from metagen.errors import InputError
from metagen.parts import part
from metagen.sequence import digest
from metagen.values import Expects, Filled
from metagen.verifiers.base import Answer
from metagen.verifiers.cues import (
    BOX,
    CUE,
    MISSING,
    SEVERAL,
    TAIL,
    TAKEN_BACK,
    CuedRule,
    announcements,
    clean,
    is_denied,
)

WORDS: Final = "two or more different words, such as [yes, no]"
#: Dressing before and behind a word; bounded, so that a text full of it takes no longer.
_OPEN, _CLOSE = r"[\s*_`\"“”'‘’$(\[>–—-]{0,16}", r"[)\]}*_`\"”'’$]{0,16}"
#: Where a word ends that is an answer, and not the beginning of a phrase such as `no way`.
_ENDS: Final = rf"(?!\w|['’-]\w){_CLOSE}(?=\s*(?:\Z|\n|[.,;:!?\x01]|</)|\s*[–—-]\s|\s+\()"
#: What may follow a word that begins a sentence about it.
_GOES_ON: Final = (
    rf"(?!\w|['’-]\w){_CLOSE}(?=\s+(?:because|since|as|given|if|it|they|you|he|she|we|i|this|that|the)\b)"
)
#: Before the statement that a text draws as its conclusion.
_CONCLUDES: Final = re.compile(
    r"\b(?:to\s+conclude|in\s+conclusion|(?:we|i)\s+(?:can\s+)?(?:therefore\s+|thus\s+)?conclude(?:\s+that)?)\b,?",
    re.IGNORECASE,
)
#: A sentence, to its end or to that of the text.
_SENTENCE: Final = re.compile(r"[^.\n]{0,200}(?:\.|\n|\Z)")
_HARDLY: Final = r"(?:(?:\w{1,16}ly|therefore|thus|hence|indeed|just|also|a|an)\s+){0,3}"
_STATES: Final = r"(?:\b(?:is|are|was|were|be|becomes|remains|to|as|therefore|thus|hence|so)\b,?|=+>?|[→⇒:])"


@part
class WordRule(CuedRule):
    r"""Reads one of a few words: `Yes, because …`, `**Yes**`, `The answer is: yes.`, `\boxed{\text{Yes}}`, `"yes"`.

    The word stands, the first of these that there is: in the last box; after the last announcement (`the answer is`),
    or in the rest of its sentence; in the last statement that begins with `To conclude` or `In conclusion`; at the head
    of the first or last line, where the two do not contradict each other; at the end of a statement in the last line,
    such as `The argument is valid.` or `A = not True = False`; in the sentence that the first or the last line begins
    with, such as `This argument is valid because …`. Of two words, what `is not` one is the other. A word elsewhere in
    the text is never an answer.

    words: upper and lower case are the same. pattern: as of `PatternRule`; the word stands in its last match, and
    nowhere else. Verdicts: `missing` without a word, `ambiguous` for several, `unparsable` for a match of the pattern
    that holds none. Raises InputError for fewer than two words, or two that are the same.

    Examples:
        >>> from metagen.verifiers.word import WordRule
        >>> WordRule(words=("yes", "no")).answer("**No**, because 7 is odd.", ended=True).key
        'no'
    """

    words: Annotated[abc.Sequence[Filled], MinLen(2), Expects(WORDS)] = ("yes", "no")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._words = tuple(word.strip().casefold() for word in self.words)
        if len(self._words) < 2 or len(set(self._words)) < len(self._words) or not all(self._words):
            raise InputError(f"words={list(self.words)!r}: expected {WORDS}")
        one = "|".join(re.escape(word) for word in sorted(self._words, key=len, reverse=True))
        word = rf"(?P<word>(?<!\w)(?:{one}))"
        denied = r"(?P<denied>(?:\bnot|n['’]t|\bnever)\s+)?"
        flags = re.IGNORECASE
        self._at = re.compile(rf"{_OPEN}{denied}{_HARDLY}{_OPEN}{word}(?!\w|['’-]\w)", flags)
        self._either = re.compile(
            rf"{_CLOSE}\s*(?:,\s*)?(?:/|or\b|and\b)\s*{_OPEN}(?P<other>{one})(?!\w)", flags
        )
        self._head = re.compile(
            rf"{_OPEN}(?P<so>(?:so|therefore|thus|hence)\b,?\s*)?{_OPEN}{word}(?:{_ENDS}|{_GOES_ON})", flags
        )
        self._opened = re.compile(
            r"\s*(?:(?:the|this|that)\s+[\w ]{1,60}?|it)\s+(?:(?P<isnot>is(?:n['’]t|\s+not)\b)|is\b)\s*"
            rf"{_HARDLY}{_OPEN}{word}(?:{_ENDS}|(?!\w|['’-]\w){_CLOSE}(?=\s+(?:because|since|as)\b))",
            flags,
        )
        self._stated = re.compile(
            rf"(?:{_STATES}|(?P<isnot>\b(?:is|are|was|were)(?:n['’]t|\s+not)\b))\s*{denied}{_HARDLY}{_OPEN}{word}"
            rf"(?:\s+(?:argument|statement|sentence|conclusion|inference|one)\b)?{_ENDS}",
            flags,
        )

    @property
    def fingerprint(self) -> str:
        return digest("word rule", "4", self.pattern or "", *self._words).hex()

    def _find(self, text: str, ended: bool) -> Answer:
        """What a text answers, from the first source that says anything."""
        text = clean(text[-TAIL:]).rstrip()
        for source in (
            self._boxed,
            self._announced,
            self._drawn,
            self._leading,
            self._concluded,
            self._begun,
        ):
            if (answer := source(text, ended)) is not None:
                return answer
        return MISSING

    def _told(self, match: re.Match[str]) -> Answer | None:
        """The word of a match, if its sentence leaves it at that; of two words, the other one where it is denied."""
        word, groups = match["word"], match.groupdict()
        if TAKEN_BACK.match(match.string, match.end()):
            return None
        if not (groups.get("denied") or groups.get("isnot")):
            return Answer(word, word.casefold())
        if len(self._words) > 2:
            return None
        return Answer(f"not {word}", next(one for one in self._words if one != word.casefold()))

    def _here(self, text: str, at: int, ended: bool) -> Answer | None:
        """The word that stands at a place, if a text that was cut goes on behind it."""
        match = self._at.match(text, at)
        if match is None or not (ended or match.end() < len(text)):
            return None
        other = self._either.match(text, match.end())
        return (
            SEVERAL if other and other["other"].casefold() != match["word"].casefold() else self._told(match)
        )

    def _boxed(self, text: str, ended: bool) -> Answer | None:
        boxes = [box.end() for box in re.finditer(BOX, text)]
        return next((a for at in reversed(boxes) if (a := self._here(text, at, ended)) is not None), None)

    def _announced(self, text: str, ended: bool) -> Answer | None:
        """After the last announcement that says anything: at once, or in its sentence."""
        for cue in reversed(announcements(text)):
            if (answer := self._here(text, cue.end(), ended)) is not None:
                return answer
            if (answer := self._stated_in_sentence(text, cue.end(), ended)) is not None:
                return answer
        return None

    def _drawn(self, text: str, ended: bool) -> Answer | None:
        """In the last statement that is said to be the conclusion."""
        for mark in reversed(list(_CONCLUDES.finditer(text))):
            if (answer := self._stated_in_sentence(text, mark.end(), ended)) is not None:
                return answer
        return None

    def _stated_in_sentence(self, text: str, at: int, ended: bool) -> Answer | None:
        """What the sentence states that goes on there; nothing if the text was cut off in it."""
        sentence = _SENTENCE.match(text, at)
        if sentence is None or not (ended or sentence.end() < len(text)):
            return None
        return self._agreed(self._stated.finditer(sentence[0]))

    def _leading(self, text: str, ended: bool) -> Answer | None:
        """At the head of the first or the last line; a last line that begins with `so` has the last word."""
        lines = _lines(text, ended)
        found = [match for line in dict.fromkeys(lines[:1] + lines[-1:]) if (match := self._head.match(line))]
        if not found:
            return None
        if found[-1]["so"]:
            return self._told(found[-1])
        return self._agreed(iter(found))

    def _concluded(self, text: str, ended: bool) -> Answer | None:
        """In the last statement of the last line; what a text was cut behind concludes nothing."""
        if not ended:
            return None
        lines = _lines(text, ended)
        if not lines or any(map(is_denied, CUE.finditer(lines[-1]))):
            return None
        stated = list(self._stated.finditer(lines[-1]))
        return self._told(stated[-1]) if stated else None

    def _begun(self, text: str, ended: bool) -> Answer | None:
        """In the statement that the first line begins with, or else the last."""
        lines = _lines(text, ended)
        for line in dict.fromkeys(lines[:1] + (lines[-1:] if ended else [])):
            match = self._opened.match(line)
            if match and not any(map(is_denied, CUE.finditer(line))):
                return self._told(match)
        return None

    def _agreed(self, matches: abc.Iterator[re.Match[str]]) -> Answer | None:
        """The one word of several mentions; `ambiguous` if they differ."""
        found = {answer.key: answer for match in matches if (answer := self._told(match)) is not None}
        return SEVERAL if len(found) > 1 else next(iter(found.values()), None)


def _lines(text: str, ended: bool) -> list[str]:
    """Lines with a word in them; the last is left out where the text was cut off in it."""
    lines = text.split("\n")
    return [line for line in (lines if ended else lines[:-1]) if re.search(r"\w", line)]
