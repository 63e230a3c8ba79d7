"""A task of lm-eval measures a strategy exactly as lm-eval itself does."""

from __future__ import annotations

import asyncio
import csv
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import metagen as mg
from metagen import trust
from metagen.cli import app
from metagen.errors import ConfigError, DataError, InputError, UnsupportedError
from metagen.sequence import Sequence
from tests.integrations.problems import ASKED, SEED, skip_without

skip_without("lm_eval")

import lm_eval  # noqa: E402
from lm_eval.api.metrics import exact_match_hf_evaluate  # noqa: E402
from lm_eval.api.model import LM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from metagen.integrations.lm_eval import MetagenLM  # noqa: E402
from metagen.tasks.lm_eval import LMEvalTask, Measure  # noqa: E402

REGEX = {"function": "regex", "regex_pattern": r"(?m)^A:(.*)$", "group_select": -1}
FIRST = {"function": "take_first"}
FILTERS = [
    {"name": "last", "filter": [REGEX, FIRST]},
    {"name": "strict", "filter": [{"function": "regex", "regex_pattern": r"^A:(.*)$"}, FIRST]},
]
METRIC = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which YAML files and their data lie."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name, rows in (("test", ASKED), ("train", ASKED[::-1])):
        lines = [json.dumps({"question": question, "answer": answer}) for question, answer in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "tasks").mkdir()
    return tmp_path


def write(folder: Path, name: str = "sums", **change: Any) -> dict[str, Any]:
    """Where a task is defined, for LMEvalTask."""
    files = {split: str(folder / f"{split}.jsonl") for split in ("test", "train")}
    definition = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "test_split": "test",
        "training_split": "train",
        "fewshot_split": "train",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 120},
        "filter_list": FILTERS[:1],
        "metric_list": [METRIC],
        **change,
    }
    known = {field: value for field, value in definition.items() if value is not None}
    (folder / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump(known), "utf-8")
    return {"task": name, "include_path": str(folder / "tasks")}


def harness(folder: Path, model: LM, name: str = "sums", **how: Any) -> list[dict[str, Any]]:
    """What lm-eval logs of each problem and filter."""
    manager = TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=model, tasks=[name], task_manager=manager, bootstrap_iters=0, log_samples=True, **how
    )
    assert found is not None
    logged: list[dict[str, Any]] = found["samples"][name]
    return logged


def of(samples: list[dict[str, Any]], task: LMEvalTask, filter: str, metric: str = "exact_match") -> None:
    """Hold each sample of lm-eval's log against the task: its prompt, answer, grade."""
    problems = list(task.problems())
    own = [one for one in samples if one["filter"] == filter]
    assert len(own) == len(problems) > 0
    for sample, problem in zip(own, problems, strict=True):
        assert problem.id.endswith(f"/{sample['doc_id']}")
        (text,) = sample["resps"][0]
        sequence = Sequence.of(problem.prompt).extend(text, finish="stop")
        assert asyncio.run(task.grade(problem, [sequence])) == [sample[metric]]
        (answer,) = asyncio.run(task.answer.read([sequence]))
        (found,) = sample["filtered_resps"]
        assert answer.text == (None if found == "[invalid]" else found)


def graded(task: LMEvalTask, write: Callable[[str], str]) -> list[float]:
    """Of each problem, answered by a function."""
    found = []
    for problem in task.problems():
        text = write(str(problem.prompt.text))
        sequence = Sequence.of(problem.prompt).extend(text, finish="stop")
        found += asyncio.run(task.grade(problem, [sequence]))
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[mg.TorchEngine]:
    with mg.TorchEngine("tiny-0.5m", threads=1) as made:
        yield made


ANSWERS = dict(ASKED)


def say(prompt: str) -> str:
    """Another text for each prompt: right, wrong, without an answer, or with more behind a stop."""
    right = ANSWERS[max(ANSWERS, key=prompt.rfind)]
    place = list(ANSWERS.values()).index(right) % 5
    return (f"so\nA:{right}", f"A:{right}0", "I do not know", f"A:{right}\n\nA:7\n", f"A:7\nA:{right}")[place]


class Scribe(LM):
    """A model of lm-eval that says so, and ends where a task says."""

    tokenizer_name = "none"

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Any] = []

    def generate_until(self, requests: list[Any]) -> list[str]:
        texts = []
        for one in requests:
            context, asked = one.args
            text = say(context)
            for stop in asked["until"]:
                text = text.split(stop)[0]
            texts.append(text)
        return texts

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        self.turns.append(chat_history)
        return "\n".join(turn["content"] for turn in chat_history if turn["role"] == "user")

    def loglikelihood(self, requests: Any) -> Any:
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


@pytest.mark.parametrize("shots", [0, 2])
def test_prompts_answers_and_grades_are_those_of_lm_eval(folder: Path, shots: int) -> None:
    where = write(folder, filter_list=FILTERS, num_fewshot=shots or None, description="Sums.\n")
    samples = harness(folder, Scribe())
    for name in ("last", "strict"):
        task = LMEvalTask(**where, filter=name)
        of(samples, task, name)
        prompts = [sample["arguments"][0][0] for sample in samples if sample["filter"] == name]
        assert [p.prompt.text for p in task.problems()] == prompts
        expected = [sample["exact_match"] for sample in samples if sample["filter"] == name]
        assert graded(task, say) == expected
        assert {0.0, 1.0} == set(expected)
    assert prompts[0].startswith("Sums.\n") and prompts[0].count("Q:") == shots + 1


def test_a_vote_of_the_embedded_model_has_the_same_grade_on_each_problem(
    folder: Path, engine: mg.TorchEngine
) -> None:
    task = LMEvalTask(**write(folder), limit=12)
    vote = mg.MajorityVote(engine.generator(max_tokens=120, stop=task.stop), n=4, answer=task.answer)
    samples = harness(folder, MetagenLM(file=vote, seed=SEED, own_sampling=True), limit=12)
    grades = graded(task, lambda text: vote.solve(mg.Prompt.of(text, form="text"), seed=SEED).text)
    assert grades == [sample["exact_match"] for sample in samples]
    assert len(samples) == 12
    assert 0 < sum(sample["exact_match"] for sample in samples) < 12


def test_a_run_of_a_file_has_lm_evals_accuracy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder)
    file = {
        "name": "sums",
        "task": {"kind": "lm_eval", "task": "sums", "include_path": "tasks", "limit": 8},
        "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
        "generators": {"small": {"engine": "small", "max_tokens": 120, "stop": ["\n\n"]}},
        "strategies": {"greedy": {"kind": "greedy"}},
        "grid": {"n": [1]},
        "serve": {"aliases": {"greedy": "small/greedy"}},
    }
    (folder / "sums.yaml").write_text(yaml.safe_dump(file), "utf-8")
    done = CliRunner().invoke(app, ["run", "sums.yaml", "--out", "run"])
    assert done.exit_code == 0, done.output
    with (folder / "run" / "configurations.csv").open(encoding="utf-8") as rows:
        (row,) = csv.DictReader(rows)
    samples = harness(folder, MetagenLM(file="sums.yaml", model="greedy"), limit=8)
    right = [sample["exact_match"] for sample in samples]
    assert len(right) == 8 and sum(right) > 0
    assert float(row["accuracy"]) == pytest.approx(sum(right) / 8)


def test_a_chat_has_the_turns_that_lm_eval_sends(folder: Path) -> None:
    where = write(folder, num_fewshot=1, gen_prefix="S:")
    task, model = LMEvalTask(**where, form="auto", system="Answer."), Scribe()
    samples = harness(folder, model, apply_chat_template=True, system_instruction="Answer.")
    turns = [[{"role": m.role, "content": m.content} for m in p.prompt.messages] for p in task.problems()]
    assert model.turns == turns
    assert [turn["role"] for turn in turns[0]] == ["system", "user", "assistant", "user", "assistant"]
    of(samples, task, "last")


@given(
    texts=st.lists(st.text("aB1,$. ", max_size=5), min_size=2, max_size=2),
    options=st.fixed_dictionaries(
        {
            "ignore_case": st.booleans(), "ignore_punctuation": st.booleans(),
            "ignore_numbers": st.booleans(), "regexes_to_ignore": st.sampled_from([None, [","], [r"\$", r"\.$"]]),
        }
    ),
)  # fmt: skip
def test_answers_are_equal_where_exact_match_says_so(texts: list[str], options: dict[str, Any]) -> None:
    class Config:
        process_results = None
        metric_list = [METRIC | options]  # noqa: RUF012

    class Task:
        config = Config

    measure = Measure(Task, None, "exact_match", ())
    first, second = map(measure.normal, texts)
    said = exact_match_hf_evaluate([texts[0]], [texts[1]], **options)["exact_match"]
    assert (first == second) == bool(said)


def test_votes_count_answers_that_the_metric_cannot_tell_apart(folder: Path) -> None:
    metric = METRIC | {"regexes_to_ignore": [",", r"\$"], "ignore_case": True}
    task = LMEvalTask(**write(folder, metric_list=[metric]))
    (problem, *_) = task.problems()
    texts = ("A:$1,000", "A:1000", "A:[invalid]", "nothing", "A:x\n\nA:1000", f"A:{'y' * 300}")
    sequences = [Sequence.of(problem.prompt).extend(text, finish="eos") for text in texts]
    keys = [answer.key for answer in asyncio.run(task.answer.read(sequences))]
    assert keys[:2] == ["1000", "1000"] and keys[2:5] == [None, None, "x"]
    assert keys[5] is not None and len(keys[5]) < 50
    assert asyncio.run(task.answer.key("$1,000")) == "1000"
    by_number = LMEvalTask(**write(folder), answer={"kind": "number"})
    assert asyncio.run(by_number.answer.key("2000/2")) == asyncio.run(by_number.answer.key("1000"))


def test_random_numbers_of_the_program_go_on(folder: Path) -> None:
    where = write(folder, num_fewshot=2)
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = (list(LMEvalTask(**where).problems()) for _ in range(2))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states  # noqa: NPY002
    assert [p.digest for p in first] == [p.digest for p in second]
    assert first[0].digest != next(LMEvalTask(**where, seed=7).problems()).digest


def test_fingerprints_of_rules_tell_filters_apart(folder: Path) -> None:
    where = write(folder, filter_list=FILTERS)
    names = [LMEvalTask(**where, filter=name).answer.fingerprint for name in ("last", "strict", "last")]
    assert names[0] == names[2] != names[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output_type": "multiple_choice", "doc_to_choice": ["a", "b"]}, "likelihoods"),
        ({"output_type": "loglikelihood", "metric_list": None}, "likelihoods"),
        ({"unsafe_code": True}, "sandbox"),
        ({"repeats": 4}, "4 times"),
        ({"doc_to_image": ["picture"]}, "images"),
        (
            {"metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]},
            "all problems",
        ),
        ({"metric_list": [METRIC | {"higher_is_better": False}]}, "lower"),
    ],
)
def test_tasks_that_a_strategy_cannot_answer_are_refused(
    folder: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnsupportedError, match=said):
        LMEvalTask(**write(folder, **change))


def test_names_that_are_wrong_or_missing_are_errors_with_the_remedy(folder: Path) -> None:
    where = write(folder, filter_list=FILTERS, num_fewshot=0)
    with pytest.raises(InputError, match="needs filter; expected one of last, strict"):
        LMEvalTask(**where)
    with pytest.raises(InputError, match="has no filter 'lats'; expected one of last, strict"):
        LMEvalTask(**where, filter="lats")
    with pytest.raises(InputError, match="has no metric 'acc'; expected one of exact_match"):
        LMEvalTask(**where, filter="last", metric="acc")
    with pytest.raises(InputError, match="num_fewshot: 0"):
        LMEvalTask(**where, filter="last", num_fewshot=3)
    with pytest.raises(InputError, match=r"task='summs': not in .*; there is sums"):
        LMEvalTask("summs", include_path=where["include_path"])
    with pytest.raises(InputError, match="is no directory"):
        LMEvalTask("sums", include_path=str(folder / "none"))


def test_several_tasks_are_refused_by_name(folder: Path) -> None:
    for name in ("one", "two"):
        where = write(folder, name, tag="pair")
    group = {"group": "both", "task": ["one", "two"]}
    (folder / "tasks" / "both.yaml").write_text(yaml.safe_dump(group), "utf-8")
    for name in ("both", "pair"):
        with pytest.raises(InputError, match="several tasks of lm-eval, one, two"):
            LMEvalTask(name, include_path=where["include_path"])


def test_what_lm_eval_cannot_load_says_why(folder: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl"):
        LMEvalTask(**write(folder, dataset_kwargs={"data_files": {"test": str(folder / "none.jsonl")}}))
    with pytest.raises(DataError, match="cannot load"):
        LMEvalTask(**write(folder, doc_to_text="{{question"))


def test_a_metric_without_a_number_is_an_error(folder: Path) -> None:
    where = write(folder, process_results="!function odd.results", metric_list=[METRIC])
    path = folder / "tasks" / "sums.yaml"
    path.write_text(
        path.read_text("utf-8").replace("'!function odd.results'", "!function odd.results"), "utf-8"
    )
    (folder / "tasks" / "odd.py").write_text("def results(doc, found):\n    return {'exact_match': None}\n")
    task = LMEvalTask(**where)
    (problem, *_) = task.problems()
    with pytest.raises(UnsupportedError, match="gives no number for one completion"):
        asyncio.run(task.grade(problem, [Sequence.of(problem.prompt).extend("A:1", finish="eos")]))


def test_a_directory_of_others_is_code_and_needs_trust(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(trust.VARIABLE, raising=False)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("HOME", str(elsewhere / "home"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(elsewhere / "temporary"))
    where = write(folder)
    with trust.guard(folder):
        assert next(LMEvalTask(**where).problems())
    with (
        trust.guard(tmp_path_factory.mktemp("elsewhere")),
        pytest.raises(ConfigError, match="code of others"),
    ):
        LMEvalTask(**where)


def test_likelihood_tasks_of_lm_eval_are_refused_before_their_data_is_fetched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    folder = Path(lm_eval.__file__).parent / "tasks" / "hellaswag"
    with pytest.raises(UnsupportedError, match="likelihoods"):
        LMEvalTask("hellaswag", include_path=str(folder))
