"""A language is a command that speaks the protocol: here a calculator in reverse Polish notation."""

import ast
import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from metagen.errors import InputError
from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.language import Python, Start, server, source
from metagen.verifiers.code.sandbox import Sandbox

INSIDE = """
import json, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as lines:
    nonce = json.loads(lines.readline())["nonce"]
    say = lambda **parts: print(json.dumps({"nonce": nonce, **parts}), file=lines, flush=True)
    say(ready=True)
    for line in lines:
        request = json.loads(line)
        if request["op"] == "load":
            functions = dict(line.split(":") for line in request["source"].splitlines())
            say(id=request["id"], returned=None)
        elif request["op"] == "call":
            stack = list(request["args"])
            for word in functions[request["target"][1]].split():
                b, a = stack.pop(), stack.pop()
                stack.append(a + b if word == "+" else a * b)
            say(id=request["id"], returned=stack.pop())
"""


@dataclass(frozen=True)
class Polish:
    host: Python = field(default_factory=Python)
    fingerprint: str = "polish"

    @property
    def readable(self) -> tuple[Path, ...]:
        return self.host.readable

    @property
    def hidden(self) -> tuple[Path, ...]:
        return self.host.hidden

    def start(self, socket: int) -> Start:
        return self.host.run(INSIDE, socket)


def test_candidates_in_another_language_tests_in_python(sandbox: Sandbox) -> None:
    other = Sandbox(Polish(), sandbox.limits)
    suite = Suite(("assert f(2, 3, 4) == 14", "assert f(1, 1, 1) == 3"), entry_points=("f",))
    report = asyncio.run(check(other, "f:* +\ng:+", suite, stop=False))
    assert [case.verdict for case in report.cases] == ["passed", "failed"]
    assert report.cases[1].got == "2"


def test_the_insides_share_no_name_by_accident() -> None:
    """They are joined into one namespace: a name defined twice would change the half that knew it first."""
    for inside in (source("candidate"), source("judge"), server("candidate"), server("judge")):
        names = [
            node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else target.id
            for node in ast.parse(inside).body
            for target in getattr(node, "targets", [node])
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or isinstance(target, ast.Name)
        ]
        assert [name for name in names if names.count(name) > 1] == []


def test_only_what_an_interpreter_needs_is_read(tmp_path: Path) -> None:
    for part in ("bin", "lib", "Documents"):
        (tmp_path / part).mkdir()
    python = tmp_path / "bin" / "python3"
    python.touch()
    assert Python(python).readable == (tmp_path / "bin", tmp_path / "lib")
    with pytest.raises(InputError, match="cannot be asked for its version"):
        _ = Python(python).fingerprint


def test_fingerprints_name_the_version_and_the_packages(tmp_path: Path) -> None:
    def fake(version: str) -> Python:
        path = tmp_path / version / "bin" / "python3"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
        return Python(path)

    assert fake("3.11.1").fingerprint != fake("3.11.2").fingerprint
    assert Python(packages=(tmp_path,)).fingerprint != Python().fingerprint
