"""The picture of a program holds its steps, in the order in which they can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import pytest

from examples.figures.chains import layout, program_diagram
from metagen.analysis.figures import save
from metagen.errors import InputError


def graph() -> networkx.DiGraph[Any]:
    made: networkx.DiGraph[Any] = networkx.DiGraph()
    made.add_edges_from([("query", "passages"), ("passages", "answer"), ("plan", "answer")])
    return made


def test_columns_follow_the_longest_way_and_steps_of_one_stand_around_the_middle() -> None:
    assert layout(graph()) == {
        "plan": (0, -0.5), "query": (0, 0.5), "passages": (1, 0.0), "answer": (2, 0.0),
    }  # fmt: skip


def test_every_step_is_drawn_with_what_it_has_made(tmp_path: Path) -> None:
    texts = {"query": "costs $5 and\n$6", "answer": "word " * 100}
    figure = program_diagram(graph(), texts, output="answer", title="A program")
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert {text.partition("\n")[0] for text in shown if text} == {"query", "passages", "plan", "answer"}
    assert "query\ncosts \\$5 and \\$6" in shown and "passages" in shown
    assert sum(text == "" for text in shown) == 3, "an arrow for each edge"
    (long,) = [text for text in shown if text.startswith("answer")]
    assert long.endswith("…") and max(map(len, long.splitlines())) <= 26
    for path in save(figure, tmp_path / "program"):
        assert path.stat().st_size > 2_000


def test_there_is_room_above_only_for_what_skips_a_column() -> None:
    straight: networkx.DiGraph[Any] = networkx.DiGraph([("a", "b"), ("b", "c")])
    skipping: networkx.DiGraph[Any] = networkx.DiGraph([("a", "b"), ("b", "c"), ("a", "c")])
    low, high = (program_diagram(g, {}).get_figheight() for g in (straight, skipping))
    assert low < high


def test_what_is_no_program_is_refused() -> None:
    circle: networkx.DiGraph[Any] = networkx.DiGraph([("a", "b"), ("b", "a")])
    for wrong in (circle, networkx.DiGraph()):
        with pytest.raises(InputError, match="no program"):
            program_diagram(wrong, {})
