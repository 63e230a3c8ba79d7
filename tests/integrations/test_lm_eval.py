"""lm-eval runs its tasks on strategies."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import metagen as mg
from metagen.errors import InputError, MetagenError, PluginError, UnsupportedError
from tests.integrations.problems import ASKED, SEED, accuracy, is_right, skip_without, voting, write
from tests.serve.clients.process import environment

skip_without("lm_eval")

import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from metagen.integrations.lm_eval import MetagenLM, _fields  # noqa: E402


def task(folder: Path, **generation: Any) -> dict[str, Any]:
    data = folder / "problems.jsonl"
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in ASKED]
    data.write_text("\n".join(lines) + "\n", "utf-8")
    last = [{"function": "regex", "regex_pattern": r"(?m)^A:(.*)$", "group_select": -1}]
    return {
        "task": "arithmetic_of_a_file",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [], "max_gen_toks": 120, **generation},
        "filter_list": [{"name": "last", "filter": [*last, {"function": "take_first"}]}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }


def run(folder: Path, model: Any, **generation: Any) -> float:
    found = lm_eval.simple_evaluate(
        model=model, tasks=[task(folder, **generation)], bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False),
    )  # fmt: skip
    assert found is not None and found["n-samples"]["arithmetic_of_a_file"]["effective"] == len(ASKED)
    return float(found["results"]["arithmetic_of_a_file"]["exact_match,last"])


def test_a_file_has_the_accuracy_of_its_strategy(tmp_path: Path) -> None:
    with voting() as vote:
        expected = accuracy(vote, "text")
        # A task asks for greedy samples unless it says otherwise.
        model = MetagenLM(file=write(tmp_path), model="vote", own_sampling=True, seed=SEED)
        assert run(tmp_path, model) == pytest.approx(expected)
        own = MetagenLM(file=vote, seed=SEED)
        assert run(tmp_path, own, do_sample=True, temperature=1.0) == pytest.approx(expected)


def test_a_vote_refuses_greedy_samples_and_a_greedy_strategy_does_not(tmp_path: Path) -> None:
    with pytest.raises(MetagenError, match="would be equal"):
        run(tmp_path, MetagenLM(file=write(tmp_path), model="vote"))
    assert 0 < run(tmp_path, MetagenLM(file=write(tmp_path), model="greedy")) <= 1
    with pytest.raises(InputError, match="file is missing"):
        MetagenLM(model="greedy")


def test_a_text_that_fails_ends_the_others() -> None:
    """Nobody waits for them any more, and each of them may cost money."""
    asked: list[str] = []
    with voting() as vote:
        model = MetagenLM(file=vote, own_sampling=True, concurrency=2)
        answer = model._local.answer

        async def fail(kind: Any, fields: Any, headers: Any = None) -> dict[str, Any]:
            asked.append(fields["prompt"])
            if fields["prompt"] == "bad":
                raise PluginError("no")
            await asyncio.sleep(0.2)
            return await answer(kind, fields, headers)

        model._local.answer = fail  # type: ignore[method-assign]
        requests = [
            Instance("generate_until", doc={}, arguments=(text, {"until": []}), idx=i)
            for i, text in enumerate(["bad", *(f"good {i}" for i in range(8))])
        ]
        with pytest.raises(PluginError, match="no"):
            model.generate_until(requests)
        begun = len(asked)
        time.sleep(1)
    assert len(asked) == begun < len(requests)


def test_a_request_that_is_repeated_gets_another_text_each_time() -> None:
    """A task with `repeats: 4` asks so; equal texts would make its votes those of one sample."""
    texts = [question for question, _ in ASKED for _ in range(4)]
    with voting() as vote:
        model = MetagenLM(file=vote, seed=SEED, own_sampling=True)
        requests = [
            Instance("generate_until", doc={}, arguments=(text, {"until": []}), idx=i)
            for i, text in enumerate(texts)
        ]
        said = model.generate_until(requests)
        wanted = [vote.solve(mg.Prompt.of(t), seed=SEED + i % 4).text for i, t in enumerate(texts)]
    assert said == wanted
    assert any(len(set(said[i : i + 4])) > 1 for i in range(0, len(said), 4))


def test_a_chat_is_asked_by_turns(tmp_path: Path) -> None:
    heard: list[tuple[str, ...]] = []
    with voting() as vote:
        model = MetagenLM(file=vote, seed=SEED, own_sampling=True)
        answer = model._local.answer

        async def hear(kind: Any, fields: Any, headers: Any = None) -> dict[str, Any]:
            heard.append((kind, *(turn["role"] for turn in fields["messages"])))
            return await answer(kind, fields, headers)

        model._local.answer = hear  # type: ignore[method-assign]
        found = lm_eval.simple_evaluate(
            model=model, tasks=[task(tmp_path)], bootstrap_iters=0, limit=4, apply_chat_template=True,
            task_manager=TaskManager(include_defaults=False), system_instruction="",
        )  # fmt: skip
        assert found is not None
        right = [is_right(vote.solve(mg.Prompt.of(q, form="auto"), seed=SEED).text, a) for q, a in ASKED[:4]]
    assert heard == [("chat", "user")] * 4
    assert found["results"]["arithmetic_of_a_file"]["exact_match,last"] == pytest.approx(sum(right) / 4)
    with pytest.raises(UnsupportedError, match="templates by name"):
        model.chat_template("tool_use")


def test_likelihoods_are_refused_with_the_remedy() -> None:
    with voting() as vote:
        model = MetagenLM(file=vote)
        instance = Instance(request_type="loglikelihood", doc={}, arguments=("a", "b"), idx=0)
        for refused in (model.loglikelihood, model.loglikelihood_rolling):
            with pytest.raises(UnsupportedError, match="generate_until"):
                refused([instance])


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"until": "\n"}, {"stop": ["\n"], "max_tokens": 256, "temperature": 0.0}),
        ({"until": ["a"], "max_gen_toks": 5}, {"stop": ["a"], "max_tokens": 5, "temperature": 0.0}),
        ({"do_sample": True}, {"max_tokens": 256, "temperature": 1.0}),
        ({"do_sample": False, "temperature": 0.7}, {"max_tokens": 256, "temperature": 0.0}),
        (
            {"temperature": 0.7, "top_p": 0.9},
            {"max_tokens": 256, "temperature": 0.7, "top_p": 0.9},
        ),
    ],
)
def test_what_a_task_says_is_what_is_asked(asked: dict[str, Any], sent: dict[str, Any]) -> None:
    assert _fields(asked) == sent


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="num_beams"):
        _fields({"num_beams": 4})
    with pytest.raises(InputError, match="max_gen_toks=5, max_tokens=9: all of them are the most tokens"):
        _fields({"max_gen_toks": 5, "max_tokens": 9})


def test_the_command_of_lm_eval_knows_the_model(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task(tmp_path)), "utf-8")
    command = [
        sys.executable, "-m", "metagen.integrations.lm_eval", "run", "--model", "metagen",
        "--model_args", f"file={write(tmp_path)},model=vote,own_sampling=True", "--tasks", "arithmetic_of_a_file",
        "--include_path", str(tmp_path), "--output_path", str(tmp_path / "out"), "--limit", "6",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=400, env=environment(), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(results.read_text("utf-8"))["results"]["arithmetic_of_a_file"]["exact_match,last"]
    with voting() as vote:
        right = [is_right(vote.solve(mg.Prompt.of(q, form="text"), seed=SEED).text, a) for q, a in ASKED[:6]]
    assert found == pytest.approx(sum(right) / 6)
