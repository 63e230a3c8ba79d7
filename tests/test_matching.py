"""Regular expressions from files and constructors: one that never ends is an error that names it."""

from __future__ import annotations

import re

import pytest

from metagen import matching
from metagen.errors import InputError
from metagen.sequence import Sequence
from metagen.testing import run
from metagen.verifiers.literal import LiteralRule
from metagen.verifiers.math import MathRule
from metagen.verifiers.numbers import NumberRule
from metagen.verifiers.text import TextRule

PREFIX = Sequence.of("What is it?")
ENDLESS = r"(?:a+)+(b)"


def test_a_regular_expression_that_never_ends_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "LIMIT", 0.5)
    text = "a" * 60 + "c"
    for rule in (NumberRule(ENDLESS), TextRule(ENDLESS), MathRule(ENDLESS), LiteralRule(ENDLESS)):
        with pytest.raises(InputError, match=r"\(\?:a\+\)\+\(b\).*longer than 0.5 s.*'aaaa"):
            run(lambda s, rule=rule: rule.read([PREFIX.extend(text, finish="eos")]))  # type: ignore[misc]
        (answer,), _ = run(lambda s, rule=rule: rule.read([PREFIX.extend("aab", finish="eos")]))  # type: ignore[misc]
        assert answer.text == "b"


@pytest.mark.parametrize(
    "pattern", [r"x(a)|(?P<n>b)y", r"\s*#(\S+)\s*", r"^(.)(?P<n>.*)$", r"(?P<q>['\"])(.*?)(?P=q)"]
)
def test_what_is_matched_apart_is_what_is_matched_here(pattern: str) -> None:
    compiled = re.compile(pattern, re.MULTILINE)
    for text in ("xa by xa", " #a \n#b", "q 'é' \"\ud800\" '", "", "ab\ncd"):
        for last, ended in ((True, True), (True, False), (False, True)):
            matches = [m for m in compiled.finditer(text) if ended or m.end() < len(text)]
            m = (matches[-1] if last else matches[0]) if matches else None
            found = matching._matcher().ask((pattern, compiled.flags, text, 0, last, ended))
            assert found == (None if m is None else [m.end(), list(m.groups()), m.groupdict()])
            near = (
                matching.last_match(compiled, text, ended=ended)
                if last
                else matching.first_match(compiled, text)
            )
            assert near == (None if m is None else (m.end(), m.groups(), m.groupdict()))


def test_the_process_that_matches_is_started_again() -> None:
    pattern = re.compile(r"(a+)+b*")
    assert matching.first_match(pattern, "aa") is not None
    process = matching._matcher()._process
    assert process is not None
    process.kill()
    process.wait()
    assert matching.first_match(pattern, "aa") is not None
