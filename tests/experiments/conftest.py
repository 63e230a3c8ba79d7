"""A toy experiment of sums, made of parts that another package would bring (`toy/metagen_toy.py`)."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
