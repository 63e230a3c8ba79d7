"""A strategy or a utility may read answers by a rule of its own, in place of the task's."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml

from metagen.errors import ConfigError
from metagen.runs.declare import registry, schema
from metagen.runs.declare.editor import json_schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, offline, runner
from metagen.verifiers.choice import ChoiceRule
from metagen.verifiers.math import MathRule
from metagen.verifiers.numbers import NumberRule
from metagen.verifiers.text import TextRule

FILE = """\
name: own
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines: {model: {kind: torch, model: tiny-0.1m}}
generators: {small: {engine: model, max_tokens: 40}}
strategies:
  plain: {kind: majority}
  named: {kind: majority, answer: text}
  given: {kind: majority, answer: {kind: choice, letters: ABC}}
  same: {kind: adaptive_consistency, answer: {kind: recorded, rule: {kind: text, fold_case: true}}}
  risk: {kind: mbr, utility: {kind: exact, answer: text}}
grid: {n: [4]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_rule_is_named_or_defined(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    with build.open_setup(experiment) as setup:
        made = {cell.strategy: setup.strategy(cell) for cell in setup.configurations}
        assert isinstance(made["plain"].answer, NumberRule)
        assert isinstance(made["named"].answer, TextRule)
        assert isinstance(made["given"].answer, ChoiceRule) and made["given"].answer.letters == "ABC"
        assert isinstance(made["risk"].utility.answer, TextRule)
    again = tmp_path / "again.yaml"
    again.write_text(schema.dump(experiment), "utf-8")
    assert schema.load(again) == experiment
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(yaml.safe_load(FILE))


def test_the_rule_of_a_public_task_is_named_or_defined(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "one.jsonl"
    data.write_text('{"question": "q", "answer": "#### 50"}\n', "utf-8")
    rule = {"kind": "math", "percent": "hundredths"}
    for said, wanted in (("text", TextRule()), (json.dumps(rule), MathRule(percent="hundredths"))):
        sets = [f"task={{kind: gsm8k, path: {data}}}", f"task.answer={said}"]
        task = schema.load(file, sets=sets).task
        assert registry.make("task", task.kind, task.options(), {}).answer.fingerprint == wanted.fingerprint


@pytest.mark.parametrize(
    ("said", "reached"),
    [
        (
            "{kind: parallel, aggregator: {kind: mbr, answer: text, utility: {kind: exact}}}",
            "aggregator.utility",
        ),
        ("{kind: mbr, answer: text, utility: {kind: exact}}", "utility"),
        ("{kind: mbr, answer: text, utility: {kind: chrf, of: answer}}", "utility"),
        (
            "{kind: rebase, verifier: {kind: oracle}, answer: text, aggregator: {kind: majority}}",
            "aggregator",
        ),
        ("{kind: mcts, verifier: {kind: oracle}, answer: text, aggregator: {kind: majority}}", "aggregator"),
    ],
)
def test_a_rule_is_that_of_what_is_defined_within(file: Path, said: str, reached: str) -> None:
    experiment = schema.load(file, sets=[f"strategies.own={said}", "grid.strategies=[own]"])
    with build.open_setup(offline.with_stand_ins(experiment, fingerprints=False)) as setup:
        (cell,) = setup.configurations
        assert isinstance(attrgetter(reached)(setup.strategy(cell)).answer, TextRule)


def test_its_votes_are_counted_by_itself(file: Path, tmp_path: Path) -> None:
    """The pool holds answers as the task reads them, so that no strategy of another rule is measured on it."""
    with build.open_setup(schema.load(file, sets=["grid.strategies=[plain, named]"])) as setup:
        state = runner.run(setup, RunDirectory.at(tmp_path / "run"))
    assert {line.strategy: line.pooled for line in state.lines} == {"plain": True, "named": False}
    rows = pq.read_table(tmp_path / "run" / "outcomes.parquet").to_pylist()
    assert {row["configuration"] for row in rows} == {"small/named@4"}


@pytest.mark.parametrize(
    ("sets", "fault"),
    [
        ("strategies.named.answer=txt", r"strategies.named.answer = 'txt': .*did you mean 'text'"),
        (
            "strategies.given.answer.letter=AB",
            r"strategies.given.answer.letter = 'AB': no such field; .*'letters'",
        ),
        (
            "strategies.risk.utility={kind: token_f1, answer: text}",
            r"strategies.risk.utility.*texts are compared; give of: answer",
        ),
        ("strategies.plain={kind: blockwise, answer: text}", "answer"),
    ],
)
def test_faults_have_their_places(sets: str, fault: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        schema.load(file, sets=[sets])


def test_set_changes_a_rule(file: Path) -> None:
    experiment = schema.load(
        file, sets=["strategies.given.answer.letters=AB", "strategies.named.answer=math"]
    )
    assert experiment.strategies["given"].answer == {"kind": "choice", "letters": "AB"}
    assert experiment.strategies["named"].answer == "math"
