"""Answers of BIG-Bench Hard that take the problem to read: one of its options, its words sorted, its brackets closed.

What a rule needs to know of a problem stands in the prompt's public data.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import abc
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from typing import Final

from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.choice import ChoiceRule
from metagen.verifiers.cues import CUE, TAIL, announcements, clean

#: So many announcements, from the last one on, and so much of a line are looked at.
CUES, LINE = 16, 2_000
#: So much of a line may be said before its brackets.
BEFORE: Final = 400
MISSING: Final = Answer(verdict="missing")
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER: Final = re.compile(r"\s*\(?([A-Z])\)?\.?\s*")
_NO_OPTION: Final = re.compile(r"\A\s*\(?[A-Z][.):]\s*")
_PAIRS: Final = ("()", "[]", "{}", "<>")
_BRACKETS: Final = "".join(_PAIRS)
#: Brackets with what a model puts between them.
_SIGNS: Final = r"[()\[\]{}<>](?:(?:[\s`\"'“”‘’*,$\\]|\band\b){0,8}[()\[\]{}<>])*"
_RUN: Final = re.compile(rf"[\s`\"'“”‘’*,$:]*({_SIGNS})")
#: The brackets that a line ends with.
_LAST: Final = re.compile(rf"[^\W\d_].*?({_SIGNS})[\s`\"'“”‘’*,.$]*\Z")
#: What denies what stands in the same line.
_NOT: Final = re.compile(r"\b(?:not|neither|nor|none|wrong|incorrect)\b|n['’]t", re.IGNORECASE)
#: A word of a list, without its dressing; the number or the sign of an item is none.
_WORD: Final = re.compile(r"[^\W_](?:[\w&'’.-]*\w)?|[^\W_]")
_ITEM: Final = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
#: A heading of a list.
_HEADING: Final = re.compile(r"[^:\n]*[^\W\d_][^:\n]*:[\s*_]*")
#: Before the next announcement.
_SO: Final = re.compile(r"\s*(?:\b(?:so|thus|therefore|hence)\b,?\s*)*(?:\bthe\s*)?\Z", re.IGNORECASE)
#: Behind the text of an option: the sentence says that it is what was asked for.
_IS_ASKED: Final = re.compile(
    r"\s*[\"”'’*_]*\s*(?:is|would be)\s+(?:the|a|an)\s+(?:[\w-]+\s+){0,3}?(?:answer|option|choice|edit|match|one)\b",
    re.IGNORECASE,
)
#: Where the answer in a sentence ends.
_REASON: Final = re.compile(r",?\s+(?:because|since|as it|which is|so that)\b|\.(?=\s|$)|\n", re.IGNORECASE)


class OfProblem(AnswerRule):
    """Reads an answer with the help of the problem's public data."""

    @property
    def fingerprint(self) -> str:
        return digest("big-bench hard", "4", type(self).__name__).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [self.find(s.text, s.finish in ("eos", "stop"), s.prompt.public) for s in sequences]

    @abstractmethod
    def find(self, text: str, ended: bool, public: abc.Mapping[str, object]) -> Answer:
        """The answer in a text. ended: it was not cut off."""


class OptionRule(OfProblem):
    """One of the problem's `options`, by its letter as `ChoiceRule` reads letters, or else by its text.

    Some published options are one text that was cut at its commas: such options in a row, read as one text, are an
    answer too, which has no letter.
    """

    def find(self, text: str, ended: bool, public: abc.Mapping[str, object]) -> Answer:
        options = [str(one) for one in _listed(public.get("options"))]
        # One published question was cut within its first option; there are two at least.
        answer = _letters(max(2, len(options))).answer(text, ended)
        if answer.key is not None or answer.verdict != "missing":
            return answer
        known = _texts(options)
        for said in _said(text, ended):
            # The letter before it may be that of no option.
            for part in (said, _NO_OPTION.sub("", said)):
                if (key := known.get(fold(part.strip()))) is not None:
                    return Answer(said.strip(), key)
        if (begun := _named(text, known)) is not None:
            return begun
        return _concluded(text, options, known) if ended and not announcements(text) else MISSING

    async def key(self, answer: str) -> str | None:
        letter = _LETTER.fullmatch(answer)
        return letter[1] if letter else fold(answer) or None


class SortedRule(OfProblem):
    """The problem's `words`, in the order in which an answer has them: in a line, or one a line."""

    def find(self, text: str, ended: bool, public: abc.Mapping[str, object]) -> Answer:
        given = [str(word).casefold() for word in _listed(public.get("words"))]
        known = set(given)
        for said in _said(text, ended, lists=True):
            words = [word for word in _words(said) if word in known or word != "and"]
            # A word may be misspelt, or all of them; a sentence has few words of the list.
            same = sum(word in known for word in words)
            like = sum(_is_like(word, known) for word in words) if len(words) == len(given) else same
            if len(words) > 1 and (not known or 2 * max(same, like) > len(words)):
                return Answer(said.strip(), " ".join(words))
        return MISSING

    async def key(self, answer: str) -> str | None:
        return " ".join(_words(answer)) or None


class BracketRule(OfProblem):
    """Brackets that close those of the problem, `begun`; what repeats these first is read without them."""

    def find(self, text: str, ended: bool, public: abc.Mapping[str, object]) -> Answer:
        announced = bool(announcements(text))
        begun = [c for c in str(public.get("begun", "")) if c in _BRACKETS]
        for said in _said(text, ended, raw=True):
            found = _RUN.match(said) or (
                None if announced or _NOT.search(said) else _LAST.search(said[-BEFORE:])
            )
            if found is None:
                continue
            signs = [c for c in found[1] if c in _BRACKETS]
            if begun and signs[: len(begun)] == begun:
                signs = signs[len(begun) :]
            # A bracket that opens behind others begins a remark, such as `] (one is left)`.
            end = next((i for i, c in enumerate(signs) if c in "([{<"), len(signs))
            # What is announced is an answer, even if it begins with a bracket that opens.
            if signs[:end] or (announced and signs):
                return Answer(found[1], " ".join(signs[:end] or signs))
        return MISSING

    async def key(self, answer: str) -> str | None:
        signs = answer.split()
        return " ".join(signs) if signs and all(sign in list(_BRACKETS) for sign in signs) else None


@cache
def _letters(count: int) -> ChoiceRule:
    return ChoiceRule(letters=LETTERS[:count])


def fold(text: str) -> str:
    """A text without case, punctuation and the article before it."""
    words = re.findall(r"\w+", text.casefold())
    return " ".join(words[1:] if words[:1] == ["that"] else words)


def _texts(options: abc.Sequence[str]) -> dict[str, str]:
    """What each text means: the letter of an option that no other one is like; options in a row mean themselves."""
    plain = [fold(option) for option in options]
    joined = [
        " ".join(plain[i:j]) for i in range(len(plain)) for j in range(i + 2, min(i + 5, len(plain) + 1))
    ]
    single = {text: LETTERS[i] for i, text in enumerate(plain) if plain.count(text) == 1 and text}
    return dict(zip(joined, joined, strict=True)) | single


def _named(text: str, known: abc.Mapping[str, str]) -> Answer | None:
    """The option that the first sentence says to be what was asked for: `Paris is the right option.`"""
    line = clean(text[-TAIL:]).lstrip().partition("\n")[0][:LINE]
    said = _IS_ASKED.search(line)
    if said is None or _NOT.search(line.partition(".")[0]):
        return None
    key = known.get(fold(line[: said.start()]))
    return None if key is None else Answer(line[: said.start()].strip(), key)


def _is_like(word: str, known: abc.Collection[str]) -> bool:
    """Whether it is a word of the list, perhaps misspelt."""
    return word in known or bool(get_close_matches(word, known, n=1))


def _listed(value: object) -> abc.Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _concluded(text: str, options: abc.Sequence[str], known: abc.Mapping[str, str]) -> Answer:
    """The option that the last line ends with, by its letter in brackets or its text; none if something is denied."""
    line = clean(text[-TAIL:]).rstrip().rpartition("\n")[2]
    if _NOT.search(line):
        return MISSING
    marked = list(re.finditer(r"(?<!\w)\(([A-Z])\)", line))
    letters = {one[1] for one in marked} & set(LETTERS[: len(options)])
    if len(letters) == 1:
        letter, rest = marked[-1][1], fold(line[marked[-1].end() :])
        is_last = letter in letters and rest in ("", fold(options[LETTERS.index(letter)]))
        return Answer(line.strip(), letter) if is_last else MISSING
    ends = [option for option in known if not letters and f" {fold(line)}".endswith(f" {option}")]
    return Answer(line.strip(), known[max(ends, key=len)]) if ends else MISSING


def _words(text: str) -> list[str]:
    return [word.casefold() for line in text.split("\n") for word in _WORD.findall(_ITEM.sub("", line))]


def _said(text: str, ended: bool, *, lists: bool = False, raw: bool = False) -> abc.Iterator[str]:
    """What a text may answer: what is announced, from the last announcement on, or else its last and first line.

    lists: the lines of a list are one answer. raw: no sign is taken out.
    """
    text = text.rpartition("</think>")[2][-TAIL:] if raw else clean(text[-TAIL:])
    cues = announcements(text)
    for cue in cues[: -CUES - 1 : -1]:
        # What is announced ends before the next announcement, and its `So the`.
        following = CUE.search(text, cue.end())
        end = following.start() if following else len(text)
        rest = _SO.sub("", text[cue.end() : end]) if following else text[cue.end() :]
        whole, _, below = rest.lstrip().partition("\n")
        if not (ended or following) and len(rest.lstrip()) == len(whole):
            continue
        line = whole[:LINE]
        if lists and _HEADING.fullmatch(line) and below.strip():
            line = below.lstrip().partition("\n")[0][:LINE]
        if lists and (items := _items(rest.lstrip("\n *_`:"))):
            yield items
        yield line
        yield _REASON.split(line, maxsplit=1)[0]
    if cues:
        return
    lines = [line for line in (text.split("\n") if ended else text.split("\n")[:-1]) if line.strip(" `*_")]
    if not lines:
        return
    if not ended:
        # No line concludes anything, and none is a list.
        yield lines[0][:LINE]
        return
    if lists:
        runs = [list(run) for is_item, run in groupby(lines, _is_item) if is_item]
        if runs and len(runs[-1]) > 1:
            yield "\n".join(runs[-1])
    for line in dict.fromkeys((lines[-1][-LINE:], lines[0][:LINE])):
        if re.search(r"[^\W\d_].*:", line):
            yield line.rpartition(":")[2]
        yield line


def _is_item(line: str) -> bool:
    """Whether a line is one of a list: it has a number or a sign before it, or is a word and no heading."""
    return _ITEM.match(line) is not None or (len(line.split()) == 1 and ":" not in line)


def _items(text: str) -> str:
    """The items of a list that a text begins with; empty if it begins with none."""
    found = []
    for line in text.split("\n"):
        if _is_item(line):
            found.append(line)
        elif line.strip():
            break
    return "\n".join(found) if len(found) > 1 else ""
