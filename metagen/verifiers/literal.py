"""Answers that are Python literals: equal if Python holds the values equal, however they are written."""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from typing import Any, Final

from metagen.parts import part
from metagen.sequence import digest
from metagen.verifiers.base import Answer
from metagen.verifiers.pattern import PatternRule
from metagen.verifiers.source import parse

#: Longer texts are no answer; the bound keeps the syntax tree, and so the work, small.
MAX_CHARACTERS: Final = 4_096
#: Begins what is no literal; a literal's key cannot hold it.
_SOURCE: Final = "\0"


@part
class LiteralRule(PatternRule):
    """Reads a Python literal: `{'a': 1, 'b': 2}` and `{"b":2.0, "a":1}` have the same key.

    Nothing is executed. Equal keys mean `==` in Python: 1, 1.0 and True are equal, a list and a tuple are not.
    pattern: as of `PatternRule`. A whole text that is one literal (a call `f(…)`, or literals, where arguments are
    read) needs no match, and no pattern. arguments: the answer is the arguments of a call, `1, 'a', k=2`, with or
    without `f(…)` around them; one that is not a literal (`dict(a=1)`) equals what is written the same. Verdicts:
    `missing`, `unparsable`.

    Examples:
        >>> from metagen.verifiers.literal import LiteralRule
        >>> rule = LiteralRule(r"^Answer: (.+)$")
        >>> rule.answer("Answer: {'a': 1, 'b': 2}", ended=True).key == rule.canonical('{"b": 2.0, "a": 1}')
        True
    """

    arguments: bool = False

    @property
    def fingerprint(self) -> str:
        return digest("literal rule", self.pattern or "", str(self.arguments)).hex()

    def canonical(self, answer: str) -> str | None:
        if len(answer) > MAX_CHARACTERS:
            return None
        text = answer.strip()
        try:
            return _arguments(text) if self.arguments else _key(ast.literal_eval(_expression(text)))
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            return None

    def call(self, answer: str) -> str | None:
        """The call `f(…)` that arguments make, if all of them are literals, so that running it runs `f` alone."""
        key = self.canonical(answer) if self.arguments else None
        return None if key is None or _SOURCE in key else _call_of(answer.strip())

    def answer(self, text: str, ended: bool) -> Answer:
        found, bare = self.match(text, ended), text.strip().strip("`").strip()
        if found is None and ended and (key := self.canonical(bare)) is not None:
            # Of arguments a call, or literals: any word of a sentence could be an argument.
            found = bare if bare.startswith("f(") or _SOURCE not in key else None
        return self.to_answer(found and found.strip().strip("`"))


def _arguments(text: str) -> str:
    """The key of a call's arguments, in order, then by name."""
    call = _expression(_call_of(text))
    if not isinstance(call, ast.Call) or any(k.arg is None for k in call.keywords):
        raise ValueError(text)
    named = sorted((str(k.arg), _argument(k.value)) for k in call.keywords)
    return f"({', '.join(map(_argument, call.args))}; {', '.join(f'{n}={v}' for n, v in named)})"


def _call_of(text: str) -> str:
    """With `f(…)` around it, unless it is one call of f already."""
    if text.startswith("f("):
        node = _expression(text)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return text
    return f"f({text})"


def _expression(text: str) -> ast.expr:
    node = next(ast.iter_child_nodes(parse(text, "eval")))
    assert isinstance(node, ast.expr)
    return node


def _argument(node: ast.expr) -> str:
    try:
        return _key(ast.literal_eval(node))
    except (ValueError, TypeError):
        return f"{_SOURCE}{ast.unparse(node)}"


def _key(value: Any) -> str:
    """A text that is the same for equal values only."""
    match value:
        case None | str() | bytes():
            return repr(value)
        case bool() | int() | float():
            return _number(value)
        case complex():
            return _number(value.real) if not value.imag else f"{_number(value.real)}+{_number(value.imag)}j"
        case list():
            return f"[{', '.join(map(_key, value))}]"
        case tuple():
            return f"({', '.join(map(_key, value))},)"
        case set():
            return f"{{{', '.join(sorted(map(_key, value)))}}}"
        case dict():
            pairs = sorted((_key(k), _key(v)) for k, v in value.items())
            return f"{{{', '.join(f'{k}: {v}' for k, v in pairs)},:}}"
    return repr(value)


def _number(value: float) -> str:
    """Exact: a large integer is not the float next to it."""
    return str(Fraction(value)) if math.isfinite(value) else repr(float(value))
