"""What people type as messages: texts in parts, what is not supported, and how turns become plain text."""

from __future__ import annotations

from typing import Any

import pytest

from metagen.errors import InputError, PromptError
from metagen.sequence import Form, Message, Prompt, Sequence

QUESTION = Message("user", "2 + 2?")
HINT = Message("system", "Add.")
BEGUN = Message("assistant", "It is")


def test_parts_that_are_texts_are_one_text() -> None:
    parts = [{"type": "text", "text": "2 + "}, {"type": "input_text", "text": "2?"}]
    said: dict[str, Any] = {"role": "user", "content": parts, "name": None}
    assert Prompt.of([said]) == Prompt.of([QUESTION])
    assert Sequence.of(Prompt.of([said])).prompt.digest == Prompt("q", messages=(QUESTION,)).digest
    assert Message.of(said) == QUESTION
    with pytest.raises(InputError, match=r"Message: content=.*; expected a text"):
        Message("user", parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([{"type": "image_url", "image_url": {"url": "data:…"}}], "'image_url'"),
        (
            [
                {"type": "text", "text": "What is this?"},
                {"type": "input_audio", "input_audio": {"data": "…", "format": "wav"}},
            ],
            "'input_audio'",
        ),
        ([{"type": "text"}], "'text'"),
        ([{"text": "a"}], "{'text': 'a'}"),
        (["a"], "'a'"),
        (None, "None"),
        (3, "3"),
    ],
)
def test_other_parts_are_refused_by_what_they_are(content: Any, found: str) -> None:
    for make in (
        lambda: Message("user", content),
        lambda: Prompt.of([{"role": "user", "content": content}]),
        lambda: Prompt("p", messages=({"role": "user", "content": content},)),  # type: ignore[arg-type]
    ):
        with pytest.raises(PromptError) as error:
            make()
        said = str(error.value)
        assert said.startswith("the user's message holds ") and found in said
        assert 'metagen sends text only: a text, or parts {"type": "text", "text": "…"}' in said


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
            "a message has 'tool_calls': .*; metagen sends role and content",
        ),
        ({"role": "user", "name": "Ann", "content": "a"}, "a message has 'name': 'Ann'"),
        ({"role": "user"}, 'is no message; expected {"role": "user", "content": '),
        ("role", "'role' is no message"),
        ({"role": "developer", "content": "a"}, "has the role 'developer'; expected one of system, user"),
    ],
)
def test_what_would_be_dropped_is_refused(message: Any, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        Prompt.of([message])
    with pytest.raises(PromptError, match=r"is no prompt; expected a text, or messages"):
        Prompt.of(3)  # type: ignore[arg-type]


def test_turns_as_plain_text() -> None:
    turns = (HINT, Message("user", "1 + 1?\n"), Message("assistant", "2"), QUESTION)
    forms: list[Form | None] = [None, "chat", "auto", "text"]
    for template, said in ((True, [None, None, None, ...]), (False, [None, None, ..., ...])):
        expected = [None if one is None else "Add.\n\n1 + 1?\n2\n\n2 + 2?" for one in said]
        assert [Prompt.of(turns, form=f).plain(template=template) for f in forms] == expected
    assert Prompt.of([QUESTION, BEGUN], form="text").plain(template=True) == "2 + 2?\n\nIt is"
    assert Prompt.of([QUESTION, Message("assistant", "")], form="text").plain(template=True) == "2 + 2?"
    assert Prompt.of("a", form="text").plain(template=True) == "a" == Prompt.of("a").plain(template=True)


def test_a_form_makes_turns_of_a_text_and_names_what_a_model_is_given() -> None:
    assert (
        Prompt.of("2 + 2?", form="chat").messages == (QUESTION,) == Prompt.of("2 + 2?", form="auto").messages
    )
    assert Prompt.of("2 + 2?", form="text").text == "2 + 2?"
    assert Prompt.of("2 + 2?", form="text").digest == Prompt.of("2 + 2?").digest
    chat, auto, text = (Prompt.of([QUESTION], form=form) for form in ("chat", "auto", "text"))
    assert chat.digest == auto.digest != text.digest, "plain text is another question"
    with pytest.raises(PromptError, match=r"form='auto' is for messages, and there is a text; Prompt.of"):
        Prompt("p", text="a", form="auto")
    with pytest.raises(PromptError, match=r"form='caht': expected one of chat, text, auto"):
        Prompt("p", text="a", form="caht")  # type: ignore[arg-type]
