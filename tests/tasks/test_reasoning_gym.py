"""Reasoning Gym's problems, graded by its own verifiers."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import InputError
from metagen.sequence import Sequence
from metagen.tasks.reasoning_gym import ReasoningGymTask

library = pytest.importorskip(
    "reasoning_gym", reason="reasoning-gym is not installed; `pip install -e '.[reasoning-gym]'` brings it"
)


def graded(task: ReasoningGymTask, *texts: str) -> list[float]:
    problem = next(task.problems())
    sequences = [Sequence.of(problem.prompt).extend(text, finish="eos") for text in texts]
    return asyncio.run(task.grade(problem, sequences))


@pytest.mark.parametrize(
    "dataset", ["leg_counting", "syllogism", "word_sorting", "simple_equations", "spell_backward"]
)
def test_the_reference_is_right_and_others_are_not(dataset: str) -> None:
    task = ReasoningGymTask(dataset, size=3, seed=7)
    first = next(task.problems())
    assert graded(
        task, f"So.\n<answer>{first.reference}</answer>", "<answer>?</answer>", first.reference
    ) == [1, 0, 0]


def test_one_of_many_right_answers_is_right() -> None:
    task = ReasoningGymTask("countdown", size=1, seed=1)
    entry = task._entries["countdown/0"]
    (right, wrong) = graded(
        task, f"<answer>{entry['metadata']['expression']}</answer>", "<answer>1 + 1</answer>"
    )
    assert (right, wrong) == (1, 0)


def test_problems_are_drawn_by_their_seed() -> None:
    texts = [
        [p.prompt.messages[-1].content for p in ReasoningGymTask("gcd", size=4, seed=s).problems()]
        for s in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) == 4


def test_options_reach_the_data_set_and_faults_are_named() -> None:
    task = ReasoningGymTask("chain_sum", size=2, config={"min_terms": 6, "max_terms": 6})
    assert next(task.problems()).prompt.messages[-1].content.count(" ") > 10
    with pytest.raises(InputError, match=r"dataset='chain_sums': reasoning-gym has .*chain_sum"):
        ReasoningGymTask("chain_sums")
    with pytest.raises(InputError, match="min_words"):
        ReasoningGymTask("chain_sum", config={"min_words": 6})


def test_worked_examples_show_the_tags_and_are_none_of_the_problems() -> None:
    task = ReasoningGymTask("spell_backward", size=4, seed=1, shots=2)
    problems = list(task.problems())
    turns = problems[0].prompt.messages
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]
    shown = [turn.content for turn in turns if turn.role == "user"][:2]
    assert not set(shown) & {problem.prompt.messages[-1].content for problem in problems}
    for asked, answer in zip(turns[1:5:2], turns[2:6:2], strict=True):
        word = asked.content.rpartition(": ")[2]
        assert answer.content == f"<answer>{word[::-1]}</answer>"
    assert [p.prompt.messages[-1].content for p in problems] == [
        p.prompt.messages[-1].content for p in ReasoningGymTask("spell_backward", size=4, seed=1).problems()
    ]
