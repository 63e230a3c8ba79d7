"""SVAMP, ASDiv and MAWPS: records as published, prompts for small chat models, readings of a real model's answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.cruxeval import CRUXEvalTask
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.word_problems import ASDivTask, MAWPSTask, SVAMPTask, WordProblemTask, tidy

SHARED = Path(__file__).parents[3] / "shared" / "data" / "problems" / "svamp.jsonl"
#: 200 answers of SmolLM2-135M-Instruct at temperature 0.7 to the first 100 problems of SVAMP, four worked examples as
#: turns of the chat; `read` is the number that a reader takes for the answer, None where the text is cut off before it.
ANSWERS = Path(__file__).parents[1] / "data" / "smollm2_svamp_200.jsonl"
EXCERPT = Path(__file__).parent / "public" / "mawps.csv"
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
    answers = {"9 (apples)": "9", "3.5": "3.5", "1,200 (km)": "1,200", "-4 (degrees)": "-4", "1:2": "1:2",
               "-(1/3)": "-(1/3)", "2 (boys); 6 (girls)": "2, 6", "3:30 p.m.": "3:30 p.m.",
               "Jake's stables": "Jake's stables"}  # fmt: skip
    records = [{**record, "answer": answer, "id": str(i)} for i, answer in enumerate(answers)]
    task = ASDivTask(written(tmp_path / "a.jsonl", *records))
    assert [problem.reference for problem in task.problems()] == list(answers.values())
    assert graded(task, 6, "The answer is 2 and 6.", "There are $2$ and $6$.", "The answer is 2.") == [
        1,
        1,
        0,
    ]
    assert graded(task, 8, "The answer is Jake's stables.", "The answer is 2.") == [1, 0]
    with pytest.raises(DataError, match=r"a.jsonl:1: the reference '\?!' cannot be read"):
        ASDivTask(written(tmp_path / "a.jsonl", {**record, "answer": "?!"}))


def graded(task: WordProblemTask, number: int, *texts: str) -> list[float]:
    problem = list(task.problems())[number]
    sequences = [Sequence.of(problem.prompt).extend(text, finish="eos") for text in texts]
    return asyncio.run(task.grade(problem, sequences))


def test_mawps_as_it_is_published_beside_svamp() -> None:
    """Numbers stand in their places, and no blank before a sign."""
    task = MAWPSTask(EXCERPT, form="few_shot_chat")
    problems = list(task.problems())
    assert [problem.id for problem in problems[:2]] == ["mawps/0", "mawps/1"]
    assert [problem.reference for problem in problems] == [
        "6", "13/3", "26", "25", "0.5", "30", "35.52", "-120", "1080", "8/9", "15"
    ]  # fmt: skip
    asked = [problem.prompt.messages[-1].content for problem in problems]
    assert asked[0].startswith(
        "Mary is baking a cake. The recipe wants 8 cups of flour. She already put in 2"
    )
    said = (
        (1, "a white line that was 7 2/3 inches long. Then he drew a blue line that was 3 1/3 inches long."),
        (2, "A waiter at 'The Greasy Spoon' restaurant had 26 customers"),
        (2, "If 27 of the customers didn't leave him a tip, how many"),
        (3, "the Wagners' real estate bill included 600 dollars"),
        (4, "1/6 the apartments are one-bedroom apartments"),
        (4, "either 1- or two-bedroom apartments?"),
        (5, "Ben has 20 M & M’s."),
        (6, "a football game for $14.02, a strategy game"),
        (7, "Find the product of -2, -15, 4 and -1."),
        (8, "in 1987 was 4% less than in 1986."),
        (9, "to a T-shirt shop and 2/3 mile"),
        (10, "Carson’s teacher gives out"),
    )
    for number, words in said:
        assert words in asked[number]


def test_a_fraction_that_was_rounded_is_the_fraction() -> None:
    task = MAWPSTask(EXCERPT, form="few_shot_chat")
    assert graded(task, 1, "The answer is 4 1/3.", "The answer is 13/3.", "It is 4.333333 inches.") == [1] * 3
    assert graded(task, 1, "The answer is 4.", "7 2/3 - 3 1/3 = 5") == [0, 0]
    assert graded(task, 3, "The answer is 25%.", "So 150 / 600 = 0.25, which is 25 percent.") == [1, 1]


def test_mawps_as_calc_mawps_has_it(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "id": "mawps__a", "question": "Tom has 3 bags. How many are 56/9 bags - all in all?", "result": "56/9",
        "result_float": 56 / 9, "chain": "?", "equation": "x = 56 / 9", "expression": "56 / 9",
    }  # fmt: skip
    task = MAWPSTask(written(tmp_path / "calc.jsonl", row, {**row, "id": "mawps__b", "result": "159"}))
    first, second = task.problems()
    assert (first.id, first.reference, second.reference) == ("mawps/mawps__a", "56/9", "159")
    assert row["question"] in first.prompt.messages[0].content, (
        "nothing is taken out where nothing was put in"
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"Question": "Is number1 more ?", "Numbers": "3.0", "Answer": "1"},
            "a place number1, and Numbers is '3.0'",
        ),
        ({"Question": "Is number0 more ?", "Answer": "1"}, "a place number0, and Numbers is None"),
        ({"Question": "How many ?", "Numbers": None}, "no field 'Answer' or 'result'"),
        ({"Answer": "1"}, "no field 'Question' or 'question'"),
        ({"question": " ", "result": "1"}, "the question is empty"),
        (
            {"question": "How many?", "result": "a dozen or so"},
            "the answer is 'a dozen or so'; expected a number",
        ),
    ],
)
def test_a_faulty_record_of_mawps_is_named(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"m.jsonl:1: .*{message}"):
        MAWPSTask(written(tmp_path / "m.jsonl", record))


def test_a_text_that_no_tokenizer_cut_stays() -> None:
    plain = "Ann's '52 Mustang isn't 4-door: it's $5, or 3% more!"
    assert tidy(plain) == plain


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
        CRUXEvalTask(path, form="few_shot_chat")
