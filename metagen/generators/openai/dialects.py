"""What servers add to the OpenAI API: the fields beyond the common ones that each of them understands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from metagen.errors import InputError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.parameters import OFF

DialectName = Literal["openai", "vllm", "sglang", "llamacpp", "ollama"]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a kind of server understands beside the common fields, and what it tells beside the common answers.

    plain: sent with every request, so that defaults of the server's (of a model's generation_config.json, or its own)
    do not shape the distribution. top_k: whether there is one. ends: whether stop_token_ids and ignore_eos are.
    keep_stop: the field that keeps the stop text in the answer. reason: the field of a choice that tells which stop
    ended it, null for the model's own end. ids: the field that asks for a choice's token_ids. named: the field that
    writes tokens beside log-probabilities by their ids. open_turn: what makes a last turn of the assistant be gone
    on with; None if that cannot be. labels: of how many given tokens one request can read log-probabilities; 0 if there
    is no way, nor for those of a prompt. together: how many samples of a prefix one request asks for, unless said: more
    than one where the tokens of each are told. adapters: those that it has under the same meaning.
    cuts: whether it drops what does not fit into its context, and tells nobody. chats: whether chats are all that it
    answers as it is asked. unread: fields that it ignores, and what to do instead.
    """

    name: DialectName
    plain: Fields = field(default_factory=dict)
    top_k: bool = False
    ends: bool = False
    keep_stop: str | None = None
    reason: str | None = None
    ids: str | None = None
    named: str | None = None
    open_turn: Fields | None = None
    labels: int = 0
    together: int = 1
    adapters: frozenset[str] = frozenset()
    cuts: bool = False
    chats: bool = False
    unread: Mapping[str, str] = field(default_factory=dict)

    def check(
        self,
        api: str,
        length: str,
        extra: Fields,
        max_context: int | None,
        *,
        structured: bool,
        continuation: bool | None,
    ) -> None:
        """InputError for options of an engine that such a server would ignore, for a context that is not said, and for
        fields of requests that the engine writes itself (`extra`).
        """
        if self.chats and api != "chat":
            raise InputError(
                f"api={api!r}: a server of dialect {self.name!r} puts the text into the model's chat template, and "
                "does not continue it; use api: chat. If the model's template is the prompt alone, use dialect: openai"
            )
        for name in (length, *extra):
            if name in self.unread:
                raise InputError(
                    f"{'length_field' if name == length else 'extra_body'}: a server of dialect {self.name!r} ignores "
                    f"{name!r}; {self.unread[name]}"
                )
        written = ASKED | self.adapters | ({"top_k"} if self.top_k else set())
        written |= ({"stop_token_ids", "ignore_eos"} if self.ends else set()) | (
            HELD if structured else set()
        )
        if replaced := [name for name in extra if name in written]:
            raise InputError(
                f"extra_body: {replaced[0]!r} would replace what generators and the engine ask for in every request; "
                "say it there, and leave it out of extra_body"
            )
        if api == "completions" and continuation is not None:
            raise InputError(
                f"continuation={continuation!r}: is of chats, and api='completions' always goes on; leave it out"
            )
        if self.cuts and max_context is None:
            raise InputError(
                f"max_context is missing: a server of dialect {self.name!r} drops what does not fit into its context, "
                "and tells nobody; give the context that the server runs the model with (`ollama ps` shows it), such "
                "as max_context: 8192"
            )

    def reads_labels(self, api: str, ids: bool) -> bool:
        """Whether log-probabilities of given tokens can be asked for. ids: whether the tokenizer is here."""
        return bool(self.labels) and api == "completions" and ids

    def grammar(self, grammar: Grammar, chat: bool) -> Fields | None:
        """The fields that hold a completion to a grammar; None where this kind of grammar cannot be had."""
        kind, source = grammar.kind, grammar.source
        if self.name == "vllm":
            names = {"regex": "regex", "json_schema": "json", "lark": "grammar"}
            return {"structured_outputs": {names[kind]: source}}
        if kind == "json_schema" and self.name in ("openai", "ollama") and chat:
            schema = {"name": "answer", "schema": json.loads(source), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        if kind == "json_schema" and self.name == "llamacpp":
            return {"json_schema": json.loads(source)}
        if kind in ("json_schema", "regex") and self.name == "sglang":
            return {kind: source}
        return None


#: Fields that every request has, or may have, by what is asked for, whatever the dialect; and those of grammars.
ASKED: Final = frozenset(
    {
        "model", "messages", "prompt", "temperature", "top_p", "n", "seed", "max_tokens", "max_completion_tokens",
        "stop", "logprobs", "top_logprobs", "stream", "stream_options",
    }
)  # fmt: skip
HELD: Final = frozenset({"structured_outputs", "response_format", "json_schema", "regex"})
_MODELFILE: Final = "set it in a Modelfile (`PARAMETER {} …`), and give the name of the model made of that"
#: Fields that Ollama's `/v1` does not read.
_UNREAD_BY_OLLAMA: Final = {
    **{name: _MODELFILE.format(name) for name in ("num_ctx", "top_k", "min_p", "repeat_penalty")},
    "options": "set them in a Modelfile (`PARAMETER num_ctx …`), and give the name of the model made of that",
    "truncate": "leave it out, and give max_context",
    "max_completion_tokens": "use max_tokens",
    "logit_bias": "leave it out",
    "n": "leave it out: samples are asked for one by one",
}
#: Fields that keep defaults of the server's away, as parameters have them when they are off.
_OFF = {name: OFF[name] for name in ("top_p", "min_p", "repetition_penalty")}
DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Dialect("openai", adapters=frozenset({"presence_penalty", "frequency_penalty", "logit_bias"})),
        Dialect(
            "vllm",
            plain=_OFF | {"top_k": 0},
            top_k=True,
            ends=True,
            keep_stop="include_stop_str_in_output",
            reason="stop_reason",
            ids="return_token_ids",
            named="return_tokens_as_token_ids",
            open_turn={"add_generation_prompt": False, "continue_final_message": True},
            labels=128,
            together=128,
            adapters=frozenset(
                {"min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"}
            ),
        ),
        Dialect(
            "sglang",
            plain=_OFF | {"top_k": -1},
            top_k=True,
            ends=True,
            keep_stop="no_stop_trim",
            reason="matched_stop",
            open_turn={"continue_final_message": True},
        ),
        Dialect(
            "llamacpp",
            plain={"top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0},
            top_k=True,
            open_turn={},
        ),
        Dialect(
            "ollama",
            # It sets top_p to 1 itself. Its top_k is the Modelfile's, and no field changes it.
            adapters=frozenset({"presence_penalty", "frequency_penalty"}),
            cuts=True,
            chats=True,
            unread=_UNREAD_BY_OLLAMA,
        ),
    )
}
