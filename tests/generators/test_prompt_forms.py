"""Turns and texts on models with and without a chat template: what the model reads, and what is said of it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import PromptError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.body import Wording
from metagen.generators.openai.dialects import DIALECTS
from metagen.generators.ray.messages import Facts
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.sequence import Form, Message, Prompt, Sequence
from metagen.strategies.parallel import Sample
from tests.chat_model import chat_model

QUESTION = "Q:a=12+7;b=a*3;c=b-8;c?"
#: The same as the template writes it.
SOLVED = f"{QUESTION}\nS:\n"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchEngine]:
    with TorchEngine(chat_model(tmp_path_factory.mktemp("chat") / "model"), threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def base() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        yield engine


def greedy(engine: TorchEngine, prompt: Any, **options: Any) -> str:
    return Sample(engine.generator(temperature=0.0, max_tokens=30)).solve(prompt, **options).text


def test_turns_go_through_the_template(chat: TorchEngine, base: TorchEngine) -> None:
    forms: list[Form] = ["chat", "auto"]
    for form in forms:
        assert chat.render(Sequence.of(Prompt.of(QUESTION, form=form))) == base.render(Sequence.of(SOLVED))
    said = greedy(chat, Prompt.of(QUESTION, form="chat"))
    assert said == greedy(base, SOLVED) != greedy(base, QUESTION)
    shots = [{"role": "user", "content": "Q:a=1+1;a?"}, {"role": "assistant", "content": "a=1+1=2\nA:2"}]
    few = Prompt.of([*shots, {"role": "user", "content": QUESTION}])
    whole = "Q:a=1+1;a?\nS:\na=1+1=2\nA:2\n" + SOLVED
    assert chat.render(Sequence.of(few)) == base.render(Sequence.of(whole))


def test_a_text_goes_past_the_template_and_the_generator_says_so_once(
    chat: TorchEngine, base: TorchEngine, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = Sample(chat.generator(temperature=0.0, max_tokens=30))
    with caplog.at_level(logging.WARNING, "metagen"), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        first = strategy.solve(QUESTION)
        strategy.solve(SOLVED)
    assert first.text == greedy(base, QUESTION), "as it was before"
    (said,) = [str(one.message) for one in found]
    assert said.startswith("a text is sent as plain text, without the chat template of TorchEngine(")
    assert (
        "form: chat sends it as a user's turn" in said and "form: text says that plain text is meant" in said
    )
    (logged,) = [r for r in caplog.records if "chat template" in r.getMessage()]
    assert logged.levelname == "WARNING"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        greedy(base, QUESTION)
        assert greedy(chat, Prompt.of(QUESTION, form="text")) == first.text
        assert greedy(chat, Prompt.of([Message("user", QUESTION)], form="text")) == first.text
        greedy(chat, Prompt.of(QUESTION, form="auto"))


def test_turns_on_a_model_without_a_template(base: TorchEngine, caplog: pytest.LogCaptureFixture) -> None:
    turns = [Message("user", SOLVED)]
    with pytest.raises(UnsupportedError, match=r"no chat template.*form='auto', or 'text'"):
        greedy(base, Prompt.of(turns, form="chat"))
    with caplog.at_level(logging.WARNING, "metagen"):
        assert greedy(base, Prompt.of(turns, form="auto")) == greedy(base, SOLVED)
    assert "messages are sent as plain text" in caplog.text
    assert greedy(base, Prompt.of(turns, form="text")) == greedy(base, SOLVED)


def test_a_turn_that_the_template_refuses_is_named(chat: TorchEngine) -> None:
    turns = [Message("user", QUESTION), Message("tool", "57")]
    with pytest.raises(PromptError, match=r"refuses turns of user, tool \(tools are unknown here\)"):
        chat.render(Sequence.of(Prompt.of(turns)))


def test_records_of_plain_text_do_not_answer_for_turns(tmp_path: Path) -> None:
    """A model gets a template between two runs: what was recorded under `auto` before was another prompt."""
    place, journal = chat_model(tmp_path / "model"), MemoryJournal()
    template = (place / "chat_template.jinja").read_text()
    (place / "chat_template.jinja").unlink()
    prompt = Prompt.of(QUESTION, form="auto")
    with TorchEngine(place, threads=1) as engine:
        plain = greedy(engine, prompt, journal=journal)
        assert greedy(engine, prompt, journal=journal) == plain
        assert engine.stats.samples == 1, "the second time it is answered by its record"
    (place / "chat_template.jinja").write_text(template)
    with TorchEngine(place, threads=1) as engine:
        turns = greedy(engine, prompt, journal=journal)
        assert turns != plain
        assert greedy(engine, Prompt.of(QUESTION, form="chat"), journal=journal) == turns
        assert engine.stats.samples == 1, "turns are turns, however they came to be"
        assert greedy(engine, Prompt.of(QUESTION, form="text"), journal=journal) == plain
        assert engine.stats.samples == 2
    (place / "chat_template.jinja").write_text(template.replace("S:", "T:"))
    with TorchEngine(place, threads=1) as engine:
        greedy(engine, prompt, journal=journal)
        assert engine.stats.samples == 1, "another template is asked anew"
        assert greedy(engine, Prompt.of(QUESTION, form="text"), journal=journal) == plain
        assert engine.stats.samples == 1, "plain text is the same under any template"


def test_seeds_and_names_of_texts_are_those_of_before(base: TorchEngine) -> None:
    """What is recorded of a text prompt stays recorded under its name."""
    journal = MemoryJournal()
    Sample(base.generator(max_tokens=3)).solve("Q:", seed=3, journal=journal)
    (row,) = [row for row in journal.of_problem(Prompt.of("Q:").problem_id) if row.kind == "generate"]
    assert row.content.hex() == "5c8a8115d3bd0e1ff93e4e38918163de"
    assert row.payload is not None and row.payload["text"] == "+=+"


# -- over HTTP ------------------------------------------------------------------------------------------


def sent(api: Any, prompt: Prompt) -> dict[str, Any]:
    return Wording("m", api, DIALECTS["openai"], continuation=False)._prompt(Sequence.of(prompt), None)


def test_what_servers_are_sent() -> None:
    user = {"role": "user", "content": QUESTION}
    text, turns = Prompt.of(QUESTION), [Message("system", "Add."), Message("user", QUESTION)]
    assert sent("chat", text) == {"messages": [user]}
    forms: list[Form] = ["chat", "auto"]
    for form in forms:
        assert sent("chat", Prompt.of(turns, form=form))["messages"][1] == user
    for prompt in (Prompt.of(QUESTION, form="text"), Prompt.of(turns, form="text")):
        with pytest.raises(
            UnsupportedError, match=r"form='text', and api='chat' knows turns only.*form='chat'"
        ):
            sent("chat", prompt)
    assert sent("completions", text) == sent("completions", Prompt.of(QUESTION, form="text"))
    for form in ("auto", "text"):
        assert sent("completions", Prompt.of(turns, form=form)) == {"prompt": f"Add.\n\n{QUESTION}"}
    with pytest.raises(UnsupportedError, match=r"is messages, and api='completions' reads text.*form='auto'"):
        sent("completions", Prompt.of(turns))


def test_engines_say_by_what_they_read_turns(chat: TorchEngine, base: TorchEngine) -> None:
    place = chat.directory
    assert isinstance(chat.chat, str) and len(chat.chat) == 32 and base.chat is None
    assert (Facts.of(chat).chat, Facts.of(base).chat) == (chat.chat, None)
    url = "http://localhost:1/v1"
    assert OpenAIEngine("m", base_url=url).chat == "api"
    assert OpenAIEngine("m", base_url=url, api="completions").chat is None
    assert OpenAIEngine("m", base_url=url, api="completions", tokenizer=place).chat == chat.chat


TRIMMED = (
    "{% for m in messages %}<|{{ m.role }}|>\n\n{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n\n{% endif %}"
)


@pytest.mark.parametrize("begun", ["", "\n", " so", "so\n"])
def test_an_open_turn_keeps_its_header_and_its_white_space_under_a_template_that_trims(
    begun: str, tmp_path: Path
) -> None:
    place = chat_model(tmp_path / "model")
    (place / "chat_template.jinja").write_text(TRIMMED)
    tokenizer = Tokenizer(place, 104)
    turns = (Message("user", "hi"), Message("assistant", begun))
    written = tokenizer._apply_template(Prompt("p", messages=turns))
    assert written == f"<|user|>\n\nhi<|end|><|assistant|>\n\n{begun.lstrip(' ')}"


def test_the_tokenizers_own_end_is_one_beside_those_that_the_model_tells(tmp_path: Path) -> None:
    place = chat_model(tmp_path / "model")
    before = Tokenizer(place, 104).eos
    config = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "S"}))
    found = Tokenizer(place, 104)
    assert found.eos == before | {found._tokenizer.token_to_id("S")} and len(found.eos) == len(before) + 1


def test_an_added_token_beyond_the_models_logits_is_refused_where_a_prompt_holds_it(tmp_path: Path) -> None:
    place = chat_model(tmp_path / "model")
    data = json.loads((place / "tokenizer.json").read_text())
    size = 104
    beyond = {"id": size, "content": "<image>", "special": True}
    same = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] = [one for one in data["added_tokens"] if one["id"] < size] + [beyond | same]
    (place / "tokenizer.json").write_text(json.dumps(data))
    tokenizer = Tokenizer(place, size)
    assert tokenizer.encode("<image>") == (size,)
    matcher = tokenizer.constraints().matcher(Grammar.regex("[0-9]"), (), 4)
    assert matcher is not None
