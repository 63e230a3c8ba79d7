"""Files named after papers: valid for the paper's own models, and rehearsed from end to end on small ones."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from metagen.cli import app
from metagen.generators import tiny
from metagen.generators.torch import TorchEngine
from metagen.runs.declare import study_schema
from metagen.sequence import Prompt, Sequence
from metagen.testing import run
from metagen.verifiers.reward import ProcessRewardModel, Tags
from tests.fetched import fetch_or_skip
from tests.generators.torch.scored_models import make_language_model, published_tokenizer, save_sentences

pytestmark = pytest.mark.usefixtures("lean_figures")

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted((EXAMPLES / "papers").glob("*.yaml"))
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_file_is_valid_for_the_models_of_the_paper(file: Path, tmp_path: Path) -> None:
    """With directories in their places that look like them."""
    copy = tmp_path / "examples" / "papers" / file.name
    copy.parent.mkdir(parents=True)
    shutil.copy(file, copy)
    content = yaml.safe_load(file.read_text("utf-8"))
    for engine in content["engines"].values():
        directory = (copy.parent / engine["model"]).resolve()
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(json.dumps(CONFIG))
        shutil.copy(tiny.HERE / "tiny-bpe" / "tokenizer.json", directory)
    found = study_schema.load(copy)
    assert found.experiment.name == file.stem.replace("_", "-")
    for engine in content["engines"].values():
        name = Path(engine["model"]).name
        assert f"--local-dir models/{name}" in file.read_text("utf-8"), (
            "the file says where its models are from"
        )


#: Of rehearsals that take minutes for one problem, what is smaller here. A rule is asked for more than one candidate
#: all the same, a tree has branches to choose among, a chain goes on, and a vote that stops early has votes left.
SMALLER = {
    "aggarwal_2023": ["strategies.adaptive.n=[6]"],
    "fu_2025": [
        "strategies.majority.n=8",
        *(f"strategies.confident-{kept}.n=8" for kept in ("tenth", "most")),
        *(f"strategies.deepconf-{kept}.{part}" for kept in ("low", "high") for part in ("n=8", "warmup=4")),
    ],
    "muennighoff_2025": [f"strategies.wait-{waits}.{end}=48" for waits in (2, 4, 6) for end in ("least", "most")],
    "search_and_learn": ["strategies.beam.n=[8]", "strategies.dvts.n=[8]"],
    "singhi_2025": ["strategies.majority.n=[1, 2, 4]", "study.splitting.n=[1, 2]"],
    "snell_2024": [
        "strategies.sequential.rounds=1", "strategies.chains-of-4.rounds=1", "strategies.parallel.n=2",
        "strategies.beam.n=[4]", "study.limit.n=8",
    ],
    "wu_2024": ["strategies.rebase.n=[4]"],
}  # fmt: skip
#: Tokens of a solution, at most, where a rehearsal allows 80 or 120: nine of ten by its model have come to their end,
#: and the others would keep it going for most of the time. Critiques stay as long as they are.
SOLUTIONS, LONGEST = (80, 120), 45


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_rehearsal_runs(file: Path, tmp_path: Path) -> None:
    fetch_or_skip("smollm2-135m-solver")
    content = yaml.safe_load(file.read_text("utf-8"))
    asked = [
        "study" if "study" in content else "run", str(file), "--rehearse", "--limit", "1",
        "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    if n := {**content["grid"], **content["rehearsal"].get("grid", {})}.get("n"):
        asked += ["--set", f"grid.n={n[:2]}"]
    smaller = [
        f"generators.{name}.max_tokens={LONGEST}"
        for name, generator in content["rehearsal"]["generators"].items()
        if generator and generator["max_tokens"] in SOLUTIONS
    ]
    asked += [part for change in smaller + SMALLER.get(file.stem, []) for part in ("--set", change)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "report.html").exists()


def test_llemmas_reward_is_read_as_its_authors_read_it(scripts: Any, tmp_path: Path) -> None:
    """The sigmoid of the mean of all logits at each tag, of a head of two rows that repeat."""
    published = tmp_path / "published"
    published.mkdir()
    reference = make_language_model(published, save_sentences(published))
    weights = load_file(published / "model.safetensors")
    head = weights["lm_head.weight"]
    pair = head[:2].repeat(len(head) // 2 + 1, 1)[: len(head)].contiguous()
    save_file(weights | {"lm_head.weight": pair}, published / "model.safetensors", metadata={"format": "pt"})
    written = "Step one: 1 ки\nthe fox ки\nA: 19 ки"
    tokenizer = published_tokenizer(published)
    ids = tuple(tokenizer.encode(f"Q: 7 = ? {written}"))
    at = [i for i, token in enumerate(ids) if token == tokenizer.convert_tokens_to_ids("▁ки")]
    # Logits are h·w, so those of the repeated head follow from two rows of the reference.
    logits = reference(ids)[at][:, :2].repeat(1, len(head) // 2 + 1)[:, : len(head)]
    want = logits.mean(dim=-1).sigmoid().tolist()
    script = EXAMPLES / "papers" / "llemma_reward.py"
    made = tmp_path / "made"
    scripts.here([sys.executable, str(script), str(published), "--local-dir", str(made)])
    with TorchEngine(made, threads=1, max_batch=4) as engine:
        prm = ProcessRewardModel(engine, Tags("ки", "+", "-", " ки", inline=True))
        ((score,), _) = run(lambda scope: prm.score([Sequence(Prompt.of("Q: 7 = ?"), written)], scope=scope))
    assert len(set(want)) == 3 and score.steps == pytest.approx(want, abs=1e-5)
    assert not torch.equal(load_file(made / "model.safetensors")["lm_head.weight"], pair)
