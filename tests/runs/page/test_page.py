"""The page of a run: what stands in it, that nothing in it runs but its script, and how it behaves in Chromium."""

import contextlib
import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.cost import Usage
from metagen.errors import DataError, InputError
from metagen.journal import SQLiteJournal
from metagen.runs.curves.measured import Measured, Results, derive
from metagen.runs.declare import schema
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.page import bought, browser, figure, html_page, report, show
from metagen.runs.page import run_page as page
from metagen.runs.table.problem import Examined, examine
from metagen.runs.work import build, runner, spans, unfinished
from metagen.runs.work.makers import Makers
from tests.chromium import opened, start

TOY = Path(__file__).parents[1] / "toy"
YAML = """\
name: sums
seed: 3
task: {kind: "metagen_toy:ToyTask", count: 9}
generators:
  small: {kind: "metagen_toy:generator", skill: 0.5, name: small}
  large: {kind: "metagen_toy:generator", skill: 0.75, name: large}
verifiers:
  judge: {kind: "metagen_toy:verifier"}
  oracle: {kind: oracle}
strategies:
  single: {kind: sample}
  majority: {kind: majority}
  best-of-n: {kind: best_of_n, verifier: judge}
  weighted: {kind: weighted, verifier: judge}
  pass: {kind: best_of_n, verifier: oracle}
grid: {n: [1, 2, 8]}
"""
HOSTILE = '</script><img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A small run; nobody may change it."""
    root = tmp_path_factory.mktemp("page")
    file = root / "sums.yaml"
    file.write_text(YAML)
    directory = RunDirectory.at(root / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        with build.open_setup(schema.load(file)) as setup:
            runner.run(setup, directory)
    return directory


@pytest.fixture
def copied(finished: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.syspath_prepend(str(TOY))
    shutil.copytree(finished.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


@pytest.fixture(scope="module")
def hostile(finished: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A reported run in which a problem's id, prompts and all candidates of one problem are markup."""
    root = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(finished.root, root)
    directory = RunDirectory(root)
    for name, columns in (("problems", ["problem", "prompt"]), ("candidates", ["problem", "text", "answer"])):
        _rewrite(directory, name, columns)
    for name in ("costs", "outcomes"):
        _rewrite(directory, name, ["problem"])
    report.publish(directory)
    return directory


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A reported run under a budget: every configuration ran by itself."""
    root = tmp_path_factory.mktemp("budgeted")
    file = root / "sums.yaml"
    file.write_text(YAML + "budget: {generated: 150}\n")
    directory = RunDirectory.at(root / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        with build.open_setup(schema.load(file)) as setup:
            runner.run(setup, directory)
    report.publish(directory)
    return directory


def _rewrite(directory: RunDirectory, name: str, columns: list[str]) -> None:
    """Make `columns` of problem sum-0 end in markup."""
    table = pq.read_table(directory.table(name))
    first = [problem == "sum-0" for problem in table["problem"].to_pylist()]
    for column in columns:
        values = zip(table[column].to_pylist(), first, strict=True)
        marked = pa.array([f"{value}{HOSTILE}" if ours else value for value, ours in values], pa.string())
        table = table.set_column(table.column_names.index(column), column, marked)
    pq.write_table(table, directory.table(name))


def examined(directory: RunDirectory) -> list[Examined]:
    return list(examine(directory, directory.state().lines))


def text_of(directory: RunDirectory) -> str:
    return (directory.root / page.NAME).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------- what is in it


def test_the_page_stands_alone(hostile: RunDirectory) -> None:
    text = text_of(hostile)
    assert len(text.encode()) < page.LIMIT
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    # The one script that may run, and its data.
    assert len(re.findall(r"<script", text)) == 2
    assert "<img" not in text


def test_ids_in_the_page_are_unique(hostile: RunDirectory) -> None:
    ids = re.findall(r'\sid="([^"]+)"', text_of(hostile))
    assert len(ids) == len(set(ids))


def test_the_headline_is_a_sentence_with_its_uncertainty(copied: RunDirectory) -> None:
    report.publish(copied)
    headline = re.search(r"<h1>(.*?)</h1>", text_of(copied), re.DOTALL)
    assert headline is not None
    assert re.search(
        r"^large/\S+ solves \d+\.\d% of 9 problems \(95% interval \d+⁠–⁠\d+%\), the most of \d+", headline[1]
    )
    assert "pass@8" not in headline[1]  # the oracle is no method


def test_filters_mean_what_they_say(finished: RunDirectory) -> None:
    counts = browser.counts(examined(finished))
    for problem in examined(finished):
        for pool in problem.pools:
            marks = browser.marks(pool)
            assert ("never" in marks) == (pool.right == 0)
            assert not {"voting", "verifier"} <= set(marks)
            if "voting" in marks:
                assert pool.voted and pool.right <= pool.size / 2
            if "lost" in marks:
                assert any(not c.correct for c in pool.choices if c.line.verifier == "judge")
    assert all(0 <= count <= 9 for count in counts.values())
    assert counts["lost"] > 0


def test_what_does_not_fit_is_left_out_and_said(finished: RunDirectory) -> None:
    problems = examined(finished)
    whole = browser.embed(problems, [None] * len(problems), ["small", "large"], 10**7)
    assert whole.kept is None and whole.problems == 9
    less = browser.embed(problems, [None] * len(problems), ["small", "large"], len(whole.data) - 1)
    assert less.kept is not None and len(less.data) < len(whole.data)
    least = browser.embed(problems, [None] * len(problems), ["small", "large"], 1500)
    assert least.kept == 1 and 0 < least.problems < 9 and len(least.data) <= 1500


def test_a_page_of_too_many_configurations_says_what_it_leaves_out(
    copied: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = derive(copied, copied.state().lines)
    # The page is written eight times, of the same figures.
    drawn = {plot.name: figure.draw_figure(plot) for plot in figure.plots(results)}
    answered = bought.answer(results.configurations)
    monkeypatch.setattr(figure, "draw_figure", lambda plot: drawn[plot.name])
    monkeypatch.setattr(bought, "answer", lambda measured: answered)

    def written() -> str:
        page.write(copied, copied, copied.state(), results)
        return text_of(copied)

    def without_data(text: str) -> int:
        found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
        assert found is not None
        return len(text.encode()) - len(found[1])

    monkeypatch.setattr(html_page, "SPARE", 0)
    stages, limits = page.LEFT_OUT, []
    for stage in stages:
        with monkeypatch.context() as patch:
            patch.setattr(page, "LEFT_OUT", (stage,))
            limits.append(without_data(written()) + 300)
    assert limits == sorted(limits, reverse=True)
    for missing, limit in enumerate(limits):
        monkeypatch.setattr(html_page, "LIMIT", limit)
        less = written()
        assert len(less.encode()) <= limit
        assert [f"{what}" in less for what in stages[-1]] == [i < missing for i in range(3)]
        shown = ("The same as a table" in less, "<figure>" in less, 'id="accuracies"' in less)
        assert shown == (missing < 1, missing < 2, missing < 3)
        assert ("configurations.csv" in less) == (missing > 0)
    monkeypatch.setattr(html_page, "LIMIT", limits[-1] - 1000)
    with pytest.raises(DataError, match="even without figures and tables"):
        written()


def test_many_problems_are_left_out_from_the_end(finished: RunDirectory) -> None:
    draw = random.Random(0)
    problems = [replace(p, prompt=draw.randbytes(300).hex()) for p in examined(finished) * 40]
    trees: list[Any] = [None] * len(problems)
    with browser.Pieces(["small", "large"], len(problems), 1) as pieces:
        for number in draw.sample(range(len(problems)), len(problems)):
            pieces.add(number, problems[number], None)
        one = pieces.embed(10**7)
    assert (one.kept, one.problems) == (1, len(problems))
    less = browser.embed(problems, trees, ["small", "large"], len(one.data) // 3)
    assert less.kept == 1 and len(less.data) <= len(one.data) // 3
    assert 40 < less.problems < 300
    assert browser.embed(problems, trees, ["small", "large"], 10).problems == 0


def test_span_trees_add_up_and_name_who_answered(finished: RunDirectory) -> None:
    problems = examined(finished)
    with SQLiteJournal(finished.journal, read_only=True) as journal:
        trees = list(spans.trees(journal, [p.problem for p in problems], Makers.of_run(finished)))
        rows = journal.of_problem("sum-0")
    assert trees[0].usage.generated == sum(row.usage.generated or 0 for row in rows)
    leaves = {leaf.label: leaf for leaf in trees[0].leaves()}
    assert leaves["generate: small"].count == 8
    assert leaves["generate: large"].count == 8
    assert "score: judge" in leaves
    assert sum(leaf.count for leaf in leaves.values()) == len(rows)


def test_what_was_wasted_is_told_as_far_as_it_is_known() -> None:
    def parts(leaves: list[spans.Span]) -> list[spans.Spender]:
        spending = spans.Spending()
        spending.add(0, leaves)
        return spending.parts

    def leaf(used: int, real: int | None) -> spans.Span:
        return spans.Span(
            "generate: g", 1, "complete", Usage(prefilled=used), Usage(prefilled=real, generated=0)
        )

    (known,) = parts([leaf(10, 12), leaf(10, 11)])
    assert (known.wasted, known.partly, known.usage.prefilled) == (3, False, 20)
    (partly,) = parts([leaf(10, 12), leaf(10, None)])
    assert (partly.wasted, partly.partly, partly.usage.prefilled) == (2, True, 20)
    (unknown,) = parts([leaf(10, None)])
    assert unknown.wasted is None
    # Samples that begin alike were computed once: that hides no prompt which was read twice.
    usage, real = Usage(prefilled=10, generated=100), Usage(prefilled=20, generated=30)
    (shared,) = parts([spans.Span("generate: g", 1, "complete", usage, real)])
    assert shared.wasted == 10
    (made,) = parts([leaf(10, 12), spans.Span("generate: g", 7, "refused", Usage(), Usage())])
    assert made.records == 1, "what was refused made nothing"


def test_every_cost_has_its_figure_when_it_is_known() -> None:
    def measured(n: int, flops: float | None) -> Measured:
        cell = Cell(f"g/vote@{n}", "g", "vote", "majority", n, pooled=True)
        return Measured(
            cell, 0.4, 0.3, 0.6, 0.0, 0.07, 50, 10.0, 10.0 * n, 10.0 * n + 10, flops, None, 0.0, 0.0, 1.0
        )

    grid = (measured(1, 1e6), measured(8, 8e6))
    found = {plot.name: figure.draw_figure(plot) for plot in figure.plots(Results(grid, ()))}
    assert list(found) == ["samples", "tokens", "flops"]
    assert found["flops"].table.rows[1] == ("vote", "g", "8M", "40.0%", "30–60")
    assert "var(--series-0" in found["samples"].panels["g"]
    without = figure.plots(Results(tuple(replace(m, flops=None) for m in grid), ()))
    assert [f.name for f in without] == ["samples", "tokens"]


# --------------------------------------------------------------------------------------- runs without an end


def test_a_run_without_an_end_reports_what_is_there(
    copied: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {p.problem: p for p in examined(copied)}
    _interrupt(copied, forget="sum-2")
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "calls.log"))
    before = copied.journal.read_bytes()
    console = Console(file=StringIO(), width=110)
    console.print(report.publish(copied))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Incomplete (running)" in said and "all from the journal" not in said
    assert "1 of 9 problems lack a part of their results" in re.sub(r"\s+", " ", text_of(copied))
    assert "<h3>Tokens</h3>" in text_of(copied) and "<h3>FLOPs</h3>" not in text_of(
        copied
    )  # which nobody knows
    assert not (tmp_path / "calls.log").exists()  # nothing was generated
    assert copied.journal.read_bytes() == before
    assert not copied.table("candidates").exists()
    with unfinished.tables(copied) as (found, state):
        again = {p.problem: p for p in examine(found, state.lines)}
    assert not again["sum-2"].pools
    assert again["sum-1"].pools == whole["sum-1"].pools


def test_what_was_not_reached_is_no_failure(copied: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    _interrupt(copied, forget="sum-2")
    with caplog.at_level("INFO", logger="metagen"), unfinished.tables(copied) as (_, state):
        assert state.failures == ()
    assert caplog.messages == []


def test_a_problem_of_a_run_without_an_end_is_shown_if_it_is_finished(copied: RunDirectory) -> None:
    def shown(problem: str, **options: Any) -> str:
        console = Console(file=StringIO(), width=110)
        console.print(show.show(copied, problem, **options))
        return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]

    whole = shown("sum-1")
    _interrupt(copied, forget="sum-2")
    said = shown("sum-1")
    notice = said[said.index("What the run has finished so far (running)") :]
    assert "metagen resume" in notice
    assert notice[notice.index("small:") :] == whole[whole.index("small:") :]
    with pytest.raises(InputError, match=r"nothing on problem 'sum-2' yet.*metagen resume"):
        shown("sum-2")
    with pytest.raises(InputError, match=r"no problem 'sum-99'; did you mean 'sum-"):
        shown("sum-99")


def test_a_part_of_a_problem_is_shown_while_the_other_is_missing(copied: RunDirectory) -> None:
    with SQLiteJournal(copied.journal, read_only=True) as journal:
        large = {row.by for row in journal.of_problem("sum-1") if row.kind == "generate"}
    with contextlib.closing(sqlite3.connect(copied.journal)) as connection, connection:
        connection.execute("DELETE FROM rows WHERE problem = 'sum-1' AND maker = ?", [sorted(large)[0]])
    _interrupt(copied, forget="sum-2")
    console = Console(file=StringIO(), width=110)
    console.print(show.show(copied, "sum-1"))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count(": nothing is finished") == 1
    assert len(re.findall(r"(small|large): \d of 8 right", said)) == 1


def test_a_run_that_finished_nothing_is_an_error(copied: RunDirectory) -> None:
    _interrupt(copied, forget="%")
    with pytest.raises(InputError, match=r"has not finished any part of its work.*metagen resume"):
        report.publish(copied)


def _interrupt(directory: RunDirectory, forget: str) -> None:
    """As if the run had been killed before it came to these problems."""
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection, connection:
        connection.execute("DELETE FROM rows WHERE problem LIKE ?", [forget])
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    directory.save(replace(directory.state(), status="running"))
    directory.discard()


# ------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def chromium(hostile: RunDirectory, budgeted: RunDirectory) -> Iterator[Any]:
    """Started after the runs are made: its driver keeps an event loop, and a run needs one of its own."""
    with start() as started:
        yield started


@pytest.fixture
def tab(chromium: Any, hostile: RunDirectory) -> Iterator[Any]:
    """The page, ready; whatever reaches the console or the network fails the test."""
    with opened(chromium) as made:
        made.goto((hostile.root / page.NAME).as_uri())
        made.wait_for_selector("html[data-ready]")
        yield made


def test_figures_are_drawn(tab: Any) -> None:
    drawn = tab.locator(".panel svg").evaluate_all(
        "all => all.map(s => [s.getBoundingClientRect().width, s.querySelectorAll('path').length,"
        " s.getAttribute('aria-label').length])"
    )
    assert len(drawn) == 6  # two generators, against samples, tokens and by level
    assert all(width > 300 and paths > 10 and said > 20 for width, paths, said in drawn)
    assert tab.locator("figure ~ details table tbody tr").count() > 20


def test_a_problem_opens_and_has_its_link(tab: Any) -> None:
    tab.locator("#list a", has_text="sum-4").click()
    tab.locator("#problem h3", has_text="sum-4").wait_for()
    assert tab.url.endswith("#problem=sum-4")
    said = tab.locator("#problem").inner_text()
    for words in (
        "The vote",
        "What each strategy chose",
        "distinct candidate",
        "What was spent, and where",
        "majority@8",
    ):
        assert words in said
    assert tab.locator("#problem .steps .value").count() > 0
    assert tab.locator("#problem .spans li").count() > 3
    assert tab.locator("#list a[aria-current]").inner_text().strip() == "sum-4"
    tab.go_back()
    tab.reload()


def test_by_keyboard_alone(tab: Any) -> None:
    tab.locator("#list a", has_text="sum-5").focus()
    tab.keyboard.press("Enter")
    tab.locator("#problem h3", has_text="sum-5").wait_for()
    tab.locator("#problem:focus").wait_for()
    tab.locator("input[name=filter]").first.focus()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("input[name=filter]:checked").get_attribute("value") == "voting"


def test_a_filter_filters(tab: Any, hostile: RunDirectory) -> None:
    counts = browser.counts(examined(hostile))
    for name, count in counts.items():
        tab.locator(f"input[name=filter][value={name}]").check()
        assert tab.locator("#list a").count() == count
    tab.locator("input[name=filter][value='']").check()
    tab.locator("input[type=search]").fill("sum-7")
    assert tab.locator("#list a").count() == 1
    assert tab.locator("#found").inner_text() == "1 problem"


def test_counts_of_filters_follow_what_is_chosen(tab: Any) -> None:
    def counts() -> dict[str, int]:
        labels = tab.locator("#filters label:has(input[type=radio])").all()
        return {
            label.locator("input").get_attribute("value"): int(label.locator(".count").inner_text())
            for label in labels
        }

    whole = counts()
    tab.locator("select[name=level]").select_option("2")
    tab.locator("select[name=generator]").select_option("small")
    for name, count in counts().items():
        tab.locator(f"input[name=filter][value='{name}']").check()
        assert tab.locator("#list a").count() == count
    assert counts()[""] == 3
    tab.locator("select[name=level]").select_option("")
    tab.locator("select[name=generator]").select_option("")
    assert counts() == whole


def test_what_ran_by_itself_has_candidates_too(chromium: Any, budgeted: RunDirectory) -> None:
    counts = browser.counts(examined(budgeted))
    assert counts["lost"] > 0
    opened = chromium.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(60_000)
    opened.goto((budgeted.root / page.NAME).as_uri())
    opened.wait_for_selector("html[data-ready]")
    for name, count in counts.items():
        opened.locator(f"input[name=filter][value={name}]").check()
        assert opened.locator("#list a").count() == count
    opened.locator("input[name=filter][value=lost]").check()
    opened.locator("#list a").first.click()
    said = opened.locator("#problem").inner_text()
    for words in (
        "small/best-of-n@8",
        "The vote",
        "chosen by best-of-n@8",
        "tokens",
        "steps scored by judge",
    ):
        assert words in said
    assert opened.locator("#problem .steps .value").count() > 0
    assert opened.locator("main .notice[role=note]").count() == 0
    opened.close()


def test_markup_of_models_and_data_is_text(tab: Any) -> None:
    tab.locator("#list a", has_text="sum-0").click()
    tab.locator("#problem h3", has_text="sum-0").wait_for()
    assert tab.locator("#problem h3").inner_text() == "sum-0" + HOSTILE
    assert HOSTILE in tab.locator("#problem .candidates").first.inner_text()
    assert HOSTILE in tab.locator("#problem pre").inner_text()
    assert tab.locator("img").count() == 0
    assert tab.evaluate("window.hacked") is None
    tab.reload()  # the link of such a problem leads back to it
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator("#problem h3").inner_text() == "sum-0" + HOSTILE


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_runs_over_the_screen(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


#: Contrast (WCAG 2.2, 1.4.3) of every visible piece of text with what lies behind it: [ratio, needed, text].
CONTRAST = """
() => {
  const parse = (colour) => [...colour.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = c.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, words = walker.currentNode.data.trim();
    if (!words || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(node.tagName)) continue;
    if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(node), ground = behind(node);
    const ink = over(parse(node.ownerSVGElement ? style.fill : style.color), ground);
    const [high, low] = [light(ink), light(ground)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.push([(high + 0.05) / (low + 0.05), large ? 3 : 4.5, words.slice(0, 40)]);
  }
  return found;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_all_text_can_be_read(tab: Any, scheme: str) -> None:
    if scheme == "print":
        tab.emulate_media(media="print", color_scheme="dark")  # paper is white on a dark screen, too
    else:
        tab.emulate_media(color_scheme=scheme)
    tab.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    found = tab.evaluate(CONTRAST)
    assert len(found) > 300
    assert [one for one in found if one[0] < one[1]] == []


def test_the_measure_of_contrast_finds_faint_text(tab: Any) -> None:
    tab.locator(".facts").evaluate("e => { e.style.color = 'rgb(150 150 150)'; }")
    tab.locator("h2").first.evaluate("e => { e.style.background = 'black'; }")
    found = {words: ratio for ratio, needed, words in tab.evaluate(CONTRAST) if ratio < needed}
    assert len(found) == 2
    assert found["Accuracy against samples"] < 1.5


@pytest.mark.parametrize("media", ["screen", "print"])
def test_colours_of_lines_and_marks_stand_out(tab: Any, media: str) -> None:
    """3 to 1 against the paper (WCAG 2.2, 1.4.11), in light and dark."""
    for scheme in ("light", "dark"):
        tab.emulate_media(media=media, color_scheme=scheme)
        names = ["accent", "right", "wrong", "focus", *(f"series-{i}" for i in range(7))]
        faint = tab.evaluate(
            """(names) => {
              const light = (name) => {
                const hex = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim().slice(1);
                const full = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
                const [r, g, b] = [0, 2, 4].map((i) => parseInt(full.slice(i, i + 2), 16) / 255)
                  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
              };
              const ratio = (a, b) => Math.max(a, b) / Math.min(a, b);
              return names.filter((name) => !(ratio(light(name), light("paper")) >= 3));
            }""",
            names,
        )
        assert faint == []


def test_the_data_are_named(tab: Any, hostile: RunDirectory) -> None:
    with SQLiteJournal(hostile.journal, read_only=True) as journal:
        assert f"digest {journal.data().hex()[:12]} of " in tab.locator("#reproduce .versions").inner_text()


def test_on_paper_what_is_open_is_there_and_nothing_is_cut(tab: Any) -> None:
    tab.locator("#figure-samples details").evaluate("d => { d.open = true; }")
    tab.emulate_media(media="print")
    assert tab.locator("#figure-samples details table").is_visible()
    assert tab.locator("#figure-samples summary").is_visible()
    assert not tab.locator("#figure-tokens details").is_visible()
    assert tab.locator("#reproduce details pre").evaluate("e => e.checkVisibility()")
    assert tab.locator("#reproduce details pre").evaluate("e => e.getBoundingClientRect().height") > 100
    for gone in ("nav", "form", ".list"):
        assert not tab.locator(gone).is_visible()
    cut = tab.locator(".wide, pre").evaluate_all(
        "all => all.filter(e => e.checkVisibility() && getComputedStyle(e).overflowX !== 'visible').length"
    )
    assert cut == 0


def test_headings_are_in_order_and_controls_have_names(tab: Any) -> None:
    levels = tab.locator("h1,h2,h3,h4,h5").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(below <= above + 1 for above, below in pairwise(levels))
    unnamed = tab.locator("input, select").evaluate_all("all => all.filter(e => !e.labels.length).length")
    assert unnamed == 0
