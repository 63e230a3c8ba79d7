"""Tools: recorded, charged, retried and timed out."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, PluginError
from metagen.strategies.chain.steps import Use
from metagen.strategies.tools import Tool, ToolError
from metagen.testing import CountingJournal, run
from tests.strategies.chain.toolbox import add, call

# ------------------------------------------------------------------------------------------------------------ a tool


def test_a_result_is_recorded_and_charged_as_a_call() -> None:
    calls: list[int] = []

    async def double(x: int) -> dict[str, Any]:
        calls.append(x)
        return {"of": x, "is": [2 * x, None]}

    tool, journal = Tool(double), CountingJournal()
    value, rows = run(lambda s: tool.call({"x": 2}, s.child("t")), journal=journal)
    assert value == {"of": 2, "is": [4, None]} and [(r.kind, r.path, r.usage.calls) for r in rows] == [
        ("tool", "t", 1)
    ]
    again, rows = run(
        lambda s: tool.call({"x": 2}, s.child("t")), journal=journal, budget=Budget(calls=1, generated=0)
    )
    assert again == value and calls == [2] and rows[0].usage.calls == 1
    run(lambda s: tool.call({"x": 3}, s.child("t")), journal=journal)
    assert calls == [2, 3] and journal.recorded == 2
    with pytest.raises(BudgetExhausted):
        run(lambda s: tool.call({"x": 3}, s.child("t")), budget=Budget(calls=0))
    assert calls == [2, 3]


def test_a_transient_failure_is_retried_and_what_stays_is_raised_and_not_recorded() -> None:
    failures = iter([ConnectionError("down"), ConnectionError("down"), None, *[ConnectionError("gone")] * 3])
    tries = 0

    async def flaky(x: int) -> int:
        nonlocal tries
        tries += 1
        error = next(failures)
        if error:
            raise error
        return x

    tool, journal = Tool(flaky, wait=0.001), CountingJournal()
    assert call(tool, {"x": 1}, journal=journal) == 1 and tries == 3
    with pytest.raises(PluginError, match=r"the tool 'flaky' .* raised ConnectionError: gone") as caught:
        call(tool, {"x": 2}, journal=journal)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert tries == 6 and journal.recorded == 1


def test_other_errors_are_raised_at_once() -> None:
    tries = 0

    def wrong(x: int) -> int:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    with pytest.raises(PluginError, match=r"the tool 'wrong' .* raised ZeroDivisionError"):
        call(Tool(wrong), {"x": 1})
    assert tries == 1
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        call(Tool(wrong, retry_on=(ArithmeticError,), attempts=4, wait=0), {"x": 1})
    assert tries == 5


def test_an_error_that_the_tool_reports_is_its_result() -> None:
    tries = 0

    def refuse(x: int) -> int:
        nonlocal tries
        tries += 1
        raise ToolError("there is no such page")

    tool, journal = Tool(refuse), CountingJournal()
    for _ in range(2):
        with pytest.raises(ToolError, match="no such page"):
            call(tool, {"x": 1}, journal=journal)
    assert tries == 1 == journal.recorded


def test_a_time_out_is_tried_again_and_then_recorded() -> None:
    tries = 0

    async def slow(x: float) -> str:
        nonlocal tries
        tries += 1
        await asyncio.sleep(x)
        return "done"

    tool, journal = Tool(slow, timeout=0.3, attempts=2, wait=0), CountingJournal()
    assert call(tool, {"x": 0.0}, journal=journal) == "done"
    for _ in range(2):
        with pytest.raises(ToolError, match=r"'slow' took longer than 0\.3 seconds, in the last of 2"):
            call(tool, {"x": 5.0}, journal=journal)
    assert tries == 3 and journal.recorded == 2


def test_a_time_out_of_the_function_itself_is_transient() -> None:
    def late(x: int) -> int:
        raise TimeoutError("the server was late")

    journal = CountingJournal()
    with pytest.raises(PluginError, match="raised TimeoutError: the server was late"):
        call(Tool(late, attempts=2, wait=0), {"x": 1}, journal=journal)
    assert journal.recorded == 0


def test_a_deadline_of_the_budget_ends_a_tool() -> None:
    async def slow() -> str:
        await asyncio.sleep(30)
        return ""

    with pytest.raises(BudgetExhausted, match="seconds"):
        call(Tool(slow), {}, budget=Budget(seconds=0.05))


def test_what_is_no_json_is_refused() -> None:
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(InputError, match="not JSON"):
            call(Tool(lambda value=value: value, name="odd"), {})


def test_arguments_are_checked_by_the_annotations() -> None:
    tool = Tool(add)
    assert tool.read({"a": "3"}) == {"a": 3, "b": 1}
    for wrong, words in (
        ({"a": "x"}, "a: .*integer"),
        ({"b": 2}, "a: Field required"),
        ({"a": 1, "c": 2}, "c: Extra"),
    ):
        with pytest.raises(ToolError, match=words):
            tool.read(wrong)
    assert (tool.required, tool.optional, tool.about) == (("a",), ("b",), "Add two numbers.")


def test_wrong_tools_are_refused() -> None:
    for make, words in (
        (lambda: Tool(lambda x: x), "called '<lambda>'; give it name="),
        (lambda: Tool(lambda *x: x, name="t"), "'x' by place"),
        (lambda: Tool(add, timeout=0), "timeout=0"),
        (lambda: Tool(add, attempts=0), "attempts=0"),
        (lambda: Tool(add, attempts=1.5), "attempts=1.5"),  # type: ignore[arg-type]
        (lambda: Use(add, c=1), "no argument 'c'; it takes a, b"),
        (lambda: Use(add, b=date(2024, 2, 28)), r"'add' is given b=datetime\.date\(.*\), which is not JSON"),
        (lambda: Use(add, b=float("nan")), "b=nan, which is not JSON"),
    ):
        with pytest.raises(InputError, match=words):
            make()
    changes: list[dict[str, Any]] = [
        {}, {"name": "plus"}, {"version": "2"}, {"timeout": 31}, {"timeout": None}, {"attempts": 2},
    ]  # fmt: skip
    assert len({Tool(add, **change).fingerprint for change in changes}) == len(changes)
    assert Tool(add, timeout=30).fingerprint == Tool(add).fingerprint
