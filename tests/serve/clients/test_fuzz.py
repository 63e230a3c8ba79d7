"""schemathesis sends requests that the server's own OpenAPI schema allows or forbids: no answer may be a 5xx."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.clients.process import environment, missing, serve

if lack := missing("schemathesis"):
    pytest.skip(lack, allow_module_level=True)

FILE: dict[str, Any] = {
    "name": "fuzz",
    "task": {"kind": "arithmetic", "split": "validation", "seed": 41, "levels": [2], "per_level": 1},
    "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
    "generators": {"small": {"engine": "small", "max_tokens": 24}},
    "strategies": {"one": {"kind": "sample"}, "majority": {"kind": "majority"}},
    "grid": {"n": [2]},
    "serve": {"max_tokens": 32, "max_n": 4, "effort": {"low": {"n": 2}, "high": {"n": 3}}},
}
MODELS = ["small/one", "small/majority@2"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("fuzz"), FILE) as url:
        yield url.removesuffix("/v1")


TEXT = {"type": "string", "minLength": 1}
TURN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "developer"]},
        "content": {"type": "string"},
    },
    "required": ["role", "content"],
    "additionalProperties": False,
}
#: Fields that can be honoured, with values that can be.
HONOURED: dict[str, dict[str, Any]] = {
    "model": {"enum": MODELS},
    "prompt": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3}]},
    "messages": {"type": "array", "minItems": 1, "maxItems": 3, "items": TURN},
    "input": {"anyOf": [TEXT, {"type": "array", "minItems": 1, "maxItems": 3, "items": TURN}]},
    "instructions": TEXT,
    "n": {"type": "integer", "minimum": 1, "maximum": 4},
    "max_tokens": {"type": "integer", "minimum": 1, "maximum": 32},
    "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 32},
    "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 32},
    "temperature": {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": -1},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
    "stop": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": 3}]},
    "seed": {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 4},
    "stream": {"type": "boolean"},
    "reasoning_effort": {"enum": ["low", "high"]},
    "metagen": {
        "type": "object",
        "properties": {
            "budget": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 200}, {"type": "object"}]},
            "progress": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def described(url: str) -> dict[str, Any]:
    """The server's own schema, of the paths that answer."""
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    return found


def fuzz(url: str, schema: dict[str, Any], folder: Path, examples: int, *how: str) -> None:
    """AssertionError for an answer that is a 5xx, for one that does not come, and for a server that has ended."""
    path = folder / "openapi.json"
    path.write_text(json.dumps(schema), "utf-8")
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", str(path), "--url", url, "--seed", "7",
        "--checks", "not_a_server_error", "--max-examples", str(examples), "--no-shrink",
        "--request-timeout", "60", "--warnings", "off", *how,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=540, env=environment(), cwd=folder
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    assert not any('status="5' in line for line in counted(url))


def counted(url: str) -> list[str]:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return [line for line in lines if line.startswith("metagen_requests_total")]


def answered(url: str) -> float:
    return sum(float(line.split()[-1]) for line in counted(url) if 'status="200"' in line)


def bodies(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("chat/completions", "completions", "responses"):
        yield schema["paths"][f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]


@pytest.mark.slow
def test_no_request_that_the_schema_allows_or_forbids_is_a_fault_of_the_server(
    url: str, described: dict[str, Any], tmp_path: Path
) -> None:
    fuzz(url, described, tmp_path, 40, "--phases", "examples,coverage,fuzzing")


@pytest.mark.slow
def test_nor_is_one_that_names_a_model(url: str, described: dict[str, Any], tmp_path: Path) -> None:
    """Random names find no model: with those that there are, all other fields are looked at."""
    wide = copy.deepcopy(described)
    for body in bodies(wide):
        body["properties"]["model"] = HONOURED["model"]
        for field in {"messages", "input"} & set(body["properties"]):
            body["properties"][field] = {"type": "array", "items": {"anyOf": [TURN, {"type": "object"}]}}
    fuzz(url, wide, tmp_path, 40, "--phases", "coverage,fuzzing")


@pytest.mark.slow
def test_nor_is_one_that_is_answered(url: str, described: dict[str, Any], tmp_path: Path) -> None:
    narrow = copy.deepcopy(described)
    narrow["paths"] = {path: value for path, value in narrow["paths"].items() if "post" in value}
    for body in bodies(narrow):
        kept = {field: HONOURED[field] for field in body["properties"] if field in HONOURED}
        body["properties"], body["additionalProperties"] = kept, False
    before = answered(url)
    fuzz(url, narrow, tmp_path, 60, "--phases", "fuzzing", "--mode", "positive")
    assert answered(url) - before > 60, counted(url)
