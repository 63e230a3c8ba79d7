"""What holds for every rule of selection: the laws, every budget, every resume, every order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from metagen.budget import Budget
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Sample as Drawn
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.primitive import EngineGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence, Step
from metagen.strategies.parallel import BestOfN, MajorityVote
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.rebase import AsyncRebase, Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.testing import CountingJournal, StrategyLaws, UnsteadyJournal, first_word, last_word, numbers
from metagen.verifiers.base import Verifier
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier
from tests.strategies.tree.checks import (
    is_cancelled_cleanly,
    resumes,
    slow,
    survives_a_failing_verifier,
    survives_every_budget,
)
from tests.strategies.tree.toys import ANSWER, PROMPT, Shape, chance, insight, step

Make = Callable[[Generator, Verifier], TreeSearch]
RULES: dict[str, Make] = {
    "rebase": lambda g, v: Rebase(g, 6, verifier=v, answer=ANSWER),
    "rebase, remainders": lambda g, v: Rebase(g, 5, verifier=v, answer=ANSWER, rounding="largest-remainder"),
    "async rebase": lambda g, v: AsyncRebase(g, 6, verifier=v, answer=ANSWER),
    "beam": lambda g, v: BeamSearch(g, 6, m=3, verifier=v, answer=ANSWER),
    "dvts": lambda g, v: DVTS(g, 6, m=2, verifier=v, answer=ANSWER),
    "best first": lambda g, v: BestFirst(g, 3, m=2, in_flight=3, verifier=v, answer=ANSWER),
    "depth first": lambda g, v: DepthFirst(g, 2, m=2, threshold=0.4, verifier=v, answer=ANSWER),
}
rules = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def search(make: Make) -> TreeSearch:
    return make(chance(), FunctionVerifier(insight, name="insight"))


@rules
def test_it_searches_a_tree_and_votes_over_its_leaves(make: Make) -> None:
    strategy = search(make)
    result, tree = strategy.solve(PROMPT, seed=5), strategy.tree(PROMPT, seed=5)
    assert result.sequence == tree.chosen and result.sequence.finish == "eos" and not result.exhausted
    assert result.answer is not None and result.answer.key in "012"
    assert sum(leaf.multiplicity for leaf in tree.finished_leaves()) == len(result.candidates) > 1
    assert max(node.depth for node in tree) >= 3
    drawn = [row for row in result.trace.rows if row.kind == "generate"]
    assert sum(node.multiplicity for node in tree if node.parent) == len(drawn)
    assert sum(len(node.draws) for node in tree) == len(drawn)
    assert {node.state for node in tree} <= {"expanded", "finished", "pruned", "open"}


@rules
def test_every_budget(make: Make) -> None:
    strategy = search(make)
    results = survives_every_budget(strategy, PROMPT)
    assert all(result.text for result in results[1:])
    finished = [result.sequence.finish == "eos" for result in results]
    assert finished == sorted(finished), "once a leaf has finished, it is what is returned"


@rules
@pytest.mark.parametrize("tokens", [0, 1, 7, 16, 31, 60])
def test_a_limit_of_tokens(make: Make, tokens: int) -> None:
    result = search(make).solve(PROMPT, budget=tokens)
    assert result.usage.generated is not None and result.usage.generated <= tokens


@rules
def test_resumes_from_every_record_on(make: Make) -> None:
    resumes(search(make), PROMPT, every=3)


@rules
def test_a_verifier_that_fails_in_the_middle(make: Make) -> None:
    survives_a_failing_verifier(lambda verifier: make(chance(), verifier), insight)


@rules
def test_cancelled(make: Make) -> None:
    is_cancelled_cleanly(make(slow(chance()), FunctionVerifier(insight)))


@rules
@pytest.mark.parametrize(
    "budget", [None, Budget(generated=40), Budget(calls=25), Budget(prefilled=60)], ids=str
)
def test_the_tree_does_not_depend_on_what_arrives_first(make: Make, budget: Budget | None) -> None:
    shapes, usages = set(), set()
    for order in range(6):
        strategy = make(chance(), FunctionVerifier(insight))
        tree = strategy.tree(PROMPT, seed=2, budget=budget, journal=UnsteadyJournal(order))
        shapes.add(Shape.of(tree))
        result = strategy.solve(PROMPT, seed=2, budget=budget, journal=UnsteadyJournal(order))
        usages.add(repr(result.usage).partition("seconds")[0])
    assert len(shapes) == len(usages) == 1


@rules
def test_a_replay_under_a_deadline_asks_for_nothing_new_and_ends_alike(make: Make) -> None:
    asked: list[int] = []

    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        asked.append(index)
        await asyncio.sleep(0.002 + seed % 7 / 1000)
        return step(prefix, seed, index)

    strategy = make(FunctionGenerator(write, name="slow"), FunctionVerifier(insight, name="insight"))
    for seconds in (0.004, 0.012, 0.02, 0.03):
        journal = MemoryJournal()

        def once(seconds: float = seconds, journal: MemoryJournal = journal) -> tuple[str, int, bool]:
            result = strategy.solve(PROMPT, seed=1, budget=Budget(seconds=seconds), journal=journal)
            return result.text, len(result.candidates), result.exhausted

        first = once()
        asked.clear()
        assert once() == first and not asked


@rules
def test_the_tree_of_a_budget_is_in_its_journal(make: Make) -> None:
    strategy, journal = search(make), CountingJournal()
    result = strategy.solve(PROMPT, budget=Budget(calls=12), journal=journal)
    paid = journal.recorded
    tree = strategy.tree(PROMPT, budget=Budget(calls=12), journal=journal)
    assert result.exhausted and journal.recorded == paid
    assert tree.chosen is not None and (tree.chosen.text, tree.chosen.finish) == (
        result.text,
        result.sequence.finish,
    )


@rules
def test_nested_in_another(make: Make) -> None:
    inner = search(make)
    result = MajorityVote(inner, 3, answer=ANSWER).solve(PROMPT)
    assert len(result.candidates) == 3 and len({c.sequence.text for c in result.candidates}) > 1
    limited = BestOfN(inner, 3, verifier=FunctionVerifier(insight), answer=ANSWER).solve(
        PROMPT, budget={"calls": 40}
    )
    assert limited.exhausted and limited.usage.calls <= 40 and limited.text


@rules
def test_fingerprints_name_the_parts(make: Make) -> None:
    verifier = FunctionVerifier(insight, name="insight")
    prints = {
        make(chance(), verifier).fingerprint,
        make(numbers(), verifier).fingerprint,
        make(chance(), first_word).fingerprint,
    }
    assert len(prints) == 3 and search(make).fingerprint in prints


def test_fingerprints_name_the_options() -> None:
    given = {"verifier": first_word}
    g = chance()
    made = [
        Rebase(g, 4, **given), Rebase(g, 5, **given), AsyncRebase(g, 4, **given),
        Rebase(g, 4, temperature=0.3, **given), Rebase(g, 4, rounding="largest-remainder", **given),
        Rebase(g, 4, max_depth=3, **given), Rebase(g, 4, until=Step(";"), **given),
        Rebase(g, 4, answer=ANSWER, **given),
        BeamSearch(g, 4, **given), BeamSearch(g, 4, m=2, **given), DVTS(g, 4, **given), BestFirst(g, 4, **given),
        BestFirst(g, 4, in_flight=1, **given), BestFirst(g, 4, expansions=3, **given), BestFirst(g, 4, m=1, **given),
        DepthFirst(g, 4, **given), DepthFirst(g, 4, threshold=0.2, **given), DepthFirst(g, 4, m=2, **given),
    ]  # fmt: skip
    assert len({strategy.fingerprint for strategy in made}) == len(made)


@rules
def test_an_oracle_is_seen_from_outside(make: Make) -> None:
    async def grade(sequence: object) -> float:
        return 1.0

    assert make(chance(), OracleVerifier(grade)).oracle and not search(make).oracle


RULED = [Rebase, AsyncRebase, BeamSearch, DVTS, BestFirst, DepthFirst]


@pytest.mark.parametrize("rule", RULED)
def test_wrong_numbers_and_parts_are_refused_when_it_is_built(rule: type[TreeSearch]) -> None:
    verifier = FunctionVerifier(insight)
    with pytest.raises(InputError, match="n=0; expected an integer ≥ 1"):
        rule(chance(), 0, verifier=verifier)  # type: ignore[call-arg]  # all rules take n
    with pytest.raises(InputError, match=r"n=2\.0; expected an integer"):
        rule(chance(), 2.0, verifier=verifier)  # type: ignore[call-arg]  # that is the mistake
    with pytest.raises(InputError, match="max_depth=0; expected an integer"):
        rule(chance(), verifier=verifier, max_depth=0)
    with pytest.raises(InputError, match=r"give a verifier|give ProcessRewardModel"):
        rule(chance(), verifier=None)
    with pytest.raises(InputError, match="expected a Step"):
        rule(chance(), verifier=verifier, until="\n")  # type: ignore[arg-type]  # that is the mistake
    joint, whole, fresh = chance(), chance(), chance()
    joint.independent = whole.accepts_until = fresh.accepts_prefix = False
    for generator, words in (
        (joint, "draws jointly"),
        (whole, "stop at the end"),
        (fresh, "continue a partial"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            rule(generator, verifier=verifier)


def test_a_delimiter_that_never_comes_because_of_a_stop_string_is_refused() -> None:
    engine = EnumerableEngine(("a", "\n", "$"), {(): [1.0, 0.0, 0.0]})
    generator = EngineGenerator(engine, SamplingParams(stop=("\n",)))
    with pytest.raises(InputError, match=r"delimiter '\\n\\n' never comes, for the generator stops at '\\n'"):
        Rebase(generator, verifier=first_word, until=Step("\n\n"))
    Rebase(generator, verifier=first_word, until=Step("a"))


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": float("nan")}, {"rounding": "down"}]
)
def test_wrong_options_of_rebase(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))}=.*; expected"):
        Rebase(chance(), verifier=first_word, **options)  # type: ignore[arg-type]  # that is the mistake


def test_wrong_options_of_the_others() -> None:
    with pytest.raises(InputError, match="n=6 candidates cannot be shared by beams of m=4"):
        BeamSearch(chance(), 6, verifier=first_word)
    with pytest.raises(InputError, match="n=6 candidates cannot be shared"):
        DVTS(chance(), 6, verifier=first_word)
    with pytest.raises(InputError, match="in_flight=0"):
        BestFirst(chance(), verifier=first_word, in_flight=0)
    with pytest.raises(InputError, match="expansions=0"):
        DepthFirst(chance(), verifier=first_word, expansions=0)
    with pytest.raises(InputError, match=r"threshold=1\.5; expected a number in \[0, 1\]"):
        DepthFirst(chance(), verifier=first_word, threshold=1.5)


class TestRebase(StrategyLaws):
    def make(self) -> Rebase:
        return Rebase(numbers(), 4, verifier=first_word, answer=last_word)


class TestRebaseOverSteps(StrategyLaws):
    def make(self) -> Rebase:
        return Rebase(numbers(), 4, verifier=first_word)


class TestAsyncRebase(StrategyLaws):
    def make(self) -> AsyncRebase:
        return AsyncRebase(numbers(), 4, verifier=first_word, answer=last_word)


class TestBeamSearch(StrategyLaws):
    def make(self) -> BeamSearch:
        return BeamSearch(numbers(), 4, m=2, verifier=first_word, answer=last_word)


class TestDVTS(StrategyLaws):
    def make(self) -> DVTS:
        return DVTS(numbers(), 4, m=2, verifier=first_word, answer=last_word)


class TestBestFirst(StrategyLaws):
    def make(self) -> BestFirst:
        return BestFirst(numbers(), 2, m=2, in_flight=2, verifier=first_word, answer=last_word)


class TestDepthFirst(StrategyLaws):
    def make(self) -> DepthFirst:
        return DepthFirst(numbers(), 2, m=2, threshold=0.4, verifier=first_word, answer=last_word)
