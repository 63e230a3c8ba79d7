"""Layouts: values that say nothing are refused when they are made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metagen.errors import InputError
from metagen.verifiers.layouts import ChatSteps, Layout, SeparatorSteps, TaggedSteps, WholeSolution


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaggedSteps(delimiter=""), "delimiter='': expected a text that is not empty in TaggedSteps"),
        (lambda: TaggedSteps("<s>", "+", "+"), r"positive='\+', negative='\+': expected different texts"),
        (lambda: TaggedSteps("+", "+", "-"), r"tag='\+', positive='\+'"),
        (
            lambda: TaggedSteps("t", "+", "-", " t"),
            r"delimiter=' t' has the tag 't' in it, .* give inline=True",
        ),
        (lambda: TaggedSteps(inline=1), "inline=1: expected true or false"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: ChatSteps("+", "+"), "expected different texts"),
        (lambda: ChatSteps(delimiter=5), "delimiter=5: expected a text in ChatSteps"),  # type: ignore[arg-type]  # as above
        (lambda: SeparatorSteps(""), "separator=''"),
        (lambda: SeparatorSteps(gap=None), "gap=None: expected a text"),  # type: ignore[arg-type]  # as above
        (lambda: SeparatorSteps(chat="false"), "chat='false': expected true or false"),  # type: ignore[arg-type]  # as above
        (lambda: SeparatorSteps(chat=True, start="<s>"), "start='<s>': with chat=True the chat template"),
        (lambda: SeparatorSteps(chat=True, gap="\n"), "gap=.*: with chat=True the chat template"),
        (lambda: WholeSolution(closing=1), "closing=1: expected a text"),  # type: ignore[arg-type]  # as above
    ],
)
def test_values_that_are_none_are_refused(make: Callable[[], Layout], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("layout", [TaggedSteps(delimiter="\n\n"), ChatSteps(), SeparatorSteps("s", "\n\n")])
def test_blank_pieces_are_steps_of_no_layout(layout: Layout) -> None:
    assert [step.strip() for step in layout.split("\n\na\n\n \n\nb\n\n")] == ["a", "b"]
    assert layout.split(" \n\n\n\n ") == []
