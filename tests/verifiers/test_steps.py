"""Where steps end: blank pieces are none, and nothing of a text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.verifiers.steps import steps_of, whole


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a\nb\n", ["a\n", "b\n"]),
        ("a\nb", ["a\n", "b"]),
        ("a\nb\n\n", ["a\n", "b\n\n"]),
        ("a\n \nb", ["a\n \n", "b"]),
        ("\n\na\nb", ["\n\na\n", "b"]),
        ("a\n  ", ["a\n  "]),
        ("\n", []),
        (" \n\t", []),
        ("", []),
    ],
)
def test_a_blank_piece_belongs_to_the_step_before_it(text: str, steps: list[str]) -> None:
    assert steps_of(text, "\n") == steps


@given(st.text("ab \n;", max_size=12), st.sampled_from(["\n", "\n\n", ";", "a", " "]))
def test_nothing_is_lost_and_no_step_is_blank(text: str, delimiter: str) -> None:
    steps = steps_of(text, delimiter)
    assert "".join(steps) == (text if steps else "")
    assert all(step.replace(delimiter, "").strip() or delimiter.strip() for step in steps)
    plain = [part for part in text.split(delimiter) if part.strip()]
    assert len(steps) == len(plain)


def test_a_whole_solution_is_one_step_unless_it_is_blank() -> None:
    assert whole("a\n\nb") == ["a\n\nb"] and whole("") == whole(" \n") == []
