"""How tasks of one's own data ask: texts, turns, messages of the file, and every way in which these can be wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Message, Prompt, Sequence
from metagen.tasks.base import Task
from metagen.tasks.countdown.task import Game24Task
from metagen.tasks.jsonl import JsonlTask
from metagen.tasks.recorded import RecordedTask
from metagen.tasks.tables import TableTask

ROW = {"id": "a", "question": "Two and two?", "answer": "4", "hint": "Add.", "level": 1}
TURNS: dict[str, Any] = {
    "system": "{hint} Be brief.",
    "shots": [{"user": "One and {one}?", "assistant": "A: 2"}],
    "user": "{question}",
    "assistant": "A: ",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sums.jsonl"


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def asked(task: Task) -> Prompt:
    (problem,) = task.problems()
    return problem.prompt


def grades(task: Task, *texts: str) -> list[float]:
    (problem,) = task.problems()
    return asyncio.run(task.grade(problem, [Sequence(problem.prompt, t, finish="eos") for t in texts]))


def test_a_text_is_sent_as_it_was(path: Path) -> None:
    written(path, ROW)
    assert asked(JsonlTask(path)) == Prompt("a", text="Two and two?\n")
    assert asked(JsonlTask(path, prompt="Q: {question}\nA:")) == Prompt("a", text="Q: Two and two?\nA:")
    assert asked(JsonlTask(path, form="text")) == Prompt("a", text="Two and two?\n", form="text")
    user = (Message("user", "Two and two?"),)
    assert asked(JsonlTask(path, form="chat")) == Prompt("a", messages=user)
    assert asked(JsonlTask(path, form="auto")) == Prompt("a", messages=user, form="auto")


def test_turns_of_a_chat(path: Path) -> None:
    written(path, ROW)
    for table in (JsonlTask(path, prompt=TURNS), TableTask(path, prompt=TURNS)):
        assert asked(table) == Prompt(
            "a",
            messages=(
                Message("system", "Add. Be brief."),
                Message("user", "One and {one}?"),
                Message("assistant", "A: 2"),
                Message("user", "Two and two?"),
                Message("assistant", "A: "),
            ),
            form="auto",
        )
        assert grades(table, "4", "5", "Well.\nA: 4") == [1, 0, 1], "the begun turn is a part of the answer"
    assert grades(table, "A: 4", "A: 5") == [1, 0], "a revision begins the turn anew"
    assert asked(JsonlTask(path, prompt=TURNS, form="chat")).form is None
    plain = asked(JsonlTask(path, prompt=TURNS, form="text")).plain(template=True)
    assert plain == "Add. Be brief.\n\nOne and {one}?\n\nA: 2\n\nTwo and two?\n\nA: "


def test_fields_of_a_record_fill_places(path: Path) -> None:
    written(path, {**ROW, "hint": "Mind {question} and {{braces}}."})
    prompt = asked(JsonlTask(path, prompt='{hint} {question} {{word}} {"a": 1} \\boxed{}'))
    assert prompt.text == 'Mind {question} and {{braces}}. Two and two? {word} {"a": 1} \\boxed{}'


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("question", r"prompt='question': expected a text with {question} in it$"),
        ("{qestion}", r"expected a text with {question} in it; did you mean 'question'\?"),
        ({"system": "{question}"}, r"expected a text, or a mapping with user: a text with places"),
        (
            {"user": "{question}", "sytem": "a"},
            r"no turn 'sytem'; expected some of .*did you mean 'system'\?",
        ),
        ({"user": "a", "system": "{question}"}, r"prompt='a': expected a text with {question} in it"),
        (
            {"user": "{question}", "assistant": ""},
            r"prompt.assistant is ''; expected a text that is not empty",
        ),
        ({"user": "{question}", "system": 3}, r"prompt.system is 3; expected a text"),
        ({"user": "{question}", "shots": ["a"]}, r"prompt.shots.0 is 'a'; expected a mapping with user: and"),
        ({"user": "{question}", "shots": [{"user": "a"}]}, r"prompt.shots.0 is {'user': 'a'}; expected"),
        (
            {"user": "{question}", "shots": [{"user": "{question}", "assistant": "a"}]},
            r"prompt.shots.0.user has a place for {question}, and an example is sent as it is",
        ),
        ("{question} {answer}", r"{answer} would show the model the right answer.* write {{answer}}"),
        (3, "expected a text, or a mapping"),
    ],
)
def test_prompts_are_checked(path: Path, prompt: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        JsonlTask(written(path, ROW), prompt=prompt)


def test_a_place_for_a_mapped_answer_is_refused(path: Path) -> None:
    row = {"id": "a", "question": "?", "gold": "4", "answer": "of somebody else"}
    prompt = "{answer} {question}"
    assert asked(JsonlTask(written(path, row), fields={"answer": "gold"}, prompt=prompt)).text == (
        "of somebody else ?"
    )
    with pytest.raises(InputError, match=r"the place {gold} would show"):
        JsonlTask(path, fields={"answer": "gold"}, prompt="{gold} {question}")


def test_a_place_that_no_field_fills_is_named_with_its_line(path: Path) -> None:
    written(
        path,
        ROW,
        {**ROW, "id": "b", "hint": None},
        {k: v for k, v in ROW.items() if k != "hint"} | {"id": "c"},
    )
    with pytest.raises(DataError) as error:
        JsonlTask(path, prompt="{hint} {question}")
    _, null, missing = str(error.value).splitlines()
    assert null.startswith(f"{path}:2: the hint is None; expected a text or a number")
    assert "sums.jsonl:3: there is no field 'hint'" in missing
    assert missing.endswith("it fills {hint} of the prompt, where {{hint}} writes the braces themselves")
    with pytest.raises(DataError, match=r"no field 'hnt', did you mean 'hint'"):
        JsonlTask(written(path, ROW), prompt="{hnt} {question}")


def test_a_form_is_checked(path: Path) -> None:
    with pytest.raises(InputError, match=r"form='few_shot': expected one of chat, text, auto"):
        JsonlTask(written(path, ROW), form="few_shot")  # type: ignore[arg-type]


# -- messages and parts in the data ---------------------------------------------------------------------

CHAT = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
]


def test_a_question_may_be_a_chat(path: Path) -> None:
    written(path, {**ROW, "question": CHAT})
    messages = (Message("system", "Add."), Message("user", "2 + 2?"))
    assert asked(JsonlTask(path)) == Prompt("a", messages=messages, form="auto")
    assert asked(JsonlTask(path, form="chat")) == Prompt("a", messages=messages)
    with pytest.raises(DataError, match=r":1: the question is a chat's messages, which need no prompt="):
        JsonlTask(path, prompt="{question}")
    recorded = RecordedTask(path, fields={"question": "question", "reference": "answer"})
    assert asked(recorded) == Prompt("a", messages=messages, form="auto")


def test_a_question_may_be_parts_that_are_texts(path: Path) -> None:
    parts = [{"type": "text", "text": "Two "}, {"type": "text", "text": "and two?"}]
    written(path, {**ROW, "question": parts})
    assert asked(JsonlTask(path)) == Prompt("a", text="Two and two?\n")
    assert (
        asked(RecordedTask(path, fields={"question": "question", "reference": "answer"})).text
        == "Two and two?"
    )


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_images_and_sounds_are_refused_by_line(path: Path, kind: str) -> None:
    part = {"type": kind, kind: {}}
    for question in (
        [part],
        [{"type": "text", "text": "What is it?"}, part],
        [{"role": "user", "content": [part]}],
    ):
        written(path, {**ROW, "question": question})
        for make in (
            lambda: JsonlTask(path),
            lambda: RecordedTask(path, fields={"question": "question", "reference": "answer"}),
        ):
            with pytest.raises(
                DataError, match=f":1: .* holds a part of type '{kind}'; metagen sends text only"
            ):
                make()


# -- the Game of 24 ------------------------------------------------------------------------------------------


def test_the_game_of_24_in_turns(path: Path) -> None:
    written(path, {"puzzle": "4 5 6 10"})
    usual = asked(Game24Task(path))
    assert usual.text is not None and usual.form is None
    task = Game24Task(path, prompt={"user": "Make {target} of {numbers}.", "assistant": "Answer: "})
    prompt = asked(task)
    assert [m.content for m in prompt.messages] == ["Make 24 of 4 5 6 10.", "Answer: "]
    assert (prompt.public, prompt.form) == (usual.public, "auto")
    assert grades(task, "(10-4)*5-6", "10-4") == [1, 0]
    (problem,) = task.problems()
    (answer,) = asyncio.run(task.answer.read([Sequence(problem.prompt, "(10-4)*5-6", finish="eos")]))
    assert answer.key is not None
    assert asked(Game24Task(path, form="chat")).messages == (Message("user", usual.text),)
    with pytest.raises(InputError, match=r"expected a text with {question} or {numbers} or {target}"):
        Game24Task(path, prompt="Play.")
