"""Answers of the OpenAI API as objects, with the attributes that programs read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Shape(BaseModel):
    """Fields that are not declared are kept, and are attributes too."""

    model_config = ConfigDict(extra="allow")


class Details(_Shape):
    """Parts of a count of tokens, such as `reasoning_tokens` and `cached_tokens`; None is unknown."""


class Usage(_Shape):
    """Tokens of a request. metagen: all that the account holds."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: Details
    completion_tokens_details: Details
    metagen: dict[str, Any]


class Function(_Shape):
    """The tool that is called. arguments: JSON, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(_Shape):
    """A call of a tool of the client."""

    id: str
    type: str
    function: Function


class Message(_Shape):
    """The answer, or more of it. reasoning_content: thoughts, or how the work goes."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class TokenLogprob(_Shape):
    """A token and its log-probability in nats. bytes: None for a part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[Any]


class ChatLogprobs(_Shape):
    """The tokens of a message."""

    content: list[TokenLogprob] | None = None
    refusal: None = None


class TextLogprobs(_Shape):
    """The tokens of a text. text_offset: counted from the beginning of the prompt. None is unknown."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int] | None = None


class ChatChoice(_Shape):
    """One of the answers to a chat."""

    index: int
    message: Message
    finish_reason: str
    logprobs: ChatLogprobs | None = None


class ChunkChoice(_Shape):
    """More of one of the answers to a chat."""

    index: int
    delta: Message
    finish_reason: str | None = None


class TextChoice(_Shape):
    """One of the continuations of a text, or more of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None


class _Answer(_Shape):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage | None = None
    metagen: dict[str, Any] | None = None


class ChatCompletion(_Answer):
    """The answer to a chat.

    metagen: the model's own name, the seed, `exhausted`, the answers as they were read with their shares of the vote,
    and what is known of the cost where `usage` is None.
    """

    choices: list[ChatChoice]


class ChatChunk(_Answer):
    """A part of a streamed answer to a chat; the last one has no choices."""

    choices: list[ChunkChoice]


class Completion(_Answer):
    """The continuation of a text, or a part of it."""

    choices: list[TextChoice]
