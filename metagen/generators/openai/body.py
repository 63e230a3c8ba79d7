"""From a Generate request to the JSON that servers read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from metagen.errors import InputError, UnsupportedError
from metagen.generators.declared import refuse_masked, refuse_together
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.openai.dialects import DIALECTS, Dialect, DialectName
from metagen.generators.openai.keys import names_key
from metagen.generators.tool_calls import tools_of, turns_with_calls
from metagen.sequence import Prompt, Sequence, Step, Tokens

API = Literal["completions", "chat"]
LengthField = Literal["max_tokens", "max_completion_tokens"]
#: A bias that servers take, at most.
MOST_BIAS = 100


@dataclass(frozen=True, slots=True)
class Wording:
    """How one server is asked.

    continuation: whether a partial turn of the assistant can be gone on with. structured: whether grammars may be
    sent. seed_bits: seeds are below 2 to this power; 0 sends none. length: the field that bounds a completion.
    extra: fields that are sent with every request, besides what is asked for. stream: answers come in chunks, as those
    do in any case that somebody follows.
    """

    model: str
    api: API
    dialect: Dialect
    continuation: bool
    structured: bool = False
    seed_bits: int = 31
    length: LengthField = "max_tokens"
    extra: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False

    @classmethod
    def of(
        cls,
        model: str,
        *,
        api: API = "chat",
        dialect: DialectName = "openai",
        continuation: bool | None = None,
        structured_outputs: bool = False,
        seed_bits: int = 31,
        length_field: LengthField = "max_tokens",
        extra_body: Mapping[str, Any] | None = None,
        stream: bool = False,
        max_context: int | None = None,
        **others: Any,
    ) -> Self:
        """By the options of OpenAIEngine; the others have no part in it.

        InputError for what the server would ignore, and an extra_body that is no JSON or replaces what is asked for.
        """
        try:
            json.dumps(dict(extra_body or {}), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"extra_body is no JSON: {error}; give numbers, texts, lists and mappings of Python's own"
            ) from None
        spoken = DIALECTS[dialect]
        spoken.check(
            api,
            length_field,
            extra_body or {},
            max_context,
            structured=structured_outputs,
            continuation=continuation,
        )
        goes_on = spoken.open_turn is not None if continuation is None else continuation
        return cls(
            model, api, spoken, goes_on, structured_outputs, seed_bits, length_field, extra_body or {}, stream
        )

    @property
    def supports(self) -> frozenset[str]:
        """As `Engine.supports`."""
        return self.dialect.adapters | {"top_logprobs", *(["grammar"] if self.structured else [])}

    def check(self, params: SamplingParams) -> None:
        """UnsupportedError for what cannot be said of them, whatever is asked."""
        if params.top_k:
            self._needs(self.dialect.top_k, f"top_k={params.top_k!r}")
        for name in params.on:
            self._needs(name in self.dialect.adapters, f"{name}={getattr(params, name)!r}")
        if params.stop_token_ids or params.ignore_eos:
            self._needs(self.dialect.ends, "stop_token_ids or ignore_eos")
        refuse_together(params, "servers cut")
        for key, value in params.biases:
            _check_bias(key, value)
        if params.grammar is not None:
            self._grammar(params.grammar)
            if self.dialect.name == "vllm":
                refuse_masked(params)

    def body(
        self, request: GenerateRequest, ids: tuple[int, ...] | None, seed: int, n: int
    ) -> dict[str, Any]:
        """The fields of one request for n samples. UnsupportedError for what the server cannot do."""
        params = request.params
        self.check(params)
        body = {"model": self.model, **self._prompt(request.prefix, ids), **self.dialect.plain}
        body[self.length] = limit(request)
        body["temperature"] = params.temperature
        if n > 1:
            body["n"] = n
        if params.top_p != 1.0:
            body["top_p"] = params.top_p
        if params.top_k:
            body["top_k"] = params.top_k
        body |= self._adapters(request)
        if self.seed_bits:
            # A server that draws several samples gives them seeds that follow on one another.
            body["seed"] = within(seed, self.seed_bits, n)
        if self.dialect.ids and (ids is not None or n > 1):
            body[self.dialect.ids] = True
        body |= self._endings(request) | self._logprobs(params)
        if params.grammar is not None:
            body |= self._grammar_fields(request)
        if self.stream or (request.written is not None and n == 1):
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | dict(self.extra)

    def _prompt(self, prefix: Sequence, ids: tuple[int, ...] | None) -> dict[str, Any]:
        if self.api == "chat":
            return self._messages(prefix)
        if ids is not None:
            return {"prompt": list(ids)}
        prompt = prefix.prompt
        said = prompt.plain(template=False)
        if said is None:
            raise UnsupportedError(
                f"prompt {prompt.problem_id!r} is messages, and api='completions' reads text; use api='chat', give "
                "tokenizer= the directory of the model's tokenizer, which has its chat template, or let them be sent "
                "as plain text (form='auto', or 'text')"
            )
        return {"prompt": said + prefix.written}

    def _messages(self, prefix: Sequence) -> dict[str, Any]:
        turns = conversation(prefix.prompt)
        begun = turns[-1]["role"] == "assistant"
        thought = prefix.thought
        if prefix.text or thought is not None:
            last = turns.pop()["content"] if begun else ""
            turns.append({"role": "assistant", "content": last + prefix.text} | self._thought(prefix))
        tools = tools_of(prefix.prompt)
        told = {} if tools is None else {"tools": tools}
        if not (prefix.text or thought or begun):
            return {"messages": turns, **told}
        if not self.continuation:
            raise UnsupportedError(
                f"prompt {prefix.prompt.problem_id!r}: a partial turn of the assistant is to be continued, which the "
                f"chat API of {self.model!r} does not do; use a server that does (dialect='vllm', …; "
                "continuation=True), or api='completions'"
            )
        return {"messages": turns, **told, **(self.dialect.open_turn or {})}

    def _thought(self, prefix: Sequence) -> dict[str, Any]:
        """The fields of an open turn that give the model back what it thought in it."""
        if prefix.thought is None:
            return {}
        if prefix.thought.written is not None:
            return {"content": prefix.written}
        if prefix.thought.text is None:
            raise UnsupportedError(
                f"prompt {prefix.prompt.problem_id!r}: {self.model!r} does not show what it thought, so that its turn "
                "cannot be gone on with; generate from the prompt"
            )
        if not (prefix.thought.ended or prefix.text):
            raise UnsupportedError(
                f"prompt {prefix.prompt.problem_id!r}: the thought was cut, and no chat goes on within a thought; "
                "begin the answer behind it, as BudgetForcing does, or use api='completions', where thoughts are text"
            )
        # vLLM has renamed the field; templates and other servers know the old name.
        return dict.fromkeys(("reasoning", "reasoning_content"), prefix.thought.text)

    def _endings(self, request: GenerateRequest) -> dict[str, Any]:
        params, dialect = request.params, self.dialect
        body: dict[str, Any] = {}
        if isinstance(request.until, Step):
            told = dialect.keep_stop is not None and dialect.reason is not None
            self._needs(
                told, f"a step that ends at {request.until.delimiter!r}: whether it ended there, or the model"
            )
            body[dialect.keep_stop or ""] = True
        if stops := stop_texts(request):
            body["stop"] = list(stops)
        if params.stop_token_ids or params.ignore_eos:
            self._needs(dialect.ends, "stop_token_ids or ignore_eos")
            body["stop_token_ids"] = list(params.stop_token_ids)
            body["ignore_eos"] = params.ignore_eos
        return body

    def _logprobs(self, params: SamplingParams) -> dict[str, Any]:
        if not (params.logprobs or params.top_logprobs):
            return {}
        named = {self.dialect.named: True} if self.dialect.named else {}
        if self.api == "chat":
            most = {"top_logprobs": params.top_logprobs} if params.top_logprobs else {}
            return {"logprobs": True, **most, **named}
        return {"logprobs": params.top_logprobs or 1, **named}

    def _adapters(self, request: GenerateRequest) -> dict[str, Any]:
        """The fields of adapters beyond top_p and top_k, which the dialect has."""
        params, names = request.params, request.params.on
        counted = [name for name in ("presence_penalty", "frequency_penalty") if name in names]
        if counted and (request.prefix.text or request.prefix.thought):
            raise UnsupportedError(
                f"{counted[0]}={getattr(params, counted[0])!r}: a server counts tokens from where it goes on, and not "
                f"those of the {len(request.prefix.text)} characters before; generate from the prompt to the end"
            )
        body: dict[str, Any] = {name: getattr(params, name) for name in names if name != "logit_bias"}
        if params.biases:
            body["logit_bias"] = {str(key): value for key, value in params.biases}
        return body

    def _grammar_fields(self, request: GenerateRequest) -> Mapping[str, Any]:
        grammar = request.params.grammar
        assert grammar is not None
        if request.prefix.text:
            raise UnsupportedError(
                f"a prefix of {len(request.prefix.text)} characters is to be continued under a grammar, which servers "
                "hold only what is new to; generate from the prompt to the end, or use TorchEngine"
            )
        return self._grammar(grammar)

    def _grammar(self, grammar: Grammar) -> Mapping[str, Any]:
        self._needs(self.structured, "a grammar, unless structured_outputs=True")
        fields = self.dialect.grammar(grammar, self.api == "chat")
        self._needs(fields is not None, f"a grammar of kind {grammar.kind!r} with api={self.api!r}")
        return fields or {}

    def _needs(self, there: bool, what: str) -> None:
        if not there:
            raise UnsupportedError(
                f"{self.model!r} is asked for in the dialect {self.dialect.name!r}, which has no way to say {what}; "
                "name the server's own dialect if it is vllm, sglang, llamacpp or ollama, or leave it out"
            )


def conversation(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt as the turns of a chat; a text is what the user says. UnsupportedError for one that is to stay plain."""
    if prompt.form == "text":
        raise UnsupportedError(
            f"prompt {prompt.problem_id!r} has form='text', and api='chat' knows turns only; use api='completions', or "
            "form='chat', which makes it the user's turn"
        )
    if prompt.text is not None:
        return [{"role": "user", "content": prompt.text}]
    if tools_of(prompt) is not None:
        return turns_with_calls(prompt.messages)
    return [{"role": m.role, "content": m.content} for m in prompt.messages]


def _check_bias(key: int | str, value: float) -> None:
    if isinstance(key, str):
        raise UnsupportedError(f"logit_bias: servers read ids, and {key!r} is a text; give the token's id")
    if abs(value) > MOST_BIAS:
        raise UnsupportedError(
            f"logit_bias: {value!r} of token {key!r}; servers take −{MOST_BIAS} to {MOST_BIAS}"
        )


def limit(request: GenerateRequest) -> int:
    """New tokens that one sample may have: of the request, or of the step or block that is asked for."""
    until = request.until
    own = until.count if isinstance(until, Tokens) else until.max_tokens if isinstance(until, Step) else None
    return request.max_tokens if own is None else min(own, request.max_tokens)


def stop_texts(request: GenerateRequest) -> tuple[str, ...]:
    """What ends a completion: the stop strings, and the delimiter of a step."""
    until = request.until
    return tuple(
        dict.fromkeys((*request.params.stop, *([until.delimiter] if isinstance(until, Step) else [])))
    )


def within(seed: int, bits: int, n: int) -> int:
    """A seed in a server's range, spaced so that the n seeds from it on overlap with no other's."""
    small = seed & ((1 << bits) - 1)
    return small - small % n


def refuse_secrets(extra: Mapping[str, Any]) -> None:
    """InputError for fields, at any depth, that would put a key where it is written down."""
    for name, value in extra.items():
        if names_key(name):
            raise InputError(
                f"extra_body holds {name!r}: keys do not belong in what is written down; put it in an environment "
                "variable and name that by api_key_env"
            )
        for inner in value if isinstance(value, list | tuple) else (value,):
            if isinstance(inner, Mapping):
                refuse_secrets(inner)
