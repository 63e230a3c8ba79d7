"""The vLLM column of the table of what each engine can do."""

from __future__ import annotations

from typing import Any

from tests.generators.probes import Probe, table


def test_the_page_says_what_vllm_does(small: dict[str, Any]) -> None:
    from metagen.generators.vllm import VLLMEngine

    with VLLMEngine("tiny-0.5m", seeded=True, **small) as model:
        found = Probe(model.generator(), "Q:a=5;b=a+7;b?\nS:\n", "b=5+7=", model).found()
    said = table()["vllm"]
    assert said.pop("grammars") and not found.pop("grammars"), "the embedded tokens are characters"
    assert found == said
