"""What a report keeps of the one before: sections, and files that are as it wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metagen
from metagen.analysis import study_figures
from metagen.runs.declare import registry, study_schema
from metagen.runs.declare.study import Study
from metagen.runs.directory import StudyDirectory
from metagen.runs.page import files, html_page, kept, study_page
from metagen.runs.page import study_report as report
from metagen.runs.questions.section import Section
from tests.runs.made import made
from tests.runs.sections import HOSTILE, every, plots


@pytest.fixture
def study(study_file: Callable[..., Path]) -> Study:
    return study_schema.load(study_file())


def test_sections_are_kept_as_they_are(tmp_path: Path) -> None:
    given = [*every(HOSTILE), Section("lone", "\ud800")]
    kept.save(tmp_path, "a", given)
    found = kept.load(tmp_path, "a")
    assert found is not None and [repr(one) for one in found] == [repr(one) for one in given]


def test_sections_of_something_else_are_not_taken(tmp_path: Path) -> None:
    assert kept.load(tmp_path, "a") is None
    kept.save(tmp_path, "a", every())
    assert kept.load(tmp_path, "b") is None
    file = tmp_path / kept.SECTIONS
    file.write_text(file.read_text()[:-100])
    assert kept.load(tmp_path, "a") is None
    file.write_text(json.dumps({"made_of": "a", "sections": [{"name": "of another version"}]}))
    assert kept.load(tmp_path, "a") is None


def test_whatever_sections_are_made_of_has_a_part_in_their_digest(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = made(9)
    first, *rest = result.curves
    other = first.accuracy.copy()
    other[0, 0] = 1.0 - other[0, 0]
    costs = {**first.costs, "flops": np.nextafter(first.costs["flops"], np.inf)}
    results = [
        result, replace(result, seed=1), replace(result, curves=(replace(first, accuracy=other), *rest)),
        replace(result, curves=(replace(first, costs=costs), *rest)), replace(result, facts={"roles": {}}),
    ]  # fmt: skip
    digests = [kept.digest_sections(one, study, {}) for one in results]
    digests.append(kept.digest_sections(result, study, {"splitting": result}))
    digests.append(kept.digest_sections(result, study, {"temperature": result}))
    changed = replace(study, experiment=study.experiment.model_copy(update={"seed": 9}))
    digests.append(kept.digest_sections(result, changed, {}))
    monkeypatch.setattr(metagen, "__version__", "0.0.0")
    digests.append(kept.digest_sections(result, study, {}))
    assert len(set(digests)) == len(digests)
    monkeypatch.undo()
    assert kept.digest_sections(made(9), study, {}) == digests[0]
    monkeypatch.setattr(registry, "says", lambda kind, trait: True)
    assert kept.digest_sections(result, study, {}) not in digests


def test_whatever_a_page_is_made_of_has_a_part_in_its_digest(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path)
    test = directory.role("test").root
    test.mkdir()
    seen = {kept.digest_page(directory, "a"), kept.digest_page(directory, "b")}
    for number, path in enumerate(
        (directory.study, directory.frozen, test / "journal.sqlite", test / "state.json", test / "costs.parquet"), 3
    ):  # fmt: skip
        path.write_text("words")
        seen.add(kept.digest_page(directory, "a"))
        assert len(seen) == number, path
    (test / "run.lock").write_text("")
    (test / "journal.sqlite-wal").write_text("")  # as a reader leaves it
    assert kept.digest_page(directory, "a") in seen


def test_a_report_of_the_same_stays_and_is_made_again_where_a_file_is_not_as_it_was(tmp_path: Path) -> None:
    result = replace(made(9), curves=())
    given = [Section("a", "A", pictures=plots()[3:4])]

    def publish(made_of: str) -> int:
        page = tmp_path / html_page.NAME
        study_page.publish(tmp_path, result, given, made_of=made_of)
        return page.stat().st_mtime_ns

    first = publish("x")
    assert publish("x") == first
    second = publish("y")
    assert second > first and publish("y") == second
    for name in (html_page.NAME, study_page.MARKDOWN, "figures/reward.svg", "tables/figure-reward.csv"):
        before, at = (tmp_path / name).read_bytes(), publish("y")
        (tmp_path / name).write_bytes(before + b" ")
        assert publish("y") > at and (tmp_path / name).read_bytes() == before, name
        (tmp_path / name).unlink()
        publish("y")
        assert (tmp_path / name).read_bytes() == before, name
    # Nobody says what it is made of: it may be of anything.
    assert publish("") < publish("")


@pytest.mark.usefixtures("whole_figures")
def test_figures_for_papers_are_drawn_when_asked_and_again_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    save = study_figures.save_printed

    def count(figure: object, stem: Path) -> tuple[Path, Path]:
        drawn.append(stem.name)
        return save(figure, stem)  # type: ignore[arg-type]

    monkeypatch.setattr(study_figures, "save_printed", count)
    result, pictures = replace(made(9), curves=()), plots()[2:4]

    def publish(*sections: Section, papers: bool = False, made_of: str = "x") -> set[str]:
        drawn.clear()
        study_page.publish(tmp_path, result, sections, papers=papers, made_of=made_of)
        return {path.suffix for path in (tmp_path / "figures").iterdir()}

    section = Section("a", "A", pictures=pictures)
    assert publish(section) == {".svg"} and not drawn
    assert "[PDF]" not in (tmp_path / study_page.MARKDOWN).read_text()
    page = (tmp_path / html_page.NAME).stat().st_mtime_ns
    assert publish(section, papers=True) == {".svg", ".png", ".pdf"} and len(drawn) == 2
    assert (tmp_path / html_page.NAME).stat().st_mtime_ns == page
    assert "[PDF](figures/reward.pdf)" in (tmp_path / study_page.MARKDOWN).read_text()
    # Later reports go on with them: drawn are those of which the picture is another.
    publish(section, made_of="y")
    assert not drawn and "figures/reward.pdf" in files.listed(tmp_path)
    publish(replace(section, pictures=(pictures[0], replace(pictures[1], title="Rewards"))), made_of="z")
    assert drawn == ["reward"]
    (tmp_path / "figures" / "reward.pdf").write_bytes(b"")
    publish(section, made_of="z")
    assert drawn == ["reward"]
    monkeypatch.setattr(files, "digest_drawing", lambda: "another version")
    publish(section, made_of="w")
    assert len(drawn) == 2


def test_sections_are_made_again_only_where_something_changed(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_here: list[str] = []

    def sections(*_: object) -> list[Section]:
        made_here.append("again")
        return every()[:1]

    monkeypatch.setattr(report, "sections", sections)
    monkeypatch.setattr(study_page, "publish", lambda *_, **__: None)
    result, directory = made(9), StudyDirectory(tmp_path)
    for _ in range(2):
        _, found = report.publish(directory, study, result)
        assert [one.name for one in found] == ["frontier"] and len(made_here) == 1
    report.publish(directory, study, replace(result, seed=4))
    assert len(made_here) == 2
