"""Answer rules by name: the one table of them, and what makes a rule of a name with options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, TypeAlias

from metagen import trust
from metagen.errors import ConfigError, InputError
from metagen.verifiers.base import AnswerRule

#: What stands for a rule: one that is made, its name, `module:attribute`, or either as `kind` among its options.
Rule: TypeAlias = AnswerRule | str | Mapping[str, Any]

RULES: Final[Mapping[str, str]] = {
    "number": "metagen.verifiers.numbers:NumberRule",
    "math": "metagen.verifiers.math:MathRule",
    "text": "metagen.verifiers.text:TextRule",
    "choice": "metagen.verifiers.choice:ChoiceRule",
    "word": "metagen.verifiers.word:WordRule",
    "literal": "metagen.verifiers.literal:LiteralRule",
    "recorded": "metagen.verifiers.recorded_answers:RecordedRule",
    "verdicts": "metagen.verifiers.verdict_classes:VerdictRule",
}
#: What a name means in place of its class's own defaults.
USUAL: Final[Mapping[str, Mapping[str, Any]]] = {"number": {"prose": True}, "recorded": {"rule": "text"}}
_REMEDY: Final = (
    "metagen.FunctionRule(read, key, name=…) makes a rule of functions; a class of your own extends "
    "metagen.AnswerRule"
)


def answer_rule(given: Rule, where: str = "answer", **options: Any) -> AnswerRule:
    """The rule that is meant.

    given: a name (`names`); `module:attribute`, which is a rule, a class, or a function that makes one; or a mapping
    with either as `kind`, and options. options: more of them; None is left out. where: what messages call it.
    Raises InputError, which names the place, the value and what is expected.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(given, Mapping):
        own = {str(name): value for name, value in given.items() if name != "kind"}
        if twice := sorted(own.keys() & options.keys()):
            raise InputError(f"{where}: {twice[0]!r} is given twice, in and beside the rule; leave one out")
        if not isinstance(given.get("kind"), str):
            raise InputError(
                f"{where}={dict(given)!r:.80} has no kind; expected kind: {_expectation()}, and its options"
            )
        return answer_rule(given["kind"], where, **own, **options)
    if isinstance(given, AnswerRule):
        return _refuse_options(given, repr(given), where, options)
    if not isinstance(given, str):
        raise InputError(f"{where}={given!r:.80}: expected an answer rule, {_expectation()}; {_REMEDY}")
    made = _find(given, where)
    if isinstance(made, AnswerRule):
        return _refuse_options(made, given, where, options)
    return _make(made, given, where, {**USUAL.get(given, {}), **options})


@cache
def names() -> Mapping[str, str]:
    """The rules that have names, each with its place: `RULES`, and those that packages bring by entry points."""
    return {**{point.name: point.value for point in entry_points(group="metagen.answers")}, **RULES}


def _refuse_options(rule: AnswerRule, name: str, where: str, options: Mapping[str, Any]) -> AnswerRule:
    if options:
        raise InputError(
            f"{where}={name!s:.80} is a rule that is made already, and takes no {', '.join(options)}; give its class "
            "with these options"
        )
    return rule


def _expectation() -> str:
    return f"one of {', '.join(names())}, or module:attribute"


def _find(name: str, where: str) -> Any:
    """Find the rule of a name; InputError where there is none."""
    target = names().get(name, name)
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        near = get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"{where}={name!r} is no answer rule; expected {_expectation()}{hint}")
    typed = name in names() or where.startswith("--")
    try:
        found = trust.load(target, typed=typed, wanted="an answer rule, as module:attribute")
    except ConfigError as error:
        raise ConfigError(f"{where}={name!r}: {error}") from error
    if isinstance(found, AnswerRule) or callable(found):
        return found
    raise InputError(
        f"{where}={name!r} is {found!r:.80}; expected an answer rule, its class, or a function; {_REMEDY}"
    )


def _make(make: Any, name: str, where: str, options: dict[str, Any]) -> AnswerRule:
    """Make a rule by a class or function, with the options."""
    try:
        takes = inspect.signature(make).parameters
    except (TypeError, ValueError):
        raise InputError(
            f"{where}={name!r} is {make!r:.80}; expected an answer rule, or its class; {_REMEDY}"
        ) from None
    free = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if not free and (unknown := [option for option in options if option not in takes]):
        wanted = ", ".join(takes) or "none"
        raise InputError(f"{where}={name!r} has no option {unknown[0]!r}; it has: {wanted}")
    needed = [
        p.name for p in takes.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in options
    ]  # fmt: skip
    if needed:
        raise InputError(
            f"{where}={name!r} needs {', '.join(needed)}, as options beside kind: {name}; {_REMEDY}"
        )
    if isinstance(options.get("rule"), str | Mapping) and "rule" in takes:
        options["rule"] = answer_rule(options["rule"], f"{where}.rule")
    try:
        rule = make(**options)
    except InputError as error:
        raise InputError(f"{where}={name!r}: {error}") from error
    except Exception as error:  # somebody else's code
        raise InputError(
            f"{where}={name!r}: making it raised {type(error).__name__}: {error}; mend it, or its options "
            f"({', '.join(f'{k}={v!r}' for k, v in options.items()) or 'none'})"
        ) from error
    if not isinstance(rule, AnswerRule):
        raise InputError(f"{where}={name!r} made {rule!r:.80}; expected an answer rule: {_REMEDY}")
    return rule
