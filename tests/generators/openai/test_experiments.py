"""Experiments with a server for an engine: the sections of a file, prices, and searches from end to end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from metagen.budget import Budget
from metagen.cli import app
from metagen.cost import Price
from metagen.errors import BudgetExhausted, ConfigError, InputError, UnsupportedError
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.openai.retries import Patience
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.runs.declare.registry import make
from metagen.runs.declare.schema import dump, load
from metagen.runs.declare.specs.engines import OpenAISpec
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import KEY, Reply, Server, always, answer

pytestmark = pytest.mark.usefixtures("lean_figures")

EXAMPLE = Path(__file__).parents[3] / "examples" / "http.yaml"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TorchEngine("tiny-0.5m", threads=1) as engine, Server(serves(engine)).open() as server:
        yield server


def written(folder: Path, **engine: Any) -> Path:
    """An experiment file whose one engine has these fields."""
    given = {"kind": "openai", "model": "m", "base_url": "http://localhost:8000/v1", **engine}
    experiment = {
        "name": "x",
        "task": {"kind": "arithmetic", "split": "validation", "levels": [1], "per_level": 2},
        "engines": {"gpt": given},
        "generators": {"gpt": {"engine": "gpt", "max_tokens": 20}},
        "strategies": {"one": {"kind": "sample"}},
        "grid": {},
    }
    file = folder / "x.yaml"
    file.write_text(yaml.safe_dump(experiment))
    return file


def test_all_fields_of_the_engine_can_be_given_in_a_file(tmp_path: Path) -> None:
    file = written(
        tmp_path, api="completions", dialect="vllm", tokenizer="tiny-0.1m", max_context=100, revision="r1",
        api_key_env="NO_SUCH_KEY_BUT_A_NAME", n_per_request=2, seed_bits=0, structured_outputs=True,
        length_field="max_completion_tokens", extra_body={"priority": 1}, shape="config.json",
        price={"prompt": 1, "generated": 2.5, "cached": 0.5}, concurrency={"start": 2, "most": 4},
        patience={"timeout": 5, "total": 50, "attempts": 3},
    )  # fmt: skip
    (tmp_path / "config.json").write_text("{}")
    experiment = load(file)
    spec = experiment.engines["gpt"]
    assert isinstance(spec, OpenAISpec)
    assert spec.price == Price(1.0, 2.5, 0.5) or isinstance(spec.price, Price)
    assert isinstance(spec.concurrency, Concurrency) and spec.concurrency.most == 4
    assert isinstance(spec.patience, Patience) and spec.patience.attempts == 3
    (tmp_path / "again.yaml").write_text(dump(experiment))
    assert load(tmp_path / "again.yaml") == experiment


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"extra_body": {"temperature": 1.0}},
            "extra_body: 'temperature' would replace .*; say it there, and leave it",
        ),
        ({"extra_body": {"max_completion_tokens": 5}}, "extra_body: 'max_completion_tokens'"),
        ({"dialect": "vllm", "extra_body": {"top_k": 5}}, "extra_body: 'top_k'"),
        ({"dialect": "vllm", "extra_body": {"min_p": 0.1}}, "extra_body: 'min_p'"),
        (
            {"structured_outputs": True, "extra_body": {"response_format": {}}},
            "extra_body: 'response_format'",
        ),
        ({"api": "completions", "continuation": True}, "continuation=True: is of chats, .*'completions'"),
        ({"extra_body": {"top_k": 5, "min_p": 0.1, "response_format": {"type": "json_object"}}}, ""),
        ({"dialect": "llamacpp", "extra_body": {"repeat_penalty": 1.1}}, ""),
    ],
)
def test_what_requests_say_themselves_is_no_option_in_python_nor_in_files(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    def check() -> None:
        OpenAIEngine("m", base_url="http://localhost:8000/v1", **fields)

    for told in (check, lambda: load(written(tmp_path, **fields))):
        if words:
            with pytest.raises(InputError, match=words):
                told()
        else:
            told()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"api_key": KEY}, "environment only"),
        ({"openai_api_key": KEY}, "environment only"),
        ({"token": KEY}, "environment only"),
        ({"headers": {"Authorization": KEY}}, "no such field"),
        ({"api_key_env": KEY}, "environment only"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "password"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "query"),
        ({"extra_body": {"api_key": KEY}}, "environment variable"),
        ({"extra_body": {"token": KEY}}, "environment variable"),
        ({"extra_body": {"metadata": [{"my_api_key": KEY}]}}, "environment variable"),
    ],
)
def test_a_key_in_a_file_is_refused_and_not_repeated(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(written(tmp_path, **fields))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "assignment",
    [
        f"engines.gpt.api_key={KEY}",
        f"engines.gpt.api_key.inner={KEY}",
        f"engines.gpt.api_key: {KEY}",
        f"engines.gpt.api_key=[{KEY}",
        f"engines.gpt.api_key_env={KEY}",
        f"engines.gpt.base_url=http://me:{KEY}@host/v1",
        f"engines.gpt.extra_body={{metadata: {{api-key: {KEY}}}}}",
        f"engines.gpt.extra_body.token={KEY}",
        f"engines.new={{kind: openai, model: m, api_key: {KEY}}}",
        f"engines.new={{kind: opnai, api_key: {KEY}}}",
        f"engines.new={{kind: torch, model: tiny-0.1m, api_key: {KEY}}}",
        f"generators.gpt.api_key={KEY}",
        f"api_key={KEY}",
        f"task.options={{hf_token: {KEY}}}",
    ],
)
def test_a_key_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path, assignment: str) -> None:
    done = CliRunner().invoke(app, ["run", str(written(tmp_path)), "--dry-run", "--set", assignment])
    assert done.exit_code == 2, done.output
    assert KEY not in done.output
    assert re.split(r"[^\w]", assignment)[0] in done.output, "it says where"


@pytest.mark.parametrize(("section", "kind"), [("generators", "engine"), ("strategies", "sample")])
def test_a_key_anywhere_in_a_file_is_not_repeated(tmp_path: Path, section: str, kind: str) -> None:
    file = written(tmp_path)
    text = yaml.safe_load(file.read_text())
    text[section]["x"] = {"kind": kind, "api_key": KEY, "headers": [{"Authorization": KEY}]}
    file.write_text(yaml.safe_dump(text))
    with pytest.raises(ConfigError, match="api_key") as caught:
        load(file)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"api": "chats"}, {"dialect": "vlm"}, {"n_per_request": 0}, {"seed_bits": 64}, {"price": {"prompt": 1}},
        {"price": {"prompt": -1, "generated": 1}}, {"concurrency": {"start": 5, "most": 4}}, {"model": ""},
        {"patience": {"timeout": 0}}, {"base_url": "localhost"}, {"tokenizer": "no-such-model"}, {"modle": "x"},
    ],
)  # fmt: skip
def test_a_file_with_a_fault_is_refused_before_anything_runs(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"gpt.{next(iter(fields))}"):
        load(written(tmp_path, **fields))


def test_what_decodes_with_an_engine_that_bills_pays_its_price() -> None:
    engine = OpenAIEngine("m", base_url="http://localhost/v1", price=Price(3.0, 15.0, 0.3))
    made = make("generators", "engine", {}, {"engine": engine})
    assert isinstance(made, EngineGenerator) and made.price == engine.price
    assert made.replace(temperature=0.5).price == engine.price == engine.generator().price
    unknown = OpenAIEngine("m", base_url="http://localhost/v1")
    assert make("generators", "engine", {}, {"engine": unknown}).price is None


def test_a_budget_of_money_is_never_overshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was charged for is what the server counted, at the engine's price."""
    price = Price(prompt=1e6, generated=2e6)  # a token of the prompt costs 1, one that is generated 2

    async def spend(engine: OpenAIEngine, money: float) -> tuple[int, float]:
        scope = Scope.root("p", budget=Budget(money=money))
        generator = engine.generator(max_tokens=8)
        got = 0
        try:
            for i in range(50):
                got += len(
                    await generator.generate(
                        Sequence.of(Prompt.of("What?")), start=i, scope=scope.child(str(i))
                    )
                )
        except BudgetExhausted:
            pass
        return got, sum(row.usage.money or 0.0 for row in scope.trace.rows)

    with Server(always(Reply(body=answer(prompt=4, new=3)))).open() as server:
        with OpenAIEngine("m", base_url=server.url, price=price) as engine:
            got, spent = asyncio.run(spend(engine, 150.0))
        assert 0 < got < 50 and spent <= 150.0
        assert spent == pytest.approx(got * (4 + 2 * 3), abs=2 * 5), "the last may be cut to what is left"
        with OpenAIEngine("m", base_url=server.url) as free, pytest.raises(UnsupportedError, match="price"):
            asyncio.run(spend(free, 150.0))


def test_the_same_model_at_another_address_is_the_same_and_another_revision_is_not() -> None:
    def made(**options: Any) -> str:
        return OpenAIEngine("m", **{"base_url": "http://localhost:1/v1", **options}).fingerprint

    assert made() == made(base_url="http://elsewhere:2/v1") == made(concurrency=Concurrency(1, 2))
    others = [
        made(revision="2026-01"), made(api="completions"), made(dialect="vllm"), made(extra_body={"a": 1}),
        made(n_per_request=2), made(tokenizer="tiny-0.1m"), made(seed_bits=0), OpenAIEngine("n", base_url="http://x/v1").fingerprint,
    ]  # fmt: skip
    assert len({made(), *others}) == 1 + len(others)


def test_the_example_runs_votes_and_searches_against_a_server(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--limit", "2", "--set", f"engines.served.base_url={server.url}", "--set", "grid.n=[4]"]
    first = CliRunner().invoke(app, ["run", str(EXAMPLE), "--out", str(run), *options])
    assert first.exit_code == 0, first.output
    assert (run / "report.html").exists()
    paid = len(server.asked)
    assert paid > 8
    moved = ["--set", "engines.served.base_url=http://127.0.0.1:9/v1"]
    again = CliRunner().invoke(app, ["run", str(EXAMPLE), "--out", str(run), *options, *moved])
    assert again.exit_code == 0, again.output
    assert len(server.asked) == paid, "the journal answers for a server that is gone"


def test_an_estimate_needs_no_server(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(EXAMPLE), "--dry-run", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "30 problems" in done.output
