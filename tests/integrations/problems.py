"""Problems, and the accuracy of a vote on them, that the tests of all integrations share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import metagen as mg
from metagen.sequence import Form
from tests.serve.clients.process import missing

SEED = 1234
FILE: dict[str, Any] = {
    "name": "integrations",
    "task": {"kind": "arithmetic", "split": "validation", "seed": 41, "levels": [2, 3], "per_level": 10},
    "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
    "generators": {"small": {"engine": "small", "max_tokens": 120}},
    "strategies": {"greedy": {"kind": "greedy"}, "majority": {"kind": "majority"}},
    "grid": {"n": [8]},
    "serve": {"aliases": {"greedy": "small/greedy", "vote": "small/majority@8"}},
}
TASK = mg.ArithmeticTask(split="validation", seed=41, levels=(2, 3), per_level=10)
#: Questions and answers.
ASKED = [(str(one.prompt.text), str(one.reference)) for one in TASK.problems()]


def skip_without(package: str) -> None:
    """Skip a module of tests whose package is not installed."""
    if lack := missing(package):
        pytest.skip(lack, allow_module_level=True)


def write(folder: Path, **change: Any) -> str:
    """The path of the file."""
    path = folder / "served.yaml"
    path.write_text(yaml.safe_dump({**FILE, **change}), "utf-8")
    return str(path)


@contextmanager
def voting() -> Iterator[mg.MajorityVote]:
    """The vote of the file."""
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        yield mg.MajorityVote(engine.generator(max_tokens=120), n=8, answer=mg.NumberRule())


def accuracy(strategy: mg.Strategy, form: Form = "auto") -> float:
    """Of a strategy, solving by itself."""
    return sum(
        is_right(strategy.solve(mg.Prompt.of(q, form=form), seed=SEED).text, a) for q, a in ASKED
    ) / len(ASKED)


def is_right(text: str, answer: str) -> bool:
    """Whether the last line that begins with A: holds the answer."""
    return re.findall(r"(?m)^A:(.*)$", text)[-1:] == [answer]
