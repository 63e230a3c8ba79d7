"""The report of a study: what stands in it, that nothing in it runs but its scripts, and how it behaves in Chromium."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from metagen.analysis import study_figures
from metagen.analysis.figures import looks
from metagen.cli import app
from metagen.errors import DataError, InputError
from metagen.runs.curves.study import Curve, Model, StudyResult
from metagen.runs.declare import schema
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.page import chosen, draw, files, html_page, markdown, measured
from metagen.runs.page import study_page as page
from metagen.runs.page.answer import answer
from metagen.runs.page.files import WRITTEN
from metagen.runs.page.headline import headline
from metagen.runs.page.workers import Workers
from metagen.runs.questions import frontier
from metagen.runs.questions.section import Finding, Heat, Section
from metagen.runs.table.problem import Examined, Examiner, Pool
from metagen.runs.work import build, runner
from tests.chromium import opened, start
from tests.runs.conftest import STUDY as WHOLE
from tests.runs.made import made
from tests.runs.page.test_page import CONTRAST, TOY
from tests.runs.sections import HOSTILE, every, plots

YAML = """\
name: sums
seed: 3
task: {kind: "metagen_toy:ToyTask", count: 9}
generators:
  small: {kind: "metagen_toy:generator", skill: 0.5, name: small}
  large: {kind: "metagen_toy:generator", skill: 0.75, name: large}
verifiers:
  judge: {kind: "metagen_toy:verifier"}
strategies:
  single: {kind: sample}
  majority: {kind: majority}
  best-of-n: {kind: best_of_n, verifier: judge}
grid: {n: [1, 2, 8]}
"""
#: A study with all roles, in which one strategy is tuned.
STUDY = WHOLE.replace("      best: [{}, {verifier: weak}]\n      soft: [{}, {beta: 1.0}]\n", "")


def little(problems: int = 12, samples: int = 2) -> StudyResult:
    """Two strategies of two models, and few costs: quickly drawn."""
    whole = made(problems, samples)
    curves = tuple(
        replace(c, costs={name: c.costs[name] for name in ("samples", "tokens", "flops")})
        for c in whole.curves
        if c.strategy in ("majority", "weighted")
    )
    return replace(whole, curves=curves)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a toy; nobody may change it."""
    root = tmp_path_factory.mktemp("study")
    file = root / "sums.yaml"
    file.write_text(YAML)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        with build.open_setup(schema.load(file)) as setup:
            runner.run(setup, RunDirectory.at(root / "run"))
    return root / "run"


@pytest.fixture(scope="module")
def published(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of hostile names, with a run for its chosen problems."""
    root = tmp_path_factory.mktemp("published")
    shutil.copytree(run, root / "test")
    (root / "study.yaml").write_text(f"name: made  # {HOSTILE}\n")
    page.publish(root, little(24, 8), every(HOSTILE))
    return root


class _Tables(HTMLParser):
    """The texts of all tables, by the label of their region."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.label, self.cell = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and given.get("role") == "region":
            self.label = given["aria-label"] or ""
            self.found[self.label] = []
        if tag == "tr":
            self.found[self.label].append([])
        if tag in ("td", "th"):
            self.found[self.label][-1].append("")
        self.cell = self.cell or tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        self.cell = self.cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.found[self.label][-1][-1] += data


def text_of(root: Path) -> str:
    return (root / html_page.NAME).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------- what it claims


def _tuning(result: StudyResult) -> str:
    said = {measured.tuning(result)}
    assert said == {page._methods(result)[-2].partition("frozen. ")[2]}
    assert measured.tuning_section(result).text.endswith(*said)
    return said.pop()


def test_tuning_is_called_fair_only_where_it_is() -> None:
    whole = made(12, 4)
    alone = replace(whole, curves=tuple(c for c in whole.curves if c.strategy in ("rebase", "pass")))
    assert _tuning(alone) == "Every strategy with knobs tried as many: 2."
    said = _tuning(whole)
    assert "rebase tried 2 settings" in said and "Every" not in said
    assert "majority, weighted and best were not tuned, and ran as written" in said
    one, two = whole.tuned
    fewer = replace(two, settings={"temperature=0.1": 0.5}, strategy="best")
    said = _tuning(replace(alone, tuned=(one, replace(two), fewer)))
    assert "rebase tried 2 settings; best tried 1 setting" in said


def test_every_frontier_has_a_title_of_its_own() -> None:
    found = frontier.section(little())
    text = "\n".join(markdown._section(found, False))
    heads = re.findall(r"(?m)^### (Frontier.*|Strategies.*)$", text)
    alts = re.findall(r"!\[(.*?)\]\(", text)
    assert len(heads) == len(set(heads)) > 4 and set(heads) <= set(alts) and len(alts) == len(set(alts))
    assert "Frontier: error, against FLOPs per problem" in heads
    plot = next(p for p in found.pictures if p.name == "frontier-flops")
    (svg,) = draw.draw_plot(plot).panels.values()
    assert svg.count("Frontier: accuracy, against FLOPs per problem, any strategy") >= 1


@pytest.mark.parametrize(("problems", "said"), [(5, False), (12, True)])
def test_captions_promise_bands_only_where_they_are_drawn(problems: int, said: bool) -> None:
    result = little(problems)
    shown = [*measured.curves(result).pictures, *frontier.section(result).pictures]
    captions = [p.caption for p in shown if not isinstance(p, Heat)]
    assert captions and all(("Bands" in caption) == said for caption in captions)


def test_what_has_no_price_is_not_free() -> None:
    free = tuple(replace(c, costs={**c.costs, "money": np.zeros_like(c.accuracy)}) for c in little().curves)
    none = list(csv.DictReader(measured.tidy(replace(little(), curves=free)).splitlines()))
    assert {row["money"] for row in none} == {""}
    paid = replace(free[0], costs={**free[0].costs, "money": np.ones_like(free[0].accuracy)})
    some = list(csv.DictReader(measured.tidy(replace(little(), curves=(paid, *free[1:]))).splitlines()))
    assert {row["money"] for row in some} == {"0", "1"}


# ------------------------------------------------------------------------------------------- what is in it


def test_the_page_stands_alone(published: Path) -> None:
    text = text_of(published)
    assert len(text.encode()) < html_page.LIMIT
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert len(re.findall(r"<script", text)) == 3  # two that run, and data
    assert len(re.findall(r"'sha256-", text)) == 2
    assert "<img" not in text


def test_ids_are_unique_and_references_lead_somewhere(published: Path) -> None:
    text = text_of(published)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'(?:url\(|href="|aria-labelledby="#?)#?([\w.-]+)', text)) - {"data"}
    assert {name for name in named if not name.startswith("problem")} <= set(ids)


def test_every_figure_has_a_title_and_its_numbers(published: Path) -> None:
    text = text_of(published)
    pictures = re.findall(r'<div class="panel">.*?(<svg.*?</svg>)', text, re.DOTALL)
    assert len(pictures) > 10
    assert all(
        re.match(r"<svg[^>]*aria-label=\"[^\"]{10,}[^>]*><title>[^<]+</title>", svg) for svg in pictures
    )
    assert text.count("<figure>") == text.count("The same as a table")


def test_sections_stand_in_the_order_of_a_report_and_empty_ones_are_gone(published: Path) -> None:
    named = re.findall(r'<section id="section-([^"]+)"', text_of(published))
    assert named == ["answers", "frontier", "curves", "breakdown", "tuned", "notes"]
    given = [
        Section(n, n, notes=made(8, 2).notes) for n in ("notes", "own", "splitting", "after", "frontier")
    ]
    assert [s.name for s in page.arrange(given)] == ["frontier", "splitting", "after", "own", "notes"]
    assert page.arrange([Section("empty", "Empty")]) == []


def test_any_subset_of_sections_can_be_published(tmp_path: Path) -> None:
    result = replace(little(), curves=little().curves[:1], tuned=(), notes=())
    for i, section in enumerate([None, *every()]):
        page.publish(tmp_path / str(i), result, [section] if section else [])
        assert "<h1>" in text_of(tmp_path / str(i))
        assert "Chosen problems" not in text_of(tmp_path / str(i))
    oracles = replace(result, curves=tuple(c for c in made(12, 2).curves if c.oracle))
    assert "nothing can be recommended" in headline(oracles)[0]


def test_the_headline_names_a_configuration_an_interval_and_one_sample() -> None:
    first, *more = headline(replace(made(), budgets={"flops": (1e8, 1e9, 2e9)}))
    assert re.match(
        r"For 1G FLOPs a problem, run large/\S+@\d+: expect \d+\.\d% to be right, 95% interval \d", first
    )
    assert "One sample of the same model is right on" in more[0] and "points" in more[0]
    assert "times what one sample does" in more[1]
    few = headline(made(1, 4))
    assert "interval" not in few[0]


def _first(curve: Curve) -> Curve:
    """The curve with its first point alone."""
    costs = {name: values[:1] for name, values in curve.costs.items()}
    return replace(
        curve, ns=curve.ns[:1], accuracy=curve.accuracy[:1], error=curve.error[:1], costs=costs,
        verification=curve.verification[:1],
    )  # fmt: skip


def test_the_headline_names_settings_and_compares_nothing_with_itself() -> None:
    tuned = replace(made(), budgets={"flops": (1e9,)})
    every = tuple(replace(c, setting="temperature=0.2") for c in tuned.curves if c.strategy == "rebase")
    pool = tuple(c for c in tuned.curves if c.strategy == "majority")
    ones = tuple(_first(c) for c in pool)
    first, second, *_ = headline(replace(tuned, curves=(*every, *ones)))
    assert re.search(r"run large/rebase@\d+ \(temperature=0.2\): expect", first)
    assert second.startswith("One sample of the same model (as written) is right")
    alone = next(c for c in ones if c.model == "large")
    dearer = {k: 2 * v for k, v in alone.costs.items()}
    drawn = replace(alone, strategy="single", kind="sample", costs=dearer)
    assert len(headline(replace(tuned, curves=(alone, drawn)))) == 1


def test_what_is_no_difference_is_called_not_shown() -> None:
    tuned = replace(made(), budgets={"flops": (1e9,)})
    pool = _first(tuned.curve("large", "majority"))
    costs = {k: (1 + 1e-4) * v for k, v in pool.costs.items()}
    drawn = replace(pool, strategy="single", kind="sample", costs=costs)
    better = replace(pool, strategy="other", accuracy=np.minimum(pool.accuracy + 1e-6, 1.0))
    said = " ".join(headline(replace(tuned, curves=(drawn, better))))
    assert (
        "other@1" in said
        and "a difference of +0.0 [" in said
        and "points, not shown to differ from 0" in said
    )
    assert "as much as one sample does" in said and "−0.0" not in said


def test_few_problems_claim_no_cross_fitting(tmp_path: Path) -> None:
    for count, cross in ((5, False), (60, True)):
        page.publish(tmp_path / str(count), little(count, 4), [])
        text = (tmp_path / str(count) / page.MARKDOWN).read_text()
        assert ("problems that had no part in the choice" in text) == cross
        assert ("of the choice; expect less on others" in text) == (not cross)


def test_the_headline_claims_no_gain_that_is_luck() -> None:
    """Thirty-six configurations that are all as good as one sample; the best of them seems ten points better.

    Of twelve such studies each claims a gain with probability 0.025, more than two with 0.003; two standard errors of
    the mean difference are four points.
    """
    rng, claims, differences = np.random.default_rng(0), 0, []
    for _ in range(12):
        skill = rng.beta(2, 2, 80)
        curves = []
        for i in range(13):
            ns = np.array([4, 16, 64] if i else [1])
            right = (rng.random((len(ns), 80)) < skill).astype(float)
            costs = {"flops": np.repeat(ns[:, None] * (1 + i / 50), 80, axis=1)}
            name, kind = (f"s{i}", "rebase") if i else ("single", "sample")
            zero = np.zeros_like(right)
            curves.append(Curve("m", name, kind, ns, right, zero, costs, zero, source="run"))
        ids = tuple(map(str, range(80)))
        study = StudyResult("luck", 0, ids, np.full(80, -1), (Model("m"),), tuple(curves))
        said = headline(replace(study, budgets={"flops": (100.0,)}))
        stated = re.search(r"One sample of the same model .* difference of (\S+)", said[1])
        assert stated is not None
        differences.append(float(stated[1].replace("−", "-")))
        claims += "not shown to differ" not in said[1]
    assert claims <= 2 and abs(np.mean(differences)) < 4


def test_comparisons_beside_the_one_that_answers_are_a_list(tmp_path: Path) -> None:
    lines = tuple(f"at {i}: <b> +{i} points" for i in range(3))
    found = Finding("Does it pay?", "Yes.", details=lines, claim="It does.")
    page.publish(tmp_path, replace(little(), curves=()), [Section("answers", "Answers", findings=(found,))])
    text = text_of(tmp_path)
    listed = "".join(f"<li>at {i}: &lt;b&gt; +{i} points</li>" for i in range(3))
    assert f"one by one (3)</summary>\n<ul>{listed}</ul>" in text
    written = (tmp_path / page.MARKDOWN).read_text(encoding="utf-8")
    assert "Yes.\n\n- at 0: \\<b\\> +0 points\n- at 1" in written
    assert json.loads((tmp_path / page.FINDINGS).read_text())[0]["details"] == list(lines)


def test_what_is_no_longer_part_of_a_report_is_removed(tmp_path: Path) -> None:
    result, (_, answers) = replace(little(), curves=()), every()
    own = tmp_path / "figures" / "own.svg"
    page.publish(tmp_path, result, [Section("a", "A", pictures=plots()[3:4]), answers], papers=True)
    own.write_text("a reader's")
    outside = tmp_path / "curves.csv"
    with (tmp_path / WRITTEN).open("a") as record:
        record.write("curves.csv\nfigures/../curves.csv\n")
    assert (tmp_path / "figures" / "reward.pdf").exists() and (
        tmp_path / "tables" / "figure-reward.csv"
    ).exists()
    page.publish(tmp_path, result, [answers])
    assert [f.name for f in (tmp_path / "figures").iterdir()] == ["own.svg"] and outside.exists()
    left = {f"tables/{f.name}" for f in (tmp_path / "tables").iterdir()}
    assert "tables/findings-answers.csv" in left and "tables/figure-reward.csv" not in left
    assert set((tmp_path / WRITTEN).read_text().split()) == left


def test_equal_data_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        page.publish(tmp_path / name, replace(little(), curves=()), every()[:1], papers=True)
    written = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len([f for f in written if f.suffix == ".pdf"]) == 5
    for file in written:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_markdown_has_the_tables_of_the_page(published: Path) -> None:
    text = (published / page.MARKDOWN).read_text(encoding="utf-8")
    shown = _Tables(text_of(published)).found
    cut = re.compile(r"(?<!\\)\|")
    written = [
        [
            [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cut.split(row)[1:-1]]
            for row in block.splitlines()
        ]
        for block in text.split("\n\n")
        if block.startswith("|")
    ]
    assert len(written) >= 4
    known = [[[" ".join(c.split()) for c in row] for row in table] for table in shown.values()]
    for head, _, *rows in written:
        assert [head, *rows] in known
    assert all((published / file).is_file() for file in re.findall(r"\]\((figures[^)]+|tables[^)]+)\)", text))


def test_what_is_hostile_is_text_in_markdown(published: Path) -> None:
    text = (published / page.MARKDOWN).read_text(encoding="utf-8")
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "onerror" in outside and not re.search(r"(?<!\\)<", outside)
    assert markdown.escape("a|b\n<c> [d](e) `f`") == r"a\|b \<c\> \[d\](e) \`f\`"


def test_curves_are_tidy(tmp_path: Path) -> None:
    result = made(20, 4)
    rows = list(csv.DictReader(measured.tidy(result).splitlines()))
    assert len(rows) == sum(len(c.ns) for c in result.curves)
    one = next(r for r in rows if (r["model"], r["strategy"], r["n"]) == ("large", "majority", "2"))
    curve = result.curve("large", "majority")
    assert float(one["accuracy"]) == pytest.approx(curve.accuracy[1].mean(), rel=1e-6)
    assert float(one["flops"]) == pytest.approx(curve.cost("flops")[1], rel=1e-6)
    assert float(one["low"]) < float(one["accuracy"]) < float(one["high"])
    assert one["money"] == ""  # unknown is no number


def test_what_problems_lack_is_left_out_of_means() -> None:
    result = made(20, 4)
    curve = result.curve("small", "majority")
    accuracy = curve.accuracy.copy()
    accuracy[2, :15] = np.nan
    missing = replace(result, curves=(replace(curve, accuracy=accuracy),))
    rows = measured.rows(missing)
    assert [row.problems for row in rows] == [20, 20, 5]
    assert rows[2].accuracy == pytest.approx(curve.accuracy[2, 15:].mean())
    assert np.isnan(rows[2].low)  # of five problems there is no interval
    assert np.isfinite(rows[1].low)


def test_findings_are_kept_for_programs(published: Path) -> None:
    found = json.loads((published / page.FINDINGS).read_text(encoding="utf-8"))
    assert [f["section"] for f in found] == ["answers", "answers"]
    assert found[0]["estimate"] == 3.9 and found[1]["estimate"] is None and found[1]["shown"] is False


def test_numbers_of_a_picture_are_all_its_points() -> None:
    accuracy, _, errors, reward, nothing = plots()
    assert len(draw.numbers(accuracy).rows) == 12
    assert draw.numbers(accuracy).rows[0] == ("majority", "small", "10M", "30.0%", "25.0–35.0")
    assert ("", "limit (hollow)", "∞", "2.0%") in draw.numbers(errors).rows
    assert ("proxy", "best of n", "1", "–") in draw.numbers(reward).rows
    assert "2 points lie outside these axes" in draw.draw_plot(errors).caption
    assert not draw.drawable(nothing)


def test_the_figure_of_winners_names_them(published: Path) -> None:
    tuned = {"majority": "as written", "best": "verifier=prm, temperature=0.2"}
    whole = made(24, 8)
    curves = tuple(replace(c, setting=tuned.get(c.strategy, c.setting)) for c in whole.curves)
    result = replace(whole, curves=curves)
    best = draw.best(result)
    assert best is not None
    figure = draw.whole(best)
    names = {t.get_text() for axes in figure.axes for t in axes.texts}
    (table,) = (one for one in frontier.section(result).tables if one.name == "frontier")
    won = [row for row in table.rows if row[4] == "yes"]
    assert {name if set == "as written" else f"{name} ({set})" for name, set, *_ in won} <= names
    assert {"small/majority@4", "large/best@4 (verifier=prm, temperature=0.2)"} <= names
    assert (published / "figures" / "best.svg").exists()
    assert draw.best(replace(made(8, 2), curves=())) is None


@pytest.mark.parametrize("beside", [True, False])
def test_pictures_are_drawn_while_later_sections_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Those of the curves first, for the page and for a file, none twice; by one process, all of them last."""

    class Here(Workers):
        beside = True

    drawn: list[str] = []
    for name in ("draw_plot", "whole"):
        real = getattr(draw, name)
        monkeypatch.setattr(
            draw, name, lambda one, real=real: (drawn.append(getattr(one, "name", "")), real(one))[1]
        )

    def sections() -> Iterator[Section]:
        assert ("accuracy-flops" in drawn) == beside and "by-flops" not in drawn
        yield Section("first", "First", pictures=plots()[:1])
        assert drawn.count("by-flops") == 2 * beside and "by-tokens" not in drawn
        # A picture whose name is taken gets another; what was drawn in its old name is not shown.
        yield Section("second", "Second", pictures=(replace(plots()[1], name="by-flops"), plots()[1]))

    result = little()
    costly = tuple(replace(c, costs={**c.costs, "roofline:x": c.costs["flops"]}) for c in result.curves)
    page.publish(
        tmp_path, replace(result, curves=costly), sections(), workers=Here() if beside else Workers()
    )
    # Only of a name that was taken, something was drawn in vain.
    assert drawn.count("by-flops") == 2 + 2 * beside and drawn.count("by-flops-2") == 2
    assert {drawn.count(name) for name in ("accuracy-roofline-x", "accuracy-flops", "by-tokens")} == {2}
    assert "accuracy-roofline:x" not in drawn
    ids = re.findall(r' id="(by-[^"]*)"', text_of(tmp_path))
    assert len(set(ids)) == len(ids) > 0


def test_figures_of_one_quantity_are_chosen_between() -> None:
    found = draw.groups(plots(), draw.Drawing(Workers()))
    assert [[p.name for p in group.pictures] for group in found] == [
        ["by-flops", "by-tokens"],
        ["errors-0.5M"],
        ["reward"],
    ]
    assert [group.choice for group in found] == ["against", "", ""]


def test_lines_differ_in_grey() -> None:
    styles = looks(map(str, range(49)))
    assert len({(marker, str(dash)) for _, marker, dash in styles.values()}) == 49
    # The darker, the more: shades rise with values.
    heat = every()[0].pictures[-1]
    assert isinstance(heat, Heat)
    cells = draw.shade_cells(heat).rows
    shades = [cell.shade for _, row in cells for cell in row if cell.words]
    assert shades == sorted(shades) and len(set(shades)) == 3
    assert cells[0][1][1].words == ""


def test_texts_of_figures_are_drawn_as_written(published: Path) -> None:
    svg = draw.draw_plot(plots("$\\frac{1$")[0])
    assert "$\\frac{1$" in next(iter(svg.panels))
    whole = draw.whole(plots("$\\frac{1$")[0])  # would fail as mathematics
    whole.canvas.draw()


def test_a_plot_of_nothing_is_an_error_that_says_so() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        study_figures.panels_figure({}, study_figures.Frame("FLOPs", "accuracy"))


def test_problems_of_each_kind_are_chosen(run: Path) -> None:
    lines = RunDirectory(run).state().lines
    searching = chosen.searches(lines)
    found = chosen.choose(RunDirectory(run), searching)
    assert found is not None and found.total == 9
    assert 0 < len(found.problems) <= 9
    for problem in found.problems:
        assert found.kinds[problem.problem] in chosen.kinds(problem, lines, searching)
    assert found.counts["right"] + found.counts["wrong"] <= 9
    with Examiner(RunDirectory(run), lines) as examiner:  # which reads everything
        every = [chosen.kinds(problem, lines, searching) for _, problem in examiner.each()]
    assert found.counts == {kind: sum(kind in named for named in every) for kind in chosen.KINDS}
    assert chosen.choose(RunDirectory(run / "absent"), set()) is None
    assert chosen._spread([str(i) for i in range(100)], 4) == ["0", "25", "50", "75"]


def test_too_large_a_page_leaves_out_figures_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = little()
    monkeypatch.setattr(files, "write_figures", lambda *_, **__: [])  # of the files nothing is asked here
    page.publish(tmp_path, result, every()[:1])
    whole = len(text_of(tmp_path).encode())
    monkeypatch.setattr(html_page, "SPARE", 0)
    monkeypatch.setattr(html_page, "LIMIT", whole - 1)
    page.publish(tmp_path, result, every()[:1])
    less = text_of(tmp_path)
    assert len(less.encode()) < whole and "Left out:" in less and "<figure>" in less
    monkeypatch.setattr(html_page, "LIMIT", 100)
    with pytest.raises(DataError, match="even without figures"):
        page.publish(tmp_path, result, every()[:1])


def test_kinds_of_problems_mean_what_they_say() -> None:
    def pool(answers: str, scores: Sequence[float]) -> Pool:
        rows = [
            {"generator": "g", "sample": i, "text": a + str(i), "answer": a, "key": a, "correct": a == "r",
             "eligible": True, "finish": "eos", "generated": 1.0, "score.v": s, "steps.v": None}
            for i, (a, s) in enumerate(zip(answers, scores, strict=True))
        ]  # fmt: skip
        best = Cell("g/best@3", "g", "best", "best_of_n", 3, "v", pooled=True)
        return Pool.of(rows, [best], "salt", ())

    search = Cell("g/rebase@4", "g", "rebase", "rebase", 4, "v")
    cases = (
        (pool("rrw", (0.9, 0.1, 0.2)), True, ["right"]),
        (pool("rrw", (0.1, 0.1, 0.9)), True, ["lost", "right"]),
        (pool("wwr", (0.1, 0.1, 0.9)), False, ["wrong"]),
        (pool("wwr", (0.1, 0.1, 0.9)), True, ["search", "wrong"]),
    )
    for found, right, expected in cases:
        outcome = {"configuration": search.name, "correct": right}
        problem = Examined("p", 1, "?", "r", (found,), (outcome,))
        assert chosen.kinds(problem, [search], chosen.searches([search])) == expected
        adaptive = replace(search, kind="adaptive_consistency")  # no search
        assert "search" not in chosen.kinds(problem, [adaptive], chosen.searches([adaptive]))


@pytest.mark.slow
def test_the_command_reports_a_study_anew(
    study_file: Callable[..., Path], tmp_path: Path, calls: Callable[[], list[str]]
) -> None:
    root = tmp_path / "out"
    asked = ["study", str(study_file(count=2, study=STUDY)), "--out", str(root)]
    # One model and three strategies: each has figures and findings of its own.
    asked += ["--set", "grid.generators=[small]", "--set", "grid.strategies=[single, majority, weighted]"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    before, made_then = (root / html_page.NAME).read_bytes(), len(calls())
    (root / html_page.NAME).unlink()
    reported = CliRunner().invoke(app, ["report", str(root)])
    assert reported.exit_code == 0, reported.output
    assert (root / html_page.NAME).read_bytes() == before
    assert len(calls()) == made_then  # nothing is generated for a report
    assert CliRunner().invoke(app, ["report", str(root / "test")]).exit_code == 0


@pytest.mark.slow
def test_a_large_study_fits(tmp_path: Path, run: Path) -> None:
    shutil.copytree(run, tmp_path / "test")
    page.publish(tmp_path, made(500, 64), every())
    assert len(text_of(tmp_path).encode()) < html_page.LIMIT


# ------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def chromium(published: Path) -> Iterator[Any]:
    """Started after the run is made: its driver keeps an event loop, and a run needs one of its own."""
    with start() as started:
        yield started


@pytest.fixture
def tab(chromium: Any, published: Path) -> Iterator[Any]:
    """The page, ready; whatever reaches the console or the network fails the test."""
    with opened(chromium) as made:
        made.goto((published / html_page.NAME).as_uri())
        made.wait_for_selector("html[data-ready][data-study]")
        made.get_by_role("button", name="Open all sections").click()
        yield made


def test_the_first_screen_is_the_answer_and_the_rest_is_closed(chromium: Any, published: Path) -> None:
    for width, screens in ((1400, 2.5), (390, 5)):
        opened = chromium.new_page(viewport={"width": width, "height": 900})
        opened.goto((published / html_page.NAME).as_uri())
        opened.wait_for_selector("html[data-ready][data-study]")
        assert opened.locator("details.part[open]").count() == 0
        assert opened.locator("details.part").count() == opened.locator(".contents a").count() > 4
        tall = opened.evaluate("document.documentElement.scrollHeight")
        assert tall < screens * 900
        figure = opened.locator(f"#answer .{'large' if width == 1400 else 'small'} svg")
        parts = [figure, opened.locator("#answer h1"), opened.locator("#answer table")]
        tops = [part.bounding_box()["y"] for part in parts]
        assert all(part.is_visible() for part in parts) and opened.locator("#answer svg:visible").count() == 1
        assert tops[0] < 100, "the figure comes first"
        if width == 1400:
            box = opened.locator("#answer").bounding_box()
            assert box["y"] + box["height"] < 900 and tops[1] < tops[2]
        else:
            assert tops == sorted(tops), "then the sentence, then the table"
        opened.close()


def test_an_address_opens_the_section_that_it_leads_to(chromium: Any, published: Path) -> None:
    opened = chromium.new_page(viewport={"width": 1400, "height": 900})
    opened.goto((published / html_page.NAME).as_uri() + "#section-frontier")
    opened.wait_for_selector("html[data-ready][data-study]")
    assert opened.locator("details.part[open]").count() == 1
    assert opened.locator("#section-frontier details.part").get_attribute("open") is not None
    opened.locator(".contents a", has_text="Chosen problems").click()
    opened.wait_for_selector("#problems table", state="visible")
    link = opened.locator("#problems table.sortable tbody a").first.get_attribute("href")
    opened.goto("about:blank")
    opened.goto((published / html_page.NAME).as_uri() + str(link))
    opened.wait_for_selector("#problem h3", state="visible")
    opened.close()


def test_the_small_table_says_what_each_budget_buys() -> None:
    result = replace(made(), budgets={"flops": (1e6, 1e8, 1e9, 2e9)})
    found = answer(result)
    assert found.figure is not None and found.table is not None
    rows = {row[0]: row for row in found.table.rows}
    assert list(rows) == ["1M", "100M", "1G", "2G"]
    assert rows["1M"][1] == "no configuration is so cheap"
    first = headline(result)[0]
    budget = re.match(r"For (\S+) FLOPs", first)
    assert budget is not None
    assert f"run {rows[budget[1]][1]}: expect {rows[budget[1]][2].split()[0]}" in first


def test_figures_are_drawn(tab: Any) -> None:
    drawn = tab.locator(".picture:not([hidden]) .panel svg").evaluate_all(
        "all => all.map(s => [s.getBoundingClientRect().width, s.querySelectorAll('path').length])"
    )
    assert len(drawn) >= 5
    assert all(width > 250 and paths > 8 for width, paths in drawn)


def test_the_cost_is_chosen_by_keyboard(tab: Any) -> None:
    select = tab.locator("#section-frontier .chooser select").first
    assert select.input_value() == "FLOPs per problem"
    assert tab.locator("#section-frontier .picture:not([hidden]) h3", has_text="tokens").count() == 0
    select.focus()
    tab.keyboard.press("ArrowDown")
    assert select.input_value() == "tokens per problem"
    assert tab.locator("#section-frontier .choice .picture:not([hidden]) h3", has_text="tokens").count() == 1
    # The others that offer it follow.
    assert tab.locator("#section-curves .chooser select").input_value() == "tokens per problem"


def test_a_line_is_highlighted(tab: Any) -> None:
    figure = tab.locator("#section-frontier .picture:not([hidden]) figure").first
    button = figure.locator(".legend button").first
    button.focus()
    tab.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    faint = figure.locator(".mark").evaluate_all(
        "all => all.filter(m => getComputedStyle(m).opacity < 0.5).length"
    )
    bright = figure.locator(".mark.on").count()
    assert faint > 0 and bright > 0
    button.press("Enter")
    assert figure.locator(".mark.on").count() == 0 and "lit" not in (figure.get_attribute("class") or "")


def test_tables_are_sorted_by_what_their_numbers_are(tab: Any) -> None:
    table = tab.locator("#section-frontier .part > .wide table.sortable").first
    head = table.locator("th", has_text="cost")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert table.locator("tbody tr td:last-child").all_inner_texts() == ["−4k", "30M", "1.2G", "–"]
    head.locator("button").click()
    assert table.locator("tbody tr td:last-child").all_inner_texts() == ["1.2G", "30M", "−4k", "–"]


def test_a_chosen_problem_opens(tab: Any) -> None:
    link = tab.locator("#problems table.sortable tbody a").first
    name = link.inner_text()
    link.focus()
    tab.keyboard.press("Enter")
    tab.locator("#problem h3", has_text=name).wait_for()
    assert "The vote" in tab.locator("#problem").inner_text()


def test_markup_in_names_is_text(tab: Any) -> None:
    assert tab.locator("img").count() == 0
    assert tab.evaluate("window.hacked") is None
    assert HOSTILE in tab.locator("#section-answers").inner_text()


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_runs_over_the_screen(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 844})
    tab.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_all_text_can_be_read(tab: Any, scheme: str) -> None:
    if scheme == "print":
        tab.emulate_media(media="print", color_scheme="dark")
    else:
        tab.emulate_media(color_scheme=scheme)
    tab.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    found = tab.evaluate(CONTRAST)
    assert len(found) > 300
    assert [one for one in found if one[0] < one[1]] == []


def test_headings_are_in_order_and_controls_have_names(tab: Any) -> None:
    levels = tab.locator("h1,h2,h3,h4,h5").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(below <= above + 1 for above, below in pairwise(levels))
    unnamed = tab.locator("input, select").evaluate_all("all => all.filter(e => !e.labels.length).length")
    assert unnamed == 0


def test_on_paper_nothing_is_cut_and_controls_are_gone(tab: Any) -> None:
    tab.emulate_media(media="print")
    for gone in ("nav", "form", ".chooser"):
        assert not tab.locator(gone).first.is_visible()
    cut = tab.locator(".wide, pre").evaluate_all(
        "all => all.filter(e => e.checkVisibility() && getComputedStyle(e).overflowX !== 'visible').length"
    )
    assert cut == 0


def test_without_scripts_all_is_there(chromium: Any, published: Path) -> None:
    opened = chromium.new_context(java_script_enabled=False).new_page()
    opened.goto((published / html_page.NAME).as_uri())
    for summary in opened.locator("details.part > summary").all():
        summary.click()
    for picture in opened.locator(".picture").all():
        assert picture.is_visible()
    assert opened.locator("#problems table").is_visible()
    assert opened.locator("noscript, .notice", has_text="needs JavaScript").first.is_visible()
    opened.close()
