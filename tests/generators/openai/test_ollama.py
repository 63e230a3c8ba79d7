"""Ollama's `/v1`, as its documentation and source describe it: fields that it ignores, and prompts that it cuts.

Ollama itself is in no package index, so a server of these tests stands in for it. It follows `docs/api/
openai-compatibility.mdx` (fields that are read), `docs/context-length.mdx` (the context) and `server/prompt.go` (the
oldest messages are dropped, system messages and the last one kept, and nobody is told).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import Generated, GenerateRequest
from metagen.generators.openai import OpenAIEngine
from metagen.runs.declare.schema import load
from metagen.sequence import Message, Prompt, Sequence
from tests.generators.openai.serving import Asked, Reply, Server, answer, said

#: Fields of chats that Ollama reads.
READ = {
    "model", "messages", "stream", "stream_options", "max_tokens", "seed", "stop", "temperature", "frequency_penalty",
    "presence_penalty", "top_p", "response_format", "tools", "reasoning", "reasoning_effort", "logprobs",
    "top_logprobs",
}  # fmt: skip
#: Bytes of a token of its models.
BYTES = 4
SENTENCE = "The library lends books on weekdays, and takes them back at any time. "


def ollama(context: int) -> Any:
    """A server with a context of so many tokens, which drops the oldest messages until the rest fits into it."""

    async def handler(asked: Asked) -> Reply:
        turns = asked.body["messages"]
        while _tokens(turns) > context and (
            old := next((t for t in turns[:-1] if t["role"] != "system"), None)
        ):
            turns.remove(old)
        if _tokens(turns) > context:  # then the beginning of the text, down to half the context
            return Reply(body=answer(said("It is."), prompt=context // 2 + 3, new=3))
        return Reply(body=answer(said("It is."), prompt=_tokens(turns), new=3))

    return handler


def _tokens(turns: list[dict[str, str]]) -> int:
    return sum(len(turn["content"].encode()) for turn in turns) // BYTES


#: About 1,500 tokens in one turn.
LONG = Prompt("long", messages=(Message("user", SENTENCE * 86),))


def turns(count: int) -> Prompt:
    """A conversation of so many turns of 400 letters, and a short last one."""
    text = (SENTENCE * 6)[:400]
    roles = ["user", "assistant"] * count
    last = Message("user", "And now?")
    return Prompt("long", messages=(*(Message(roles[i], text) for i in range(count)), last))  # type: ignore[arg-type]


def ask(prompt: Prompt, *, context: int = 1024, new: int = 16, **options: Any) -> tuple[Generated, Asked]:
    options = {"max_context": context} | options
    with (
        Server(ollama(context)).open() as server,
        OpenAIEngine("llama3.2:3b", base_url=server.url, dialect="ollama", **options) as engine,
    ):
        request = GenerateRequest(Sequence.of(prompt), (1,), engine.generator(temperature=0.5).params, new)
        made = asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))
        return made, server.asked[0]


def test_only_fields_that_it_reads_are_sent() -> None:
    made, asked = ask(turns(3), structured_outputs=True)
    assert made.samples[0].text == "It is." and asked.path == "/v1/chat/completions"
    assert set(asked.body) <= READ
    assert {
        "model": "llama3.2:3b",
        "max_tokens": 16,
        "seed": 1,
        "temperature": 0.5,
    }.items() <= asked.body.items()


def test_a_schema_is_sent_as_its_response_format() -> None:
    schema = '{"type": "object"}'
    with Server(ollama(99)).open() as server, _engine(server, structured_outputs=True) as engine:
        generator = engine.generator(grammar=Grammar("json_schema", schema))
        request = GenerateRequest(Sequence.of(turns(0)), (1,), generator.params, 16)
        asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))
        assert server.asked[0].body["response_format"]["json_schema"]["schema"] == json.loads(schema)


@pytest.mark.parametrize(
    "params", [{"top_k": 5}, {"min_p": 0.1}, {"repetition_penalty": 1.1}, {"ignore_eos": True}]
)
def test_what_it_would_ignore_is_refused(params: dict[str, Any]) -> None:
    with (
        OpenAIEngine("m", dialect="ollama", max_context=99, base_url="http://127.0.0.1:9/v1") as engine,
        pytest.raises(UnsupportedError, match=next(iter(params))),
    ):
        engine.generator(**params)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "max_context is missing: .* drops what does not fit .*ollama ps"),
        ({"max_context": 99, "api": "completions"}, "puts the text into the model's chat template.*use api: chat"),
        ({"max_context": 99, "extra_body": {"options": {"num_ctx": 8192}}}, "ignores 'options'; .*PARAMETER num_ctx"),
        ({"max_context": 99, "extra_body": {"top_k": 0}}, "ignores 'top_k'; set it in a Modelfile .`PARAMETER top_k"),
        ({"max_context": 99, "length_field": "max_completion_tokens"}, "length_field: .*; use max_tokens"),
    ],
)  # fmt: skip
def test_options_that_it_would_ignore_are_refused_in_python_and_in_files(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        OpenAIEngine("m", dialect="ollama", base_url="http://127.0.0.1:9/v1", **options)
    engine = {
        "kind": "openai",
        "model": "m",
        "dialect": "ollama",
        "base_url": "http://127.0.0.1:9/v1",
        **options,
    }
    (tmp_path / "p.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "run.yaml").write_text(
        f"name: x\ntask: {{kind: gsm8k, path: p.jsonl}}\nengines: {{e: {json.dumps(engine)}}}\n"
        "generators: {e: {engine: e, max_tokens: 9}}\nstrategies: {one: {kind: greedy}}\n"
    )
    with pytest.raises(InputError, match=says):
        load(tmp_path / "run.yaml")


def test_messages_that_it_drops_are_an_error() -> None:
    """It answers as if nothing had happened: its count is the only trace."""
    ask(turns(8))
    with pytest.raises(
        PromptError, match=r"read 1002 tokens of a prompt, and max_tokens=64 more exceed .* 1024"
    ):
        ask(turns(11), new=64)


def test_a_text_that_it_cuts_to_half_the_context_is_an_error() -> None:
    with pytest.raises(PromptError, match=r"read 515 tokens of a prompt of 7\d\d or more .* num_ctx"):
        ask(LONG)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of bytes, with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    path = tmp_path_factory.mktemp("tokenizer")
    letters = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    return path


def test_with_the_tokenizer_nothing_is_sent_that_does_not_fit(tokenizer: Path) -> None:
    with pytest.raises(PromptError, match=r"tokens of prefix and max_tokens=16 exceed the context of 1024"):
        ask(turns(30), tokenizer=tokenizer)


def test_with_the_tokenizer_a_context_that_is_said_too_large_is_noticed(tokenizer: Path) -> None:
    """The server runs the model with 1,024 tokens, and max_context says 99,999."""
    with pytest.raises(
        PromptError, match=r"read 1002 tokens of a prompt of \d{5} or more .*: the server cut it"
    ):
        ask(turns(30), tokenizer=tokenizer, max_context=99_999)


def test_rules_and_spaces_in_a_prompt_are_few_tokens() -> None:
    """A run of one character is one token in many vocabularies; that is no cut."""
    prompt = Prompt("rule", messages=(Message("user", "=" * 3000 + " " * 3000 + "What is it?"),))
    with Server(_counting(20)).open() as server, _engine(server) as engine:
        request = GenerateRequest(Sequence.of(prompt), (1,), engine.generator().params, 16)
        assert asyncio.run(asyncio.wait_for(engine.generate(request), 60.0)).samples[0].text


def test_a_server_that_counts_nothing_is_not_accused() -> None:
    with Server(_counting(None)).open() as server, _engine(server) as engine:
        request = GenerateRequest(Sequence.of(LONG), (1,), engine.generator().params, 16)
        assert asyncio.run(asyncio.wait_for(engine.generate(request), 60.0)).prefix_tokens is None


def _engine(server: Server, **options: Any) -> OpenAIEngine:
    return OpenAIEngine("m", dialect="ollama", base_url=server.url, max_context=4096, **options)


def _counting(prompt: int | None) -> Any:
    async def handler(asked: Asked) -> Reply:
        return Reply(body=answer(said("It is."), prompt=prompt, new=3))

    return handler
