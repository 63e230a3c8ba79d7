"""A study of a recorded pool says what its samples are: among its notes, on its page, and in `audit.json`."""

from __future__ import annotations

import json
from pathlib import Path

from metagen.runs import study as run
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import study_schema as studies
from metagen.runs.directory import StudyDirectory
from metagen.runs.page import study_report as report

STUDY = """\
name: choices
task:
  {kind: jsonl, path: pool.jsonl, fields: {question: id, answer: gold}, answer: {kind: choice, letters: ABCD}}
generators:
  t: {kind: replay, path: pool.jsonl, fields: {texts: answers}}
strategies: {single: {kind: sample}, majority: {kind: majority}}
grid: {n: [1, 4]}
study:
  sizes: {t: {parameters: 70.0e+9, tokens: 900}}
"""


def test_a_study_keeps_the_audit(tmp_path: Path) -> None:
    answers = ["(A)", "The answer is A.", "B", "who knows"]
    lines = [json.dumps({"id": f"p{i}", "gold": "A", "answers": answers}) for i in range(10)]
    (tmp_path / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    study, directory = studies.load(tmp_path / "study.yaml"), StudyDirectory(tmp_path / "out")
    result = run.run(study, directory.root)
    unread = (
        "10 of 40 (25.0%) samples have no answer that the rule can read, and no vote: 'who knows' of 'p0'"
    )
    assert any(note.about == "t" and note.text.startswith(unread) for note in result.notes)
    assert result.notes[0].text.startswith(unread), "what matters most is said first"
    assert StudyResult.load(directory.root).facts["audit"] == result.facts["audit"]
    report.publish(directory, study, result)
    kept = json.loads((directory.root / "audit.json").read_text("utf-8"))
    assert kept["t"]["counts"]["unread"] == 10 and kept["t"]["counts"]["trend"]["z"] < -3.29
    assert "who knows" in (directory.root / "report.html").read_text("utf-8")
