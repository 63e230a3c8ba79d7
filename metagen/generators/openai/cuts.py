"""Prompts that a server cut and told nobody: its own count is below what was sent, or leaves no room for the answer."""

from __future__ import annotations

import re
from typing import Final

from metagen.errors import PromptError
from metagen.generators.engine import GenerateRequest
from metagen.generators.openai.body import limit
from metagen.generators.primitive import letters

#: Tokens by which templates may differ, for a prompt and for each of its turns.
SLACK: Final = 32
PER_TURN: Final = 16
#: Bytes of a token, at most on average, of a text whose runs of one character are cut to two. English has about four.
BYTES: Final = 8
_RUN: Final = re.compile(rb"(.)\1+", re.DOTALL)


def refuse_cut(
    model: str, request: GenerateRequest, ids: tuple[int, ...] | None, told: int | None, context: int | None
) -> None:
    """PromptError where the prompt was cut, or may have been.

    ids: the rendered prompt, where the tokenizer is here. told: tokens of the prompt by the server's count; nothing
    can be said without. context: tokens that the server has room for.
    """
    if told is None:
        return
    least = len(ids) if ids is not None else len(_RUN.sub(rb"\1\1", letters(request.prefix))) // BYTES
    turns = 1 + len(request.prefix.prompt.messages)
    if told + SLACK + PER_TURN * turns < least:
        raise PromptError(
            f"{model!r} read {told} tokens of a prompt of {least} or more (problem "
            f"{request.prefix.prompt.problem_id!r}): the server cut it. Give the model a larger context (for Ollama "
            "`PARAMETER num_ctx …` in a Modelfile, or OLLAMA_CONTEXT_LENGTH), and say max_context accordingly"
        )
    if context is not None and told + limit(request) > context:
        raise PromptError(
            f"{model!r} read {told} tokens of a prompt, and max_tokens={limit(request)} more exceed its context of "
            f"{context} (problem {request.prefix.prompt.problem_id!r}): the server may have cut the prompt. Shorten "
            "it, lower max_tokens, or give the model a larger context and say max_context accordingly"
        )
