"""Knock-out: n − 1 comparisons, the best player of a consistent judge, and no advantage of a place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest

from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Score, digest
from metagen.strategies.base import Strategy
from metagen.strategies.knockout import KnockOutTournament
from metagen.testing import StrategyLaws, numbers
from metagen.verifiers.generative.pairwise import PairwiseJudge
from metagen.verifiers.generative.question import Question
from metagen.verifiers.generative.respondent import LabelRespondent

PROMPT = Prompt("p", text="Task.")
Judges = dict[float, PairwiseJudge]
COMPARE = Question("{task}|{first}|{second}", {"A": 1.0, "B": 0.0}, "?", join="", chat=False)


class Arena(EnumerableEngine):
    """Prefers the larger number, with p = sure; among 5 in a circle, each to the two before it."""

    def __init__(self, sure: float = 0.9, circle: bool = False) -> None:
        self._sure, self._circle = sure, circle
        super().__init__(("A", "B", "?", "<end>"), self._row, name=f"arena {sure} {circle}")

    def _row(self, prompt: str, done: tuple[str, ...]) -> list[float]:
        first, second = (float(part.split()[0]) for part in prompt.split("|")[1:])
        ahead = (first - second) % 5 in (1, 2) if self._circle else first > second
        p = 0.5 if first == second else self._sure if ahead else 1 - self._sure
        return [p, 1 - p, 0.0, 0.0]


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[float, PairwiseJudge]]:
    """By how sure they are of the larger number."""
    with Arena(0.9) as sure, Arena(0.5) as unsure:
        yield {p: judge(arena) for p, arena in ((0.9, sure), (0.5, unsure))}


def judge(arena: Arena) -> PairwiseJudge:
    return PairwiseJudge(LabelRespondent(arena, COMPARE))


def writes(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=20, name=" ".join(texts))


def test_a_judge_that_says_nothing_leaves_the_choice_to_chance_and_that_is_told() -> None:
    class Silent(PairwiseJudge):
        async def compare(self, pairs: Iterable[object], scope: object) -> list[Score]:  # type: ignore[override]  # pairs are not looked at
            return [Score(None, verdict="unparsable") for _ in pairs]

    with Arena() as arena:
        silent = Silent(LabelRespondent(arena, COMPARE))
        assert KnockOutTournament(writes("1", "2", "3"), 3, judge=silent).solve(PROMPT).exhausted
        assert not KnockOutTournament(writes("1", "1"), 2, judge=silent).solve(PROMPT).exhausted
        assert not KnockOutTournament(writes("1", "2"), 2, judge=judge(arena)).solve(PROMPT).exhausted


@pytest.mark.parametrize("n", range(1, 10))
def test_the_best_wins_after_n_minus_1_comparisons(n: int, judges: Judges) -> None:
    texts = [str((i * 7) % 11) for i in range(n)]
    result = KnockOutTournament(writes(*texts), n, judge=judges[0.9]).solve(PROMPT)
    assert result.text == str(max(map(int, texts)))
    # Each comparison is asked in both orders.
    assert result.usage.calls == n + 2 * (n - 1)


def test_the_order_of_the_pool_is_nothing_and_equal_texts_are_one_player(judges: Judges) -> None:
    found = set()
    for texts in itertools.permutations(("1", "2", "3", "3")):
        result = KnockOutTournament(writes(*texts), 4, judge=judges[0.5]).solve(PROMPT)
        found.add(result.text)
        assert result.usage.calls == 4 + 2 * 2
    assert len(found) == 1


def test_rounds_are_side_by_side_and_have_places_of_their_own(judges: Judges) -> None:
    result = KnockOutTournament(writes(*"12345678"), 8, judge=judges[0.9]).solve(PROMPT)
    paths = [row.path for row in result.trace.rows if row.path.startswith("0/match")]
    assert {path.split("/")[2] for path in paths} == {"0", "1", "2"}


@pytest.mark.parametrize("calls", range(1, 26))
def test_when_the_budget_ends_somebody_who_is_still_in_is_returned(calls: int, judges: Judges) -> None:
    result = KnockOutTournament(writes(*"12345678"), 8, judge=judges[0.9]).solve(
        PROMPT, budget={"calls": calls}
    )
    assert result.usage.calls <= calls and result.text


class TestKnockOutTournament(StrategyLaws):
    begun = "0.5 "  # the judge reads the first word as a number

    @pytest.fixture(autouse=True)
    def opened(self, judges: Judges) -> None:
        self.judge = judges[0.9]

    def make(self) -> Strategy:
        return KnockOutTournament(numbers(), 5, judge=self.judge)


def bracket(texts: Iterable[str], prompt: Prompt, winner: Callable[[str, str], str | None]) -> str:
    """Who wins by hand; ties go to the larger digest."""
    salt = prompt.digest.hex()
    standing = sorted(texts, key=lambda text: digest(salt, text))
    while len(standing) > 1:
        odd = len(standing) % 2
        rests, playing = standing[:odd], standing[odd:]
        pairs = zip(playing[::2], playing[1::2], strict=True)
        standing = [winner(*pair) or max(pair, key=lambda text: digest(salt, text)) for pair in pairs] + rests
    return standing[0]


def test_ties_go_to_the_larger_digest(judges: Judges) -> None:
    """With a judge who never prefers, the bracket can be played by hand."""
    for texts in (("1", "2"), ("1", "2", "3"), ("5", "6", "7", "8", "9")):
        result = KnockOutTournament(writes(*texts), len(texts), judge=judges[0.5]).solve(PROMPT)
        assert result.text == bracket(texts, PROMPT, lambda a, b: None)


def test_of_an_odd_number_the_first_rests_and_plays_in_the_next_round() -> None:
    """Where each of five beats two and loses to two, who wins depends on who meets whom."""
    with Arena(circle=True) as arena:
        for i in range(8):
            prompt = Prompt("p", text=f"Task {i}.")
            result = KnockOutTournament(writes(*"01234"), 5, judge=judge(arena)).solve(prompt)
            beats = lambda a, b: a if (int(a) - int(b)) % 5 in (1, 2) else b  # noqa: E731
            assert result.text == bracket("01234", prompt, beats)
