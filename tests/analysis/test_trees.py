"""The picture of a search holds its tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import pytest
from matplotlib.collections import LineCollection

from metagen.analysis.figures import save
from metagen.analysis.trees import layout, tree_diagram
from metagen.errors import InputError

#: name: step, value, state, multiplicity, chosen
NODES: dict[str, tuple[str, float | None, str, int, bool]] = {
    "0": ("", None, "expanded", 1, True),
    "0.0": ("a=$1$;\n", 0.9, "expanded", 3, True),
    "0.2": ("b=2;\n", 0.1, "pruned", 1, False),
    "0.10": ("c=3;\n", 0.4, "open", 1, False),
    "0.0.0": ("a very long step that goes on and on", 0.8, "finished", 2, True),
    "0.0.1": ("", 0.9, "finished", 1, False),
}


def graph() -> networkx.DiGraph[Any]:
    made: networkx.DiGraph[Any] = networkx.DiGraph()
    for name in sorted(NODES, reverse=True):
        step, value, state, multiplicity, chosen = NODES[name]
        made.add_node(name, step=step, value=value, state=state, multiplicity=multiplicity, chosen=chosen)
    made.add_edges_from((name.rpartition(".")[0], name) for name in NODES if "." in name)
    return made


def test_leaves_have_rows_by_position_and_parents_the_middle() -> None:
    assert layout(graph()) == {
        "0.0.0": (2, 0.0), "0.0.1": (2, 1.0), "0.0": (1, 0.5), "0.2": (1, 2.0), "0.10": (1, 3.0), "0": (0, 1.75),
    }  # fmt: skip


def test_every_node_every_branch_and_its_words_are_drawn(tmp_path: Path) -> None:
    figure = tree_diagram(graph(), title="REBASE")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "REBASE"
    (branches,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert len(branches.get_segments()) == 5
    assert sorted(branches.get_linewidths()) == [0.9, 0.9, 0.9, 2.2, 2.2]
    assert [line.get_marker() for line in axes.get_lines()].count("x") == 1
    assert [line.get_marker() for line in axes.get_lines()].count("s") == 2
    words = {text.get_text() for text in axes.texts}
    assert words == {
        "a=$1$;", "b=2;", "c=3;", "a very long step that…", "(end)", "0.90  ×3", "0.10", "0.40", "0.80  ×2", "0.90",
    }  # fmt: skip
    legend = figure.legends[0]
    assert [t.get_text() for t in legend.get_texts()] == ["extended, or open", "finished", "pruned", "chosen"]
    png, svg = save(figure, tmp_path / "tree")
    assert png.stat().st_size > 10_000 and svg.exists()


def test_darker_is_better() -> None:
    lines = tree_diagram(graph()).axes[0].get_lines()
    shades = {
        line.get_xydata()[0][1]: line.get_markerfacecolor() for line in lines if line.get_marker() == "s"
    }  # type: ignore[index]  # an array
    assert sum(shades[1.0][:3]) < sum(shades[0.0][:3])  # type: ignore[index]  # 0.9 is darker than 0.8


def test_what_is_no_tree_is_refused() -> None:
    for wrong in (networkx.DiGraph(), networkx.DiGraph([("0", "1"), ("1", "0")])):
        with pytest.raises(InputError, match="no tree"):
            tree_diagram(wrong)


def test_a_root_alone_is_a_tree() -> None:
    alone = graph().subgraph(["0"])
    assert len(tree_diagram(networkx.DiGraph(alone)).axes[0].get_lines()) == 1
