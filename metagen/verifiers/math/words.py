"""Answers that are words: names, choices, yes and no."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from metagen.verifiers.math.quantities import is_time, to_one_form
from metagen.verifiers.math.tokens import FUNCTIONS, GREEK, unwrap
from metagen.verifiers.math.tree import names

MAX_CHARACTERS: Final = 200
_COMMAND: Final = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt|up)?|mbox|hbox|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}"
)
_DEGREES: Final = re.compile(r"\s*(?:\^\s*\{?\s*\\circ(?![a-zA-Z])\s*\}?|\\degrees?(?![a-zA-Z])|[°º˚])\s*")
_SPACE: Final = re.compile(r"\\(?:display|text)style(?![a-zA-Z])|\\[,;:! ]|\\q?quad(?![a-zA-Z])|~|\$")
#: A choice with what it says behind it: the letter names it.
_LABEL: Final = re.compile(r"\(([A-Z])\) (?=[\w\\.-])(?!\\c[ua]p)")
_CHOICE: Final = re.compile(r"\(\s*([A-Za-z])\s*\)")
_SIMPLE: Final = re.compile(r"[^\W_](?:(?:[^\W_]|[ .,:;'’%/()+&-])*(?:[^\W_]|[%.)]))?")
_PROSE: Final = re.compile(r"[^\W\d_]+(?:[ ,.'’-]+[^\W\d_]+)*")
_MATH: Final = FUNCTIONS | GREEK | names("pi infinity infty inf oo sqrt and or xyz abc")


def plain(answer: str) -> str:
    """The answer without markup, and with single blanks."""
    text = _DEGREES.sub(" degrees ", unwrap(answer))
    for _ in range(3):
        text = _COMMAND.sub(r"\1", text)
    text = " ".join(_SPACE.sub(" ", text).split())
    text = unwrap(unicodedata.normalize("NFC", text))
    if choice := _CHOICE.fullmatch(text):
        text = choice[1]
    return text


def prose(answer: str) -> str | None:
    """The key of an answer that is words at first sight, with no need of a parser; None for others."""
    if len(answer) > MAX_CHARACTERS * 2:
        return None
    text = plain(answer)
    if is_time(text):
        return quote(to_one_form(text))
    if label := _LABEL.match(text):
        return quote(label[1])
    if "=" in answer or len(text) > MAX_CHARACTERS or not _PROSE.fullmatch(text):
        return None
    runs = re.findall(r"[^\W\d_]+", text)
    if (text in ("e", "i") and "(" not in answer) or not all(run.isalpha() for run in runs):
        return None  # a constant, or numerals that are no digits
    if len(text) == 1 and not text.isascii():
        return None  # perhaps π: the grammar knows its letters
    if len(text) == 1 or any(
        len(run) > 3 and run.casefold() not in _MATH and not run.startswith("arc") for run in runs
    ):
        return quote(text)
    return None


def words(answer: str) -> str | None:
    """The key of an answer that is no mathematics but can be compared as text; None if it cannot."""
    text = plain(answer)
    if len(text) > MAX_CHARACTERS or not _SIMPLE.fullmatch(text):
        return None
    return (
        quote(to_one_form(text))
        if any(c.isalpha() for c in text) or re.fullmatch(r"\d+(:\d+)+", text)
        else None
    )


def quote(text: str) -> str:
    """Keys of texts stand in quotes, so that none is ever the key of a number."""
    return f'"{text.casefold()}"'
