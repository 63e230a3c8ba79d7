"""The prompt of an experiment file: what it may be, every fault with its place, and what a run sends."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metagen.errors import ConfigError
from metagen.runs.declare import registry
from metagen.runs.declare.schema import dump, load
from metagen.runs.directory import RunDirectory
from metagen.runs.work.build import open_setup
from metagen.runs.work.forecast.estimate import estimate
from metagen.runs.work.runner import run
from metagen.sequence import Message, Prompt
from metagen.tasks.base import Task
from tests.chat_model import chat_model

FILE = """\
name: sums
task:
  kind: {kind}
  path: sums.jsonl
  {rest}
engines: {{model: {{kind: torch, model: {model}, threads: 1}}}}
generators: {{greedy: {{engine: model, temperature: 0, max_tokens: 60}}}}
strategies: {{single: {{kind: sample}}}}
"""
DATA = '{"id": "one", "question": "a=12+7;b=a*3;b?", "answer": "57"}\n'
TURNS = '{system: "{{x}}", shots: [{user: "{a}", assistant: b}], user: "Q:{question}", assistant: "a="}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sums.jsonl").write_text(DATA)
    return tmp_path / "sums.yaml"


def written(file: Path, rest: str, *, kind: str = "jsonl", model: str = "tiny-0.1m") -> Path:
    file.write_text(FILE.format(kind=kind, rest=rest, model=model))
    return file


def made(file: Path) -> Task:
    task = load(file).task
    found: Task = registry.make("task", task.kind, task.options(), {})
    return found


@pytest.mark.parametrize("kind", ["jsonl", "table", "gsm8k"])
def test_turns_in_a_file(file: Path, kind: str) -> None:
    form = "auto" if kind != "gsm8k" else None
    (problem,) = made(written(file, f"prompt: {TURNS}", kind=kind)).problems()
    assert problem.prompt == Prompt(
        "one",
        messages=(
            Message("system", "{x}"),
            Message("user", "{a}"),
            Message("assistant", "b"),
            Message("user", "Q:a=12+7;b=a*3;b?"),
            Message("assistant", "a="),
        ),
        form=form,  # type: ignore[arg-type]
    )
    again = file.with_name("again.yaml")
    again.write_text(dump(load(file)))
    assert load(again) == load(file)


def test_a_form_in_a_file(file: Path) -> None:
    user = (Message("user", "a=12+7;b=a*3;b?"),)
    expected = {
        "chat": Prompt("one", messages=user),
        "auto": Prompt("one", messages=user, form="auto"),
        "text": Prompt("one", text="a=12+7;b=a*3;b?\n", form="text"),
    }
    for form, prompt in expected.items():
        (problem,) = made(written(file, f"form: {form}")).problems()
        assert problem.prompt == prompt


FAULTS = [
    (
        'prompt: {sytem: a, user: "{question}"}',
        "5: task.prompt.sytem = 'a': no such field; expected one of system, shots, user, assistant; "
        "did you mean 'system'?",
    ),
    ("prompt: {system: a}", "5: task.prompt.user: missing; expected a text that is not empty"),
    ("prompt: {user: ''}", "5: task.prompt.user = '': expected a text that is not empty"),
    ("prompt: 3", "5: task.prompt = 3: expected a text with {question} in it, or turns, such as {user: …}"),
    ("prompt: hello", "5: task.prompt = 'hello': prompt='hello': expected a text with {question} in it"),
    (
        'prompt: "{qestion}"',
        "5: task.prompt = '{qestion}': prompt='{qestion}': expected a text with {question} in it; "
        "did you mean 'question'?",
    ),
    (
        'prompt: {shots: [{usr: a, assistant: b}], user: "{question}"}',
        "5: task.prompt.shots.0.user: missing; expected a text that is not empty",
    ),
    (
        'prompt: {shots: [{user: a, assistant: b, usr: c}], user: "{question}"}',
        "5: task.prompt.shots.0.usr = 'c': no such field; expected one of user, assistant; did you mean 'user'?",
    ),
    ('prompt: {shots: a, user: "{question}"}', "5: task.prompt.shots = 'a': expected a list"),
    ("form: few_shot", "5: task.form = 'few_shot': expected one of chat, text, auto"),
]
PUBLIC = [
    (
        'prompt: "{question} {hint}"',
        "5: task.prompt = '{question} {hint}': prompt: nothing fills {hint}; expected {question}. For the braces "
        "themselves write {{hint}}",
    ),
    (
        'prompt: "{question}"\n  form: few_shot',
        "6: task.form = 'few_shot': few_shot has a wording of its own, and there is a prompt; leave one of them out: "
        "turns have their examples under shots",
    ),
    (
        "form: caht",
        "5: task.form = 'caht': expected one of chat, text, auto, few_shot, few_shot_chat; did you mean 'chat'?",
    ),
]


@pytest.mark.parametrize(
    ("kind", "rest", "fault"), [("jsonl", *f) for f in FAULTS] + [("gsm8k", *f) for f in PUBLIC]
)
def test_faults_have_their_place(file: Path, kind: str, rest: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(file, rest, kind=kind))
    assert f"sums.yaml:{fault}" in str(error.value)


def test_a_chat_api_has_no_plain_text(file: Path) -> None:
    page = written(file, 'form: text\n  prompt: "{question}"').read_text()
    server = "{kind: openai, model: m, base_url: 'http://localhost:1/v1', api: API}"
    page = page.replace("{kind: torch, model: tiny-0.1m, threads: 1}", server)
    file.write_text(page.replace("API", "completions"))
    load(file)
    file.write_text(page.replace("API", "chat"))
    with pytest.raises(ConfigError) as error:
        load(file)
    assert "sums.yaml:5: task.form = 'text': generator 'greedy' asks a server's chat API" in str(error.value)


def test_an_estimate_says_how_prompts_are_sent(file: Path, tmp_path: Path) -> None:
    """Before anything is spent."""
    chat, text = str(chat_model(tmp_path / "chat")), "a text is sent as plain text, without the chat template"
    turns = "messages are sent as plain text, since there is no chat template"
    cases = [
        ('prompt: "{question}"', chat, [text]),
        ('prompt: "{question}"', "tiny-0.1m", []),
        ('prompt: {user: "{question}"}', chat, []),
        ('prompt: {user: "{question}"}', "tiny-0.1m", [turns]),
        ('prompt: "{question}"\n  form: text', chat, []),
    ]
    for rest, model, expected in cases:
        found = str(estimate(load(written(file, rest, model=model)), tmp_path / "run").to_dict())
        assert [said for said in (text, turns) if said in found] == expected, rest


def ran(file: Path, name: str) -> str:
    """What the model wrote."""
    with open_setup(load(file)) as setup:
        state = run(setup, RunDirectory.at(file.parent / name))
    assert state.status == "complete", state
    (text,) = pq.read_table(file.parent / name / "candidates.parquet")["text"].to_pylist()
    return str(text)


def test_a_run_sends_turns_through_the_models_template(file: Path, tmp_path: Path) -> None:
    """The same question as the model was trained on it: by hand, and by the template of a model that has one."""
    chat = str(chat_model(tmp_path / "chat"))
    by_hand = ran(written(file, 'prompt: "Q:{question}\\nS:\\n"'), "hand")
    bare = ran(written(file, 'prompt: "Q:{question}"'), "bare")
    turns = 'prompt: {user: "Q:{question}"}'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ran(written(file, turns, model=chat), "turns") == by_hand != bare
        assert ran(written(file, f"{turns}\n  form: text", model=chat), "text") == bare
        assert ran(written(file, 'prompt: "Q:{question}"\n  form: chat', model=chat), "chat") == by_hand
        assert ran(written(file, turns), "auto") == bare
    with pytest.warns(
        UserWarning, match="without the chat template of .*form: chat sends it as a user's turn"
    ):
        assert ran(written(file, 'prompt: "Q:{question}"', model=chat), "string") == bare
    with open_setup(load(written(file, f"{turns}\n  form: chat"))) as setup:
        state = run(setup, RunDirectory.at(tmp_path / "refused"))
    assert state.status == "failed" and "form='auto'" in state.failures[0].message
