"""A task of lighteval measures a strategy exactly as lighteval's own pipeline does."""

from __future__ import annotations

import asyncio
import csv
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import metagen as mg
from metagen import trust
from metagen.cli import app
from metagen.errors import ConfigError, DataError, InputError, PluginError, UnsupportedError
from metagen.sequence import Sequence
from tests.integrations.problems import ASKED, skip_without

skip_without("lighteval")

from lighteval.logging.evaluation_tracker import EvaluationTracker  # noqa: E402
from lighteval.models.dummy.dummy_model import DummyModel, DummyModelConfig  # noqa: E402
from lighteval.models.model_output import ModelResponse  # noqa: E402
from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters  # noqa: E402
from lighteval.tasks.prompt_manager import PromptManager  # noqa: E402
from lighteval.tasks.registry import Registry  # noqa: E402

from metagen.tasks import lighteval as own  # noqa: E402
from metagen.tasks.lighteval import Bench, LightevalTask  # noqa: E402

#: The beginning of a file of tasks, whose data lie beside it.
HEAD = """
import random
from pathlib import Path
import numpy as np
from lighteval.metrics.metrics import Metrics
from lighteval.metrics.metrics_sample import ExactMatches, SampleLevelComputation
from lighteval.metrics.utils.metric_utils import SampleLevelMetric
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc, SamplingMethod

def last(text):
    return text.rpartition("A:")[2].strip()

def ask(line, name):
    return Doc(task_name=name, query=line["question"], choices=[line["answer"]], gold_index=0)

def shuffle(line, name):
    choices = [line["answer"], "none"]
    random.shuffle(choices)
    query = line["question"] + " or ".join(choices)
    return Doc(task_name=name, query=query, choices=choices, gold_index=choices.index(line["answer"]))

def instruct(line, name):
    doc = ask(line, name)
    doc.instruction = "Add.\\n"
    doc.query = doc.instruction + doc.query
    return doc

def metric(name, compute, **change):
    options = dict(higher_is_better=True, category=SamplingMethod.GENERATIVE, corpus_level_fn=np.mean)
    return SampleLevelMetric(metric_name=name, sample_level_fn=compute, **(options | change))

last_line = metric("last", ExactMatches(normalize_pred=last))
any_line = metric("suffix", ExactMatches(strip_strings=True, type_exact_match="suffix"))

def sums(name="sums", **change):
    options = dict(prompt_function=ask, metrics=[last_line], stop_sequence=["\\n\\n"], generation_size=120)
    return LightevalTaskConfig(
        name=name, hf_repo=str(Path(__file__).parent / "data"), hf_subset="default", few_shots_split="train",
        hf_avail_splits=["train", "test"], evaluation_splits=["test"], **(options | change)
    )

"""
TABLE = """
TASKS_TABLE = [
    sums(), sums("shuffled", prompt_function=shuffle), sums("instructed", prompt_function=instruct),
    sums("two", metrics=[last_line, any_line]),
    sums("maths", metrics=[Metrics.expr_gold_metric.value]),
]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file of tasks and their data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "data").mkdir()
    for name, rows in (("test", ASKED), ("train", ASKED[::-1])):
        lines = [json.dumps({"question": question, "answer": answer}) for question, answer in rows]
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    write(tmp_path, TABLE)
    return tmp_path


def write(folder: Path, text: str) -> str:
    """The path of a file of tasks."""
    path = folder / "sums.py"
    path.write_text(HEAD + text, "utf-8")
    return str(path)


def bench(task: str, file: str | None, **change: Any) -> Bench:
    """A task of lighteval in this process, which makes it sooner."""
    usual: dict[str, Any] = {"module": None, "shots": 0, "metric": None, "chat": False, "system": None}
    return Bench(task, file, **(usual | {"limit": None} | change))


ANSWERS = dict(ASKED)


def say(prompt: str) -> str:
    """Another text for each prompt: right, wrong, without an answer, or with more behind a stop."""
    right = ANSWERS[max(ANSWERS, key=prompt.rfind)]
    place = list(ANSWERS.values()).index(right) % 6
    return (
        f"so\nA: {right}",
        f"A: {right}0",
        "I do not know",
        f"A: {right}\n\nA: 7\n",
        f"<think>A: 7</think> The final answer is ${right}$",
        f"A: 7\nA: {right}",
    )[place]


class Scribe(DummyModel):  # type: ignore[misc]  # of the class nothing is known where it is not installed
    """A model of lighteval that says so, and ends where a task says."""

    def __init__(self, chat: bool, system: str | None = None) -> None:
        super().__init__(DummyModelConfig(cache_dir="cache"))
        self.chat, self.manager = chat, PromptManager(system_prompt=system)
        self.asked: list[Any] = []

    def greedy_until(self, docs: list[Any]) -> list[Any]:
        answers = []
        for doc in docs:
            prompt = self.manager.prepare_prompt_api(doc) if self.chat else self.manager.prepare_prompt(doc)
            self.asked.append(prompt)
            text = say(prompt[-1]["content"] if self.chat else prompt)
            if not self.chat:
                for stop in doc.stop_sequences:
                    text = text.split(stop)[0]
            answers.append(ModelResponse(text=[text], input=prompt))
        return answers


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[Any], list[dict[str, float]]]]:
    """What lighteval's pipeline asks, and what it makes of each answer."""
    # Its own tasks are not needed, and some of them fetch files when they are imported.
    for name in ("_load_from_files", "_load_from_subdirs"):
        monkeypatch.setattr(Registry, name, staticmethod(lambda *given: {}))

    def run(
        file: str, task: str, *, chat: bool = False, system: str | None = None, limit: int | None = None
    ) -> tuple[list[Any], list[dict[str, float]]]:
        model = Scribe(chat, system)
        given = PipelineParameters(
            launcher_type=ParallelismManager.NONE,
            custom_tasks_directory=file,
            max_samples=limit,
            bootstrap_iters=0,
        )
        pipeline = Pipeline(
            tasks=task,
            pipeline_parameters=given,
            evaluation_tracker=EvaluationTracker("results", save_details=False),
            model=model,
        )
        pipeline.evaluate()
        (details,) = pipeline.get_details().values()
        return model.asked, [one.metric for one in details]

    return run


def graded(task: LightevalTask) -> list[float]:
    """Of each problem, as the scribe answers it."""
    found = []
    for problem in task.problems():
        prompt = problem.prompt
        text = say(prompt.messages[-1].content if prompt.text is None else prompt.text)
        sequence = Sequence.of(prompt).extend(text, finish="stop")
        found += asyncio.run(task.grade(problem, [sequence]))
    return found


@pytest.mark.parametrize(
    ("name", "shots"), [("sums", 0), ("sums", 3), ("shuffled", 0), ("instructed", 3), ("maths", 0)]
)
def test_prompts_and_grades_are_those_of_lighteval(
    folder: Path, harness: Callable[..., Any], name: str, shots: int
) -> None:
    file = str(folder / "sums.py")
    asked, samples = harness(file, f"{name}|{shots}")
    task = LightevalTask(name, custom_tasks=file, num_fewshot=shots)
    assert [one.prompt.text for one in task.problems()] == asked
    expected = [value for sample in samples for value in sample.values()]
    assert graded(task) == expected
    assert len(expected) == len(ASKED) and {0.0, 1.0} == set(expected)
    assert asked[0].count("Q:") == shots + 1


def test_a_limit_takes_the_problems_that_lighteval_takes(folder: Path, harness: Callable[..., Any]) -> None:
    file = str(folder / "sums.py")
    asked, samples = harness(file, "two|0", limit=7)
    for metric in ("last", "suffix"):
        task = LightevalTask("two", custom_tasks=file, metric=metric, limit=7)
        assert [one.prompt.text for one in task.problems()] == asked
        assert graded(task) == [sample[metric] for sample in samples]
    assert len(asked) == 7


def test_a_chat_has_the_turns_that_lighteval_sends(folder: Path, harness: Callable[..., Any]) -> None:
    file = str(folder / "sums.py")
    asked, samples = harness(file, "instructed|1", chat=True, system="Answer.")
    task = LightevalTask("instructed", custom_tasks=file, num_fewshot=1, form="auto", system="Answer.")
    turns = [[{"role": m.role, "content": m.content} for m in p.prompt.messages] for p in task.problems()]
    assert turns == asked
    assert [turn["role"] for turn in turns[0]] == ["system", "user", "assistant", "user"]
    assert graded(task) == [sample["last"] for sample in samples]
    assert task.stop == ()


def test_thoughts_are_removed_as_the_pipeline_does() -> None:
    given = PipelineParameters(launcher_type=ParallelismManager.NONE)
    assert given.remove_reasoning_tags and given.reasoning_tags == own.TAGS


def test_grades_in_a_thread_are_the_same(folder: Path) -> None:
    """Without the process of its own, lighteval's metric raises an error there."""
    task = LightevalTask("maths", custom_tasks="sums.py", limit=6)
    grades, here = graded(task), bench("maths", "sums.py", limit=6)
    gold = here.describe()[1][0][1]
    assert 1.0 in grades and here.grade(0, [f"${gold}$"]) == [1.0]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(graded, task).result() == grades
        with pytest.raises(PluginError, match="main thread"):
            pool.submit(here.grade, 0, [f"${gold}$"]).result()


def test_a_run_of_a_file_has_lightevals_accuracy(folder: Path) -> None:
    file = {
        "name": "sums",
        "task": {"kind": "lighteval", "task": "sums", "custom_tasks": "sums.py", "limit": 8},
        "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
        "generators": {"small": {"engine": "small", "max_tokens": 120, "stop": ["\n\n"]}},
        "strategies": {"greedy": {"kind": "greedy"}},
        "grid": {"n": [1]},
    }
    (folder / "sums.yaml").write_text(yaml.safe_dump(file), "utf-8")
    done = CliRunner().invoke(app, ["run", "sums.yaml", "--out", "run"])
    assert done.exit_code == 0, done.output
    with (folder / "run" / "configurations.csv").open(encoding="utf-8") as rows:
        (row,) = csv.DictReader(rows)
    task = LightevalTask("sums", custom_tasks="sums.py", limit=8)
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        write_greedily = mg.Sample(engine.generator(max_tokens=120, stop=task.stop, temperature=0))
        texts = [write_greedily.solve(one.prompt).text for one in task.problems()]
    references = [one.reference for one in task.problems()]
    right = [t.rpartition("A:")[2].strip() == r for t, r in zip(texts, references, strict=True)]
    assert sum(right) > 0
    assert float(row["accuracy"]) == pytest.approx(sum(right) / 8)


def test_random_numbers_of_the_program_go_on(folder: Path) -> None:
    state = random.getstate()
    first, second = (list(LightevalTask("shuffled", custom_tasks="sums.py").problems()) for _ in range(2))
    assert random.getstate() == state
    assert [one.digest for one in first] == [one.digest for one in second]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("metrics=[Metrics.loglikelihood_acc.value]", "likelihoods"),
        ("metrics=[Metrics.maj_at_n(sample_params={'n': 4})]", "4 times"),
        ("metrics=[Metrics.bleu.value]", "all problems at once"),
        ("metrics=[metric('worse', ExactMatches(), higher_is_better=False)]", "lower"),
        ("metrics=[Metrics.simpleqa_judge.value], ", "judge"),
        ("prompt_function=lambda line, name: Doc(line['question'], ['1'], 0, images=[1])", "images"),
    ],
)
def test_tasks_that_a_strategy_cannot_answer_are_refused(folder: Path, change: str, said: str) -> None:
    file = write(folder, f"TASKS_TABLE = [sums({change})]\n")
    with pytest.raises(UnsupportedError, match=said):
        bench("sums", file)


def test_a_metric_that_runs_code_is_refused(folder: Path) -> None:
    text = "from lighteval.tasks.tasks.slr_bench import custom_metric\nTASKS_TABLE = [sums(metrics=[custom_metric])]\n"
    with pytest.raises(UnsupportedError, match="outside of a sandbox"):
        bench("sums", write(folder, text))


def test_faults_name_the_place_the_value_and_the_remedy(folder: Path) -> None:
    with pytest.raises(InputError, match="'two' needs metric; expected one of last, suffix"):
        bench("two", "sums.py")
    with pytest.raises(InputError, match="has no metric 'lats'; expected one of last, suffix"):
        bench("two", "sums.py", metric="lats")
    with pytest.raises(InputError, match=r"task='summs': the tasks of 'sums\.py' are sums, shuffled"):
        bench("summs", "sums.py")
    with pytest.raises(InputError, match=r"task='gsm9k': the tasks of 'gsm9k' are none; or give module"):
        bench("gsm9k", None)
    with pytest.raises(InputError, match=r"'none\.py' is no file"):
        LightevalTask("sums", custom_tasks="none.py")
    with pytest.raises(DataError, match=r"cannot load the tasks of .*ZeroDivisionError"):
        bench("sums", write(folder, "1 / 0\n"))
    with pytest.raises(DataError, match=r"cannot load its task 'sums' \(.*nowhere"):
        bench("sums", write(folder, "one = sums()\none.hf_repo = './nowhere'\nTASKS_TABLE = [one]\n"))


def test_tasks_of_lightevals_own_are_found_in_their_modules() -> None:
    with pytest.raises(UnsupportedError, match="task='winogrande': it compares likelihoods"):
        bench("winogrande", None)
    with pytest.raises(UnsupportedError, match="outside of a sandbox"):
        bench("lcb:codegeneration", None)
    with pytest.raises(UnsupportedError, match="'qa4mre:2011': it compares likelihoods"):
        bench("qa4mre:2011", None, module="qa4mre")
    with pytest.raises(InputError, match="'dropped': the tasks of 'drop_qa' are drop"):
        bench("dropped", None, module="drop_qa")


ODD = """
class Odd(SampleLevelComputation):
    def compute(self, doc, model_response):
        {body}
TASKS_TABLE = [sums(metrics=[metric("odd", Odd())])]
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 1 / 0", "metric='odd' of lighteval's task 'sums' raised ZeroDivisionError"),
        ("return None", "metric='odd' of lighteval's task 'sums' raised TypeError"),
        ("import os; os._exit(3)", "the process of lighteval's task 'sums' ended .status 3"),
        ("return 2.0", "gives 2 for one completion; expected a metric in .0, 1"),
    ],
)
def test_what_a_metric_does_wrong_names_it(folder: Path, body: str, said: str) -> None:
    task = LightevalTask("sums", custom_tasks=write(folder, ODD.format(body=body)))
    (problem, *_) = task.problems()
    with pytest.raises((PluginError, UnsupportedError), match=said):
        asyncio.run(task.grade(problem, [Sequence.of(problem.prompt).extend("A:1", finish="eos")]))


def test_a_file_of_others_is_code_and_needs_trust(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(trust.VARIABLE, raising=False)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "temporary").mkdir()
    monkeypatch.setenv("HOME", str(elsewhere / "home"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(elsewhere / "temporary"))
    with trust.guard(folder):
        assert next(LightevalTask("sums", custom_tasks="sums.py").problems())
    with trust.guard(tmp_path_factory.mktemp("other")), pytest.raises(ConfigError, match="code of others"):
        LightevalTask("sums", custom_tasks="sums.py")
