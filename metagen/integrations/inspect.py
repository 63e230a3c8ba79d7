"""For inspect_ai: strategies as models, `metagen/NAME`, and as a solver."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    modelapi,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolChoice, ToolInfo

from metagen.integrations.local import Local, Served
from metagen.serve.errors import refuse

#: Fields of a configuration that change the samples, as the OpenAI API calls them. A field that it does not know is
#: refused by its name. The other fields are for inspect_ai itself.
SENT = {
    "max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k",
    "stop_seqs": "stop", "seed": "seed", "num_choices": "n", "logprobs": "logprobs",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias", "top_logprobs": "top_logprobs", "best_of": "best_of",
    "reasoning_effort": "reasoning_effort", "effort": "effort", "reasoning_tokens": "reasoning_tokens",
    "prompt_logprobs": "prompt_logprobs", "modalities": "modalities",
}  # fmt: skip
REASONS: dict[str, StopReason] = {"stop": "stop", "length": "max_tokens"}


@modelapi(name="metagen")
class MetagenAPI(ModelAPI):
    """`metagen/NAME` is the model NAME of an experiment file: `-M file=served.yaml`.

    file: its path; or strategies, by name or one alone, in a program. own_sampling: temperature and other sampling
    parameters of tasks are not looked at. options: fields of `metagen` in each request, such as {"n": 8}.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - as inspect_ai has it
        *,
        file: Served,
        own_sampling: bool | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._local = Local(file, own_sampling=own_sampling)
        self._fields = {"metagen": options or {}}

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        if tools:
            raise refuse(
                "tools", "tools of a task are not carried over; serve the strategy, and ask openai-api/…, or give it "
                "tools of its own (tool_use)",
            )  # fmt: skip
        return await _ask(self._local, self.model_name, input, config, self._fields)

    async def aclose(self) -> None:
        self._local.close()


@solver
def strategy(
    served: Served, model: str | None = None, own_sampling: bool | None = None, **fields: Any
) -> Solver:
    """A solver that answers by a strategy; the task's own model is not asked.

    served: a strategy, strategies by name, or an experiment file, whose engines stay open to the end of the process.
    model: which of them, where there are several. fields: of each request, such as seed=7 or metagen={"n": 8}.
    """
    local = Local(served, own_sampling=own_sampling)
    name = local.name(model)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = await _ask(local, name, state.messages, GenerateConfig(), fields)
        state.messages.append(state.output.message)
        return state

    return solve


async def _ask(
    local: Local, name: str, messages: list[ChatMessage], config: GenerateConfig, fields: dict[str, Any]
) -> ModelOutput:
    given = config.model_dump(exclude_none=True)
    body: dict[str, Any] = {SENT[key]: value for key, value in given.items() if key in SENT}
    if config.logit_bias is not None:
        body["logit_bias"] = {str(token): bias for token, bias in config.logit_bias.items()}
    if config.response_schema is not None:
        schema = config.response_schema
        shape = {"name": schema.name, "schema": schema.json_schema.model_dump(exclude_none=True)}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    body |= {"model": name, "messages": [{"role": one.role, "content": one.text} for one in messages]}
    return _output(await local.answer("chat", body | (config.extra_body or {}) | fields))


def _output(answer: dict[str, Any]) -> ModelOutput:
    choices = []
    for choice in answer["choices"]:
        said, thought = choice["message"]["content"], choice["message"].get("reasoning_content")
        content = said if thought is None else [ContentReasoning(reasoning=thought), ContentText(text=said)]
        message = ChatMessageAssistant(content=content, model=answer["model"], source="generate")
        reason = REASONS[choice["finish_reason"]]
        choices.append(ChatCompletionChoice(message=message, stop_reason=reason, logprobs=choice["logprobs"]))
    usage = answer.get("usage")
    return ModelOutput(
        model=answer["model"], choices=choices, metadata={"metagen": answer["metagen"]},
        usage=None if usage is None else _usage(usage),
    )  # fmt: skip


def _usage(usage: dict[str, Any]) -> ModelUsage:
    """As inspect_ai counts: tokens of prompts that were cached are not among the others."""
    cached = usage["prompt_tokens_details"].get("cached_tokens")
    details = usage["completion_tokens_details"]
    return ModelUsage(
        input_tokens=usage["prompt_tokens"] - (cached or 0),
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
        input_tokens_cache_read=cached,
        reasoning_tokens=details.get("reasoning_tokens"),
        total_cost=details["money"],
    )
