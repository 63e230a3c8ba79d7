"""Answers that are choices: the letter of an option, however a model announces and dresses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from metagen.errors import InputError
from metagen.parts import part
from metagen.sequence import digest
from metagen.values import Expects
from metagen.verifiers.base import Answer
from metagen.verifiers.cues import (
    BOX,
    MISSING,
    OPTION,
    SEVERAL,
    TAIL,
    TAKEN_BACK,
    CuedRule,
    announcements,
    clean,
)

LETTERS: Final = "two or more different letters or digits, such as 'ABCDE'"

_NUMBERS: Final = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_ORDINALS: Final = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
]
_SPOKEN: Final = [
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliett",
]
#: Places by name, such as `two`, `2nd` and `bravo`.
_PLACES = {
    name: place
    for place in range(10)
    for name in (_NUMBERS[place], str(place + 1), _ORDINALS[place], _SPOKEN[place])
}  # fmt: skip
_PLACES |= {"1st": 0, "2nd": 1, "3rd": 2, "alfa": 0, "juliet": 9}
_PLACES |= {f"{place + 1}th": place for place in range(3, 10)}
_NAMED: Final = re.compile(
    rf"[\s*_$(\"]*(?:the\s+)?(?:{OPTION}\s*(?:number\s*|no\.?\s*|\#\s*)?"
    rf"(?P<after>{'|'.join((*_NUMBERS, *_SPOKEN, 'alfa', 'juliet', '10', '[1-9]'))})"
    rf"|(?P<before>{'|'.join(_ORDINALS)}|1st|2nd|3rd|[4-9]th|10th)\s*(?:{OPTION}|answer))(?![^\W_])",
    re.IGNORECASE,
)
#: In the sentence of a cue: a letter that it names in passing may be another one's.
_QUALIFIED: Final = re.compile(
    r"\b(?:not|nor|neither|either|rather|instead|unlike|than|except|or|but|wrong|incorrect)\b|n['’]t",
    re.IGNORECASE,
)
#: Before a letter that is called right.
_STATED: Final = r"(?:^|[.,:;!?]\s+|\b(?:that|so|thus|hence|therefore|think|believe|conclude|clearly)\s+)"
_RIGHT: Final = re.compile(
    r"[)\]}*_`\"”$]*\s+is\s+(?:(?:clearly|therefore|thus|indeed|obviously)\s+)?(?:the\s+|my\s+)?(?:only\s+|final\s+)?"
    r"(?:correct|right|best|answer|most\s+\w+)\b",
    re.IGNORECASE,
)
_CLOSED: Final = re.compile(
    r"\s*\Z|[ \t]*\n|[)\]}\"”$!;\x01]|[*_`]+(?![^\W_])|[.:,：。，](?![^\W_])|['’](?!\w)|</?[a-z]",
    re.IGNORECASE,
)
_GOES_ON: Final = re.compile(
    r"\s+(?:[([–—-]|(?:because|since|as|for|which|due|given|based|so|here)\b)", re.IGNORECASE
)
#: After what may be the article, or the pronoun.
_GOES_ON_STRICTLY: Final = re.compile(
    r"\s+(?:(?:because|since)\b|\([^()\n]*\)\s*(?:[.,;!\n]|\Z))", re.IGNORECASE
)
#: Names of species, which begin as the text of an option does.
_SPECIES: Final = re.compile(
    r"\.\s*(?:coli|elegans|difficile|diff|subtilis|albicans|melanogaster|thaliana|botulinum|tetani|perfringens|"
    r"burgdorferi|anthracis|cereus|faecalis|aureus|diphtheriae|trachomatis|musculus|sapiens)\b",
    re.IGNORECASE,
)
#: What is said of an option, in place of the option's own text.
_SAID: Final = re.compile(
    r"(?:is|are|was|does|do|can|cannot|would|should|has|seems|may|might|could)\b|.{0,40}(?:not\s*correct|incorrect|does\s*not\s*fit)"
    r"|(?:isnot|doesnot)",
    re.IGNORECASE,
)
#: Behind a cue: it announces several answers, whatever they are.
_BOTH: Final = re.compile(r"[\s*_`]{0,8}both\b(?!\s*:)", re.IGNORECASE)
#: Dressing before and behind a letter; bounded, so that a text full of it takes no longer.
_OPEN, _CLOSE, _SPACE = r"[\s*_`\"“'‘$(\[]{0,16}", r"[)\]}*_`\"”'’$.]{0,16}", r"[ \t]{0,16}"


@part
class ChoiceRule(CuedRule):
    r"""Reads the letter of an option: `B`, `(b)`, `B. Paris`, `Answer: **B**`, `\boxed{\text{(B)}}`, `option two`.

    The letter stands, the first of these that there is: in the last box; after the last announcement (`the answer is`,
    `I choose`), or on a line of its own below that; in `B is correct`; at the head of the first or last line, where no
    other line begins with another letter. A letter elsewhere in the text is never an answer, and nor is the article.

    letters: of the options, in order; two or more different letters or digits. pattern: as of `PatternRule`; the letter
    stands in its last match, and nowhere else. Verdicts: `missing` without a letter, `ambiguous` for several,
    `unparsable` for a match of the pattern that holds none. Raises InputError for other letters.

    Examples:
        >>> from metagen.verifiers.choice import ChoiceRule
        >>> ChoiceRule(letters="ABCD").answer("It is not (A). The answer is (b).", ended=True).key
        'B'
    """

    letters: Annotated[str | int, Expects(LETTERS)] = "ABCDE"

    def __post_init__(self) -> None:
        super().__post_init__()
        letters = str(self.letters)
        plain = letters.isascii() and letters.isalnum()
        if not plain or len(letters) < 2 or len(set(letters.upper())) < len(letters):
            raise InputError(f"letters={letters!r}: expected {LETTERS}")
        self._letters = letters.upper()
        one = f"[{self._letters}{self._letters.lower()}]"
        optional = rf"(?:the\s+)?(?:{OPTION}\s*[:#]?)?"
        self._one = re.compile(rf"{_OPEN}{optional}{_OPEN}({one})(?![^\W_])", re.IGNORECASE)
        self._list = re.compile(
            rf"{_OPEN}(?:either|both)?\s*{optional}{_OPEN}({one}){_CLOSE}\s*(?:,|/|&|\+|\band\b|\bor\b)"
            rf"(?:\s*(?:and|or)\b)?\s*{BOX}?{optional}{_OPEN}({one})(?![^\W_])(?=\s+(?:is|are)\b|\W*(?:\Z|\n|[,.;/&)\]}}]|and\b|or\b))",
            re.IGNORECASE,
        )
        self._aside = re.compile(
            rf"(?<!\w)[([]({one})[)\]](?=[\s.*]*(?:\Z|\n|[.,]))"
            rf"|(?:,|which\s+is|that\s+is|i\.e\.,?|namely|corresponds\s+to)\s*(?:the\s+)?{OPTION}\s+{_OPEN}({one})(?![^\W_])",
            re.IGNORECASE,
        )
        self._right = re.compile(
            rf"(?:(?i:{_STATED})[*_\"$]*[([]*|(?i:{OPTION})\s+[*_\"$]*[([]*|[([])([{self._letters}])(?![^\W_])",
            re.MULTILINE,
        )
        self._so = re.compile(
            rf"\b(?:therefore|thus|hence|so)[,:]?\s(?={_OPEN}(?:{OPTION}\s)?{_OPEN}{one}[)\]*$!.]*[ \t]*(?:\n|\Z))",
            re.IGNORECASE,
        )
        self._line = re.compile(
            rf"^{_SPACE}[*_`\"“$(\[]{{0,8}}{OPTION}?{_SPACE}[*_`\"“$(\[]{{0,8}}({one})(?:"
            rf"(?P<pure>[)\]}}*_`\"”$.:]{{0,16}}{_SPACE})$"
            rf"|(?:[)\].:]+[*_$}}]*|[*_`}}]+(?=\s)|[ \t]+[-–—](?=\s))[ \t]*(?P<text>\S.*)$)",
            re.IGNORECASE | re.MULTILINE,
        )

    @property
    def fingerprint(self) -> str:
        return digest("choice rule", "3", self._letters, self.pattern or "").hex()

    def _find(self, text: str, ended: bool) -> Answer:
        """What a text answers, from the first source that says anything."""
        text = clean(text[-TAIL:])
        for source in (self._read_box, self._read_announcement, self._read_statements, self._leading):
            if (answer := source(text, ended)) is not None:
                return answer
        return MISSING

    def _at(self, text: str, at: int, ended: bool) -> Answer | None:
        """What stands at a place, if it is one letter, or several, and nothing else."""
        if (several := self._list.match(text, at)) and several[1].upper() != several[2].upper():
            return SEVERAL
        if match := self._one.match(text, at):
            whole = (ended or match.end() < len(text)) and not TAKEN_BACK.match(text, match.end())
            return self._letter(match[1]) if whole and _ends(text, match.end(), match[1]) else None
        if match := _NAMED.match(text, at):
            place = _PLACES[(match["after"] or match["before"]).lower()]
            return self._letter(self._letters[place]) if place < len(self._letters) else None
        return None

    @staticmethod
    def _letter(written: str) -> Answer:
        return Answer(written, written.upper())

    def _read_box(self, text: str, ended: bool) -> Answer | None:
        """Read the last box that holds letters; two that a comma, `and` or `or` joins hold several letters."""
        boxes = [box.end() for box in re.finditer(BOX, text)]
        for place in reversed(range(len(boxes))):
            if (answer := self._at(text, boxes[place], ended)) is not None:
                before = self._list.match(text, boxes[place - 1]) if place else None
                return (
                    SEVERAL if before and before.end() > boxes[place] and before[1] != before[2] else answer
                )
        return None

    def _read_announcement(self, text: str, ended: bool) -> Answer | None:
        """Read the letter behind the last announcement, or alone in the line below it."""
        cues = [cue.end() for cue in announcements(text)]
        cues = sorted([*cues, *(c.end() for c in self._so.finditer(text))])
        for cue in reversed(cues):
            answer = self._at(text, cue, ended) or self._in_passing(text, cue)
            if answer is not None:
                below = self._leading(text[cue:].partition("\n")[2], ended, pure=True)
                return below or answer
            if _BOTH.match(text, cue):
                return SEVERAL
        return None

    def _in_passing(self, text: str, at: int) -> Answer | None:
        """In `the answer is Paris (B).`: the one letter that its sentence marks."""
        sentence = re.compile(r"[^.\n]{0,200}(?:\.|\n|\Z)").match(text, at)
        if sentence is None or _QUALIFIED.search(sentence[0]):
            return None
        letters = {(a or b).upper() for a, b in self._aside.findall(sentence[0])}
        return self._letter(letters.pop()) if len(letters) == 1 else None

    def _read_statements(self, text: str, ended: bool) -> Answer | None:
        """Read statements such as `B is correct`, which must all name the same letter."""
        return _agree(m[1] for m in self._right.finditer(text) if _RIGHT.match(text, m.end()))

    def _leading(self, text: str, ended: bool, *, pure: bool = False) -> Answer | None:
        """At the head of the first or the last line. pure: in lines that are nothing but a letter."""
        lines = text.strip()
        if not ended:
            lines = lines.rpartition("\n")[0]
        first, last = lines.find("\n"), lines.rfind("\n") + 1
        alone, headed = [], []
        for match in self._line.finditer(lines):
            # The last line of a text that was cut may be one of many.
            outer = match.start() < max(first, 1) or (ended and match.end() >= last)
            if match["pure"] is not None:
                alone.append(match[1])
            elif not pure and _heads(match[1], lines, match.end(1), match["text"]):
                headed.append((match[1], outer))
        if alone:
            return _agree(alone)
        if pure:
            return None
        if (named := _NAMED.match(lines)) and named.end() >= len(lines.rstrip(' .*_$)}"')):
            return self._at(lines, 0, True)
        several = self._list.match(lines)
        letters = {letter.upper() for letter, _ in headed}
        if len(letters) > 1 or (several and several[1].upper() != several[2].upper()):
            return SEVERAL
        return next((self._letter(letter) for letter, outer in headed if outer), None)


def _agree(letters: Iterator[str] | list[str]) -> Answer | None:
    """The one letter of several mentions; `ambiguous` if they differ."""
    found = {letter.upper(): letter for letter in letters}
    if len(found) > 1:
        return SEVERAL
    return next((Answer(written, key) for key, written in found.items()), None)


def _ends(text: str, at: int, letter: str) -> bool:
    """Whether a letter ends there, as one that stands for an option does, and no word or name goes on."""
    if _SPECIES.match(text, at):
        return False
    strict = letter.islower() or letter in "AI"
    return bool(_CLOSED.match(text, at) or (_GOES_ON_STRICTLY if strict else _GOES_ON).match(text, at))


def _heads(letter: str, text: str, at: int, rest: str) -> bool:
    """Whether a letter before other text is that of an option: no species, no `A:` of an answer, nothing said of it."""
    labelled = letter in "Aa" and text[at : at + 1] == ":"
    return not (labelled or _SPECIES.match(text, at) or _SAID.match(rest))
