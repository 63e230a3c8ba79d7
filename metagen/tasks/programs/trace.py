"""Programs that show their work: after each line, in a comment, how far the examples have come.

    def f(x):
     x=[a for a in x if a>3] # 5 7 > 7 5 ; 9 > 9
     return sorted(x)[::-1]

A comment holds, for each example in order, the list as it stands and what is still wanted, written like an example. So
the lines that follow solve a problem like the first, with one operation less. A generator that writes this need not
carry the lists through several operations unseen; to Python they are comments.
"""

from __future__ import annotations

import re
from collections import abc
from typing import Final

from metagen.tasks.programs.cases import Case, list_text, result_text
from metagen.tasks.programs.grammar import ENTRY_POINT, Program

_COMMENT: Final = re.compile(r"[ \t]*#[^\n]*")


def add_trace(program: Program, cases: abc.Sequence[Case]) -> str:
    """The source with its comments; the last line has none, for what it comes to is what was wanted."""
    *lines, last = program.operations
    values = zip(*(program.values(list(case.x)) for case in cases), strict=True)
    text = f"def {ENTRY_POINT}(x):\n"
    for line, reached in zip(lines, values, strict=False):
        comment = " ;".join(
            list_text(x) + result_text(case.expected) for x, case in zip(reached, cases, strict=True)
        )
        text += f" x={line} #{comment}\n"
    return f"{text} return {last}\n"


def strip_comments(source: str) -> str:
    """The program without comments. Meant for programs of this task, which have no strings that could hold a `#`."""
    return _COMMENT.sub("", source)
