"""What a small model may call in `examples/words_strategies.yaml`, and how a call is found in what it writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from examples.words_tools import Answer, calculate, work_out
from metagen.strategies.tools import ToolError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("9 - 4", "5"),
        ("(3 + 4) * 2", "14"),
        ("7 / 2", "3.5"),
        ("10 / 3", "3.3333"),
        ("0.1 + 0.2", "0.3"),
        ("-2 * 3", "-6"),
        ("199999 / 100000", "2"),
        ("1 / 100000", "0.00001"),
        ("-2 / 30000", "-0.00006667"),
    ],
)
def test_arithmetic_has_a_value(expression: str, value: str) -> None:
    assert calculate(expression) == value == work_out(f"What is {expression}?")


@pytest.mark.parametrize(
    "expression",
    ["", "apples", "1 / 0", "2 ** 9999", "__import__('os')", "(" * 500, "007 + 1", f"{'9' * 400} / 7"],
)
def test_what_has_none_is_said(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


def test_a_call_is_what_stands_before_the_equals_sign() -> None:
    written = yaml.safe_load((EXAMPLES / "words_strategies.yaml").read_text("utf-8"))
    call = re.compile(rf"(?:{written['strategies']['calculator']['call']})\Z")
    for text, found in (
        ("He has 9 - 4 =", "9 - 4"),
        ("so 2.5 * 4 * 3 =", "2.5 * 4 * 3"),
        ("x =", None),
        ("5 =", None),
    ):
        match = call.search(text)
        assert (match["expression"] if match else None) == found


def test_the_form_is_what_readers_take_a_number_from() -> None:
    assert list(Answer.model_fields)[-1] == "answer", "the last number of the text is the answer"
