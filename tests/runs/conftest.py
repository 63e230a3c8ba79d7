"""Toy experiments and a toy study of sums, of parts that another package would bring; a small run."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from metagen.runs import study as studies
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import schema, study_schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

TOY = Path(__file__).parent / "toy"
YAML = """\
name: sums
seed: 3
task: {{kind: "metagen_toy:ToyTask", count: {count}}}
generators:
  small: {{kind: "metagen_toy:generator", skill: 0.5, name: small}}
  large: {{kind: "metagen_toy:generator", skill: 0.75, name: large}}
verifiers:
  judge: {{kind: "metagen_toy:verifier"}}
  oracle: {{kind: oracle}}
strategies:
  single: {{kind: sample}}
  majority: {{kind: majority}}
  best-of-n: {{kind: best_of_n, verifier: judge}}
  weighted: {{kind: weighted, verifier: judge}}
  pass: {{kind: best_of_n, verifier: oracle}}
grid: {{n: {n}}}
executor: {{concurrency: 3}}
"""


MORE = """\
name: sums
seed: 3
task: {{kind: "metagen_toy:ToyTask", count: {count}}}
generators:
  small: {{kind: "metagen_toy:generator", skill: 0.5, name: small}}
  large: {{kind: "metagen_toy:generator", skill: 0.75, name: large}}
verifiers:
  judge: {{kind: "metagen_toy:verifier"}}
  weak: {{kind: "metagen_toy:verifier", quality: 0.2, name: weak}}
  oracle: {{kind: oracle}}
strategies:
  single: {{kind: sample}}
  majority: {{kind: majority}}
  best: {{kind: best_of_n, verifier: judge}}
  weighted: {{kind: weighted, verifier: judge}}
  pass: {{kind: best_of_n, verifier: oracle}}
  soft: {{kind: soft_best_of_n, verifier: judge, beta: 0.2, n: [2, 4]}}
grid: {{n: {n}}}
executor: {{concurrency: 3}}
"""
STUDY = """\
study:
  budgets: {samples: [2, 8]}
  development:
    task: {seed: 70, count: 4, label: dev}
    trials: 2
    n: 4
    settings:
      majority: [{}, {generator.skill: 0.9}]
      best: [{}, {verifier: weak}]
      soft: [{}, {beta: 1.0}]
  limit: {n: 16, seed: 1}
  temperature: {models: [small], values: [0.5, 1.0], n: 4, task: {seed: 71, count: 3, label: warm}}
  splitting: {models: [small], aggregate: weighted, critiques: {1: weak, 2: judge}, n: [1, 2, 4]}
"""


SMALL = """\
name: small
seed: 0
task: {kind: arithmetic, split: test, seed: 0, levels: [1, 3], per_level: 2}
engines:
  small: {kind: torch, model: tiny-0.1m, device: cpu}
  prm: {kind: torch, model: tiny-prm, device: cpu}
  critic: {kind: torch, model: tiny-critic, device: cpu}
generators:
  mid: {engine: small, temperature: 1.0, max_tokens: 80}
verifiers:
  last: {kind: prm, engine: prm, aggregation: last}
  critic: {kind: judge, engine: critic, critiques: 2}
strategies:
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: last}
  judged: {kind: weighted, verifier: critic}
  adaptive: {kind: adaptive_consistency, n: 4, batch: 2}
  rebase: {kind: rebase, verifier: last, n: 4}
  blockwise: {kind: blockwise, verifier: last, n: 2}
  mcts: {kind: mcts, verifier: last, n: 3}
grid: {n: [1, 2, 4]}
executor: {concurrency: 4}
"""


@pytest.fixture(scope="module", autouse=True)
def lean(lean_figures: list[str]) -> None:
    """Runs and studies write many figures, at which few tests look; those ask for `whole_figures`."""


@pytest.fixture
def whole_figures(lean_figures: list[str]) -> Iterator[None]:
    """Figures are written in all formats."""
    left = lean_figures.copy()
    lean_figures.clear()
    yield
    lean_figures.extend(left)


@pytest.fixture
def experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the toy experiment; more lines of YAML may be appended."""
    monkeypatch.syspath_prepend(str(TOY))

    def write(*, count: int = 6, n: str = "[1, 2, 8]", more: str = "") -> Path:
        path = tmp_path / "sums.yaml"
        path.write_text(YAML.format(count=count, n=n) + more)
        return path

    return write


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Samples that generators have really made so far, as `generator problem index`."""
    log = tmp_path / "calls.log"
    monkeypatch.setenv("TOY_LOG", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def study_experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the toy experiment that studies ask more of: a weak judge, a soft choice."""
    monkeypatch.syspath_prepend(str(TOY))

    def write(*, count: int = 6, n: str = "[1, 2, 8]", more: str = "") -> Path:
        path = tmp_path / "sums.yaml"
        path.write_text(MORE.format(count=count, n=n) + more)
        return path

    return write


@pytest.fixture
def study_file(study_experiment_file: Callable[..., Path]) -> Callable[..., Path]:
    """Writes the toy study: other models and strategies may be set as in `metagen study --set`."""

    def write(*, count: int = 6, n: str = "[1, 2, 8]", study: str = STUDY) -> Path:
        return study_experiment_file(count=count, n=n, more=study)

    return write


@dataclass(frozen=True)
class Finished:
    """The toy study as `study_file` writes it, run to its end; nobody may change its directory."""

    root: Path
    result: StudyResult
    #: Samples that it took, as those of `calls`.
    calls: list[str]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run once: most tests of studies look at one that is finished, or go on with a copy of it."""
    folder = tmp_path_factory.mktemp("finished")
    file, log = folder / "sums.yaml", folder / "calls.log"
    file.write_text(MORE.format(count=6, n="[1, 2, 8]") + STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        patch.setenv("TOY_LOG", str(log))
        result = studies.run(study_schema.load(file), folder / "study")
    return Finished(folder / "study", result, log.read_text().splitlines())


@pytest.fixture
def copied_study(finished: Finished, tmp_path: Path) -> Path:
    """The directory of a finished toy study, which may be changed."""
    return shutil.copytree(finished.root, tmp_path / "study")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four problems of two levels."""
    folder = tmp_path_factory.mktemp("small")
    file: Path = folder / "small.yaml"
    file.write_text(SMALL)
    directory = RunDirectory.at(folder / "run")
    with build.open_setup(schema.load(file)) as setup:
        assert runner.run(setup, directory, calls=True).status == "complete"
    return directory
