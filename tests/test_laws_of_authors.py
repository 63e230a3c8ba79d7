"""The laws of aggregators and of tasks: what ships keeps them, and what breaks one is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import metagen as mg
from metagen.errors import DataError
from metagen.parts import part
from metagen.scope import Scope
from metagen.strategies.aggregate import Selection
from metagen.strategies.aggregators import (
    Aggregator,
    Best,
    Borda,
    Majority,
    MinimumBayesRisk,
    SoftBest,
    Weighted,
)
from metagen.strategies.candidates import Candidate
from metagen.tasks.arithmetic import read_prompt, reference_solution
from metagen.tasks.base import Problem, Task
from metagen.testing import AggregatorLaws, TaskLaws, VerifierLaws, first_word, last_word
from metagen.verifiers.utility.exact import ExactAnswer


class TestMajority(AggregatorLaws):
    def make(self) -> Aggregator:
        return Majority(last_word)


class TestBest(AggregatorLaws):
    def make(self) -> Aggregator:
        return Best(first_word, answer=last_word)


class TestWeighted(AggregatorLaws):
    def make(self) -> Aggregator:
        return Weighted(first_word, last_word)


class TestBorda(AggregatorLaws):
    def make(self) -> Aggregator:
        return Borda(first_word, last_word)


class TestSoftBest(AggregatorLaws):
    def make(self) -> Aggregator:
        return SoftBest(first_word, beta=0.3)


class TestMinimumBayesRisk(AggregatorLaws):
    def make(self) -> Aggregator:
        return MinimumBayesRisk(ExactAnswer(last_word), answer=last_word)


@part
class First(Aggregator):
    """Chooses by the order."""

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return Selection(0, {})


@part
class Asking(Aggregator):
    """Asks a model, and does not say so."""

    answer: mg.AnswerRule = last_word

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        judge = mg.FunctionVerifier(lambda sequence: len(sequence.text) / 100)
        await judge.score([one.sequence for one in pool], scope=scope.child("score"))
        return await Majority(self.answer).choose(pool, salt, scope)


@part
class AnyText(Majority):
    """Takes whatever there is, finished or not."""

    async def aggregate(self, candidates: Any, prefix: mg.Sequence, scope: Scope) -> mg.Sequence:
        ordered = sorted(candidates, key=lambda one: (one.sequence.finish == "eos", one.sequence.text))
        return ordered[0].sequence


@pytest.mark.parametrize(
    ("made", "law"),
    [
        (First, "test_the_order_of_candidates_changes_nothing"),
        (Asking, "test_it_says_that_it_makes_calls_of_its_own"),
        (lambda: AnyText(last_word), "test_a_text_that_was_cut_loses_to_one_that_ended"),
    ],
)
def test_an_aggregator_that_breaks_a_law_is_found(made: Any, law: str) -> None:
    class Broken(AggregatorLaws):
        def make(self) -> Aggregator:
            return made()  # type: ignore[no-any-return]

    with pytest.raises(AssertionError):
        getattr(Broken(), law)()


@part
class Longest(mg.Verifier):
    """Scores by comparison, and does not say so unless `honest`."""

    honest: bool = False

    @property
    def relative(self) -> bool:
        return self.honest

    async def score(self, sequences: Sequence[mg.Sequence], *, scope: Scope) -> list[mg.Score]:
        most = max((len(one.text) for one in sequences), default=1)
        return [mg.Score(len(one.text) / most) for one in sequences]


def test_a_verifier_that_compares_says_so() -> None:
    class Laws(VerifierLaws):
        def __init__(self, honest: bool) -> None:
            self.honest = honest

        def make(self) -> mg.Verifier:
            return Longest(honest=self.honest)

    Laws(True).test_a_score_alone_is_the_score_among_others()
    with pytest.raises(AssertionError, match=r"'one' scores 0\.6 among others and 1\.0 alone"):
        Laws(False).test_a_score_alone_is_the_score_among_others()


class TestArithmetic(TaskLaws):
    def make(self) -> Task:
        return mg.ArithmeticTask("validation", levels=[1, 2], per_level=4)

    def solution(self, problem: Problem) -> str:
        assert problem.prompt.text is not None
        return reference_solution(*read_prompt(problem.prompt.text))


@part
class Words(Task):
    """Asks for a word; each field breaks a law."""

    drifts: bool = False
    tells: bool = False
    accepts: bool = False
    accepts_text: bool = False
    repeats: bool = False
    unread: bool = False

    name = "words"
    answer = last_word

    def problems(self) -> Iterator[Problem]:
        for number in range(3):
            word = f"word{next(DRAWN) if self.drifts else number}"
            public = {"word": word} if self.tells else {}
            name = "same" if self.repeats else word
            yield Problem(mg.Prompt(name, text=f"Write {word}.", public=public), word)

    async def grade(self, problem: Problem, sequences: Any) -> list[float]:
        if self.accepts:
            return [1.0] * len(sequences)
        if self.accepts_text:
            return [float(bool(sequence.text)) for sequence in sequences]
        return await super().grade(problem, sequences)


DRAWN = itertools.count()


def laws_of(task: Task) -> TaskLaws:
    class Laws(TaskLaws):
        def make(self) -> Task:
            return task

        def solution(self, problem: Problem) -> str:
            return "" if getattr(task, "unread", False) else f"It is {problem.reference}"

    return Laws()


@pytest.mark.parametrize(
    ("broken", "law", "error"),
    [
        ("drifts", "test_the_problems_are_the_same_each_time", AssertionError),
        ("tells", "test_what_a_strategy_may_see_is_json_and_not_the_reference", AssertionError),
        ("accepts", "test_an_empty_text_is_wrong", AssertionError),
        ("accepts", "test_each_text_has_a_grade_of_its_own", AssertionError),
        ("accepts_text", "test_the_solution_of_another_problem_is_wrong", AssertionError),
        ("repeats", "test_ids_name_the_problems", DataError),
        ("unread", "test_a_solution_is_right_and_has_an_answer", AssertionError),
    ],
)
def test_a_task_that_breaks_a_law_is_found(broken: str, law: str, error: type[Exception]) -> None:
    getattr(laws_of(Words()), law)()
    with pytest.raises(error):
        getattr(laws_of(Words(**{broken: True})), law)()
