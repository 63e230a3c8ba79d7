"""From an answer to its key: here as far as bounded arithmetic goes, the rest is for a worker process."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from metagen.verifiers.math.arithmetic import Beyond
from metagen.verifiers.math.grammar import MAX_CHARACTERS, parse
from metagen.verifiers.math.keys import Keys
from metagen.verifiers.math.tokens import FUNCTIONS, GREEK, clean
from metagen.verifiers.math.tree import Unreadable, names
from metagen.verifiers.math.words import prose, words

Percent = Literal["hundredths", "dropped"]


class Verdict(NamedTuple):
    """A key, or why there is none: `unparsable` or `timeout`."""

    key: str | None
    verdict: str | None = None


UNPARSABLE: Final = Verdict(None, "unparsable")
TIMEOUT: Final = Verdict(None, "timeout")
#: mpmath's contexts are not for two threads at once.
_LOCK: Final = threading.Lock()
_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,299})", re.ASCII)

#: What may be handed to math-verify's parser: short, ASCII, of known commands, without names that Python knows.
_MAX_FOREIGN: Final = 300
_FOREIGN: Final = re.compile(r"[A-Za-z0-9\s\\{}()\[\]|+\-*/^_=<>.,;:!%&]+", re.ASCII)
_COMMANDS: Final = FUNCTIONS | GREEK | names(
    "frac sqrt binom dbinom tbinom cdot times div pm mp leq le geq ge neq ne lt gt in cup cap setminus "
    "infty pi to emptyset varnothing sum prod int lim partial nabla det overline mathbb mathcal begin end "
    "pmatrix bmatrix matrix vmatrix lfloor rfloor lceil rceil vert lvert rvert langle rangle "
    "operatorname prime cdots dots ldots rightarrow subset subseteq forall exists not mid bmod mod limits "
    "infinity reals left right"
)  # fmt: skip
_NUMERAL: Final = re.compile(r"\d{31}", re.ASCII)


@lru_cache(1 << 15)
def narrow(answer: str, percent: Percent = "hundredths") -> Verdict | None:
    """The verdict on an answer by bounded work in this process; None: a worker must be asked."""
    if len(answer) > MAX_CHARACTERS:
        return UNPARSABLE
    if _INTEGER.fullmatch(answer):
        return Verdict("0" if answer == "-0" else answer)
    if (key := prose(answer)) is not None:
        return Verdict(key)
    try:
        tree = parse(answer, percent=percent == "hundredths")
    except Unreadable:
        return None if may_be_foreign(answer) else worded(answer)
    try:
        with _LOCK:
            return Verdict(Keys().key(tree))
    except Unreadable:
        return worded(answer)
    except Beyond:
        return None


def worded(answer: str) -> Verdict:
    """The verdict on what is no mathematics: comparable as text, or unparsable."""
    key = words(answer)
    return UNPARSABLE if key is None else Verdict(key)


def may_be_foreign(answer: str) -> bool:
    """Whether an answer outside of the grammar may be tried by another parser, in a worker."""
    if "\\" not in answer or len(answer) > _MAX_FOREIGN or "__" in answer:
        return False
    text = clean(answer)
    commands = re.findall(r"\\([a-zA-Z]+)", text)
    depth = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        if depth > 12:
            return False
    return (
        bool(commands)
        and set(commands) <= _COMMANDS
        and bool(_FOREIGN.fullmatch(text))
        and not _NUMERAL.search(text)
    )
