"""SVAMP and ASDiv: records as published, prompts for small chat models, and readings of a real model's answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.mbpp import MBPPTask
from metagen.tasks.word_problems import ASDivTask, SVAMPTask

SHARED = Path(__file__).parents[3] / "shared" / "data" / "problems" / "svamp.jsonl"
#: 200 answers of SmolLM2-135M-Instruct at temperature 0.7 to the first 100 problems of SVAMP, four worked examples as
#: turns of the chat; `read` is the number that a reader takes for the answer, None where the text is cut off before it.
ANSWERS = Path(__file__).parents[1] / "data" / "smollm2_svamp_200.jsonl"
SVAMP = {
    "ID": "chal-777",
    "Body": "There are 87 oranges and 290 bananas in Philip's collection. The bananas are in 2 groups",
    "Question": "How big is each group of bananas?", "Answer": 145.0, "Equation": "( 290.0 / 2.0 )",
}  # fmt: skip


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return path


def test_svamp_as_it_is_published(tmp_path: Path) -> None:
    task = SVAMPTask(written(tmp_path / "svamp.jsonl", SVAMP), form="few_shot_chat")
    (problem,) = task.problems()
    assert (problem.id, problem.reference) == ("svamp/chal-777", "145")
    turns = problem.prompt.messages
    assert [turn.role for turn in turns] == ["user", "assistant"] * 4 + ["user"]
    assert turns[1].content.endswith("The answer is 33.")
    assert turns[-1].content == f"{SVAMP['Body']}, {SVAMP['Question']}"


def test_all_of_svamp_is_read() -> None:
    if not SHARED.is_file():
        pytest.skip(f"there are no data at {SHARED}")
    problems = list(SVAMPTask(SHARED).problems())
    assert len({problem.id for problem in problems}) == 1000
    assert not [problem for problem in problems if problem.reference.endswith(".0")]


def test_asdiv_as_it_is_published(tmp_path: Path) -> None:
    record = {
        "body": "Seven red apples and two green apples are in the basket.",
        "question": "How many are there?",
    }
    answers = {"9 (apples)": "9", "3.5": "3.5", "1,200 (km)": "1,200", "-4 (degrees)": "-4", "1:2": "1:2"}
    records = [{**record, "answer": answer, "id": str(i)} for i, answer in enumerate(answers)]
    task = ASDivTask(written(tmp_path / "a.jsonl", *records))
    assert [problem.reference for problem in task.problems()] == list(answers.values())
    with pytest.raises(DataError, match=r"a.jsonl:1: the answer is 'many'; expected a number"):
        ASDivTask(written(tmp_path / "a.jsonl", {**record, "answer": "many"}))


@pytest.mark.parametrize("answer", [None, True, [3]])
def test_an_answer_that_is_no_number_is_a_fault_of_its_line(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(DataError, match=r":1: the answer is .*; expected a number"):
        SVAMPTask(written(tmp_path / "svamp.jsonl", {**SVAMP, "Answer": answer}))


def test_answers_of_a_real_model_are_read_as_a_reader_does(tmp_path: Path) -> None:
    task = SVAMPTask(written(tmp_path / "svamp.jsonl", SVAMP), form="few_shot_chat")
    (problem,) = task.problems()
    answers = [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]
    sequences = [Sequence.of(problem.prompt).extend(one["text"], finish=one["finish"]) for one in answers]
    found = asyncio.run(task.answer.read(sequences))
    agreed = sum(answer.key == one["read"] for answer, one in zip(found, answers, strict=True))
    assert agreed == len(answers) == 200


def test_examples_as_turns_go_with_no_wording_of_your_own(tmp_path: Path) -> None:
    path = written(tmp_path / "g.jsonl", {"question": "1 + 1?", "answer": "2"})
    with pytest.raises(InputError, match="form='few_shot_chat' has a wording of its own"):
        GSM8KTask(path, form="few_shot_chat", prompt="{question}")
    shots = [{"question": "2 + 2?", "solution": "The answer is 4."}]
    (problem,) = GSM8KTask(path, form="few_shot_chat", shots=shots).problems()
    assert [turn.content for turn in problem.prompt.messages] == ["2 + 2?", "The answer is 4.", "1 + 1?"]
    with pytest.raises(InputError, match="no examples for turns of a chat"):
        MBPPTask(path, form="few_shot_chat")
