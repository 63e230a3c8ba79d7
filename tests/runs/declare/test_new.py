"""What `new` writes loads, runs, and explains itself; nothing is ever overwritten."""

from pathlib import Path

import pytest
import yaml

from metagen.errors import InputError
from metagen.generators.models import sources
from metagen.runs.declare import new, schema
from metagen.runs.declare.registry import KINDS
from metagen.runs.declare.source import parse
from metagen.runs.declare.specs.definition import model_of
from metagen.runs.work import build
from metagen.tasks.jsonl import JsonlTask
from tests.chat_model import chat_model


@pytest.mark.parametrize("task", ["arithmetic", "jsonl"])
def test_it_loads_and_every_section_has_a_word(
    task: new.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = new.write(Path("votes.yaml"), task)
    experiment = schema.load(files[0])
    assert experiment.name == "votes"
    page = files[0].read_text()
    for kinds in KINDS.values():
        assert f"Kinds: {', '.join(kinds)}" in page.replace("\n# ", " ")
    lines = page.splitlines()
    for i, line in enumerate(lines):
        if line and line[0].isalpha():  # a section
            assert lines[i - 1].startswith("#"), line
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("task", ["arithmetic", "jsonl"])
def test_more_samples_stand_beside_greedy_and_a_sample_at_its_own_temperature(
    task: new.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = schema.load(new.write(Path("votes.yaml"), task)[0])
    cells = {(g, experiment.strategies[s].kind) for g, s in experiment.grid.cells}
    assert {("writer", "greedy"), ("cool", "sample"), ("writer", "sample"), ("writer", "majority")} <= cells
    writer, cool = (experiment.generators[name] for name in ("writer", "cool"))
    assert cool.temperature < writer.temperature


def test_the_examples_are_read_and_checked(tmp_path: Path) -> None:
    """The data that come with a jsonl experiment are sound, and the model of the file can read them."""
    file, data = new.write(tmp_path / "mine.yaml", "jsonl")
    assert data.name == "mine.jsonl"
    with build.open_setup(schema.load(file, sets=["grid.pairs=[[writer, single]]"])) as setup:
        problems = list(setup.task.problems())
        assert [problem.reference for problem in problems] == [answer for _, _, answer in new.EXAMPLES]
        assert problems[0].prompt.text == "Q:a=11*3;b=a+38;b?\nS:\n"


def test_data_and_model_are_named_as_seen_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "my own.jsonl").write_text('{"id": 1, "question": "1+1", "answer": 2}\n')
    (tmp_path / "model").symlink_to(sources.resolve("tiny-0.1m"))
    file, *more = new.write(Path("plans/x.yaml"), "jsonl", data=Path("data/my own.jsonl"), model="model")
    assert more == []
    experiment = schema.load(file)
    assert experiment.task.path == str(tmp_path / "data" / "my own.jsonl")
    assert (tmp_path / "model").samefile(experiment.engines["writer"].model)


def test_data_of_ones_own_are_asked_in_turns_if_the_model_has_a_template(tmp_path: Path) -> None:
    data = tmp_path / "own.jsonl"
    data.write_text('{"id": 1, "question": "1+1", "answer": 2}\n')
    plain, *_ = new.write(tmp_path / "plain.yaml", "jsonl", data=data)
    turns, *_ = new.write(
        tmp_path / "turns.yaml", "jsonl", data=data, model=str(chat_model(tmp_path / "model"))
    )
    for file, roles in ((plain, []), (turns, ["system", "user"])):
        task = schema.load(file).task
        (problem,) = JsonlTask(
            data, **{k: v for k, v in task.options().items() if k in ("prompt", "form")}
        ).problems()
        assert [message.role for message in problem.prompt.messages] == roles
    assert problem.prompt.messages[1].content == "1+1" and "A:" in problem.prompt.messages[0].content
    assert "# prompt: {system: " in plain.read_text(), "where a chat model comes later"
    lines = [line[4:] for line in plain.read_text().splitlines() if line.startswith("  # prompt: ")]
    (commented,) = [parse("task:\n  " + line).data["task"]["prompt"] for line in lines]
    assert JsonlTask(data, prompt=commented)


@pytest.mark.parametrize("name", ["smollm2-135m", "smollm2-135m-solver"])
def test_a_packaged_model_is_asked_in_turns_before_it_is_fetched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path / "nothing fetched"))
    file, data = new.write(tmp_path / "x.yaml", "jsonl", model=name)
    prompt = yaml.safe_load(file.read_text())["task"]["prompt"]
    assert prompt.keys() == {"system", "user"} and data.is_file()


@pytest.mark.parametrize("there", ["votes.yaml", "votes.jsonl"])
def test_nothing_is_overwritten(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        new.write(tmp_path / "votes.yaml", "jsonl")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is for --task jsonl"):
        new.write(tmp_path / "a.yaml", "arithmetic", data=tmp_path / "b.jsonl")
    with pytest.raises(InputError, match="there is no file"):
        new.write(tmp_path / "a.yaml", "jsonl", data=tmp_path / "b.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        new.write(tmp_path / "file" / "a.yaml")


@pytest.mark.parametrize(
    ("stem", "name"), [("my votes", "my-votes"), ("_x", "x"), ("größe", "gr-e"), ("...", "experiment")]
)
def test_names_are_made_of_file_names(stem: str, name: str, tmp_path: Path) -> None:
    assert schema.load(new.write(tmp_path / f"{stem}.yaml")[0]).name == name


@pytest.mark.parametrize("stem", ["2024", "1e5", "1_000", "true", "Null", "3.11", "-5"])
def test_names_that_are_no_texts_in_yaml_are_quoted(stem: str, tmp_path: Path) -> None:
    assert schema.load(new.write(tmp_path / f"{stem}.yaml")[0]).name == stem.lstrip("-")
    (tmp_path / f"{stem}.jsonl").write_text('{"id": "1", "question": "Q", "answer": "2"}\n')
    (file,) = new.write(tmp_path / "of.yaml", "jsonl", data=tmp_path / f"{stem}.jsonl")
    schema.load(file)


@pytest.mark.parametrize("kind", ["greedy", "majority", "weighted", "best_of_n"])
def test_a_strategy_that_the_file_has_already_is_described_in_its_place(kind: str, tmp_path: Path) -> None:
    (file,) = new.write(tmp_path / "a.yaml", strategies=[kind])
    experiment = schema.load(file)
    assert experiment.strategies[kind].kind == kind
    cells = list(experiment.grid.cells)
    assert ("writer", kind) in cells and len(cells) == len(set(cells))
    assert file.read_text().count(f"\n  {kind}:") == 1


def test_strategies_are_written_down_with_all_their_fields(tmp_path: Path) -> None:
    (file,) = new.write(tmp_path / "searches.yaml", strategies=["beam", "dvts", "beam"])
    experiment = schema.load(file)
    assert {"beam", "dvts"} <= {strategy for _, strategy in experiment.grid.cells}
    assert experiment.strategies["beam"].verifier == "steps"
    page = file.read_text()
    assert "    # m: 4                  # an integer ≥ 1\n" in page
    assert "    # step:                 # {delimiter, mark, max_tokens, tokens}\n" in page
    assert '    # prior: "uniform"      # one of uniform, logprob\n' in new.describe("mcts")
    # A comment taken away is a field of the file.
    file.write_text(page.replace("# max_depth: 25", "max_depth: 12"))
    assert {schema.load(file).strategies[name].max_depth for name in ("beam", "dvts")} == {12}
    with pytest.raises(InputError, match="no strategy 'bean'; did you mean 'beam'"):
        new.write(tmp_path / "other.yaml", strategies=["bean"])


@pytest.mark.parametrize("kind", KINDS["strategies"])
def test_what_a_strategy_needs_is_all_that_is_left_to_fill_in(kind: str) -> None:
    model = model_of("strategies", kind)
    assert model is not None
    lines = new.describe(kind, "steps").splitlines()[2:]
    named = [line.strip("# ").partition(":")[0] for line in lines]
    assert named == [name for name in model.model_fields if name not in ("kind", "over")]
    needed = {name for name, field in model.model_fields.items() if field.is_required()} - {"kind"}
    assert {
        name for name, line in zip(named, lines, strict=True) if not line.lstrip().startswith("#")
    } == needed
