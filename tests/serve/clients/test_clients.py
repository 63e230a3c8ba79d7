"""Programs of other people's clients against a server in a process of its own: each must find the strategy's accuracy.

Clients send other fields beside the question. With `own_sampling` and one seed a server gives all of them the same
answers, so the accuracies must be equal, not near. Clients that are not installed are skipped: `make clients` runs all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metagen.generators.torch.engine import TorchEngine
from metagen.sequence import Form, Prompt
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import MajorityVote, greedy
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.numbers import NumberRule
from tests.serve.clients.process import environment, missing, serve

HERE = Path(__file__).parent
SEED = 1234
FILE: dict[str, Any] = {
    "name": "clients",
    "task": {"kind": "arithmetic", "split": "validation", "seed": 41, "levels": [3, 4], "per_level": 15},
    "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
    "generators": {"small": {"engine": "small", "max_tokens": 120}},
    "strategies": {"greedy": {"kind": "greedy"}, "majority": {"kind": "majority"}},
    "grid": {"n": [16]},
    "serve": {"own_sampling": True, "aliases": {"greedy": "small/greedy", "vote": "small/majority@16"}},
}
#: Programs by the package that they need; with the form in which they ask.
PROGRAMS: dict[str, tuple[str, list[str], Form]] = {
    "openai": ("by_openai.py", [], "auto"),
    "openai for node": ("by_openai.cjs", [], "auto"),
    "litellm": ("by_litellm.py", [], "auto"),
    "langchain_openai": ("by_langchain.py", [], "auto"),
    "inspect_ai": ("by_inspect.py", [], "auto"),
    "lm_eval": ("by_lm_eval.py", [], "text"),
    "lm_eval, chat": ("by_lm_eval.py", ["chat"], "auto"),
    "dspy": ("by_dspy.py", [], "auto"),
}


@dataclass(frozen=True)
class Served:
    """A server in a process of its own. url: with /v1."""

    url: str
    problems: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    problems = folder / "problems.jsonl"
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in asked()]
    problems.write_text("\n".join(lines) + "\n", "utf-8")
    with serve(folder, FILE) as url:
        yield Served(url, problems)


def asked() -> list[tuple[str, str]]:
    options = {name: value for name, value in FILE["task"].items() if name != "kind"}
    return [(str(one.prompt.text), str(one.reference)) for one in ArithmeticTask(**options).problems()]


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, str], float]:
    """Accuracies by model and form, of the strategies in this process."""
    found: dict[tuple[str, str], float] = {}
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        drawn = engine.generator(max_tokens=120)
        vote = MajorityVote(drawn, n=16, answer=NumberRule())
        strategies: dict[str, Strategy] = {"greedy": greedy(drawn), "vote": vote}
        for name, strategy in strategies.items():
            for form in ("auto", "text"):
                right = [is_right(strategy, question, answer, form) for question, answer in asked()]
                found[name, form] = sum(right) / len(right)
    return found


def is_right(strategy: Strategy, question: str, answer: str, form: Form) -> bool:
    text = strategy.solve(Prompt.of(question, form=form), seed=SEED).text
    return re.findall(r"(?m)^A:(.*)$", text)[-1:] == [answer]


def run(program: list[str], served: Served, model: str) -> dict[str, Any]:
    """The last line that a program prints."""
    file, *rest = program
    with_what = "node" if file.endswith(".cjs") else sys.executable
    command = [with_what, str(HERE / file), served.url, model, str(served.problems), *rest]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=540, check=False, env=environment(),
        cwd=served.problems.parent,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


@pytest.mark.parametrize("model", ["greedy", "vote"])
@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_finds_the_accuracy_of_the_strategy(
    served: Served, expected: dict[tuple[str, str], float], client: str, model: str
) -> None:
    if lack := missing(client):
        pytest.skip(lack)
    file, rest, form = PROGRAMS[client]
    told = run([file, *rest], served, model)
    assert told["problems"] == len(asked())
    assert told["accuracy"] == pytest.approx(expected[model, form], abs=1e-9)


def test_the_problems_tell_strategies_apart(expected: dict[tuple[str, str], float]) -> None:
    assert 0.1 < expected["greedy", "auto"] < 0.95
    assert expected["vote", "auto"] != expected["greedy", "auto"]
    # The answer of a greedy strategy does not depend on the form; the samples of a vote do.
    assert expected["greedy", "auto"] == expected["greedy", "text"]
