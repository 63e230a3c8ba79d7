"""Files named after papers: valid for the paper's own models, and rehearsed from end to end on small ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.generators import tiny
from metagen.runs.declare import study_schema
from tests.fetched import fetch_or_skip

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


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_rehearsal_runs(file: Path, tmp_path: Path) -> None:
    fetch_or_skip("smollm2-135m-solver")
    grid = yaml.safe_load(file.read_text("utf-8"))["rehearsal"].get("grid", {}).get("n", [1, 2])
    asked = ["run", str(file), "--rehearse", "--limit", "2", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*asked, "--set", f"grid.n={grid[:2]}"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "report.html").exists()
