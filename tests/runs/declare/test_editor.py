"""The schema that editors check files by: what loads is valid, what is misspelt is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.declare import registry
from metagen.runs.declare.editor import json_schema

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def check() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_what_loads_is_valid(check: jsonschema.Draft202012Validator, file: Path) -> None:
    assert [error.message for error in check.iter_errors(yaml.safe_load(file.read_text("utf-8")))] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("seed",), "one"),
        (("grid", "n"), [0]),
        (("strategies", "vote"), {"kind": "majorty"}),
        (("strategies", "vote"), {"kind": "best_of_n"}),
        (("strategies", "vote"), {"kind": "beam", "verifier": "prm", "m": 0}),
        (("strategies", "vote"), {"kind": "beam", "verifier": "prm", "width": 4}),
        (("strategies", "vote"), {"kind": "chain", "steps": {"a": {"kind": "ask"}}}),
        (("strategies", "vote"), {"kind": "majority", "answer": {"kind": "number", "prosa": True}}),
        (
            ("strategies", "vote"),
            {
                "kind": "adaptive",
                "aggregator": {"kind": "majority"},
                "rule": {"kind": "any_of", "rules": [{"kind": "beta", "confidnce": 0.9}]},
            },
        ),
        (("studdy",), {}),
    ],
)
def test_what_is_misspelt_is_not(
    check: jsonschema.Draft202012Validator, path: tuple[str, ...], value: Any
) -> None:
    data = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text("utf-8"))
    data["strategies"]["vote"] = {"kind": "majority"}
    assert check.is_valid(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not check.is_valid(data)


def test_rules_within_rules_are_valid(check: jsonschema.Draft202012Validator) -> None:
    data = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text("utf-8"))
    rule = {"kind": "any_of", "rules": [{"kind": "beta"}, {"kind": "all_of", "rules": [{"kind": "decided"}]}]}
    data["strategies"]["vote"] = {"kind": "adaptive", "aggregator": {"kind": "majority"}, "rule": rule}
    data["strategies"]["recorded"] = {"kind": "majority", "answer": {"kind": "recorded"}}
    assert [error.message for error in check.iter_errors(data)] == []


def test_every_kind_is_there_with_what_it_does(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "schema.json")])
    assert done.exit_code == 0 and "yaml-language-server" in done.output
    text = (tmp_path / "schema.json").read_text("utf-8")
    printed = CliRunner().invoke(app, ["schema"]).output
    assert json.loads(printed) == json.loads(text) == json_schema()
    for kinds in registry.KINDS.values():
        for kind in kinds:
            assert f'"{kind}"' in text
    assert "Beam search" in text or "n candidates a level" in text
