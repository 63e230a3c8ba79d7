"""Tables in narrow terminals: nothing is cut, and rows and intervals can be told apart."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.table import Table
from rich.text import Text

from metagen.cli import output

MODELS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m")
STRATEGIES = ("majority", "best-of-n")


def drawn(table: Table, width: int) -> list[str]:
    file = io.StringIO()
    output.console(file=file, width=width).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def accuracies() -> Table:
    """As the report of a run: a model's name stands in its first row alone."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("generator")
    table.add_column("strategy")
    for n in (1, 2, 4, 8, 16, 32):
        table.add_column(str(n), justify="right")
    for m, model in enumerate(MODELS):
        for s, strategy in enumerate(STRATEGIES):
            cells = [Text(f"{10 * m + s}.{n} ±4.4\n{n}{m}–{n}{s}") for n in range(6)]
            table.add_row(model if s == 0 else "", strategy, *cells)
        table.add_section()
    return table


@pytest.mark.parametrize("width", [36, 40, 60, 80, 110])
def test_names_and_intervals_are_whole_at_every_width(width: int) -> None:
    lines = drawn(accuracies(), width)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines) and "…" not in text
    for m, model in enumerate(MODELS):
        assert model in text
        for s in range(2):
            for n in range(6):
                assert f"{10 * m + s}.{n} ±4.4" in text and f"{n}{m}–{n}{s}" in text
    tables = len(re.findall("^.*generator", text, re.MULTILINE))
    assert tables == {36: 6, 40: 6, 60: 2, 80: 2, 110: 1}[width]
    for strategy in STRATEGIES:
        assert text.count(strategy) == tables * len(MODELS), "each part names its rows"


def test_a_wide_table_is_left_as_it_is() -> None:
    file = io.StringIO()
    from rich.console import Console

    Console(file=file, width=110, highlight=False).print(accuracies())
    assert [line.rstrip() for line in file.getvalue().splitlines()] == drawn(accuracies(), 110)


def test_long_texts_are_folded_and_short_ones_kept() -> None:
    table = Table("name", "what", "where", box=None)
    prose, path = (
        "a model that writes steps of a solution in words",
        "/somewhere/far/away/in/a/directory/of/models",
    )
    table.add_row("tiny-countdown-value", prose, path)
    lines = drawn(table, 70)
    assert all(len(line) <= 70 for line in lines)
    assert "tiny-countdown-value" in lines[1]
    columns = [[line[at] if len(line) > at else " " for line in lines[1:]] for at in range(70)]
    letters = "".join(char for row in zip(*columns, strict=True) for char in row)
    assert sorted(letters.replace(" ", "")) == sorted(f"tiny-countdown-value{prose}{path}".replace(" ", ""))


def test_rows_that_their_first_column_tells_apart_are_named_by_it_alone() -> None:
    table = Table("run", "state", "problems", "best configuration", box=box.SIMPLE_HEAD)
    for name in ("quickstart-with-a-long-name", "other"):
        table.add_row(name, "complete", "60", "tiny-2m/weighted@32")
    text = "\n".join(drawn(table, 60))
    assert text.count("quickstart-with-a-long-name") == 2 and text.count("complete") == 2


@given(
    st.integers(20, 120),
    st.lists(st.lists(st.text("ab", max_size=30), min_size=4, max_size=4), min_size=1, max_size=3),
)
def test_no_letter_is_lost_in_columns(width: int, rows: list[list[str]]) -> None:
    table = Table("k", "b", "c", "d", box=None)
    for row in rows:
        table.add_row(*row)
    lines = drawn(table, width)
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "…" not in text
    for letter in "ab":
        wanted = sum(cell.count(letter) for row in rows for cell in row)
        assert text.count(letter) >= wanted
