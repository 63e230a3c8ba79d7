"""The pools that the how-to pages show are graded, and studied, as the pages say."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from metagen.cli import app

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


def laid_out(page: str, into: Path) -> list[list[str]]:
    """The files of a page, written; its commands, in order, whose file is among them."""
    commands = []
    for token in MarkdownIt().parse((PAGES / page).read_text("utf-8")):
        if token.type == "fence" and 'title="' in token.info:
            (into / token.info.partition('title="')[2].partition('"')[0]).write_text(token.content, "utf-8")
        elif token.type == "fence" and token.info == "bash":
            lines = (shlex.split(line) for line in token.content.splitlines())
            commands += [words[1:] for words in lines if (into / words[2]).exists()]
    return commands


def test_every_pool_of_the_page_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, dict[str, Any]] = {}
    for i, command in enumerate(laid_out("grade-recorded.md", tmp_path)):
        result = CliRunner().invoke(app, [*command, "--out", f"run-{i}"])
        assert result.exit_code == 0, f"{command}: {result.output}"
        table = pq.read_table(tmp_path / f"run-{i}" / "configurations.parquet").to_pylist()
        cells = {row["strategy"] + f"@{row['n'] or 1}": row["accuracy"] for row in table}
        found[" ".join(command[1:])] = cells | {"said": " ".join(result.output.split())}
    programs = found["programs.jsonl --correct passed --score length --answer text"]
    assert programs["pass@4"] == 1.0 and programs["best-length@4"] == 0.0 and programs["single@1"] == 3 / 8
    choices = found["choices.jsonl --correct right --answer choice"]
    assert choices["majority@4"] == 0.75, "B wins three votes to one, A and D tie"
    judged = found["judged.jsonl --correct right --score judge"]
    assert judged["best-judge@4"] == 1.0 and "by ranks, the default" in judged["said"]
    nulls = found["nulls.jsonl --correct right --field generated=output_tokens"]
    for said in (
        "1 failed call and 1 without a verdict (null) among 8 samples: left out",
        "have no generated (null)",
    ):
        assert said in nulls["said"]
    wrong = found["nulls.jsonl --correct right --field generated=output_tokens --unknown wrong"]
    assert wrong["single@1"] == pytest.approx((1 / 4 + 2 / 4) / 2) and "counted as wrong" in wrong["said"]
    assert found["counts.jsonl -n 1 -n 10 -n 100"]["single@1"] == 0.006
    thoughts = found["thoughts.jsonl --thoughts reasoning"]
    inline = found["inline.jsonl --thought-end </think>"]
    assert thoughts["majority@4"] == inline["majority@4"] == 1.0
    for said in (thoughts["said"], inline["said"]):
        assert "1 of 8 (12.5%) samples were cut within their thought" in said
    assert (
        "1 of 8 samples have no thought ('reasoning' is null): each is read as an answer" in thoughts["said"]
    )
    assert len(found) >= 11


@pytest.mark.slow
@pytest.mark.parametrize("name", ["programs", "choices"])
def test_the_pools_of_the_page_are_studied_and_say_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = f"{name}-study.yaml"
    (command,) = (c for c in laid_out("recorded-study.md", tmp_path) if c[1] == file)
    result = CliRunner().invoke(app, [*command, "--out", "study"])
    assert result.exit_code == 0, result.output
    report = " ".join((tmp_path / "study" / "report.md").read_text("utf-8").replace("\\", "").split())
    page = (PAGES / "recorded-study.md").read_text("utf-8").partition(f"metagen study {file}")[2]
    shown = page.partition("```text\n")[2].partition("```")[0]
    table, *notes = f"\n{shown}".split("\n- ")
    assert notes
    for note in notes:
        assert f"- **theirs**: {' '.join(note.split())} - " in report, note
    printed = [" ".join(line.split()) for line in result.output.splitlines()]
    for line in table.strip().splitlines():
        assert set(line) == {"─"} or " ".join(line.split()) in printed, line
