"""Phrases that announce an answer in English and some other languages, for rules that read letters and words."""

from __future__ import annotations

import re
from abc import abstractmethod
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
_LATEX: Final = re.compile(
    r"\\(?:text[a-z]*|math[a-z]+|mbox|operatorname|rm|bf|it|sf|tt)\b\s*|\\[,;:! ]|\\q?quad\b|~|\{"
)
_BOXES: Final = re.compile(r"\\(?:boxed|fbox)\s*")
_DELIMITER: Final = re.compile(r"\\[()\[\]]")


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
