"""Whether a text states what stands at a place in it, or only mentions, supposes or takes it back."""

from __future__ import annotations

import re
from typing import Final

from metagen.verifiers.cues import TAKEN_BACK as TAKEN_BACK

#: Before a formula or number that is a condition, or a part of the notation of another one.
_CONDITION: Final = re.compile(
    r"\b(?:if|unless|such\s+that|for\s+(?:all|any|every|each)|root\s+of|(?:in|of)\s+the\s+form(?:\s+of)?"
    r"|of\s+degree|undefined\s+at|(?<!sides\s)of\s+(?:the|this)\s+equation|(?:across|over|about)\s+the\s+(?:line|axis)"
    r"|both\s+sides(?:\s+of\s+the\s+equation)?\s+by)\s*[$\\(\[]*\Z",
    re.IGNORECASE,
)
#: The beginning of an item of a list with a number in brackets behind it.
_ITEM: Final = re.compile(r"\s*[-*•]\s.*\(\s*\Z")
#: A name in a sentence, such as `point $F$`, is an answer only where the sentence says that something is this.
_LETTER: Final = re.compile(r"[$\\()\[\]\s]*[A-Za-z][$\\()\[\].\s]*")
_ASSERTION: Final = re.compile(r"(?:\b(?:is|are|be|option|choice)|[:=])\s*\**\Z", re.IGNORECASE)
#: Behind a formula or number: the sentence draws its conclusion from it in words.
_CONCLUSION: Final = re.compile(
    r"[\w\s$)\]\\]{0,20},\s*(?:and\s+)?(?:so|thus|hence|therefore)\b", re.IGNORECASE
)
#: The end of a sentence, of a line or of an item.
_END: Final = re.compile(r"[.?!](?=\s|\Z)|\n")
#: A sentence that repeats the question.
_REPEATS: Final = re.compile(
    r"\W*(?:this|the)\s+(?:problem|question|task|exercise)\s+(?:involves|asks|requires|is\s+asking|is\s+about|wants|states|"
    r"deals|says|tells|describes)\b",
    re.IGNORECASE,
)
#: A sentence that says what is to be done.
_PLANS: Final = re.compile(
    r"\b(?:(?:we|you|i)(?:\s+(?:first|then|now|also|just|only|still))?\s+(?:need|want|have|are\s+(?:asked|going|trying)|must|"
    r"should|will|can|would)(?:\s+to)?|let(?:['’]s|\s+us))\s+(?:first\s+|now\s+|then\s+)?(?:find|determine|calculate|"
    r"compute|solve|figure|know|consider|multiply|divide|subtract|simplify|evaluate|convert|factor|use\s[^.:\n]{1,60}?\sto\s+find|"
    r"break)\b|\A\W*(?:step\s+\d+\W+)?(?:find|determine|calculate|compute|divide|multiply|subtract)\b(?!.*:\s)",
    re.IGNORECASE,
)
#: A computation: no name is left in it.
_COMPUTES: Final = re.compile(r"\A(?:[^=A-Za-z\\]|\\[A-Za-z]{2,})*=[^A-Za-z]")
#: A result within such a sentence.
_RESULT: Final = re.compile(
    r"=|\b(?:is|are|was|gives?|giving|gets?|equals?|equal|results\s+in|resulting|makes?|leaves?|yields?)\b",
    re.IGNORECASE,
)
#: A thing is described by its parts, and no part is stated.
_PART: Final = re.compile(
    r"\b(?:with|having|whose)\s+(?:\w+\s+){0,2}(?:sides?|legs?|edges?|vertices|dimensions)\s+(?:\w+\s+)?of\s+lengths?\s*"
    r"[^.\n]{0,40}\Z",
    re.IGNORECASE,
)
#: The beginning of a sentence about one of several values.
_CASE: Final = re.compile(r"\W*(?:when|if|for)\s+\W{0,3}[a-z]\W{0,3}=", re.IGNORECASE)
#: A later paragraph that begins so goes on to something else.
_GOES_ON: Final = re.compile(
    r"\n[^\S\n]*\n\W{0,8}(?:however|but|alternatively|wait|on\s+the\s+other\s+hand)\b", re.IGNORECASE
)


#: A result, before what its sentence says of it or of other things.
_VALUE: Final = r"(?:\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\)|[-−]?[$€£]?\d[\d,]*(?:\.\d+)?%?)"
_FORMULA: Final = re.compile(r"\$[^$]*\$")
_IS_VALUE: Final = re.compile(
    rf"(?:=\s*|\b(?:is|are|be|equals?)\s+){_VALUE}(?:\s[A-Za-z]+)?\Z", re.IGNORECASE
)
#: Behind a result: what it is, or when; perhaps with the comma within the formula.
_CLAUSE: Final = re.compile(
    r",(?P<inside>\$?)\s*which\s+(?:(?:is|are|was)\s+(?:the|an?)\s+(?P<rest>[^.\n]*)|(?:occurs?|happens?)\s+(?:when|if|at)\b)",
    re.IGNORECASE,
)
#: How many there are, before a phrase about of what, for what or whereof.
_COUNT: Final = re.compile(
    rf"\bthere\s+(?:is|are|were|will\s+be)\s+(?:only\s+|exactly\s+)?{_VALUE}(?:\s[A-Za-z]+){{1,3}}?(?P<clause>\s"
    r"(?:to|that|which|from|for|of|such)\b(?P<rest>[^.\n]*))",
    re.IGNORECASE,
)
_DIVIDED: Final = re.compile(r"\swhen\s+(?:it\s+is\s+)?divided\s+by\b[^.\n]*", re.IGNORECASE)
#: Within such words: the sentence comes to another result.
_GIVES: Final = re.compile(
    r"=|\b(?:so|total|sum|product|same|more|less|increase|decrease|gives?|makes?|leaves?|left)\b",
    re.IGNORECASE,
)
_SAYS_MORE: Final = re.compile(r"\b(?:and|is|are|was|were)\b", re.IGNORECASE)


def main_clause(text: str) -> str:
    """A text whose last sentence with a number ends with its result, without what it says of it: `, which is the …`."""
    begin = _last_sentence(text)
    for clause in _CLAUSE.finditer(text, begin):
        known = clause["inside"] or _IS_VALUE.search(text[begin : clause.start()])
        if known and not _GIVES.search(_FORMULA.sub("", clause["rest"] or "")):
            return text[: clause.start()] + clause["inside"]
    if (divided := _DIVIDED.search(text, begin)) and re.search(r"\d", text[begin : divided.start()]):
        return text[: divided.start()]
    count = _COUNT.search(text, begin)
    if count is None or _GIVES.search(count["rest"]) or _SAYS_MORE.search(count["rest"]):
        return text
    return text[: count.start("clause")]


def _last_sentence(text: str) -> int:
    """Where the last sentence with a number or a formula begins."""
    at = max(text.rfind(sign) for sign in "0123456789$")
    return max((end.end() for end in _END.finditer(text) if end.end() <= at), default=0)


def is_mention(text: str, found: re.Match[str]) -> bool:
    """Whether a formula is a name that its sentence does not say anything to be."""
    before = text[max(0, found.start() - 40) : found.start()]
    return bool(_LETTER.fullmatch(found[0])) and not (_ASSERTION.search(before) or _CONDITION.search(before))


def is_new_sentence(text: str, begin: int, end: int) -> bool:
    """Whether a sentence ends between two places."""
    return _END.search(text, begin, end) is not None


def is_stated(text: str, found: re.Match[str]) -> bool:
    """Whether the sentence of what was found states it, and no later paragraph goes on without a result."""
    begin = max((end.end() for end in _END.finditer(text) if end.end() <= found.start()), default=0)
    before = text[begin : found.start()]
    line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
    return not (
        (_ITEM.match(line) and text.startswith(")", found.end()))
        or (_LETTER.fullmatch(found[0]) and not _ASSERTION.search(before[-40:]))
        or _CONDITION.search(before[-40:])
        or _CONCLUSION.match(text, found.end())
        or _REPEATS.match(before)
        or (
            not _COMPUTES.search(found[0])
            and any(not _RESULT.search(before, p.end()) for p in _PLANS.finditer(before))
        )
        or _PART.search(before)
        or (_CASE.match(before) and _is_case_of_several(text, begin))
        or _GOES_ON.search(text, found.end())
        or TAKEN_BACK.match(text, found.end())
    )


def _is_case_of_several(text: str, begin: int) -> bool:
    """Whether the sentence before is about another value, as in `When $x = 1$, it is 3. When $x = 2$, it is 5.`"""
    sentences = [one for one in _END.split(text[:begin]) if one.strip()]
    return bool(sentences) and _CASE.match(sentences[-1]) is not None
