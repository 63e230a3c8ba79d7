"""inspect_ai runs its tasks on strategies, as a model and by a solver."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from metagen.errors import InputError
from tests.generators.openai.serving import Server
from tests.integrations.problems import ASKED, SEED, accuracy, skip_without, voting, write

skip_without("inspect_ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import accuracy as share  # noqa: E402
from inspect_ai.scorer import match, pattern  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import ToolCall, ToolCallError, ToolError, bash, tool  # noqa: E402

from metagen.integrations.inspect import MetagenAPI, _call, _turn, strategy  # noqa: E402
from metagen.serve.errors import ApiError  # noqa: E402
from tests.serve.test_tools import model  # noqa: E402
from tests.serve.test_upstream import front  # noqa: E402

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


def test_what_a_request_asks_of_metagen_stands_beside_what_the_model_asks(tmp_path: Path) -> None:
    config = GenerateConfig(extra_body={"metagen": {"n": 2}})
    options = {"budget": {"generated": 100_000}}
    asked = get_model("metagen/vote", memoize=False, file=write(tmp_path), options=options, config=config)
    got = asyncio.run(asked.generate(ASKED[0][0]))
    assert got.metadata is not None and got.metadata["metagen"]["n"] == 2


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
        ([use_tools(bash()), generate()], "no place for tools"),
        (generate(prompt_logprobs=1), "prompt_logprobs"),
    ):
        log = run(tmp_path, solver, model="metagen/vote", model_args={"file": file})
        assert log.status == "error" and said in log.error.message
    log = run(tmp_path, generate(temperature=0), model="metagen/vote",
              model_args={"file": file, "own_sampling": True})  # fmt: skip
    assert log.status == "success"
    with pytest.raises(InputError, match=r"file is missing; give the path .* -M file=served\.yaml"):
        get_model("metagen/vote", memoize=False)


def test_a_strategy_calls_the_tools_of_a_task(tmp_path: Path) -> None:
    asked: list[Any] = []

    @tool
    def add() -> Any:
        async def execute(a: int, b: int) -> str:
            """Add two numbers.

            Args:
                a: The first.
                b: The second.
            """
            asked.append((a, b))
            if a < 0:
                raise ToolError("too small")
            return str(a + b)

        return execute

    data = [Sample(input="12 + 7?", target="It is 19.")]
    with Server(model).open() as behind:
        (tmp_path / "served.yaml").write_text(yaml.safe_dump(front(behind.url, api="chat")), "utf-8")
        for name in ("one", "majority@4"):
            task = Task(
                dataset=data, solver=[use_tools(add()), generate()], scorer=match(), metrics=[share()]
            )
            (log,) = eval(
                task, model=f"metagen/through/{name}", model_args={"file": str(tmp_path / "served.yaml")},
                display="none", log_dir=str(tmp_path / "logs"),
            )  # fmt: skip
            assert log.status == "success", log.error
            assert log.results.scores[0].metrics["accuracy"].value == 1
        turns = log.samples[0].messages
        assert [one.role for one in turns] == ["user", "assistant", "tool", "assistant"]
        assert turns[1].tool_calls[0].arguments == {"a": 12, "b": 7} and asked == [(12, 7)] * 2
        solving = strategy(str(tmp_path / "served.yaml"), "through/one")
        task = Task(dataset=data, solver=[use_tools(add()), solving], scorer=match())
        (log,) = eval(task, model="mockllm/model", display="none", log_dir=str(tmp_path / "logs"))
        assert log.status == "error" and "this solver answers at once" in log.error.message


def test_turns_are_those_of_the_api() -> None:
    call = ToolCall(id="c1", function="add", arguments={"a": "é"})
    error = ToolCallError("unknown", "broken")
    turns = [
        ChatMessageAssistant(content=[ContentReasoning(reasoning="hm"), ContentText(text="so")], tool_calls=[call]),
        ChatMessageTool(content="4", tool_call_id="c1"),
        ChatMessageTool(content="", tool_call_id="c1", error=error),
    ]  # fmt: skip
    first, *others = map(_turn, turns)
    (written,) = first.pop("tool_calls")
    assert first == {"role": "assistant", "content": "so"} and written["id"] == "c1"
    assert written["function"]["name"] == "add"
    assert json.loads(written["function"]["arguments"]) == {"a": "é"}
    assert others == [
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: broken"},
    ]
    with pytest.raises(ApiError, match="a part of type 'image'"):
        _turn(ChatMessageUser(content=[ContentImage(image="data:image/png;base64,AA==")]))
    odd = _call({"id": "c", "function": {"name": "add", "arguments": "[1]"}})
    assert odd.arguments == {} and odd.parse_error is not None and "[1]" in odd.parse_error


def test_no_server_is_asked() -> None:
    with voting() as vote:
        for how in ({"base_url": "http://here/v1"}, {"api_key": "secret"}):
            with pytest.raises(InputError, match=f"{next(iter(how))}: the strategies run in this process"):
                MetagenAPI("strategy", file=vote, **how)  # type: ignore[arg-type]


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
