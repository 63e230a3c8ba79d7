"""The viewer in Chromium: pages, addresses, keys, light and dark, narrow and wide, and texts that would run."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metagen.journal import Row, SQLiteJournal
from metagen.runs.directory import RunDirectory
from tests.chromium import opened
from tests.view.conftest import FIRST, PAGES, REACHES, SEARCH, Runs, go, interrupt, served

HOSTILE = '</script><img src=x onerror="window.hacked=1"><style>body{display:none}</style>'


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    with opened(chromium, reaches=REACHES) as made:
        yield made


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways(chromium: Any, address: str, width: int, scheme: str) -> None:
    with opened(chromium, width, scheme, REACHES) as tab:
        for page in PAGES:
            go(tab, address, page)
            tab.wait_for_timeout(150)
            wide, inner = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= inner, page
            ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")


def test_a_run_is_opened_and_its_curves_are_drawn(tab: Any, address: str) -> None:
    go(tab, address, "runs")
    tab.locator("a[data-row]", has_text="one").click()
    tab.wait_for_selector("section[aria-label=Accuracy] canvas")
    assert "solves" in tab.locator("h1").inner_text()
    colours = tab.locator("section[aria-label=Accuracy] canvas").evaluate(
        """canvas => { const c = canvas.getContext('2d');
        const d = c.getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255)
        found.add(d.slice(i, i + 3).join()); return [...found]; }"""
    )
    assert {"0,114,178", "196,79,0", "0,127,92"} <= set(colours)  # a curve of each of three hues
    tab.locator("select[aria-label=Against]").select_option("n")
    assert "by=n" in tab.url
    box = tab.locator("section[aria-label=Accuracy] .u-over").bounding_box()
    tip = tab.locator("section[aria-label=Accuracy] .tip")
    for at in range(400):
        if tip.is_visible():
            break
        x, y = (0.01, 0.34, 0.99)[at // 134], (at % 134) / 134
        tab.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    assert "%" in tip.inner_text() and "mid/" in tip.inner_text()


def settle(tab: Any) -> Any:
    """The rows of the list of problems, once they are those that were asked for."""
    tab.wait_for_selector(".problems:not([aria-busy])", state="attached")
    return tab.locator(".problems a")


def test_problems_are_searched_filtered_and_sorted(tab: Any, address: str) -> None:
    go(tab, address, "run")
    assert settle(tab).count() == 4
    tab.keyboard.press("/")
    tab.keyboard.type("2/3")
    assert settle(tab).count() == 1 and "q=2%2F3" in tab.url
    tab.locator("input[aria-label='Search problems']").fill("")
    tab.locator("select[aria-label=Filter]").select_option(f"right:{SEARCH}")
    right = settle(tab).count()
    tab.locator("select[aria-label=Filter]").select_option(f"wrong:{SEARCH}")
    assert right + settle(tab).count() == 4
    tab.locator("select[aria-label=Filter]").select_option("")
    tab.locator("select[aria-label=Sort]").select_option("right")
    settle(tab)
    shares = [text.split("/") for text in tab.locator(".rates > span:not(.alone) small").all_inner_texts()]
    rates = [int(right) / int(size) for right, size in shares]
    assert rates == sorted(rates) and len(rates) == 4
    # The link holds all of it.
    order = tab.locator(".problems .name").all_inner_texts()
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator(".problems .name").all_inner_texts() == order


def test_a_list_of_many_problems_comes_page_by_page(chromium: Any, runs: Runs, tmp_path: Path) -> None:
    many = lengthen(runs.one, tmp_path / "runs" / "many", 260)
    # The problems that were added are in no task: the one that is opened at the end is not found.
    with served(many.root.parent) as address, opened(chromium, reaches=REACHES, missing=True) as tab:
        go(tab, address, "run?run=many")
        assert settle(tab).count() == 100
        assert "260 problems" in tab.locator("section[aria-label=Problems]").inner_text()
        more = tab.locator("button[data-more]")
        assert more.inner_text() == "100 more of 160"
        more.click()
        assert settle(tab).count() == 200
        # The last row leads on, by its key.
        tab.locator(".problems a").nth(199).focus()
        tab.keyboard.press("j")
        assert settle(tab).count() == 260 and more.is_hidden()
        names = tab.locator(".problems .name").all_text_contents()
        assert len(set(names)) == 260
        # What is not on the first page is found, and its neighbours are those of the list.
        tab.locator("input[aria-label='Search problems']").fill("/25")
        found = settle(tab)
        assert found.count() == 11  # 25, and 250 to 259
        found.nth(1).click()
        tab.wait_for_selector("a[data-next]")
        assert "2 of 11" in tab.locator("nav.beside").inner_text()


def test_a_link_opens_the_problem_the_configuration_and_the_view(tab: Any, address: str) -> None:
    go(tab, address, "time")
    tab.wait_for_selector(".timeline svg .call")
    assert tab.locator("h1").inner_text() == FIRST
    assert tab.locator("select[aria-label=Configuration]").input_value() == SEARCH
    bars = tab.locator(".timeline .call")
    assert bars.count() > 3
    bars.nth(1).focus()
    assert tab.locator(".timeline .behind").count() == 1 and tab.locator(".links path").count() == 1
    assert "Waited for" in tab.locator(".detail").inner_text()
    tab.get_by_role("button", name="seconds").click()
    tab.get_by_role("tab", name="tree").click()
    assert "show=tree" in tab.url
    go(tab, address, "talk")
    tab.wait_for_selector(".talk .bubble")
    assert tab.locator(".bubble.says").count() == 2
    assert "goes on from" in tab.locator(".talk").inner_text()


def test_votes_are_bars_and_steps_have_the_colour_of_their_score(tab: Any, address: str) -> None:
    go(tab, address, "tree")
    widths = tab.locator("table.votes .votebar div").evaluate_all(
        "all => all.map(one => parseFloat(one.style.width))"
    )
    counts = [int(t) for t in tab.locator("table.votes tbody td.n:nth-child(3)").all_inner_texts()]
    assert widths == [100 * count / 4 for count in counts]
    painted = tab.locator(".candidates .steps li").evaluate_all(
        "all => all.map(one => [one.querySelector('.value')?.textContent, one.style.background, one.className])"
    )
    assert painted
    for value, background, kind in painted:
        if value is not None:
            assert ("--cool" in background) == (float(value) > 0.5) or float(value) == 0.5
            assert ("low" in kind) == (float(value) < 0.5) or float(value) == 0.5


def test_keys_move_open_and_go_up(tab: Any, address: str) -> None:
    go(tab, address, "runs")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    names = tab.locator("a[data-row]").all_inner_texts()
    assert tab.evaluate("document.activeElement.textContent") == names[1]
    tab.keyboard.press("k")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".problems a")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("h1.id")
    tab.wait_for_selector("a[data-next]")
    first = tab.locator("h1.id").inner_text()
    tab.keyboard.press("]")
    tab.wait_for_function(
        "first => document.querySelector('h1.id') && document.querySelector('h1.id').textContent !== first",
        arg=first,
    )
    tab.keyboard.press("?")
    assert tab.locator("dialog#keys").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog#keys").is_visible() and "problem" in tab.url
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".problems a")
    tab.keyboard.press("Escape")
    tab.wait_for_function("() => location.hash === '#/'")


def test_the_theme_is_switched_and_kept(tab: Any, address: str) -> None:
    go(tab, address, "runs")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.keyboard.press("t")
    tab.keyboard.press("t")
    assert tab.locator("#theme").inner_text() == "dark"
    dark = tab.evaluate(ground)
    assert dark != light
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.evaluate(ground) == dark


def test_a_configuration_is_copied(tab: Any, address: str) -> None:
    go(tab, address, "tree")
    tab.get_by_role("button", name=f"Copy {SEARCH} as YAML").click()
    tab.wait_for_function("() => document.getElementById('said').textContent.startsWith('copied')")
    assert "kind: rebase" in tab.evaluate("navigator.clipboard.readText()")


def test_two_runs_are_compared_and_lead_to_their_problems(tab: Any, address: str) -> None:
    go(tab, address, "runs")
    for name in ("one", "two"):
        tab.get_by_label(f"Compare {name}").check()
    tab.get_by_role("button", name="Compare two").click()
    tab.wait_for_selector(".pairs li")
    assert tab.locator(".pairs li").count() == 4
    tab.locator("select[aria-label=Configuration]").select_option(SEARCH)
    tab.locator("select[aria-label=Filter]").select_option("both")
    shown = tab.locator(".pairs li").count()
    kinds = ("gained", "lost", "neither")
    for kind in kinds:
        tab.locator("select[aria-label=Filter]").select_option(kind)
        shown += tab.locator(".pairs li").count()
    assert shown == 4
    tab.locator("select[aria-label=Filter]").select_option("")
    tab.locator(".pairs li a", has_text="B").first.click()
    tab.wait_for_selector("h1.id")
    assert "run=two" in tab.url and tab.locator("select[aria-label=Configuration]").input_value() == SEARCH


def test_what_is_not_there_is_said(tab: Any, address: str) -> None:
    with contextlib.suppress(AssertionError):
        go(tab, address, "runs")
    tab.evaluate("location.hash = '#/elsewhere'")
    tab.wait_for_selector("[role=alert]")
    assert "no page" in tab.locator("[role=alert]").inner_text()


def lengthen(directory: RunDirectory, root: Path, count: int) -> RunDirectory:
    """A copy of a run of four problems in which each stands many times, as problems of their own."""
    import shutil

    shutil.copytree(directory.root, root)
    made = RunDirectory(root)
    for name in ("problems", "candidates", "costs", "outcomes", "attempts"):
        table, parts = pq.read_table(made.table(name)), []
        for place in range(count):
            rows = table.filter(pc.equal(table["place"], place % 4))
            for column, value in (("place", place), ("problem", f"arithmetic/test/2/{place}")):
                kind = table.schema.field(column).type
                rows = rows.set_column(
                    rows.column_names.index(column), column, pa.array([value] * len(rows), kind)
                )
            parts.append(rows)
        pq.write_table(pa.concat_tables(parts), made.table(name))
    made.save(replace(made.state(), problems=count))
    return made


# ------------------------------------------------------------------------------------------- while it runs


def test_a_page_grows_with_its_run(chromium: Any, runs: Runs, copied: RunDirectory) -> None:
    import asyncio
    import threading

    interrupt(copied, "problem IN ('arithmetic/test/2/1', 'arithmetic/test/2/2')")
    with SQLiteJournal(runs.one.journal, read_only=True) as journal:
        rows = journal.of_problem("arithmetic/test/2/1")
    with (
        SQLiteJournal(copied.journal, seed=0) as writer,
        served(copied.root.parent) as address,
        opened(chromium, reaches=REACHES) as tab,
    ):
        go(tab, address, "run")
        tab.wait_for_selector(".problems a")
        assert tab.locator(".chip.running").count() == 1
        assert "so far" in tab.locator("section[aria-label=Accuracy] h2").inner_text()
        assert tab.locator(".problems a").count() == 2
        assert "2 begun" in tab.locator(".facts").inner_text()
        # A thread of its own: playwright keeps the event loop of this one.
        adding = threading.Thread(target=lambda: asyncio.run(writer.record(rows)))
        adding.start()
        adding.join()
        tab.wait_for_function("() => document.querySelector('.facts').textContent.includes('3 begun')")
        tab.wait_for_function("() => document.querySelectorAll('.problems a').length === 3")


# ------------------------------------------------------------------------------------------ hostile texts


@pytest.fixture(scope="module")
def hostile(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run in which ids, prompts, candidates and recorded answers of a model are markup."""
    import shutil

    root = tmp_path_factory.mktemp("hostile") / "runs" / "one"
    shutil.copytree(runs.one.root, root)
    directory = RunDirectory(root)
    marked_columns = {
        "problems": ["prompt", "reference"],
        "candidates": ["text", "answer", "key"],
        "outcomes": ["text", "answer"],
    }
    for name, columns in marked_columns.items():
        table = pq.read_table(directory.table(name))
        for column in columns:
            marked = pa.array(
                [None if v is None else f"{v}{HOSTILE}" for v in table[column].to_pylist()], pa.string()
            )
            table = table.set_column(table.column_names.index(column), column, marked)
        pq.write_table(table, directory.table(name))
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection, connection:
        for columns in connection.execute("SELECT * FROM rows WHERE kind = 'generate'").fetchall():
            row = Row.of(columns)
            assert row.payload is not None
            changed = replace(
                row, payload={**row.payload, "text": f"{row.payload['text']}{HOSTILE}"}
            ).columns()
            marks = ", ".join("?" * len(changed))
            connection.execute(f"INSERT OR REPLACE INTO rows VALUES ({marks})", changed)
    state = json.loads((root / "state.json").read_text())
    state["failures"] = [
        {
            "problem": FIRST,
            "part": HOSTILE,
            "kind": "E",
            "message": HOSTILE,
            "mendable": False,
            "traceback": "",
        }
    ]
    (root / "state.json").write_text(json.dumps(state))
    return directory


@pytest.mark.parametrize("width", [1400, 390])
def test_texts_of_models_never_run(chromium: Any, hostile: RunDirectory, width: int) -> None:
    with served(hostile.root.parent) as address, opened(chromium, width, reaches=REACHES) as tab:
        for page in ("runs", "run", "tree", "talk", "time"):
            go(tab, address, page)
            tab.wait_for_timeout(200)
            assert tab.evaluate("window.hacked") is None
            assert tab.locator("main img, main style, main script").count() == 0
            wide, inner = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= inner, page
        go(tab, address, "talk")
        tab.wait_for_selector(".talk")
        for place in (".candidates", "pre.ask", ".talk"):
            assert "onerror" in tab.locator(place).first.inner_text(), place


def test_a_run_that_cannot_be_made_again_is_shown_all_the_same(
    chromium: Any, copied: RunDirectory, tmp_path: Path
) -> None:
    text = copied.experiment.read_text().replace("kind: arithmetic", "kind: nobody_has:this")
    copied.experiment.write_text(text)
    with served(copied.root.parent) as address, opened(chromium, reaches=REACHES, missing=True) as tab:
        tab.goto(f"{address}#/{PAGES['tree']}")
        tab.wait_for_selector("table.votes")
        notice = tab.locator(".pane .notice")
        notice.wait_for()
        assert "cannot be shown" in notice.inner_text() and "nobody_has" in notice.inner_text()
