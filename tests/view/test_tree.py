"""Search trees in Chromium: drawn and as an outline, by mouse and by keys, small and of thousands of nodes."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from metagen.cost import Usage
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.tree.node import Node, Tree
from metagen.view import replay
from tests.chromium import opened
from tests.view.conftest import FIRST, REACHES, SEARCH, Runs, desk, go

#: Levels of a tree of thousands of nodes, and draws of each node that is extended.
LEVELS, DRAWS = 7, 40


def large() -> Tree:
    """30 nodes of each level are extended; what the best leaf says is chosen. One node has no score."""
    rng = random.Random(0)
    tree = Tree(Sequence(Prompt("large", text="?")))
    level = [tree.root]
    for depth in range(1, LEVELS + 1):
        drawn: list[Node] = []
        for parent in level:
            ended = "stop" if depth == LEVELS else None
            texts = [f"{parent.sequence.text}{rng.randrange(10**6)}\n" for _ in range(DRAWS)]
            sequences = [replace(parent.sequence, text=text, finish=ended) for text in texts]
            drawn += tree.add(parent, 0, sequences, [Score(rng.random()) for _ in sequences])
        level = sorted(drawn, key=lambda node: node.value or 0.0)[-30:]
    tree.chosen = level[-1].sequence
    next(node for node in tree if node.depth == 2).score = None
    for node in tree:
        node.cost = Usage(generated=3 * len(node.draws))
    return tree


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    with opened(chromium, reaches=REACHES) as made:
        yield made


@pytest.fixture(scope="module")
def told(runs: Runs) -> list[dict[str, Any]]:
    """The nodes of the small run's search."""
    with desk(runs.root) as made:
        (tree,) = made.replay("one", FIRST, SEARCH)["trees"]
    nodes: list[dict[str, Any]] = tree["nodes"]
    return nodes


def shown(tab: Any) -> list[dict[str, Any]]:
    """Each node that is drawn: its name, place, size, colour and classes."""
    found: list[dict[str, Any]] = tab.locator(".spot").evaluate_all(
        """all => all.map(one => { const b = one.querySelector('.pill').getBoundingClientRect();
        return {name: one.dataset.node, x: b.x, y: b.y, right: b.right, bottom: b.bottom,
        fill: one.querySelector('.pill').style.fill, kind: one.getAttribute('class'),
        said: one.textContent, level: Number(one.getAttribute('aria-level'))}; })"""
    )
    return found


def strokes(tab: Any, path: str) -> int:
    return len(re.findall("M", tab.locator(path).get_attribute("d")))


def focused(tab: Any) -> str:
    name: str = tab.evaluate("document.activeElement.dataset.node")
    return name


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_tree_is_drawn_node_by_node(
    chromium: Any, address: str, told: list[dict[str, Any]], width: int, scheme: str
) -> None:
    with opened(chromium, width, scheme, REACHES) as tab:
        go(tab, address, "tree")
        tab.wait_for_selector(".spot")
        drawn = {one["name"]: one for one in shown(tab)}
        assert drawn.keys() == {node["name"] for node in told}
        assert strokes(tab, ".edge:not(.way)") + strokes(tab, ".edge.way") == len(told) - 1
        way = [node["name"] for node in told if node["chosen"]]
        assert strokes(tab, ".edge.way") == len(way) - 1 > 1
        for node in told:
            one = drawn[node["name"]]
            assert ("way" in one["kind"].split()) == node["chosen"]
            if node["parent"] is None:
                continue
            parent = drawn[node["parent"]]
            assert one["x"] > parent["right"] and one["level"] == parent["level"] + 1
            assert ("--cool" if node["value"] >= 0.5 else "--hot") in one["fill"]
            assert ("low" in one["kind"].split()) == (node["value"] < 0.5)
            assert f"{node['value']:.2f}" in one["said"]
            assert (node["step"].strip()[:4] in one["said"]) == (width == 1400)
        # The chosen path is one row; no node covers another.
        assert len({round(drawn[name]["y"]) for name in way}) == 1
        for level in {one["level"] for one in drawn.values()}:
            column = sorted(
                (one for one in drawn.values() if one["level"] == level), key=lambda one: one["y"]
            )
            assert all(upper["bottom"] < lower["y"] for upper, lower in pairwise(column))
        wide, inner = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= inner
        # What is looked at first is what was chosen, and the page stands where it is.
        assert way[-1] in tab.locator(".treebox .detail").inner_text()
        assert "★ chosen" in tab.locator(".treebox .detail").inner_text()


def test_a_node_that_is_pointed_at_tells_its_score_its_cost_and_its_text(
    tab: Any, address: str, told: list[dict[str, Any]]
) -> None:
    go(tab, address, "tree")
    parents = {node["parent"] for node in told}
    node = next(node for node in told if node["name"] in parents and node["parent"])
    tab.locator(f".spot[data-node='{node['name']}'] .pill").hover()
    tip = tab.locator(".drawn .tip")
    assert tip.is_visible()
    said = tip.inner_text()
    assert f"score {node['value']:.3f}" in said and node["step"].strip() in said
    assert f"children cost {node['generated']} tokens" in said
    tab.mouse.move(5, 5)
    assert not tip.is_visible()


def test_a_drawn_tree_opens_and_closes(tab: Any, address: str, told: list[dict[str, Any]]) -> None:
    go(tab, address, "tree")
    spots = tab.locator(".spot")
    spots.first.wait_for()
    ways = [node["name"] for node in told if node["chosen"]]
    inner = ways[1]
    below = sum(node["name"].startswith(f"{inner}.") for node in told)
    tab.locator(f".spot[data-node='{inner}'] .more").click()
    assert spots.count() == len(told) - below
    closed = tab.locator(f".spot[data-node='{inner}']")
    assert closed.get_attribute("aria-expanded") == "false" and closed.text_content().endswith(str(below))
    tab.get_by_role("button", name="chosen path").click()
    assert {one["name"] for one in shown(tab)} >= set(ways)
    tab.get_by_role("button", name="collapse all").click()
    assert {one["level"] for one in shown(tab)} == {1, 2}
    tab.get_by_role("button", name="expand all").click()
    assert spots.count() == len(told)


def test_keys_go_through_a_drawn_tree(tab: Any, address: str, told: list[dict[str, Any]]) -> None:
    go(tab, address, "tree")
    way = [node["name"] for node in told if node["chosen"]]
    tab.wait_for_selector(".spot")
    tab.locator(f".spot[data-node='{way[-1]}']").focus()
    tab.keyboard.press("Home")
    assert focused(tab) == "0"
    tab.keyboard.press("ArrowRight")
    assert focused(tab) == way[1]
    tab.keyboard.press("ArrowLeft")
    assert focused(tab) == "0"
    tab.keyboard.press("Enter")
    assert tab.locator(".spot").count() == 1 and focused(tab) == "0"
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".spot").count() > 1
    tab.keyboard.press("End")
    assert focused(tab) == way[-1]
    siblings = [node["name"] for node in told if node["name"].count(".") == 1]
    tab.locator(f".spot[data-node='{siblings[0]}']").focus()
    tab.locator(f".spot[data-node='{siblings[0]}']").click()
    for name in siblings[1:]:
        tab.keyboard.press("ArrowDown")
        assert focused(tab) == name
    # The address leads to the node.
    last = siblings[-1]
    tab.wait_for_function("name => location.hash.includes(`node=${name}`)", arg=last)
    tab.reload()
    tab.wait_for_selector(f".spot.at[data-node='{last}']")
    assert f"Node {last}" in tab.locator(".treebox .detail").inner_text()


def test_the_outline_opens_and_closes(tab: Any, address: str, told: list[dict[str, Any]]) -> None:
    go(tab, address, "tree")
    tab.get_by_role("button", name="outline").click()
    assert "form=outline" in tab.url
    tree = tab.locator("ul[role=tree]")
    tree.wait_for()
    items = tab.locator("[role=treeitem]:visible")
    assert items.count() == len(told)
    assert tab.locator(".tree .pick:visible").count() == 1
    tab.get_by_role("button", name="collapse all").click()
    assert items.count() < len(told)
    tab.get_by_role("button", name="chosen path").click()
    assert tab.locator(".tree .pick:visible").count() == 1
    tab.get_by_role("button", name="expand all").click()
    assert items.count() == len(told)
    root = tab.locator("[role=treeitem]").first
    root.focus()
    tab.keyboard.press("ArrowLeft")
    assert root.get_attribute("aria-expanded") == "false" and items.count() == 1
    assert "nodes below" in root.inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    scores = tab.locator(".tree .score").all_inner_texts()
    assert all(text == "–" or 0 <= float(text) <= 1 for text in scores)
    tab.reload()
    tab.wait_for_selector("ul[role=tree]")


# --------------------------------------------------------------------------------------- thousands of nodes


def test_of_a_tree_beyond_what_is_told_the_chosen_path_is_kept() -> None:
    tree = large()
    data = replay.tree_data("0", tree)
    assert len(tree) == data["size"] > len(data["nodes"]) == replay.MOST
    names = {node["name"] for node in data["nodes"]}
    assert all(node["parent"] is None or node["parent"] in names for node in data["nodes"])
    chosen = [node for node in data["nodes"] if node["chosen"]]
    assert len(chosen) == LEVELS + 1 and chosen[-1]["finish"] == "stop"
    deepest = max(name.count(".") for name in names - {node["name"] for node in chosen})
    assert sum(node.depth < deepest for node in tree) < replay.MOST  # all of the levels above are there
    order = [tuple(map(int, node["name"].split("."))) for node in data["nodes"]]
    assert order == sorted(order)


@pytest.mark.parametrize("width", [1400, 390])
def test_a_tree_of_thousands_stays_usable(
    chromium: Any, address: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST", 10_000)
    tree = large()
    data = {
        "whole": True,
        "note": None,
        "text": "",
        "exhausted": False,
        "usage": None,
        "calls": [],
        "left_out": 0,
    }
    answer = json.dumps({**data, "trees": [replay.tree_data("0", tree)]})
    with opened(chromium, width, reaches=REACHES) as tab:
        tab.route(
            "**/api/replay?*", lambda route: route.fulfill(body=answer, content_type="application/json")
        )
        go(tab, address, "tree")
        spots, stubs = tab.locator(".spot"), tab.locator(".stub")
        spots.first.wait_for()
        assert f"{len(tree):,} nodes" in tab.locator(".treebox").inner_text()
        # At first, of each node on the chosen path a few children.
        assert spots.count() + stubs.count() <= 1 + 7 * LEVELS
        assert strokes(tab, ".edge.way") == LEVELS
        row = {round(one["y"]) for one in shown(tab) if "way" in one["kind"].split()}
        assert len(row) == 1
        first = tab.get_by_label("children of node 0", exact=False).first
        before = strokes(tab, ".edge:not(.way)")
        assert first.text_content().endswith("34 more" if width == 1400 else "+34")
        first.press("Enter")
        assert strokes(tab, ".edge:not(.way)") == before + 33  # 34 edges for that to the stub
        # All of them: what is drawn is what is seen, wherever one scrolls.
        tab.get_by_role("button", name="expand all").click()
        assert strokes(tab, ".edge:not(.way)") + LEVELS == len(tree) - 1
        assert spots.count() < 200
        seen = set()
        tall = tab.locator(".drawing").evaluate("one => one.scrollHeight")
        for at in range(0, tall, tall // 7):
            tab.locator(".drawing").evaluate("(one, at) => { one.scrollTop = at; }", at)
            tab.wait_for_timeout(50)
            names = {one["name"] for one in shown(tab)}
            assert 10 < len(names) < 200
            seen |= names
        assert len(seen) > 200
        # The node that has the focus stays, and keys lead on from it.
        tab.locator(".drawing").evaluate("one => { one.scrollTop = 0; }")
        tab.wait_for_timeout(50)
        at = tab.locator(".spot.at")
        assert at.count() == 1
        at.focus()
        tab.keyboard.press("Home")
        assert focused(tab) == "0"
        wide, inner = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= inner
