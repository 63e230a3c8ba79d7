"""Which settings of a generator make its samples something else than draws of its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.generators.engine import SamplingParams
from metagen.runs.curves.reading import OFF, adapter_settings
from metagen.runs.declare import schema

YAML = """\
name: drawn
task: {{kind: arithmetic, split: validation, levels: [1], per_level: 1}}
engines: {{tiny: {{kind: torch, model: tiny-0.1m}}}}
generators: {{tiny: {{kind: engine, engine: tiny{}}}}}
strategies: {{single: {{kind: sample}}}}
"""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", ""),
        (", temperature: 0.7, max_tokens: 9, stop: [x], logprobs: true, top_logprobs: 5", ""),
        (", top_p: 0.9", "top_p=0.9"),
        (", min_p: 0.05, top_k: 40", "top_k=40, min_p=0.05"),
        (", preset: creative, healing: true", "top_p=0.8, healing"),
        (", logit_bias: [[3, 1.0]], mirostat: {tau: 3}", "logit_bias, mirostat"),
        (", grammar: {regex: '[0-9]+'}", "grammar"),
    ],
)
def test_what_is_on_is_said(tmp_path: Path, settings: str, words: str) -> None:
    file = tmp_path / "drawn.yaml"
    file.write_text(YAML.format(settings))
    written = schema.load(file).model_dump(mode="json", exclude_none=True)["generators"]["tiny"]
    assert adapter_settings(written) == words


def test_what_is_off_is_the_default() -> None:
    plain = SamplingParams()
    assert all(getattr(plain, name) == off for name, off in OFF.items())
