"""Lookahead: what is ahead decides, what was written ahead is used, and the laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Score, Sequence, Step, Tokens, digest
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.lookahead import Lookahead
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.reward import ProcessRewardModel
from tests.strategies.tree.checks import (
    PROMPT,
    is_cancelled_cleanly,
    resumes,
    slow,
    survives_a_failing_verifier,
    survives_every_budget,
)

STEP = Step("|")


def hashed(sequence: Sequence) -> float:
    return int.from_bytes(digest("value", sequence.text)[:4], "little") / 2**32


VALUES = FunctionVerifier(hashed, name="hashed")


def letters(depth: int) -> FunctionGenerator:
    """Draw i of a prefix adds letter number i; the step at `depth` is the last."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        last = prefix.text.count("|") + 1 >= depth
        return Drawn("abcdefgh"[index] + ("." if last else "|"), None, 1, finish="eos" if last else None)

    return FunctionGenerator(write, name=f"letters {depth}", count=lambda text: 1, max_tokens=1)


@pytest.fixture(scope="module")
def coins() -> Iterator[EnumerableEngine]:
    def table(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
        return (0.4, 0.4, 0.2) if len(done) < 3 else (0.0, 0.0, 1.0)

    with EnumerableEngine("ab$", table, name="coins") as engine:
        yield engine


def test_by_hand_a_step_is_worth_what_lies_ahead() -> None:
    """a looks good and leads to a bad end, b the other way round."""
    value = {"a|": 0.9, "b|": 0.2, "a|a|": 0.1, "b|a|": 0.8, "b|b|": 0.3, "a|b|": 0.1}
    verifier = FunctionVerifier(lambda s: value.get(s.text, 0.5))
    near = BeamSearch(letters(4), 2, verifier=verifier, m=2, until=STEP).tree(PROMPT)
    far = Lookahead(letters(4), 2, verifier=verifier, m=2, ahead=1, until=STEP).tree(PROMPT)
    assert near.chosen is not None and near.chosen.text.startswith("a|")
    assert far.chosen is not None and far.chosen.text.startswith("b|")
    assert far["0.0.0"].state == "pruned" and not far["0.0.0"].draws


def test_what_was_written_ahead_is_used() -> None:
    """Of a kept node one child is there already; below it, what is there is only made longer."""
    search = Lookahead(letters(5), 4, verifier=VALUES, m=2, ahead=2, until=STEP)
    tree, result = search.tree(PROMPT), search.solve(PROMPT)
    drawn = Counter(row.path for row in result.trace.rows if row.kind == "generate")
    assert drawn["0/node/0"] == 4
    extended = [node for node in tree if len(node.draws) == 2]
    assert extended and all(drawn[f"0/node/{node.name}"] == 2 for node in extended)
    chains = [node for node in tree if len(node.draws) == 1]
    assert chains and all(drawn[f"0/node/{node.name}"] == 1 for node in chains)
    assert sum(drawn.values()) == len(tree) - 1, "each draw is a node of the tree, and none is made twice"
    # 4 · 3 steps for the first level, 2 · 3 + 2 for the second and the third, in which all continuations end.
    assert sum(drawn.values()) == 12 + 8 + 8
    # Ends that were written ahead are leaves like any other.
    assert {c.sequence.text for c in result.candidates} == {n.sequence.text for n in tree.finished_leaves()}


def test_nothing_ahead_is_beam_search(coins: EnumerableEngine) -> None:
    generator = coins.generator(max_tokens=6)
    for seed in range(10):
        journal = CountingJournal()
        beam = BeamSearch(generator, 4, verifier=VALUES, m=2, until=Tokens(1))
        first = beam.solve(PROMPT, seed=seed, journal=journal)
        paid = journal.recorded
        again = Lookahead(generator, 4, verifier=VALUES, m=2, ahead=0, until=Tokens(1)).solve(
            PROMPT, seed=seed, journal=journal
        )
        assert journal.recorded == paid and again.sequence == first.sequence


def test_to_the_end_ahead_is_a_choice_among_whole_sequences() -> None:
    """Each first step is worth its own continuation to the end; the best of these is among the leaves."""
    search = Lookahead(letters(3), 4, verifier=VALUES, m=4, ahead=10, until=STEP)
    tree = search.tree(PROMPT)
    ends = [f"{a}|a|a." for a in "abcd"]
    texts = {node.sequence.text for node in tree.finished_leaves()}
    assert set(ends) <= texts
    assert tree.chosen is not None
    assert hashed(tree.chosen) == max(hashed(node.sequence) for node in tree.finished_leaves())


def test_continuations_may_have_a_generator_of_their_own(coins: EnumerableEngine) -> None:
    generator = coins.generator(max_tokens=6)
    greedy = generator.replace(temperature=0.0)
    search = Lookahead(generator, 4, verifier=VALUES, m=2, ahead=2, rollout=greedy, until=Tokens(1))
    result, tree = search.solve(PROMPT), search.tree(PROMPT)
    by = {row.by for row in result.trace.rows if row.kind == "generate"}
    assert by == {generator.fingerprint, greedy.fingerprint}
    assert {row.path for row in result.trace.rows if row.by == greedy.fingerprint} <= {
        f"0/node/ahead/{node.name}" for node in tree
    }
    assert result.sequence.finish == "eos"
    assert sum(node.cost.calls for node in tree) == result.usage.calls, (
        "what is written ahead has its node's cost"
    )


def test_a_candidate_without_a_value_comes_last() -> None:
    verifier = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text.startswith("a|a") else 0.0)
    tree = Lookahead(letters(3), 2, verifier=verifier, m=2, until=STEP).tree(PROMPT)
    assert tree.chosen is not None and tree.chosen.text.startswith("b|")


def searches(engine: EnumerableEngine) -> list[Lookahead]:
    generator = engine.generator(max_tokens=6)
    greedy = generator.replace(temperature=0.0)
    return [
        Lookahead(generator, 4, verifier=VALUES, m=2, ahead=1, until=Tokens(1)),
        Lookahead(generator, 4, verifier=VALUES, m=2, ahead=2, rollout=greedy, until=Tokens(1)),
    ]


def test_under_every_number_of_calls_the_leaves_at_hand_decide(coins: EnumerableEngine) -> None:
    for search in searches(coins):
        for result in survives_every_budget(search):
            if any(c.sequence.finish == "eos" for c in result.candidates):
                assert result.sequence.finish == "eos"


def test_it_resumes_in_the_middle(coins: EnumerableEngine) -> None:
    for search in searches(coins):
        resumes(search, every=2)


def test_a_verifier_that_fails_in_the_middle_loses_nothing_that_was_paid_for() -> None:
    survives_a_failing_verifier(lambda v: Lookahead(letters(3), 2, verifier=v, m=2, until=STEP), hashed)


def test_it_is_cancelled_cleanly() -> None:
    is_cancelled_cleanly(Lookahead(slow(letters(6)), 4, verifier=VALUES, m=2, until=STEP))


def test_it_nests_in_best_of_n(coins: EnumerableEngine) -> None:
    assert len(BestOfN(searches(coins)[0], 3, verifier=VALUES).solve(PROMPT).candidates) == 3


def test_what_cannot_work_is_refused_when_it_is_built() -> None:
    for options, message in (
        ({"ahead": -1}, "ahead=-1; expected an integer ≥ 0"),
        ({"n": 0}, "n=0"),
        ({"n": 3}, "give a multiple"),
        ({"verifier": None}, "give a verifier|give ProcessRewardModel"),
    ):
        given: dict[str, object] = {"n": 4, "m": 2, "verifier": VALUES, **options}
        with pytest.raises(InputError, match=message):
            Lookahead(numbers(), **given)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError):
        Lookahead(numbers(), 4, verifier=VALUES, rollout=ReplayGenerator({"p": ["x"]}))


def test_fingerprints_tell_configurations_apart() -> None:
    found = [
        BeamSearch(numbers(), 4, verifier=VALUES), Lookahead(numbers(), 4, verifier=VALUES),
        Lookahead(numbers(), 4, verifier=VALUES, ahead=2), Lookahead(numbers(), 4, verifier=VALUES, m=2),
        Lookahead(numbers(), 4, verifier=VALUES, rollout=letters(3)),
    ]  # fmt: skip
    assert len({s.fingerprint for s in found}) == len(found)


def test_on_the_embedded_models() -> None:
    task = ArithmeticTask("validation", levels=(3,), per_level=1)
    (problem,) = task.problems()
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        generator, verifier = model.generator(max_tokens=160), ProcessRewardModel(judge)
        greedy = generator.replace(temperature=0.0)
        for rollout in (None, greedy):
            search = Lookahead(generator, 4, verifier=verifier, m=2, rollout=rollout, answer=task.answer)
            result = search.solve(problem.prompt)
            assert result.sequence.finish == "eos" and result.answer is not None and result.answer.key
            # The continuations are read by the reward model step by step: no token of them twice.
            tree = search.tree(problem.prompt)
            steps = [node for node in tree if node.parent and not node.empty]
            scored = [row.usage for row in result.trace.rows if row.kind == "score"]
            assert len(scored) <= len(steps)


class TestLaws(StrategyLaws):
    def make(self) -> Strategy:
        return Lookahead(numbers(), 4, verifier=first_word, m=2, answer=last_word)
