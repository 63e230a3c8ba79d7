"""Searches, votes and reward models on vLLM, from Python and from an experiment file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from metagen.cost import Usage
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Step
from metagen.strategies.parallel import BestOfN, MajorityVote, WeightedVote
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import run
from metagen.verifiers.reward import ProcessRewardModel

SOME = [p.prompt for p in ArithmeticTask("validation", levels=[2, 3], per_level=4).problems()]
SOLUTIONS = (
    "a=12+7=19\nb=19*3=57\nc=57/19=3\nA:3\n",
    "a=12+7=19\nb=19*3=67\nc=67/19=3\nA:3\n",
    "a=12+7=19\nb=19*3=57\nc=57/1",
    "A:57\n",
)


@pytest.fixture(scope="module")
def judge(small: dict[str, Any]) -> Iterator[Any]:
    """The process reward model, open."""
    from metagen.generators.vllm import VLLMEngine

    with VLLMEngine("tiny-prm", **small) as engine:
        yield engine


def test_process_rewards_are_those_of_the_torch_engine_and_read_from_the_cache(judge: Any) -> None:
    from metagen.generators.torch import TorchEngine

    question = Sequence.of("Q:a=12+7;b=a*3;c=b/a;c?\nS:\n")
    sequences = [question.extend(text) for text in SOLUTIONS]

    def scores(engine: Any) -> list[Score]:
        return run(lambda scope: ProcessRewardModel(engine).score(sequences, scope=scope))[0]

    with TorchEngine("tiny-prm", dtype="float32", threads=1) as other:
        theirs = scores(other)
    before = judge.stats.cached
    for a, b in zip(scores(judge), theirs, strict=True):
        assert a.steps == pytest.approx(b.steps, abs=1e-3)
    assert judge.stats.cached > before, "later steps begin with earlier ones"
    # Scored once more by a verifier that remembers nothing: only the last blocks are computed.
    prefilled, cached = judge.stats.prefilled, judge.stats.cached
    scores(judge)
    assert judge.stats.prefilled - prefilled <= judge.stats.cached - cached + 200


@pytest.mark.parametrize("kind", ["majority", "best of n", "weighted", "rebase"])
def test_strategies_run_and_account(model: Any, judge: Any, kind: str) -> None:
    task = ArithmeticTask("validation")
    writer, prm = model.generator(max_tokens=160), ProcessRewardModel(judge)
    strategy: Any = {
        "majority": lambda: MajorityVote(writer, 8, answer=task.answer),
        "best of n": lambda: BestOfN(writer, 8, verifier=prm, answer=task.answer),
        "weighted": lambda: WeightedVote(writer, 8, verifier=prm, answer=task.answer),
        "rebase": lambda: Rebase(writer, 8, verifier=prm, answer=task.answer, until=Step("\n")),
    }[kind]()
    before = model.stats.prefilled + model.stats.generated

    async def together() -> list[Any]:
        return list(await asyncio.gather(*(strategy.asolve(prompt) for prompt in SOME)))

    results = asyncio.run(asyncio.wait_for(together(), 600))
    assert all(result.text and result.answer is not None for result in results)
    rows = [row for result in results for row in result.trace.rows if row.kind == "generate"]
    physical = Usage.sum(row.physical for row in rows)
    assert physical.tokens == model.stats.prefilled + model.stats.generated - before
    assert all(result.usage.generated for result in results)


def test_thousands_of_coroutines(model: Any) -> None:
    """Each its own call of a generator, under its own scope."""
    writer = model.generator(max_tokens=3)

    async def storm() -> list[Any]:
        scopes = [Scope.root(f"p{i}") for i in range(3000)]
        calls = [
            writer.generate(Sequence.of(f"Q:a={i % 50}+7;a?\nS:\n"), scope=s) for i, s in enumerate(scopes)
        ]
        return list(await asyncio.gather(*calls))

    found = asyncio.run(asyncio.wait_for(storm(), 900))
    assert len(found) == 3000
    assert all(0 < len(one.tokens.ids) <= 3 for (one,) in found)


def test_an_experiment_runs_on_both_engines_by_changing_its_kind(tmp_path: Path) -> None:
    """Greedily, both give the same numbers; the files differ in `kind`, and in what is vLLM's own."""
    from metagen.cli import app

    engine = {"kind": "torch", "model": "tiny-0.5m", "dtype": "float32"}
    file: dict[str, Any] = {
        "name": "both",
        "task": {"kind": "arithmetic", "split": "validation", "levels": [1, 2], "per_level": 4},
        "engines": {"one": engine},
        "generators": {"one": {"engine": "one", "max_tokens": 120}},
        "strategies": {"greedy": {"kind": "greedy"}, "majority": {"kind": "majority"}},
        "grid": {"n": [4]},
    }
    accuracy = {}
    for kind, own in (
        ("torch", {}),
        ("vllm", {"args": {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 28}}),
    ):
        file["engines"]["one"] = {**engine, "kind": kind, **own}
        path = tmp_path / f"{kind}.yaml"
        path.write_text(yaml.safe_dump(file))
        result = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / kind)])
        assert result.exit_code == 0, result.output
        found = pq.read_table(tmp_path / kind / "outcomes.parquet").to_pylist()
        accuracy[kind] = {
            row["problem"]: row["text"] for row in found if row["configuration"] == "one/greedy"
        }
    assert len(accuracy["torch"]) == 8
    parted = [name for name, text in accuracy["torch"].items() if accuracy["vllm"][name] != text]
    assert len(parted) <= 1, "rounding may change one"


def test_the_example_runs(tmp_path: Path) -> None:
    """Votes and a search, with the reward model on vLLM as well."""
    from metagen.cli import app

    file = Path(__file__).parents[3] / "examples" / "vllm.yaml"
    asked = ["run", str(file), "--out", str(tmp_path / "run"), "--limit", "2", "--set", "grid.n=[2]"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").exists()
