"""The verdict in what a judge has written: a label, or else a score such as "Score: 7/10" or `{"score": 7}`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from metagen.verifiers.generative.question import Question

#: Fields of a JSON object that hold a verdict, in the order in which they are looked for.
FIELDS: Final = (
    "verdict",
    "label",
    "rating",
    "score",
    "grade",
    "correct",
    "answer",
    "choice",
    "winner",
    "better",
)
_NUMBER: Final = r"(?P<value>[-−]?\d+(?:[.,]\d+)?)"
_OUT_OF: Final = r"(?:\s*(?:/|out\s+of)\s*(?P<most>\d+(?:[.,]\d+)?)|\s*(?P<percent>%))?(?![\w/%]|[.,]\d)"
#: In brackets: "(out of 10)", "(0-10)", "(on a scale from 1 to 10)"; else whatever stands there.
_SCALE: Final = (
    r"\(\s*(?:(?:on|an?|the|scale|of|from)\s+){0,4}(?:out\s+of|/|\d+\s*(?:[-–—]|to\b))\s*(?P<scale>\d+(?:[.,]\d+)?)\s*\)"
    r"|\([^()\n]*\)"
)
_SCORE: Final = re.compile(
    rf"\b(?:score|rating|rated|grade|verdict)\b[*_\"']*\s*(?:(?:{_SCALE})\s*)?(?:is\b|of\b|[:=])?[*_\s\"'`\[(]*{_NUMBER}{_OUT_OF}",
    re.IGNORECASE,
)
_FRACTION: Final = re.compile(rf"[\W_]*?{_NUMBER}{_OUT_OF}[\W_]*")
#: Characters of a reply that is short enough to be one: in a longer text the first word is no conclusion.
SHORT: Final = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """raw: on the question's own scale. form: what it was read from."""

    raw: float
    form: Literal["label", "score"]


class VerdictReader:
    """Reads the answers to one question.

    In this order: the last label that follows the cue; a label that is all there is; a field of the last JSON object
    (`FIELDS`) that holds a label, a truth value (of the field `correct`) or a score; a short reply that opens with a
    label ("No, it is 5.") or ends in "the answer is" and one, where labels are words and the reply has no other; the
    last score that is called one. Upper and lower case are one, unless two labels differ in nothing else.

    A score out of something, 7/10 or 70%, is a share of the question's scale, and on a scale that ends there a number
    of it. A number alone is read on a scale of numbers only, where it lies on it. Between two answers there is no
    score. Whatever else is written is no verdict.

    Of a text that was cut, a label counts behind the cue or where it is all there is, and a score behind the cue or in
    a JSON object; what else it says may be what it weighs, and the verdict was to come.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        names = [label.strip() for label in question.labels]
        folds = len({name.casefold() for name in names}) == len(names)
        self._fold = str.casefold if folds else str
        self._worth = {self._fold(label.strip()): worth for label, worth in question.labels.items()}
        cue, case = re.escape(question.cue.strip()), re.IGNORECASE if folds else re.NOFLAG
        name = f"({'|'.join(map(_label_pattern, sorted(names, key=len, reverse=True)))})"
        self._low, self._high = min(question.labels.values()), max(question.labels.values())
        self._numbers = all(
            _is(name, worth) for name, worth in zip(names, question.labels.values(), strict=True)
        )
        self._scored = self._numbers or not question.compares
        # Of two answers one is called by its kind: "Answer B".
        kind = "" if self._scored else r"(?:(?i:answer|option|response)\b[\W_]*)?"
        self._after = (
            re.compile(rf"{cue}[\W_]*{kind}{name}(?![\w]|[.,]\d|\s*/\s*\d|\s*%)", case) if cue else None
        )
        self._alone = re.compile(rf"[\W_]*{kind}{name}[\W_]*", case)
        words = all(label.isalpha() and len(label) > 1 for label in names)
        self._replies = (
            (
                re.compile(rf"[\W_]*{name}(?=\s*[.,;:!]|[*_]*\s*\n)", case),
                re.compile(rf"(?s:.*)\banswer\s+is[\s:*_\"'`(\[]*{name}[\W_]*\Z", case),
            )
            if words
            else ()
        )
        folded = [self._fold(label) for label in names]
        #: Labels that another one goes on from.
        self._begins = {a for a in folded if any(b != a and b.startswith(a) for b in folded)}
        self._word = re.compile(rf"(?<!\w){name}(?!\w)", case)
        self._behind = re.compile(rf"{cue}[*_\s\"'`\[(]*{_NUMBER}{_OUT_OF}", case) if cue else None

    def read(self, text: str, *, ended: bool = True) -> Verdict | None:
        """The verdict; None if there is none that can be read. ended: whether the text was not cut by its length."""

        def goes_on(match: re.Match[str], label: str | None = None) -> bool:
            """Whether a cut text ends with what may be the beginning of another label, or of a longer number."""
            at_end = not ended and match.end() == len(text)
            return at_end and (label is None or self._fold(label) in self._begins)

        found = None
        for match in self._after.finditer(text) if self._after else ():
            found = found if goes_on(match, match[1]) else match[1]
        if found is None and (alone := self._alone.fullmatch(text)) and not goes_on(alone, alone[1]):
            found = alone[1]
        if found is not None:
            return Verdict(self._worth[self._fold(found)], "label")
        for fields in _objects(text):
            if (verdict := self._in(fields)) is not None:
                return verdict
        if ended and (reply := self._reply(text)) is not None:
            return reply
        if not self._scored:
            return None
        for pattern in filter(None, (self._behind, _SCORE if ended else None)):
            matches = [match for match in pattern.finditer(text) if not goes_on(match)]
            if matches and (score := self._score(matches[-1])) is not None:
                return score
        whole = _FRACTION.fullmatch(text) if ended else None
        return self._score(whole) if whole else None

    def _reply(self, text: str) -> Verdict | None:
        """The verdict of a short reply that forgot the cue, where it names one label and no other."""
        if len(text) > SHORT or not any(pattern.match(text) for pattern in self._replies):
            return None
        said = {self._fold(match[1]) for match in self._word.finditer(text)}
        return Verdict(self._worth[said.pop()], "label") if len(said) == 1 else None

    def _in(self, fields: dict[str, Any]) -> Verdict | None:
        named = {str(name).casefold(): value for name, value in fields.items()}
        for name in (name for name in FIELDS if name in named):
            value = named[name]
            if isinstance(value, bool):
                if name == "correct" and not self._question.compares:
                    return Verdict(self._high if value else self._low, "label")
            elif isinstance(value, str) and (worth := self._worth.get(self._fold(value.strip()))) is not None:
                return Verdict(worth, "label")
            elif isinstance(value, int | float | str) and self._scored:
                match = _FRACTION.fullmatch(str(value))
                if match and (score := self._score(match)) is not None:
                    return score
        return None

    def _score(self, match: re.Match[str]) -> Verdict | None:
        """Groups: the number, what it is out of, a sign of percent, the end of a scale in front of it."""
        value, scale = _float(match["value"]), match["most"] or match.groupdict().get("scale")
        most = 100.0 if match["percent"] else _float(scale) if scale else None
        if most is None or (self._numbers and most == self._high):
            on = self._numbers and self._low <= value <= self._high
            return Verdict(value, "score") if on else None
        if not (most > 0 and 0.0 <= value <= most):
            return None
        return Verdict(self._low + value / most * (self._high - self._low), "score")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text that hold nothing of one another, the last one first."""
    found, at, decoder = [], text.find("{"), json.JSONDecoder()
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    yield from reversed(found)


def _label_pattern(name: str) -> str:
    """The pattern of a label; a minus sign before a number makes another number of it."""
    return (r"(?<![-−])" if name[0].isdigit() else "") + re.escape(name)


def _is(name: str, worth: float) -> bool:
    """Whether a label is the number that it is worth."""
    try:
        return float(name) == worth
    except ValueError:
        return False


def _float(number: str) -> float:
    return float(number.replace("−", "-").replace(",", "."))
