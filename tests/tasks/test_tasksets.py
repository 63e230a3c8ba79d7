"""Tasks of verifiers are asked and rewarded as its own agents are."""

from __future__ import annotations

import asyncio
import csv
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import metagen as mg
from metagen.cli import app
from metagen.errors import DataError, InputError, PluginError, UnsupportedError
from metagen.sequence import Sequence
from metagen.tasks.tasksets import VerifiersTask
from tests.generators.openai.serving import Asked, Reply, Server

ROOT = Path(__file__).parents[2]


def library() -> Any:
    """verifiers, whose name a directory of the clone has too, where Python looks first if it starts there."""
    path = sys.path[:]
    sys.path[:] = [one for one in path if one and Path(one).resolve() != ROOT]
    try:
        return importlib.import_module("verifiers.v1")
    except ImportError:
        return pytest.skip("verifiers is not installed here; run: make tasksets", allow_module_level=True)
    finally:
        sys.path[:] = path


vf = library()

#: A taskset: whole and partial rewards, some with a system prompt, one with messages.
SUMS = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str | None = None


class Sum(vf.Task[Data]):
    @vf.reward
    async def right(self, task, trace: vf.Trace) -> float:
        return float(vf.extract_boxed_answer(trace.last_reply) == task.answer)

    @vf.reward(weight=0.5)
    async def form(self, trace: vf.Trace) -> dict[str, float]:
        return {"boxed": float("\\\\boxed{" in trace.last_reply), "short": float(len(trace.last_reply) < 12)}

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return trace.num_turns


class Config(vf.TasksetConfig):
    count: int = 4


class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        for i in range(self.config.count):
            system = "Box it." if i % 2 else None
            prompt = f"{i} + {i}?" if i != 2 else [vf.UserMessage(content="2 + 2?")]
            yield Sum(Data(prompt=prompt, system_prompt=system, answer=str(2 * i)), self.config.task)


__all__ = ["Sums"]
"""
#: An agent of verifiers that asks once, in this process; its own need a network to be installed.
ASKING = """
import httpx
import verifiers.v1 as vf


class AskingConfig(vf.HarnessConfig):
    pass


class Asking(vf.Harness[AskingConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime):
        pass

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        system, prompt = self.resolve_prompt(data)
        turns = [] if system is None else [{"role": "system", "content": system}]
        asked = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt
        turns += [{"role": one.role, "content": one.content} for one in asked]
        async with httpx.AsyncClient() as client:
            got = await client.post(
                f"{endpoint}/chat/completions", json={"model": ctx.model, "messages": turns},
                headers={"Authorization": f"Bearer {secret}"}, timeout=60,
            )
        got.raise_for_status()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["Asking"]
"""
TEXTS = {"0 + 0?": "It is \\boxed{0}", "1 + 1?": "\\boxed{2}", "2 + 2?": "4", "3 + 3?": "\\boxed{7}, I think"}


async def model(asked: Asked) -> Reply:
    """Says something else to each question."""
    text = TEXTS[asked.body["messages"][-1]["content"]]
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choices = [
        {"index": i, "message": message, "finish_reason": "stop"} for i in range(asked.body.get("n", 1))
    ]
    about = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return Reply(body=about | {"choices": choices, "usage": usage})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sums_of_a_taskset.py").write_text(SUMS, "utf-8")
    (tmp_path / "asking.py").write_text(ASKING, "utf-8")
    yield tmp_path
    for name in ("sums_of_a_taskset", "asking", "made_of_a_test"):
        sys.modules.pop(name, None)


def module(place: Path, text: str) -> str:
    """The taskset `Made` of a module with this text."""
    head = "from sums_of_a_taskset import Config, Data, Sum, Sums, vf\n"
    (place / "made_of_a_test.py").write_text(head + text, "utf-8")
    sys.modules.pop("made_of_a_test", None)
    importlib.invalidate_caches()
    return "made_of_a_test:Made"


def ended(problem: Any, text: str) -> Sequence:
    return Sequence.of(problem.prompt).extend(text, finish="stop")


def test_rewards_are_those_of_an_agent_of_verifiers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_KEY", "none")
    task = VerifiersTask("sums_of_a_taskset:Sums", full=2)
    asking, sums = (importlib.import_module(name) for name in ("asking", "sums_of_a_taskset"))

    async def run(url: str) -> list[Any]:
        client = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY")
        config = vf.AgentConfig(
            harness=asking.AskingConfig(id="asking"), model="m", client=client, runtime=vf.SubprocessConfig()
        )
        agent = vf.Agent(config)
        return [await agent.run(one) for one in sums.Sums(sums.Config())]

    with Server(model).open() as behind:
        traces = asyncio.run(run(behind.url))
    problems = list(task.problems())
    assert len(problems) == len(traces) == 4
    for problem, trace in zip(problems, traces, strict=True):
        assert trace.ok, trace.errors
        *asked, said = [(one.role, one.content) for one in trace.messages]
        assert [(one.role, one.content) for one in problem.prompt.messages] == asked
        sequence = ended(problem, said[1])
        found = asyncio.run(task.rewards(problem, sequence))
        assert found == {name: (one.score, one.weight) for name, one in trace.rewards.items()}
        assert asyncio.run(task.grade(problem, [sequence])) == [trace.reward / 2]
    assert len({trace.reward for trace in traces}) > 2


def test_a_run_of_a_file_has_the_mean_of_the_rewards(place: Path) -> None:
    with Server(model).open() as behind:
        file = {
            "name": "sums",
            "task": {"kind": "verifiers", "taskset": "sums_of_a_taskset:Sums", "reward": "right"},
            "engines": {"m": {"kind": "openai", "base_url": behind.url, "model": "m", "api": "chat"}},
            "generators": {"m": {"engine": "m", "max_tokens": 20}},
            "strategies": {"one": {"kind": "sample"}},
            "grid": {"n": [1]},
        }
        (place / "sums.yaml").write_text(yaml.safe_dump(file), "utf-8")
        done = CliRunner().invoke(app, ["run", "sums.yaml", "--out", "run"])
    assert done.exit_code == 0, done.output
    with (place / "run" / "configurations.csv").open(encoding="utf-8") as rows:
        (row,) = csv.DictReader(rows)
    assert float(row["accuracy"]) == 0.75


def test_options_choose_tasks_rewards_and_answers(place: Path) -> None:
    task = VerifiersTask("sums_of_a_taskset:Sums", config={"count": 9}, reward="boxed", limit=5)
    problems = list(task.problems())
    assert [p.id for p in problems] == [f"Sums/{i}" for i in range(5)]
    assert [p.reference for p in problems] == ["0", "2", "4", "6", "8"]
    sequences = [ended(problems[1], text) for text in ("\\boxed{9}", "2", "so \\boxed{4/2}")]
    assert asyncio.run(task.grade(problems[1], sequences)) == [1, 0, 1]
    assert asyncio.run(task.answer.key("4/2")) == asyncio.run(task.answer.key("2"))
    by_text = VerifiersTask("sums_of_a_taskset:Sums", answer="text", pattern="<a>(.*)</a>")
    (answer,) = asyncio.run(by_text.answer.read([ended(problems[1], "<a>two</a>")]))
    assert answer.text == "two"


def test_a_thought_is_kept_apart_and_a_cut_completion_is_truncated(place: Path) -> None:
    target = module(
        place,
        "class Seen(Sum):\n"
        "    @vf.reward\n"
        "    async def right(self, trace):\n"
        "        said = trace.assistant_messages[-1]\n"
        "        return (said.reasoning_content == 'hm') / 2 + trace.is_truncated / 4\n"
        "    @vf.reward\n"
        "    async def form(self, trace):\n"
        "        return 0.0\n"
        "class Made(vf.Taskset[Seen, Config]):\n"
        "    def load(self):\n"
        "        yield Seen(Data(prompt='x', answer='1'))\n",
    )
    task = VerifiersTask(target)
    (problem,) = task.problems()
    start = Sequence.of(problem.prompt)
    thought = mg.sequence.Thought("hm")
    sequences = [
        start.extend("1", finish="stop"),
        start.extend("1", finish="stop", thought=thought),
        start.extend("1", finish="length", thought=thought),
    ]
    assert asyncio.run(task.grade(problem, sequences)) == [0, 0.5, 0.75]


ONE = "class Made(vf.Taskset[{task}, Config]):\n    def load(self):\n        yield {task}(Data({data}))\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE.format(task="Sum", data=""), "a user opens"),
        (ONE.format(task="Sum", data="prompt='x', image='ubuntu'"), "needs a runtime"),
        (
            "class Boxed(Sum):\n    NEEDS_CONTAINER = True\n" + ONE.format(task="Boxed", data="prompt='x'"),
            "needs a runtime",
        ),
        (
            "class Prepared(Sum):\n    async def setup(self, trace, runtime):\n        pass\n"
            + ONE.format(task="Prepared", data="prompt='x'"),
            r"needs a runtime \(setup\)",
        ),
        (
            "class Run(Sum):\n    @vf.reward\n    async def ran(self, trace, runtime):\n        return 1.0\n"
            + ONE.format(task="Run", data="prompt='x'"),
            r"needs a runtime \(ran\)",
        ),
        (
            "class Tooled(Sum):\n    @classmethod\n    def toolsets(cls, config):\n        return [1]\n"
            + ONE.format(task="Tooled", data="prompt='x'"),
            "has tools",
        ),
        (
            "class Changed(Sum):\n    @vf.intercept\n    async def change(self, request: vf.Request):\n"
            "        return None\n" + ONE.format(task="Changed", data="prompt='x'"),
            "intercept",
        ),
        (
            ONE.format(
                task="Sum",
                data="prompt=[vf.UserMessage(content=[vf.ImageUrlContentPart(image_url={'url': 'a'})])]",
            ),
            "more than text",
        ),
    ],
)
def test_tasks_that_one_turn_cannot_answer_are_refused(place: Path, text: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        VerifiersTask(module(place, text))


def test_a_judge_is_refused_for_it_asks_a_model_that_nobody_counts(place: Path) -> None:
    judge = {"id": "reference", "model": "m"}
    with pytest.raises(UnsupportedError, match="no budget counts"):
        VerifiersTask("sums_of_a_taskset:Sums", config={"task": {"judges": [judge]}})


def test_faults_name_the_place_the_value_and_the_remedy(place: Path) -> None:
    task = VerifiersTask("sums_of_a_taskset:Sums")
    problem = list(task.problems())[1]
    with pytest.raises(UnsupportedError, match=r"right 1 · 1, .*which is 2 of full=1.*give full"):
        asyncio.run(task.grade(problem, [ended(problem, "\\boxed{2}")]))
    with pytest.raises(InputError, match=r"reward='rigth': task 'Sums/1' has right, boxed, short"):
        asyncio.run(
            VerifiersTask("sums_of_a_taskset:Sums", reward="rigth").grade(problem, [ended(problem, "2")])
        )
    with pytest.raises(InputError, match="count"):
        VerifiersTask("sums_of_a_taskset:Sums", config={"counts": 2})
    with pytest.raises(InputError, match="derives from"):
        VerifiersTask("sums_of_a_taskset:Sum")
    with pytest.raises(InputError, match="cannot import 'sums_of_a_taskset:Summs'"):
        VerifiersTask("sums_of_a_taskset:Summs")
    with pytest.raises(DataError, match="no problems"):
        VerifiersTask("sums_of_a_taskset:Sums", config={"count": 0})
    endless = "class Made(Sums):\n    INFINITE = True\n"
    with pytest.raises(InputError, match="without end"):
        VerifiersTask(module(place, endless))


def test_an_error_of_a_reward_names_it(place: Path) -> None:
    text = "class Bad(Sum):\n    @vf.reward\n    async def right(self, trace):\n        return 1 / 0\n"
    task = VerifiersTask(module(place, text + ONE.format(task="Bad", data="prompt='x'")))
    (problem,) = task.problems()
    with pytest.raises(PluginError, match=r"the rewards of Bad .*division by zero"):
        asyncio.run(task.grade(problem, [ended(problem, "1")]))


def test_without_the_library_an_error_says_how_to_get_it() -> None:
    program = "from metagen.tasks.tasksets import VerifiersTask\nVerifiersTask('sums:Sums')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "pip install 'verifiers>=0.4'" in last and "begin in another directory" in last
