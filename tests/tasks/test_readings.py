"""What a real model wrote, as it was read by hand and as the tasks read it: tests/data/readings/README.md."""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from metagen.sequence import Prompt, Sequence
from metagen.tasks.bbh.task import BBHTask
from metagen.tasks.humaneval import HumanEvalTask
from metagen.tasks.mbpp import MBPPTask
from metagen.tasks.reasoning_gym import PATTERN
from metagen.tasks.solutions import math_rule
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.code.program import ProgramRule
from metagen.verifiers.math.announced import PHRASE
from metagen.verifiers.text import TextRule
from tests.tasks.test_public import EXCERPTS

DATA = Path(__file__).parents[1] / "data"
#: Answers, and how many of them are read as they were read by hand.
AGREED = {
    "mbpp": (200, 199),
    "humaneval": (200, 200),
    "math": (200, 195),
    "math_2": (200, 190),
    "math_3": (200, 194),
    "math_4": (100, 92),
    "gsm8k": (200, 200),
    "mawps": (100, 99),
    "bbh": (216, 214),
    "bbh_2": (108, 100),
    "bbh_3": (108, 107),
    "reasoning_gym": (200, 200),
}
#: Of the answers to MATH, those that a box or a phrase announces.
SAID = {"math": (66, 66), "math_2": (63, 62), "math_3": (61, 58), "math_4": (22, 22)}
#: Of those that are read otherwise, the ones whose reading the reader called unclear.
UNCLEAR = {"math_2": 6, "math_3": 3, "math_4": 2, "mawps": 1, "bbh_2": 6, "bbh_3": 1}


@cache
def recorded(name: str) -> list[dict[str, Any]]:
    """The answers of a task kind. Most are compressed."""
    path = DATA / "readings" / f"{name}.jsonl"
    content = (
        path.read_bytes() if path.exists() else gzip.decompress(path.with_suffix(".jsonl.gz").read_bytes())
    )
    return [json.loads(line) for line in content.decode().splitlines()]


def sequence(row: dict[str, Any], public: dict[str, Any] | None = None) -> Sequence:
    prompt = Prompt(row["id"], text="?", public=row.get("public", {}) if public is None else public)
    return Sequence(prompt, row["text"], finish=row["finish"])


async def is_read(rule: AnswerRule, row: dict[str, Any], one: Sequence) -> bool:
    """Whether a rule reads the answer that was read by hand: none, or one of the same key."""
    (answer,) = await rule.read([one])
    expected = None if row["read"] is None else await rule.key(row["read"])
    assert row["read"] is None or expected is not None, row["read"]
    return answer.key == expected


# -- programs ------------------------------------------------------------------------------------------------


def by_hand(row: dict[str, Any]) -> str | None:
    """The lines that were named, behind what the prompt gives before its function."""
    if row["read"] is None:
        return None
    first, last = map(int, row["read"].split("-"))
    program = dedent("\n".join(row["text"].split("\n")[first - 1 : last]))
    return f"{row['public'].get('preamble', '')}\n{program}"


def defined(program: str) -> list[str]:
    """What a program defines and imports, without layout and comments; its words where it is no Python.

    Assignments are left out: a list with which a function is tried does no harm.
    """
    try:
        return [ast.dump(node) for node in ast.parse(program).body if not isinstance(node, ast.Assign)]
    except SyntaxError:
        return program.split()


@pytest.mark.parametrize("name", ["mbpp", "humaneval"])
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_programs(name: str) -> None:
    tasks = {"mbpp": MBPPTask, "humaneval": HumanEvalTask}
    rule: ProgramRule = tasks[name](EXCERPTS / f"{name}.jsonl", limit=1).program
    agreed = 0
    for row in recorded(name):
        found, read = rule.read(sequence(row)), by_hand(row)
        agreed += found is read if found is None or read is None else defined(found) == defined(read)
    assert (len(recorded(name)), agreed) == AGREED[name]


# -- answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["math", "math_2", "math_3", "math_4", "gsm8k", "mawps"])
def test_mathematics(name: str) -> None:
    """Of answers that are boxed or announced, nearly all; of those that stand somewhere in a text, fewer."""
    rule, rows = math_rule(), recorded(name)

    async def read() -> list[bool]:
        return [await is_read(rule, row, sequence(row)) for row in rows]

    agreed = asyncio.run(read())
    assert (len(rows), sum(agreed)) == AGREED[name]
    assert unclear(rows, agreed) == UNCLEAR.get(name, 0)
    if name in SAID:
        said = [bool(PHRASE.search(row["text"])) or "boxed" in row["text"] for row in rows]
        assert (sum(said), sum(a for a, s in zip(agreed, said, strict=True) if s)) == SAID[name]


@pytest.mark.parametrize("name", ["bbh", "bbh_2", "bbh_3"])
def test_big_bench_hard(name: str) -> None:
    """The problems of the first sample are in the tests' data; rows of the others say what a rule needs of them."""
    tasks: dict[str, tuple[BBHTask, list[Any]]] = {}

    async def read() -> list[bool]:
        agreed = []
        for row in recorded(name):
            if row["subtask"] not in tasks:
                task = BBHTask(DATA / "bbh" / f"{row['subtask']}.json")
                tasks[row["subtask"]] = task, list(task.problems())
            task, problems = tasks[row["subtask"]]
            public = row["public"] if "public" in row else dict(problems[row["number"]].prompt.public)
            agreed.append(await is_read(task.answer, row, sequence(row, public)))
        return agreed

    agreed = asyncio.run(read())
    assert (len(agreed), sum(agreed)) == AGREED[name]
    assert unclear(recorded(name), agreed) == UNCLEAR.get(name, 0)
    assert len(tasks) == 27


def unclear(rows: list[dict[str, Any]], agreed: list[bool]) -> int:
    """How many of the answers that are read otherwise contradict themselves, or state no clear result."""
    return sum("unclear" in row for row, same in zip(rows, agreed, strict=True) if not same)


def test_reasoning_gym() -> None:
    rule = TextRule(pattern=PATTERN)

    async def read() -> int:
        return sum([await is_read(rule, row, sequence(row)) for row in recorded("reasoning_gym")])

    assert (len(recorded("reasoning_gym")), asyncio.run(read())) == AGREED["reasoning_gym"]
