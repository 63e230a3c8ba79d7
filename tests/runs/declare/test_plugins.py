"""Kinds that installed distributions bring by entry points: real `.dist-info` directories, found by another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metagen.runs.directory import RunDirectory

ROOT = Path(__file__).parents[3]
TOY = Path(__file__).parents[1] / "toy"
CODE = """\
from dataclasses import field
import metagen as mg
from metagen.generators.torch import TorchEngine
from metagen.parts import part
from metagen.values import Count
from metagen.verifiers.function import FunctionVerifier
from metagen_toy import ToyTask, generator


class Shortest(mg.Strategy):
    \"\"\"Draws n times and keeps the shortest.\"\"\"

    def __init__(self, generator: mg.Generator, n: int, longest: bool = False) -> None:
        self.generator, self.n, self.longest = generator, n, longest

    @property
    def fingerprint(self) -> str:
        return f"shortest {self.n} {self.longest} {self.generator.fingerprint}"

    async def run(self, prefix, until, scope):
        draws = await self.generator.generate(prefix, n=self.n, scope=scope.child("sample"))
        return (max if self.longest else min)(draws, key=lambda draw: len(draw.text))


@part
class Agree(mg.Strategy):
    \"\"\"Draws until answers agree, and asks the verifier about the first of these alone.\"\"\"

    generator: mg.Generator = field(kw_only=False)
    n: Count = field(kw_only=False)
    verifier: mg.Verifier
    answer: mg.AnswerRule
    agree: Count = 2

    @classmethod
    def conflict(cls, given):
        agree, n = given["agree"], given["n"]
        return f"agree={agree}, n={n}; expected agree ≤ n" if agree > n else None

    async def run(self, prefix, until, scope):
        sample, keys = scope.child("sample"), []
        for number in range(self.n):
            (draw,) = await self.generator.generate(prefix, start=number, until=until, scope=sample)
            scope.offer(draw)
            keys += [answer.key for answer in await self.answer.read([draw])]
            if keys.count(keys[-1]) >= self.agree:
                (score,) = await self.verifier.score([draw], scope=scope.child("check"))
                return draw
        return draw


class Twice(mg.MCTS):
    \"\"\"Has a constructor of its own: the fields of its base cannot be given.\"\"\"

    def __init__(self, generator: mg.Generator, verifier: mg.Verifier, twice: int = 2) -> None:
        super().__init__(generator, 2 * twice, verifier=verifier)


class Own(TorchEngine):
    \"\"\"An engine of its own name.\"\"\"


NUMBER = 7


class Loudest(mg.FunctionRule):
    \"\"\"Reads the last word.\"\"\"

    def __init__(self, loud: bool = False) -> None:
        change = str.upper if loud else str.lower
        super().__init__(lambda text: (text.split() or [None])[-1], change, name=f"loudest {loud}")


def brevity(*, name: str = "brevity") -> FunctionVerifier:
    return FunctionVerifier(lambda sequence: mg.Score(1 / (1 + len(sequence.text))), name=name)
"""
POINTS = """\
[metagen.strategies]
shortest = metagen_short:Shortest
agree = metagen_short:Agree
twice = metagen_short:Twice
absent = metagen_short:Nothing
nowhere = metagen_missing.part:Thing

raises = metagen_raises:Shortest
unparsable = metagen_unparsable:Shortest
no_class = metagen_short:NUMBER

[metagen.engines]
own = metagen_short:Own

[metagen.verifiers]
brevity = metagen_short:brevity

[metagen.answers]
loudest = metagen_short:Loudest

[metagen.generators]
sums = metagen_short:generator

[metagen.tasks]
sums = metagen_short:ToyTask
"""
YAML = """\
name: plugged
seed: 3
task: {kind: sums, count: 4}
generators:
  small: {kind: sums, skill: 0.5}
verifiers:
  brief: {kind: brevity}
strategies:
  short: {kind: shortest}
  long: {kind: shortest, longest: true}
  best: {kind: best_of_n, verifier: brief}
  vote: {kind: majority, answer: {kind: loudest, loud: true}}
  agree: {kind: agree, verifier: brief, agree: 1}
  twice: {kind: twice, verifier: brief, twice: 1}
grid: {n: [1, 4]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the experiment, beside a `site` in which the distribution `metagen-short` is installed."""
    site = tmp_path / "site"
    info = site / "metagen_short-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "metagen_short.py").write_text(CODE)
    (site / "metagen_raises.py").write_text("raise RuntimeError('no licence found')\n")
    (site / "metagen_unparsable.py").write_text("class Shortest(:\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: metagen-short\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (info / "INSTALLER").write_text("by-hand\n")
    (tmp_path / "plugged.yaml").write_text(YAML)
    return tmp_path


def metagen(place: Path, *arguments: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return process(place, "-m", "metagen.cli", *arguments, installed=installed)


def process(place: Path, *arguments: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
    """A process of Python which finds the distribution on its path, if it is `installed`."""
    site = [str(place / "site")] if installed else []
    path = os.pathsep.join([*site, str(TOY), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def faults(place: Path, old: str, new: str, *, installed: bool = True) -> str:
    """What is said of the experiment with one thing changed, which must not run."""
    path = place / "plugged.yaml"
    assert YAML.count(old) == 1
    path.write_text(YAML.replace(old, new))
    done = metagen(place, "run", "plugged.yaml", installed=installed)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "runs").exists(), "nothing runs"
    return " ".join(done.stderr.split())


def test_every_kind_of_part_comes_from_a_distribution(place: Path) -> None:
    done = metagen(place, "run", "plugged.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = RunDirectory(place / "runs" / "plugged").final_state().lines
    assert {line.strategy for line in lines} == {"short", "long", "best", "vote", "agree", "twice"}
    # A strategy that never asks about a sample is no judge that failed.
    assert "no score for" not in done.stdout
    assert "metagen_toy" not in (place / "plugged.yaml").read_text()


def test_an_engine_comes_from_a_distribution(place: Path) -> None:
    own = (
        "engines:\n  own: {kind: own, model: tiny-0.1m}\ngenerators:\n  tiny: {engine: own, max_tokens: 8}\n"
    )
    (place / "plugged.yaml").write_text(YAML.replace("generators:\n", own))
    done = metagen(place, "run", "plugged.yaml", "--limit", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_editors_and_new_files_know_its_fields(place: Path) -> None:
    defined = json.loads(metagen(place, "schema").stdout)
    kinds = {one.get("kind", {}).get("const"): one for one in properties(defined)}
    assert kinds["shortest"]["longest"]["type"] == kinds["loudest"]["loud"]["type"] == "boolean"
    for name, kind in (("a", "shortest"), ("b", "metagen_short:Shortest")):
        done = metagen(place, "new", f"{name}.yaml", "--strategy", kind, "--trust")
        assert done.returncode == 0, done.stderr
        page = (place / f"{name}.yaml").read_text()
        assert "    # longest: false        # true or false\n" in page
        assert f"    - [writer, {kind.rpartition(':')[2]}]\n" in page
    done = metagen(place, "new", "c.yaml", "--strategy", "metagen_short:Nobody", "--trust")
    assert done.returncode == 2 and "cannot import 'metagen_short:Nobody'" in done.stderr


def properties(schema: Any) -> Iterator[dict[str, Any]]:
    """The properties of all objects within a JSON schema."""
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield schema["properties"]
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from properties(one)


def test_doctor_names_the_distribution(place: Path) -> None:
    said = " ".join(metagen(place, "doctor").stdout.split())
    assert "shortest ok strategies: metagen_short:Shortest, of metagen-short 1.2" in said
    assert "nowhere fault strategies: metagen_missing.part:Thing" in said


def test_without_the_distribution_the_kind_is_unknown(place: Path) -> None:
    said = faults(place, "kind: best_of_n", "kind: majority", installed=False)
    assert "plugged.yaml:3: task.kind = 'sums': expected one of arithmetic, " in said
    assert "plugged.yaml:9: strategies.short.kind = 'shortest': expected one of sample, greedy" in said


#: A change of the experiment, and what is said of it.
WRONG = (
    ("{kind: shortest}", "{kind: absent}", "cannot import 'metagen_short:Nothing'"),
    ("{kind: shortest}", "{kind: nowhere}", "cannot import 'metagen_missing.part:Thing'"),
    ("{kind: shortest}", "{kind: raises}", "cannot import 'metagen_raises:Shortest'"),
    ("{kind: shortest}", "{kind: unparsable}", "cannot import 'metagen_unparsable:Shortest'"),
    ("{kind: shortest}", "{kind: no_class}", "'metagen_short:NUMBER'"),
    ("{kind: shortest}", "{kind: shortst}", "did you mean 'shortest'?"),
    ("longest: true", "longer: true", "did you mean 'longest'?"),
    ("kind: loudest", "kind: loudst", "strategies.vote.answer.kind = 'loudst': expected one of number,"),
    ("agree: 1}", "agree: 2}", "strategies.agree: with n = 1 of the grid: agree=2, n=1; expected agree ≤ n"),
    ("agree: 1}", "agree: 5, n: [8, 4]}", "agree=5, n=4; expected agree ≤ n"),
    ("loud: true", "loud: very", "strategies.vote.answer.loud = 'very': expected true or false"),
)
#: The command for several files, in one process.
SCRIPT = """
import json, sys
from typer.testing import CliRunner
from metagen.cli import app

done = [CliRunner().invoke(app, ["run", file]) for file in sys.argv[1:]]
print(json.dumps([(one.exit_code, one.output) for one in done]))
"""


def test_what_is_wrong_with_a_plug_in_is_said(place: Path) -> None:
    files = []
    for i, (old, new, _) in enumerate(WRONG):
        assert YAML.count(old) == 1
        files.append(f"plugged-{i}.yaml")
        (place / files[-1]).write_text(YAML.replace(old, new))
    answers = json.loads(process(place, "-c", SCRIPT, *files).stdout)
    for file, (_, _, expected), (code, said) in zip(files, WRONG, answers, strict=True):
        words = " ".join(said.split())
        assert code == 2 and expected in words and f"{file}:" in words, said
        assert "Traceback" not in said
    assert not (place / "runs").exists(), "nothing runs"
