"""The search for the answer in a solution."""

from __future__ import annotations

import re
from typing import Final, Literal

from metagen.errors import InputError
from metagen.verifiers.math.announced import COMPOUND, FOLLOWS, NUMBER, PHRASE, SENTENCE, VERB
from metagen.verifiers.math.asserted import TAKEN_BACK, is_mention, is_new_sentence, is_stated, main_clause
from metagen.verifiers.math.grammar import parse
from metagen.verifiers.math.tokens import TEMPERATURES, clean, tokens, unwrap
from metagen.verifiers.math.tree import Unreadable
from metagen.verifiers.pattern import last_match

Source = Literal["pattern", "boxed", "phrase", "whole", "last"]
#: The places of an answer, in the order of the search.
SOURCES: Final[tuple[Source, ...]] = ("pattern", "boxed", "phrase", "whole", "last")
#: Only so much of a long text, counted from its end, is looked at.
TAIL: Final = 20_000
#: Of one box.
_BOX: Final = 2_000
_BOXES: Final = 16

#: Between the boxes of one answer: `and`, `or`, a comma, perhaps the name of what comes next.
_JOIN: Final = re.compile(
    r"(?:\s|\$|\\[()\[\],;: ]|\\q?quad)*(?:(?:\\text\s*\{\s*)?(?!(?:is|was|are|were|so|thus|hence|then|but|not|no|"
    r"wrong|if|correct|when|from|to|of|by|and|or|gives?|should|contradicts)\b)[A-Za-z]{2,}\b\s*\}?\s*){0,2}"
    r"(?:,|;|and|or|\\text\s*\{\s*,?\s*(?:and|or)\s*\})"
    r"(?:\s|\$|\\[()\[\],;: ]|\\q?quad|and|or)*(?:[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=\s*)?",
    re.ASCII,
)
_MARKUP: Final = re.compile(r"\\(?:f?boxed|fbox|text|mbox|mathrm)\s*\{([^{}]*)\}|\$|\\[()\[\],;: ]")
_WORD: Final = re.compile(r"\(?[A-Za-z]+\)?\.?")
_DELIMITERS: Final = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
#: An environment that aligns the rows of a derivation.
_ENVIRONMENT: Final = r"(?:align(?:ed)?|eqnarray|gather(?:ed)?|split)\*?"
#: Where a formula that was opened was not closed: another sentence begins.
_NEW: Final = r"[.?!]\s+[A-Z][a-z]*\s+[a-z]{2,}"
_FORMULA: Final = re.compile(
    rf"\$\$(?P<a>[^$]{{1,1000}})\$\$|(?<![\\\d])\$(?P<b>(?:(?!{_NEW})[^$\n]){{1,1000}})(?<!\\)\$"
    r"|\\\[(?P<c>(?:[^\\]|\\(?![()\[\]])){1,1000})\\\]|\\\((?P<d>(?:[^\\]|\\(?![()\[\]])){1,1000})\\\)"
    rf"|(?P<e>\\begin\{{{_ENVIRONMENT}\}}(?:(?!\\begin\{{{_ENVIRONMENT}|\$)[\s\S]){{1,2000}}?\\end\{{{_ENVIRONMENT}\}})"
)
#: A formula that is a box without an answer.
_EMPTY: Final = re.compile(r"[$\\()\[\]\s]*\\f?boxed\s*\{\s*\}[$\\()\[\].\s]*")
_BASE: Final = re.compile(r"\bbase[\s-]*[$\\(\[]*\Z", re.IGNORECASE)
#: A name with signs around it, such as $f^{-1}$, $x_1$ and $\\triangle ABC$: it has a value, and is none.
_NAME: Final = re.compile(
    r"[$\\()\[\]\s]*(?:[A-Za-z](?:'|\^\{?-1\}?|_\{?\w{1,3}\}?)(?:\([A-Za-z]\))?|triangle[\s{]*[A-Z]{2,4}\}?)[$\\()\[\].\s]*"
)
#: The code of a figure.
_FIGURE: Final = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
#: A box whose brace is not closed, in a formula that is.
_OPEN_BOX: Final = re.compile(r"\\f?boxed\s*\{(?P<inside>[^$\n]{1,300}?)\.?\$")
#: A derivation over several rows: its result stands in the last.
_ROWS: Final = re.compile(
    rf"\s*\\begin\{{{_ENVIRONMENT}\}}(.*?)\\end\{{{_ENVIRONMENT}\}}\s*\.?\s*", re.DOTALL
)
#: The sign that aligns rows, outside of matrices.
_ALIGNED: Final = re.compile(r"&(?=\s*(?:[=<>]|\\equiv|\\[gl]eq?))|(?<==)&")
#: An equation whose left side is more than a name, or that has several sides.
_DERIVES: Final = re.compile(r"=.*=|(?:[-+*/^!]|\\(?:cdot|times|frac)).*=", re.DOTALL)
#: Before what such a row comes to.
_LEADS: Final = re.compile(r"\A(?:\s|=|\\(?:equiv|Rightarrow|Longrightarrow|implies|q?quad)(?![a-zA-Z]))+")
#: A sum or product of powers without delimiters, where it stands behind the last equals sign.
_POWERS: Final = re.compile(r"[-\d(][-\d\s+*/().^]{2,200}")
#: Behind an announcement: words that come to the answer, an empty box, `either` before a single answer, and `about`.
_BEFORE: Final = re.compile(
    r"\A(?:[^\n.$\d]{3,120},\s+which\s+(?:is|equals|comes\s+to)\s+(?=[$\d\\-])"
    r"|\$?\\f?boxed\s*\{\s*\}\$?[ \t:=]*(?=[^\s.])|either\s+(?=\S+(?:\.\s|\s*\Z))"
    r"|(?i:approximately|about|around|roughly|exactly|a\s+total\s+of)\s+(?=[-$\d\\]))"
)
#: So many words without a number or a formula describe an answer, and are none.
_DESCRIBES: Final = 9
#: Behind an announcement: what is said of an answer, and no answer.
_JUDGES: Final = re.compile(
    r"\W*(?:(?:indeed|also)\s+)?(?:correct|reasonable|consistent|verified|confirmed|as\s+follows"
    r"|(?:given|shown)\s+(?:below|above|by))\b",
    re.IGNORECASE,
)
#: Several numbers that a sentence ends with.
_LIST: Final = re.compile(r"\bare\s+((?:-?[\d.]*\d,\s+){2,}(?:and\s+)?-?[\d.]*\d)\Z", re.ASCII)


def check(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """The sources, if they are known ones; else InputError."""
    for name in sources:
        if name not in SOURCES:
            raise InputError(
                f"sources={sources!r}: {name!r} is unknown; expected some of {', '.join(SOURCES)}"
            )
    return sources


def find(
    text: str, *, pattern: re.Pattern[str] | None, sources: tuple[Source, ...] = SOURCES, ended: bool = True
) -> str | None:
    r"""The answer as written in a solution, or None: from the first source that has one.

    - `pattern`: the group of the last match;
    - `boxed`: the last `\boxed{…}`, with those joined to it by commas, `and` or `or`;
    - `phrase`: the text behind the last “the answer is”, “Answer:”, `####` or `<answer>`, to the end of its formula or
      sentence;
    - `whole`: a text that is one answer and nothing else;
    - `last`: the last formula between math delimiters, or the last number outside of one, whichever comes later; None
      if that is a condition (`if $x > 0$`, `for all $x$`), or a conclusion in words follows from it.

    ended: False for a text that was cut off. Then a match that reaches its end does not count, as more might have
    followed; nor does the source `last`.
    """
    whole = text[-TAIL:]
    text = _FIGURE.sub(" ", whole)
    found: str | None = None
    for source in sources:
        match source:
            case "pattern":
                found = last_match(pattern, whole, ended=ended) if pattern is not None else None
            case "boxed":
                found = _in_boxes(text)
            case "phrase":
                found = _phrase(text, ended)
            case "whole":
                found = _whole(text) if ended else None
            case "last":
                found = _last(text) if ended else None
        if found and found.strip():
            return found.strip()
    return None


def _in_boxes(text: str) -> str | None:
    contents: list[str] = []
    before, last = len(text), 0
    for _ in range(_BOXES):
        start = max(text.rfind("\\boxed", 0, before), text.rfind("\\fbox", 0, before))
        if start < 0:
            break
        inside, end = _content(text, start)
        if inside is None and (box := _OPEN_BOX.match(text, start)):
            inside, end = box["inside"], box.end() - 1
        if not (inside and inside.strip()):
            # Empty, cut off, or malformed: one that stands before it may be whole.
            before = start
            if contents:
                break
            continue
        if contents and not _is_joined(text, end, before):
            break
        if not inside.rstrip().endswith("%"):
            inside += _more(text, end)
        if inside not in contents:
            contents.append(inside)
        last, before = last or end, start
    if len(contents) > 1 and (quantity := _compound(text[before : last + 40])):
        return quantity
    return ", ".join(reversed(contents)) if contents else None


def _more(text: str, end: int) -> str:
    """The words behind a formula that make another number of it: a percent sign, `million`, `p.m.`."""
    match = FOLLOWS.match(text, end)
    return "" if match is None else "%" if match["percent"] else f" {match['words']}"


def _compound(text: str, beyond: int = 0) -> str | None:
    """A quantity of several units at the beginning of a text, and beyond a place in it, without markup."""
    before, bare = (_MARKUP.sub(lambda m: m[1] or "", part).strip() for part in (text[:beyond], text))
    match = COMPOUND.match(bare)
    return match[0] if match and match.end() > len(before) else None


def _is_joined(text: str, end: int, begin: int) -> bool:
    """Whether the part that ends and the part that begins there belong to one answer."""
    return end <= begin <= end + 70 and _JOIN.fullmatch(text, end, begin) is not None


def _content(text: str, start: int) -> tuple[str | None, int]:
    """The content of the box that begins at `start`, and the place of its end."""
    at = start + (6 if text.startswith("\\boxed", start) else 5)
    while at < len(text) and text[at] in " \t\n":
        at += 1
    if at >= len(text):
        return None, at
    if text[at] != "{":
        match = re.compile(r"-?[\w.]+").match(text, at)
        return (match[0], match.end()) if match and match.end() < len(text) else (None, at)
    depth = 0
    for end in range(at, min(len(text), at + _BOX)):
        if text[end] == "{" and text[end - 1] != "\\":
            depth += 1
        elif text[end] == "}" and text[end - 1] != "\\":
            depth -= 1
            if not depth:
                return text[at + 1 : end], end + 1
    return None, at


def _phrase(text: str, ended: bool) -> str | None:
    matches = list(PHRASE.finditer(text))
    for match in reversed(matches[-4:]):
        rest = text[match.end() : match.end() + 1_000]
        begin = len(rest) - len(rest.lstrip())
        if "\n\n\n" in rest[:begin]:
            continue
        rest = _BEFORE.sub("", rest[begin:].removeprefix("**").lstrip(), count=1)
        reaches = match.end() + 1_000 >= len(text)
        found, closed = _up_to_end(rest)
        if found and (ended or closed or not reaches) and not TAKEN_BACK.match(rest):
            # A sentence in place of an answer: the answer is in it.
            words = _words(found)
            if (words >= _DESCRIBES or _JUDGES.match(found)) and not re.search(r"[\d$\\]", found):
                continue
            sentence = words > 3 or (words and VERB.search(found))
            return (_last(found) if sentence else None) or _result(_balance(found))
    return None


def _up_to_end(rest: str) -> tuple[str, bool]:
    """The text behind a phrase, to the end of its formulas or of the sentence, and whether that end was seen."""
    for left, right in _DELIMITERS:
        if not rest.startswith(left):
            continue
        end = rest.find(right, len(left))
        while end > 0 and rest[end - 1] == "\\" and right[0] == "$":
            end = rest.find(right, end + 1)
        if end < 0 or (left == "$" and _is_money(rest, end)):
            break
        end += len(right)
        if quantity := _compound(rest[: end + 80]):
            return quantity, True
        if more := _more(rest, end):
            return (rest[:end] if more == "%" else rest[len(left) : end - len(right)]) + more, True
        follows = re.compile(r"\s*,?\s*(?:and|or|,)\s*(?=\$|\\\()").match(rest, end)
        if follows:
            other, closed = _up_to_end(rest[follows.end() :])
            return f"{rest[len(left) : end - len(right)]}, {other.strip('$')}", closed
        return rest[len(left) : end - len(right)], True
    stop = SENTENCE.search(rest)
    return (rest[: stop.start()], True) if stop else (rest, False)


def _is_money(rest: str, end: int) -> bool:
    """Whether a `$` is of a currency, and the next one, at `end`, closes no formula: `$18. She pays $2`."""
    inner = rest[1:end]
    if not re.match(r"[\d.]", inner):
        return False
    return "\n\n" in inner or rest[end + 1 : end + 2].isdigit() or re.search(_NEW, inner) is not None


def _balance(text: str) -> str:
    r"""Without braces that were opened before the phrase, as in `\textbf{Answer: 5}`."""
    text = text.strip().removeprefix("}").strip()
    for _ in range(4):
        for left, right in (("{", "}"), *_DELIMITERS):
            closed = text.endswith(right) and not text.endswith("\\}")
            if closed and text.count(right) > (text.count(left) if left != right else text.count(right) & ~1):
                text = text[: -len(right)].rstrip()
    return text


def _whole(text: str) -> str | None:
    stripped = text.strip()
    if not stripped or len(stripped) > 300 or "\n\n" in stripped:
        return None
    if _WORD.fullmatch(stripped):
        return stripped
    try:
        inner = clean(stripped)
        parse(stripped)
        # A sentence may look like a formula with words in it.
        temperatures = TEMPERATURES.values()
        worded = (
            any(t.kind == "w" and t.text not in temperatures for t in tokens(inner)) and "\\" not in stripped
        )
    except Unreadable:
        return None
    return None if worded or ("$" in unwrap(stripped) and "\\$" not in stripped) else stripped


def _result(formula: str) -> str:
    """A formula, or of a derivation over several rows the last, without what leads to it."""
    if (rows := _ROWS.fullmatch(formula)) is None:
        return formula
    said = [row.strip() for row in re.split(r"\\\\(?:\[\w+\])?", _ALIGNED.sub(" ", rows[1]))]
    row = next((_LEADS.sub("", row) for row in reversed(said) if row.strip(" .")), formula)
    return (_last(row) if _words(row) > 3 else None) or row


def _words(text: str) -> int:
    return len(re.findall(r"(?<!\\)\b[^\W\d_]{2,}", text))


def _last(text: str) -> str | None:
    text = main_clause(text)
    named = [one for one in _FORMULA.finditer(text) if _NAME.fullmatch(one[0])]
    for one in named:
        text = text[: one.start()] + " " * len(one[0]) + text[one.end() :]
    _, equals, side = text.rstrip().rpartition("\n")[2].rpartition("=")
    if equals and "^" in side and _POWERS.fullmatch(side := side.strip(" .")):
        return side
    formulas = [
        one
        for one in _FORMULA.finditer(text)
        if not (_BASE.search(text[max(0, one.start() - 12) : one.start()]) or _EMPTY.fullmatch(one[0]))
    ]
    numbers = list(NUMBER.finditer(text, formulas[-1].end() if formulas else 0))
    numbers = [one for one in numbers if not _BASE.search(text[max(0, one.start() - 12) : one.start()])]
    while (
        not numbers
        and len(formulas) > 1
        and is_mention(text, formulas[-1])
        and not is_new_sentence(text, formulas[-2].end(), formulas[-1].start())
    ):
        formulas.pop()
    if not (numbers or formulas) or not is_stated(text, (numbers or formulas)[-1]):
        return None
    place = (numbers or formulas)[-1].end()
    if named and named[-1].start() > place and is_new_sentence(text, place, named[-1].start()):
        return None
    if numbers:
        several = _LIST.search(text, 0, numbers[-1].end())
        return several[1] if several else numbers[-1][0]
    end = formulas[-1].end()
    for formula in formulas[-3:]:
        if quantity := _compound(text[formula.start() : end + 40], formulas[-1].start() - formula.start()):
            return quantity
    first = len(formulas) - 1
    # A derivation, such as $42! = 60 = 3$ or $m + n = 29$, stands alone.
    while (
        first
        and not _DERIVES.search(formulas[-1][0])
        # The comma may stand within the formula before.
        and _is_joined(
            text, (e := formulas[first - 1].end()) - 2 * text.endswith(",$", 0, e), formulas[first].start()
        )
    ):
        first -= 1
    contents = [
        _result(next(g for g in one.groups() if g is not None)).rstrip(",") for one in formulas[first:]
    ]
    return ", ".join(contents) + _more(text, end)
