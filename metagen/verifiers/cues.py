"""Phrases that announce an answer in English and some other languages, for rules that read letters and words."""

from __future__ import annotations

import re
from abc import abstractmethod
from itertools import pairwise
from typing import Final

from metagen.parts import part
from metagen.verifiers.base import Answer
from metagen.verifiers.pattern import PatternRule

#: Answers that are none, by their verdicts.
MISSING, SEVERAL, UNREADABLE = (Answer(verdict=v) for v in ("missing", "ambiguous", "unparsable"))

#: Only so much of a long text, counted from its end, is looked at.
TAIL: Final = 20_000
#: Stands for the beginning of a box in a clean text.
BOX: Final = "\x01"
OPTION: Final = r"(?:option|choice|alternative|letter)"
_GOOD: Final = r"(?:final|(?<!in)correct|right|best|my|our|chosen|selected|most\s*\w{1,20})"
#: What announces an answer; what it announces follows.
CUE: Final = re.compile(
    rf"""(?:
      (?:(?:{_GOOD}\s*){{0,3}}(?:answer(?:\s*{OPTION})?|\bans\b\.?)|(?:{_GOOD}\s*){{1,3}}(?:{OPTION}|response))
      (?:\s*\b(?:to|for|of)\s[^.\n:?]{{0,80}}?)?
      (?:\s*(?:is|are|would\s*be|must\s*be|should\s*be|will\s*be)
         (?:\s*(?:therefore|thus|then|clearly|simply|just|indeed|most\s*likely|probably|likely)\b)*
        |[\s*_]*[:=：]|\s+[-–—](?=\s))
      | \#\#\#\# | <answer> | ^[ \t]*A[ \t]*:
      | \b(?:I|we)(?:\s+would|\s+will|['’]d|['’]ll)?\s+(?:choose|pick|select|go\s+with|opt\s+for)
      | \b(?:antwort|respuesta|réponse|resposta|risposta|ответ)\b(?:\s+\w{{1,20}}){{0,2}}?
        \s*(?:\b(?:ist|es|est|é|è)\b|[:：])
      | 答案|答え|정답
    )[\s*_]*[:：=是为選选は은]*""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
#: Before a cue: what it announces is no answer.
DENIED: Final = re.compile(
    r"(?:wrong|incorrect|false|worst|other|another|possible|potential|not|n['’]t|tempting|initial|previous|student['’]?s?)\s*$",
    re.IGNORECASE,
)
#: Before a cue: a statement, or a step of the question, that says so.
_REPORTED: Final = re.compile(
    r"\b(?:statement|sentence|step|line|premise|claim|instruction|question|prompt)s?\s+(?:is|are|was|says?|states?|reads?)"
    r"\b[^.\n]{0,10}[\"“'‘][^.\n\"“]{0,20}$",
    re.IGNORECASE,
)
#: Between two cues of which the first announces nothing but the second.
_NOTHING: Final = re.compile(
    r"(?:[\s,.:;*_\"“]|\b(?:so|the|thus|therefore|hence|and|that)\b)*", re.IGNORECASE
)
#: Behind what was announced: its sentence takes it back.
TAKEN_BACK: Final = re.compile(
    r"[^.\n;]{0,80}?(?:,|\s)\s*(?:(?:which|but\s+(?:this|that|it|which))\s+(?:is|was)"
    r"(?:\s+(?:clearly|obviously|also))?\s*(?:(?:n['’]t|not)\s+(?:the\s+|a\s+|an\s+)?(?:correct|right|possible|valid|answer)"
    r"|wrong|incorrect|impossible)\b|but\s+there(?:['’]s|\s+(?:is|are|may\s+be))\s+(?:an)?other\b)",
    re.IGNORECASE,
)
_LATEX: Final = re.compile(
    r"\\(?:text[a-z]*|math[a-z]+|mbox|operatorname|rm|bf|it|sf|tt)\b\s*|\\[,;:! ]|\\q?quad\b|~|\{"
)
_BOXES: Final = re.compile(r"\\(?:boxed|fbox)\s*")
_DELIMITER: Final = re.compile(r"\\[()\[\]]")


def is_denied(cue: re.Match[str]) -> bool:
    """Whether it announces what is no answer, such as `the wrong answer is`."""
    return DENIED.search(cue.string, max(0, cue.start() - 20), cue.start()) is not None


def announcements(text: str) -> list[re.Match[str]]:
    """The cues that announce an answer: neither denied, nor what a statement of the question says, nor one cue of many
    without anything between them.
    """
    cues = list(CUE.finditer(text))
    before = [
        cue for cue, following in pairwise(cues) if not _NOTHING.fullmatch(text, cue.end(), following.start())
    ]
    return [
        cue
        for cue in (*before, *cues[-1:])
        if not (is_denied(cue) or _REPORTED.search(text, max(0, cue.start() - 80), cue.start()))
    ]


def clean(text: str) -> str:
    """Without a thought, and without LaTeX but for the beginnings of boxes."""
    text = text.rpartition("</think>")[2]
    if "\\" not in text and "{" not in text:
        return text
    return _LATEX.sub("", _DELIMITER.sub("$", _BOXES.sub(BOX, text)))


@part
class CuedRule(PatternRule):
    """A rule that finds answers by the cues above: in a whole text, or in the match of its pattern."""

    def canonical(self, answer: str) -> str | None:
        return self._find(answer, True).key

    def answer(self, text: str, ended: bool) -> Answer:
        if self.pattern is None:
            return self._find(text, ended)
        written = self.match(text, ended)
        if written is None or not written.strip():
            return MISSING
        answer = self._find(written, True)
        return UNREADABLE if answer == MISSING else Answer(written.strip(), answer.key, answer.verdict)

    @abstractmethod
    def _find(self, text: str, ended: bool) -> Answer:
        """The answer in a text; `MISSING` if there is none. ended: it was not cut off."""
