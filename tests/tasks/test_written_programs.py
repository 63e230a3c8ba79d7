"""HumanEval and MBPP as small chat models are asked, and programs as such models write them."""

from __future__ import annotations

import asyncio
import json
import re
from collections import abc
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.runs.declare import registry
from metagen.sequence import Finish, Prompt, Sequence
from metagen.tasks.base import Problem
from metagen.tasks.code import CodeTask
from metagen.tasks.mbpp import MBPPTask
from metagen.verifiers.code.definitions import Definitions
from metagen.verifiers.code.program import FencedProgram

SHARED = Path(__file__).parents[3] / "shared" / "data" / "problems"
STUB = 'import math\n\ndef half(x):\n    """Half of x."""\n'
RECORDS: dict[str, dict[str, Any]] = {
    "humaneval": {"task_id": "a", "prompt": STUB, "entry_point": "half",
                  "test": "def check(candidate):\n    assert candidate(4) == 2\n"},
    "mbpp": {"task_id": 1, "text": "Write half.", "code": "def half(x):\n    return x / 2",
             "test_list": ["assert half(4) == 2", "assert half(6) == 3"]},
}  # fmt: skip
HALF = "def half(x):\n    return x / 2\n"
#: By what is peculiar in it.
WRITTEN = {
    "a fence": f"```python\n{HALF}```",
    "a fence without language": f"```\n{HALF}```",
    "sentences around it": f"Sure! Here is it:\n\n```python\n{HALF}```\n\nIt halves `x`.\n1. It divides.",
    "windows": f"```python\n{HALF}```".replace("\n", "\r\n"),
    "no fence": HALF,
    "no fence, sentences around it": f"Here is the function:\n\n{HALF}\nThis function halves x.",
    "no fence, all of it": f"Here is it:\n\nimport math\n\n{HALF}\nprint(half(4))\n\nfrom which 2.0 is printed.",
    "another fence": f"~~~python\n{HALF}~~~",
    "a fence in one line": "```python def half(x): return x / 2```",
    "a fence that stays open": f"```python\n{HALF}",
    "prints": f"```python\n{HALF}\nprint(half(4))\nprint(half('a'))\n```",
    "a loop": f"```python\n{HALF}\n# Test cases\nfor x in (1, None):\n    print(half(x))\n```",
    "a wrong assertion": f"```python\n{HALF}\nassert half(4) == 3, 'test'\n```",
    "input": f"```python\n{HALF}\nx = int(input())\nprint(half(x))\n```",
    "a result": f"```python\n{HALF}\nresult = half('a')\nprint(result)\n```",
    "main": f"```python\n{HALF}\nif __name__ == 'program':\n    print(half(None))\n```",
    "unit tests": f"```python\n{HALF}\nimport unittest\nclass T(unittest.TestCase):\n    pass\n\nunittest.main()\n```",
    "a table that it uses": "```python\ndef half(x):\n    return x / BY[0]\n\nBY = [2]\nprint(half())\n```",
    "a helper below it": "```python\ndef half(x):\n    return f(x)\n\ndef f(x):\n    return x / 2\n\nhalf(None)\n```",
    "no function": "```python\nhalf = lambda x: x / 2\n```",
    "the stub first": f"```python\n{STUB}```\nbecomes\n```python\n{HALF}```",
    "the stub again": f"```python\n{STUB}    pass\n\n{HALF}```",
    "its use in another block": f"```python\n{HALF}```\nUse it:\n```python\nprint(half('a'))\n```\n```\n2.0\n```",
    "its output": f"```python\n{HALF}```\nOutput:\n```python\n2.0\n```",
}
CUT = {
    "within a trial": f"```python\n{HALF}\nprint(half(4))\nprint(half(",
    "within a sentence": f"```python\n{HALF}```\nThis function retu",
    "within a text of its own": f'```python\n{HALF}\n"""\nThis function retu',
}
WRONG = {
    "another program": "```python\ndef half(x):\n    return x\n```",
    "another name": "```python\ndef halve(x):\n    return x / 2\n```",
    "not Python": "```python\ndef half(x):\n    return x /\n```",
    "a sentence": "I cannot halve x.",
    "a trial before it": f"```python\nassert False\n{HALF}```",
    "nothing": "",
}


def here(task: CodeTask) -> Any:
    """A grader that runs programs of this file in the test's own process."""

    async def grade(problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        return [float(passes(task.program.read(one), json.loads(problem.reference))) for one in sequences]

    return grade


def passes(program: str | None, tests: dict[str, Any]) -> bool:
    names: dict[str, Any] = {"__name__": "program"}
    try:
        # As the sandbox has it: what the setup defines under an entry point's name is the candidate's.
        exec(tests["setup"], names)
        exec(program or "", names)
        for test in tests["tests"]:
            exec(test, names)
    except (Exception, SystemExit):  # noqa: BLE001  # whatever a program does that is wrong
        return False
    return bool(program)


def made(kind: str, folder: Path, *more: dict[str, Any], **options: Any) -> CodeTask:
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (RECORDS[kind], *more)), "utf-8")
    task: CodeTask = registry.make("task", kind, {"source": path, **options}, {})
    task._grader = here(task)
    return task


def graded(task: CodeTask, text: str, finish: Finish = "eos") -> float:
    problem = next(task.problems())
    (grade,) = asyncio.run(task.grade(problem, [Sequence(problem.prompt, text, finish=finish)]))
    return grade


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("form", ["chat", "few_shot_chat"])
@pytest.mark.parametrize("name", WRITTEN)
def test_programs_as_small_chat_models_write_them(kind: str, form: str, name: str, tmp_path: Path) -> None:
    assert graded(made(kind, tmp_path, form=form), WRITTEN[name]) == 1


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("name", CUT)
def test_what_was_cut_below_the_function(kind: str, name: str, tmp_path: Path) -> None:
    assert graded(made(kind, tmp_path), CUT[name], "length") == 1


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_stays_wrong(kind: str, name: str, tmp_path: Path) -> None:
    assert graded(made(kind, tmp_path), WRONG[name]) == 0


def test_trials_have_no_vote(tmp_path: Path) -> None:
    task = made("mbpp", tmp_path)
    prompt = next(task.problems()).prompt
    names = ("a fence", "prints", "a wrong assertion", "no fence, sentences around it")
    answers = asyncio.run(task.answer.read([Sequence(prompt, WRITTEN[one], finish="eos") for one in names]))
    assert len({answer.key for answer in answers}) == 1


@pytest.mark.parametrize("file", ["humaneval", "mbpp"])
def test_nothing_of_the_data_sets_own_solutions_is_left_out(file: str) -> None:
    path = SHARED / f"{file}.jsonl"
    if not path.is_file():
        pytest.skip(f"there are no data at {path}")
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        code = row.get("code") or row["prompt"] + row["canonical_solution"]
        points = [row["entry_point"]] if file == "humaneval" else re.findall(r"(?m)^def (\w+)", code)
        prompt = Prompt("p", text="?", public={"entry_points": points})
        sequence = Sequence(prompt, f"```python\n{code}\n```", finish="eos")
        assert Definitions(FencedProgram()).read(sequence) == FencedProgram().read(sequence), row["task_id"]


# -- prompts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECORDS)
def test_examples_as_turns_answer_with_one_block_that_passes(kind: str, tmp_path: Path) -> None:
    task = made(kind, tmp_path, form="few_shot_chat")
    turns = next(task.problems()).prompt.messages
    assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    asked = next(made(kind, tmp_path).problems()).prompt.messages[-1]
    assert turns[-1] == asked, "the question is that of the chat without examples"
    for user, assistant in zip(turns[:-1:2], turns[1::2], strict=True):
        assert user.content.startswith(asked.content.partition("\n\n")[0]) or kind == "mbpp"
        first, code, last = assistant.content.partition("\n")[0], assistant.content, assistant.content[-4:]
        assert (first, last, code.count("```")) == ("```python", "\n```", 2)
        names: dict[str, Any] = {}
        exec(code.removeprefix("```python").removesuffix("```"), names)
        tests = user.content.split("```python\n")[-1].partition("\n```")[0]
        if kind == "mbpp":
            exec(tests, names)
        else:
            (example,) = [line for line in tests.splitlines() if ">>>" in line]
            want = tests.partition(f"{example}\n")[2].splitlines()[0]
            assert eval(example.partition(">>>")[2].strip(), names) == eval(want.strip())


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"task_id": n, "text": f"Write f{n}.", "code": f"def f{n}(x):\r\n    return {n}",
         "test_list": [f"assert f{n}(1) == {n}", f"assert f{n}(2) == {n}"]}
        for n in numbers
    ]  # fmt: skip


def test_the_published_examples_of_mbpp_are_shown_and_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows(4, 2, 3, 9)), "utf-8")
    task = MBPPTask(path, form="few_shot_chat", examples=path, shown=1)
    (problem,) = task.problems()
    assert problem.id == "mbpp/9"
    turns = [turn.content for turn in problem.prompt.messages]
    assert [turn.partition("\n")[0] for turn in turns[::2]] == [
        "Write f2.",
        "Write f3.",
        "Write f4.",
        "Write f9.",
    ]
    assert turns[1] == "```python\ndef f2(x):\n    return 2\n```"
    assert "assert f2(1) == 2" in turns[0] and "f2(2)" not in turns[0], "as many tests as of the question"
    (text,) = MBPPTask(path, form="few_shot", examples=path).problems()
    assert text.prompt.text is not None
    assert text.prompt.text.count("Task: ") == 4 and text.prompt.text.startswith("Task: Write f2.\nTests:\n")
    assert "# of f2" in str(next(MBPPTask(path, form="few_shot", examples=path, shown=0).problems()).prompt)


def test_published_examples_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows(2, 4, 9)), "utf-8")
    with pytest.raises(DataError, match=r"some.jsonl' has no task 3; the worked examples are tasks 2, 3, 4"):
        MBPPTask(path, form="few_shot", examples=path)
    with pytest.raises(InputError, match="and form='chat'; leave one"):
        MBPPTask(path, examples=path)
    with pytest.raises(InputError, match="with shots; leave one"):
        MBPPTask(path, form="few_shot", examples=path, shots=[])
    path.write_text(json.dumps({"task_id": 2, "text": "Write f.", "test_list": []}))
    with pytest.raises(DataError, match=r"some.jsonl:1: there is no field 'code'"):
        MBPPTask(path, form="few_shot", examples=path)


def test_the_papers_examples_of_mbpp() -> None:
    path = SHARED / "mbpp.jsonl"
    if not path.is_file():
        pytest.skip(f"there are no data at {path}")
    problems = list(MBPPTask(path, form="few_shot_chat", examples=path, limit=3).problems())
    assert [problem.id for problem in problems] == ["mbpp/1", "mbpp/5", "mbpp/6"]
    said = [turn.content for turn in problems[0].prompt.messages]
    assert ["similar_elements" in said[1], "is_not_prime" in said[3], "heap_queue_largest" in said[5]] == [
        True
    ] * 3
