"""For inspect_ai: strategies as models, `metagen/NAME`, and as a solver."""

from __future__ import annotations

import json
from typing import Any

try:
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageTool,
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
    from inspect_ai.tool import ToolCall, ToolChoice, ToolFunction, ToolInfo
except ImportError as error:
    raise ImportError(
        "metagen.integrations.inspect needs inspect_ai: pip install inspect-ai beside metagen",
        name=error.name,
    ) from error

from metagen.errors import InputError
from metagen.integrations.local import Local, Served, given
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
    "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
REASONS: dict[str, StopReason] = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls"}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


@modelapi(name="metagen")
class MetagenAPI(ModelAPI):
    """`metagen/NAME` is the model NAME of an experiment file: `-M file=served.yaml`.

    file: its path; or strategies, by name or one alone, in a program. own_sampling: temperature and other sampling
    parameters of tasks are not looked at. options: fields of `metagen` in each request, such as {"n": 8}.
    Raises InputError for base_url and api_key: no server is asked.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - as inspect_ai has it
        *,
        file: Served | None = None,
        own_sampling: bool | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        for name, value in (("base_url", base_url), ("api_key", api_key)):
            if value is not None:
                raise InputError(
                    f"{name}: the strategies run in this process; leave it out, or ask a served file by inspect_ai's "
                    "own provider openai-api"
                )
        super().__init__(model_name, base_url, api_key, [], config)
        self._local = Local(given(file, "-M file=served.yaml"), own_sampling=own_sampling)
        self._fields: dict[str, Any] = {"metagen": options or {}}

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        fields: dict[str, Any] = self._fields
        if tools:
            fields = {**fields, "tools": list(map(_tool, tools)), "tool_choice": _choice(tool_choice)}
        return await _ask(self._local, self.model_name, input, config, fields)

    async def aclose(self) -> None:
        self._local.close()


@solver
def strategy(
    served: Served, model: str | None = None, own_sampling: bool | None = None, **fields: Any
) -> Solver:
    """A solver that answers by a strategy; the task's own model is not asked, and tools of the task are refused.

    served: a strategy, strategies by name, or an experiment file, whose engines stay open to the end of the process.
    model: which of them, where there are several. fields: of each request, such as seed=7 or metagen={"n": 8}.
    """
    local = Local(served, own_sampling=own_sampling)
    name = local.name(model)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.tools:
            raise refuse(
                "tools", "this solver answers at once; make the strategy the task's model, metagen/NAME, whose calls "
                "generate() carries out, or give it tools of its own (tool_use)",
            )  # fmt: skip
        state.output = await _ask(local, name, state.messages, GenerateConfig(), fields)
        state.messages.append(state.output.message)
        return state

    return solve


async def _ask(
    local: Local, name: str, messages: list[ChatMessage], config: GenerateConfig, fields: dict[str, Any]
) -> ModelOutput:
    said = config.model_dump(exclude_none=True)
    body: dict[str, Any] = {SENT[key]: value for key, value in said.items() if key in SENT}
    if config.logit_bias is not None:
        body["logit_bias"] = {str(token): bias for token, bias in config.logit_bias.items()}
    if config.response_schema is not None:
        schema = config.response_schema
        shape = {"name": schema.name, "schema": schema.json_schema.model_dump(exclude_none=True)}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    body |= {"model": name, "messages": list(map(_turn, messages))}
    body |= config.extra_body or {}
    if isinstance(asked := body.get("metagen"), dict):
        fields = {**fields, "metagen": {**asked, **(fields.get("metagen") or {})}}
    return _output(await local.answer("chat", body | fields))


def _turn(message: ChatMessage) -> dict[str, Any]:
    """A message as the OpenAI API has it. Thoughts before it are left out."""
    parts = [] if isinstance(message.content, str) else message.content
    if odd := [part.type for part in parts if part.type not in ("text", "reasoning")]:
        raise refuse("messages", f"a part of type {odd[0]!r}; strategies read text only")
    turn: dict[str, Any] = {"role": message.role, "content": message.text}
    if isinstance(message, ChatMessageTool):
        said = message.text if message.error is None else f"Error: {message.error.message}"
        return turn | {"tool_call_id": message.tool_call_id, "content": said}
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return turn


def _tool(tool: ToolInfo) -> dict[str, Any]:
    parameters = tool.parameters.model_dump(exclude_none=True)
    about = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": about}


def _choice(choice: ToolChoice) -> Any:
    if isinstance(choice, ToolFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return CHOICES[choice]


def _call(call: dict[str, Any]) -> ToolCall:
    """A call that the model wrote. inspect_ai tells the model of arguments that are no object."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    if isinstance(arguments, dict):
        return ToolCall(id=call["id"], function=name, arguments=arguments)
    error = f"The arguments of {name} are {arguments!r:.80}; expected an object."
    return ToolCall(id=call["id"], function=name, arguments={}, parse_error=error)


def _output(answer: dict[str, Any]) -> ModelOutput:
    choices = []
    for choice in answer["choices"]:
        said, thought = choice["message"]["content"] or "", choice["message"].get("reasoning_content")
        content = said if thought is None else [ContentReasoning(reasoning=thought), ContentText(text=said)]
        calls = list(map(_call, choice["message"].get("tool_calls") or []))
        message = ChatMessageAssistant(
            content=content, model=answer["model"], source="generate", tool_calls=calls or None
        )
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
