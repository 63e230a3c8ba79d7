"""Importing metagen is cheap, and offers what its stub promises."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import metagen

HEAVY = [
    "torch",
    "transformers",
    "matplotlib",
    "pandas",
    "numpy",
    "scipy",
    "pydantic",
    "rich",
    "ray",
    "sympy",
    "mpmath",
    "vllm",
]


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds of the best of three runs.

    On an idle machine they are what one waits; on a busy one, the tests' other processes do not count.
    """

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    best = float("inf")
    for _ in range(3):
        before = spent()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, spent() - before)
    return best


def test_import_takes_less_than_a_third_of_a_second() -> None:
    assert cpu_seconds([sys.executable, "-c", "import metagen"]) < 0.3


def test_help_takes_less_than_half_a_second() -> None:
    command = [sys.executable, "-c", "from metagen.cli import app; app(prog_name='metagen')", "--help"]
    assert cpu_seconds(command) < 0.5


def test_import_loads_nothing_heavy() -> None:
    code = f"import metagen, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", metagen.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(metagen, name) is not None
    assert name in dir(metagen)


def test_stub_repeats_each_name() -> None:
    """`import A as A` is what type checkers take for a public name."""
    stub = Path(metagen.__file__).with_suffix(".pyi").read_text("utf-8")
    aliases = [a for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert aliases
    assert all(a.name == a.asname for a in aliases)


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Promt'") as caught:
        _ = metagen.Promt
    assert (caught.value.name, caught.value.obj) == ("Promt", metagen)
