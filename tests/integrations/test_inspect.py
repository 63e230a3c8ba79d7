"""inspect_ai runs its tasks on strategies, as a model and by a solver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.problems import ASKED, SEED, accuracy, skip_without, voting, write

skip_without("inspect_ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import accuracy as share  # noqa: E402
from inspect_ai.scorer import pattern  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import bash  # noqa: E402

from metagen.integrations.inspect import MetagenAPI, strategy  # noqa: E402

DATA = [Sample(input=question, target=answer) for question, answer in ASKED]


def run(folder: Path, solver: Any, **how: Any) -> Any:
    task = Task(dataset=DATA, solver=solver, scorer=pattern(r"(?ms).*^A:([^\n]*)$"), metrics=[share()])
    (log,) = eval(task, display="none", log_dir=str(folder / "logs"), **how)
    return log


def value(log: Any) -> float:
    assert log.status == "success", log.error
    assert log.results.completed_samples == len(ASKED)
    return float(log.results.scores[0].metrics["accuracy"].value)


def test_a_model_of_a_file_has_the_accuracy_of_its_strategy(tmp_path: Path) -> None:
    # By its name alone: the entry point has told inspect_ai where it is.
    log = run(tmp_path, generate(seed=SEED), model="metagen/vote", model_args={"file": write(tmp_path)})
    with voting() as vote:
        assert value(log) == pytest.approx(accuracy(vote))
        generated = sum(vote.solve(question, seed=0).usage.generated or 0 for question, _ in ASKED)
    (usage,) = log.stats.model_usage.values()
    assert 0.7 * generated < usage.output_tokens < 1.4 * generated
    assert 0 < usage.reasoning_tokens < usage.output_tokens


def test_a_solver_answers_by_a_strategy_of_this_process(tmp_path: Path) -> None:
    with voting() as vote:
        log = run(tmp_path, strategy(vote, seed=SEED), model="mockllm/model")
        assert value(log) == pytest.approx(accuracy(vote))
    first = log.samples[0]
    assert first.output.metadata["metagen"]["n"] == 8
    assert first.messages[-1].role == "assistant" and first.messages[-1].text == first.output.completion


def test_what_a_strategy_cannot_do_fails_the_task_and_says_why(tmp_path: Path) -> None:
    file = write(tmp_path)
    for solver, said in (
        (generate(temperature=0), "would be equal"),
        ([use_tools(bash()), generate()], "tools"),
        (generate(prompt_logprobs=1), "prompt_logprobs"),
    ):
        log = run(tmp_path, solver, model="metagen/vote", model_args={"file": file})
        assert log.status == "error" and said in log.error.message
    log = run(tmp_path, generate(temperature=0), model="metagen/vote",
              model_args={"file": file, "own_sampling": True})  # fmt: skip
    assert log.status == "success"
    with pytest.raises(TypeError, match="file"):
        get_model("metagen/vote", memoize=False)


def test_a_configuration_is_what_is_sent() -> None:
    messages = [ChatMessageSystem(content=""), ChatMessageUser(content=ASKED[0][0])]

    def ask(options: dict[str, Any] | None, config: GenerateConfig) -> ModelOutput:
        api = MetagenAPI("strategy", file=vote, options=options)
        output = asyncio.run(api.generate(messages, [], "auto", config))
        assert isinstance(output, ModelOutput)
        return output

    with voting() as vote:
        config = GenerateConfig(num_choices=3, max_tokens=20, seed=4, logprobs=True, logit_bias={5: -100.0})
        output = ask(None, config)
        assert len(output.choices) == 3
        scores = output.choices[0].logprobs
        assert scores is not None and 0 < len(scores.content) <= 20
        assert "".join(one.token for one in scores.content) == output.completion
        fewer = ask({"n": 2}, GenerateConfig())
        assert fewer.metadata is not None and fewer.metadata["metagen"]["n"] == 2
        assert ask(None, GenerateConfig(max_tokens=2)).stop_reason == "max_tokens"
