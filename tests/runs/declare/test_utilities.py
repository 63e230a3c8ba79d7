"""Utilities of minimum Bayes risk in an experiment: defined by their fields, as in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metagen.errors import ConfigError
from metagen.runs.declare import schema
from metagen.runs.work import build, offline
from metagen.strategies.parallel import MBR
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.exact import ExactAnswer
from metagen.verifiers.utility.judge import JudgeUtility
from metagen.verifiers.utility.pairs import FunctionUtility
from metagen.verifiers.utility.pruning import ConfidencePruning
from metagen.verifiers.utility.token_f1 import TokenF1

FILE = """\
name: utilities
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines: {model: {kind: torch, model: tiny-0.1m}}
generators: {small: {engine: model, max_tokens: 40}}
verifiers: {rater: {kind: judge, generator: small, samples: 3}}
strategies:
  exact: {kind: mbr, utility: {kind: exact, of: text, aggregate: false}}
  chrf: {kind: mbr, utility: {kind: chrf, prune: 0.9, char_order: 3, of: answer}}
  rated: {kind: mbr, utility: {kind: judge, cue: 'Rate:'}, judge: rater}
  alone: {kind: mbr, utility: {kind: judge, judge: {kind: judge, generator: small, samples: 3}, cue: 'Rate:'}}
  called: {kind: mbr, utility: {kind: function, function: 'operator:eq', name: eq, symmetric: true}}
  theirs: {kind: mbr, utility: {kind: 'metagen.verifiers.utility.token_f1:TokenF1'}}
grid: {n: [2]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "utilities.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_file_says_of_a_utility_what_python_does(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    again = tmp_path / "again.yaml"
    again.write_text(schema.dump(experiment), "utf-8")
    assert schema.load(again) == experiment
    made: dict[str, Any] = {}
    with build.open_setup(offline.with_stand_ins(experiment, fingerprints=False)) as setup:
        rule = setup.task.answer
        for cell in setup.configurations:
            strategy = setup.strategy(cell)
            assert isinstance(strategy, MBR)
            made[cell.strategy] = strategy.utility
    assert made["exact"].fingerprint == ExactAnswer(rule).fingerprint
    chrf = ConfidencePruning(ChrF(char_order=3, answer=rule), alpha=0.9)
    assert made["chrf"].fingerprint == chrf.fingerprint
    assert isinstance(made["rated"], JudgeUtility) and made["rated"].respondent.question.cue == "Rate:"
    assert made["rated"].fingerprint == made["alone"].fingerprint
    assert isinstance(made["called"], FunctionUtility) and made["called"].symmetric
    assert made["theirs"].fingerprint == TokenF1().fingerprint


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("char_order: 3", "char_order: 0", 8, "chrf.utility.char_order = 0: expected an integer ≥ 1"),
        (
            "kind: chrf",
            "kind: chfr",
            8,
            "chrf.utility.kind = 'chfr': expected one of exact, .*; did you mean 'chrf'",
        ),
        ("kind: exact, of: text, aggregate: false", "kind: exact, aggregate: true", 7, "cannot aggregate"),
        (
            "kind: exact, of",
            "kind: exact, cue: x, of",
            7,
            "cue words what a judge is asked; give it with kind",
        ),
        (
            "generator: small, samples: 3}, cue",
            "generator: smal}, cue",
            10,
            "alone.utility.judge.generator = 'smal'",
        ),
        (
            "chrf, prune",
            "chrf, aggregate: true, prune",
            8,
            "aggregate = True: pruning compares pair by pair",
        ),
        (
            "{kind: judge, cue",
            "{kind: judge, of: answer, cue",
            9,
            "of = 'answer': a utility of kind judge compares whole completions; leave .*one of exact, .*, edit, embed",
        ),
        (
            "{kind: exact, of: text, aggregate: false}",
            "{kind: exact}, judge: rater",
            7,
            "exact asks no judge; leave",
        ),
        (
            "cue: 'Rate:'}}",
            "cue: 'Rate:'}, judge: rater}",
            10,
            "judge = 'rater': the utility has its own, 'judge-",
        ),
        (
            "kind: exact, of: text, aggregate: false",
            "of: text",
            7,
            "exact.utility.kind: missing; expected one of",
        ),
    ],
)
def test_faults_have_their_place(file: Path, old: str, new: str, line: int, message: str) -> None:
    assert FILE.count(old) == 1
    file.write_text(FILE.replace(old, new), "utf-8")
    with pytest.raises(ConfigError, match=rf"(?s)utilities\.yaml:{line}: .*{message}"):
        schema.load(file)
