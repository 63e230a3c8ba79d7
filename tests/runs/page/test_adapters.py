"""`metagen explain`: what a user types becomes parameters, and what they do is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.stages import Pipeline, pipeline
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.runs.page.adapters import cautions, check_file, data, params_of, picture, render, write
from metagen.sequence import Sequence


@pytest.fixture(scope="module")
def found() -> Pipeline:
    table = EnumerableEngine("ab<\n$", lambda prompt, done: (0.5, 0.2, 0.15, 0.1, 0.05), name="five")
    with table:
        return pipeline(table, Sequence.of("?"), SamplingParams(banned=("<",), temperature=0.5, top_k=2))


@pytest.mark.parametrize(
    ("typed", "params"),
    [
        (["top_p=0.9", "temperature=0"], SamplingParams(temperature=0, top_p=0.9)),
        (["banned=7"], SamplingParams(banned=("7",))),
        (["banned=[a, [1, 2]]"], SamplingParams(banned=("a", (1, 2)))),
        (["forced=12"], SamplingParams(forced="12")),
        (["logit_bias={a: 2, 3: -1}"], SamplingParams(logit_bias={"a": 2, 3: -1})),
        (["mirostat={tau: 3}"], SamplingParams(mirostat=Mirostat(3))),
        (["grammar={regex: '[0-9]+'}"], SamplingParams(grammar=Grammar.regex("[0-9]+"))),
        (['grammar={choice: ["yes", "no"]}'], SamplingParams(grammar=Grammar.choice(("yes", "no")))),
        (["min_tokens=300"], SamplingParams(min_tokens=300, max_tokens=300)),
    ],
    ids=str,
)
def test_values_are_yaml(typed: list[str], params: SamplingParams) -> None:
    assert params_of(typed) == params


def test_a_place_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for asked in (["explain", "Q:", "--out"], ["schema", "--out"]):
        result = CliRunner().invoke(app, [*asked, str(tmp_path / "file" / "x.svg")])
        assert result.exit_code == 2 and "cannot be written" in " ".join(result.output.split()), result.output
    check_file(tmp_path / "new" / "x.svg")
    assert not (tmp_path / "new" / "x.svg").exists()


def test_a_preset_and_what_stands_beside_it() -> None:
    assert params_of(["top_p=1"], "code") == SamplingParams(temperature=0.2, top_p=1)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["top_p"], "expected NAME=VALUE"),
        (["max_tokens=3"], "'max_tokens' is no adapter"),
        (["topp=0.5"], "did you mean 'top_p'"),
        (["banned=[1, a, [9]]"], r"1 is neither a text nor a list .* such as \[\[1\], a, \[9\]\]"),
        (["top_p=0.9", "top_p=0.8"], "given twice"),
        (["banned=[a"], "no YAML"),
        (["mirostat=3"], "such as {tau: 3}"),
        (["grammar={words: 3}"], "regex"),
        (["top_p=2"], r"expected a number in \(0, 1\]"),
    ],
    ids=str,
)
def test_what_is_no_adapter_is_said(typed: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        params_of(typed)


def test_the_table_has_a_row_for_each_token_and_a_column_for_each_adapter(found: Pipeline) -> None:
    console = Console(width=120, highlight=False)
    with console.capture() as said:
        console.print(render(found))
    lines = said.get().splitlines()
    assert lines[1].split() == ["token", "model", "banned=('<',)", "temperature=0.5", "top_k=2"]
    assert ["a", "50.00%", "58.82%", "82.64%", "86.21%"] in [line.split() for line in lines]
    assert ["<", "15.00%", "–", "–", "–"] in [line.split() for line in lines]
    assert ["tokens", "left", "5", "4", "4", "2"] in [line.split() for line in lines]
    assert ["cut", "off", "–", "15.00%", "–", "4.13%"] in [line.split() for line in lines]


def test_as_data_the_stages_are_exact(found: Pipeline) -> None:
    stages = json.loads(json.dumps(data(found, most=2)))
    assert [stage["tokens_left"] for stage in stages] == [5, 4, 4, 2]
    assert stages[0]["probabilities"] == [["a", pytest.approx(0.5)], ["b", pytest.approx(0.2)]]
    assert stages[3]["probabilities"][1][1] == pytest.approx(0.04 / 0.29)


@pytest.mark.usefixtures("whole_figures")
def test_the_page_holds_all_and_fetches_nothing(found: Pipeline, tmp_path: Path) -> None:
    write(found, tmp_path / "new" / "page.html", title="<b>")
    page = (tmp_path / "new" / "page.html").read_text("utf-8")
    assert "<svg" in page and "<h1>&lt;b&gt;</h1>" in page and "<td style=" in page
    assert "src=" not in page and "<script" not in page and "<td>&lt;" not in page
    for name in ("one.png", "one.svg"):
        write(found, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InputError, match=r"ends with one of \.html"):
        write(found, tmp_path / "page.pdf")


def test_there_is_a_panel_for_each_stage(found: Pipeline) -> None:
    assert [axes.get_title(loc="left") for axes in picture(found).axes] == [
        "model", "banned=('<',)", "temperature=0.5", "top_k=2",
    ]  # fmt: skip


def test_the_command_reads_an_embedded_model(tmp_path: Path) -> None:
    asked = ["explain", r"Q:a=5;b=a+7;b?\nS:\n", "--model", "tiny-0.1m", "--adapter", "top_k=3", "--json"]
    done = CliRunner().invoke(app, [*asked, "--completion", "b=5+7="])
    assert done.exit_code == 0, done.output
    raw, cut = json.loads(done.stdout)
    assert (raw["adapter"], cut["adapter"]) == (None, "top_k=3")
    assert (raw["tokens_left"], cut["tokens_left"]) == (104, 3)
    assert cut["probabilities"][0][0] == "1", "5 + 7 is 12"
    assert CliRunner().invoke(app, ["explain", "Q", "--adapter", "top_q=3"]).exit_code == 2


@pytest.mark.parametrize(
    ("model", "prompt", "completion", "says"),
    [
        ("tiny-0.1m", "Q:é=ü", "", ["the prompt has characters that the tokens cannot write.*: 'é', 'ü'$"]),
        ("tiny-0.1m", "Q:a=", "é", ["the completion has characters .*: 'é'$"]),
        ("tiny-bpe", "Q:a=1;", "b", []),
        (
            "tiny-prm",
            "Q:a=1;",
            "",
            ["'tiny-prm' is a reward model: it scores by '<\\+>' and '<->' behind '<step>'"],
        ),
        ("{ensemble: {models: [tiny-0.1m]}}", "Q:a=\n", "", []),
    ],
)
def test_what_makes_a_distribution_mean_less_is_said(
    model: str, prompt: str, completion: str, says: list[str]
) -> None:
    found = cautions(model, prompt, completion)
    assert len(found) == len(says)
    assert all(re.search(wanted, said) for wanted, said in zip(says, found, strict=True)), found


def test_the_command_warns_beside_its_output() -> None:
    done = CliRunner().invoke(app, ["explain", "é", "--model", "tiny-0.1m", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)
    assert done.stderr.startswith("warning: the prompt has characters") and "'é'" in done.stderr


def test_a_file_that_is_no_picture_is_refused_before_a_model_is_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", "Q", "--model", "nowhere", "--out", str(tmp_path / "x.pdf")])
    assert done.exit_code == 2 and "ends with one of .html" in done.stderr and "nowhere" not in done.stderr


def test_the_model_may_be_a_recipe_as_in_an_experiment() -> None:
    recipe = "{ensemble: {models: [tiny-0.1m, tiny-0.5m]}}"
    done = CliRunner().invoke(app, ["explain", "Q:a=", "--model", recipe, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["tokens_left"] == 104
    for wrong, says in (("{ensemble: [", "no YAML"), ("{ensemble: {}}", "ensemble.models"), ("{x: 1}", "x")):
        done = CliRunner().invoke(app, ["explain", "Q:a=", "--model", wrong])
        assert done.exit_code == 2 and says in done.stderr, done.stderr
