"""Monte-Carlo tree search: the textbook's choices, rollouts, virtual loss and order, the laws."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Score, Sequence, Step, Tokens, digest
from metagen.strategies.aggregators import Majority
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.node import Node, Tree
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.reward import OutcomeRewardModel, ProcessRewardModel
from tests.strategies.tree.checks import (
    PROMPT,
    Relative,
    is_cancelled_cleanly,
    resumes,
    slow,
    survives_a_failing_verifier,
    survives_every_budget,
)

STEP = Step("|")


def hashed(text: str) -> float:
    """A value without sense, from 0 to 1."""
    return int.from_bytes(digest("value", text)[:4], "little") / 2**32


VALUES = FunctionVerifier(lambda s: hashed(s.text), name="hashed")


def letters(depth: int, *, delay: Callable[[int], float] | None = None) -> FunctionGenerator:
    """Draw i of a prefix adds the letter number i; the step at `depth` is the last."""

    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        if delay is not None:
            await asyncio.sleep(delay(seed))
        last = prefix.text.count("|") + 1 >= depth
        return Drawn("abcdefgh"[index] + ("." if last else "|"), None, 1, finish="eos" if last else None)

    return FunctionGenerator(write, name=f"letters {depth}", count=lambda text: 1, max_tokens=1)


def visits(tree: Tree) -> dict[str, tuple[int, float]]:
    return {node.sequence.text: (node.visits, round(node.worth, 9)) for node in tree}


def textbook(width: int, depth: int, n: int, c: float) -> dict[str, tuple[int, float]]:
    """PUCT one simulation after the other, written apart from the search: visits and worth by text."""
    visits, worth = {"": 0}, {"": 0.0}
    children: dict[str, list[str]] = {}

    def ended(text: str) -> bool:
        return text.endswith(".")

    def closed(text: str) -> bool:
        return ended(text) or (text in children and all(closed(child) for child in children[text]))

    for _ in range(n):
        path = [""]
        while path[-1] in children:
            inside = [child for child in children[path[-1]] if not closed(child)]
            if not inside:
                return {text: (visits[text], round(worth[text], 9)) for text in visits}
            scores = [
                worth[x] / visits[x] + c / width * math.sqrt(visits[path[-1]]) / (1 + visits[x])
                for x in inside
            ]
            path.append(inside[scores.index(max(scores))])
        leaf = path[-1]
        last = leaf.count("|") + 1 >= depth
        children[leaf] = [leaf + "abcdefgh"[i] + ("." if last else "|") for i in range(width)]
        for child in children[leaf]:
            visits[child], worth[child] = 0, 0.0
            for text in (*path, child):
                visits[text] += 1
                worth[text] += hashed(child)
    return {text: (visits[text], round(worth[text], 9)) for text in visits}


@pytest.mark.parametrize(("width", "depth", "n"), [(2, 3, 5), (3, 3, 9), (2, 4, 40), (4, 2, 3)])
@pytest.mark.parametrize("exploration", [0.0, 1.25, 5.0])
def test_it_chooses_as_the_textbook_does(width: int, depth: int, n: int, exploration: float) -> None:
    search = MCTS(
        letters(depth), n, verifier=VALUES, width=width, exploration=exploration, in_flight=1, until=STEP
    )
    tree = search.tree(PROMPT)
    expected = textbook(width, depth, n, exploration)
    found = visits(tree)
    if not any(text.endswith(".") for text in expected):
        # Nothing had finished: the most visited path has been written to its end besides.
        found = {text: both for text, both in found.items() if not text.endswith(".")}
    assert found == expected
    assert sum(1 for node in tree if node.draws) >= min(n, 2)


def test_by_hand_a_good_branch_is_visited_until_doubt_calls_for_the_other() -> None:
    """Values .9 and .5 at the root, .5 below. Q + P √N / (1 + N), P = 1/2."""
    value = {"a|": 0.9, "b|": 0.5}
    verifier = FunctionVerifier(lambda s: value.get(s.text, 0.5))
    search = MCTS(letters(9), 4, verifier=verifier, width=2, exploration=1.0, in_flight=1, until=STEP)
    tree = search.tree(PROMPT)
    # 1: the root. 2: a (.9 + .354 against .5 + .354), which brings .5 twice: Q = 1.9/3. 3: a .633 + .25 against
    # b .5 + .5: b, which brings .5 twice. 4: a .633 + √6/8 against b .5 + √6/8: a.
    assert {t: tree[p].visits for t, p in (("a", "0.0"), ("b", "0.1"))} == {"a": 5, "b": 3}
    assert tree["0.0"].worth == pytest.approx(0.9 + 4 * 0.5)
    assert tree["0"].visits == 8 and tree["0.0.0"].draws and not tree["0.0.1"].draws


def test_the_better_arm_gets_most_visits() -> None:
    """As for a bandit: with values that are right, the best of the first steps is visited the most."""
    verifier = FunctionVerifier(lambda s: {"a": 0.3, "b": 0.4, "c": 0.8}[s.text[0]])
    tree = MCTS(letters(5), 24, verifier=verifier, width=3, until=STEP).tree(PROMPT)
    counts = {child.step[0]: child.visits for child in tree.root.children}
    assert counts["c"] > 3 * max(counts["a"], counts["b"])
    assert tree.chosen is not None and tree.chosen.text[0] == "c" and tree.chosen.finish == "eos"


def test_virtual_loss_sends_those_in_flight_apart_and_leaves_no_trace() -> None:
    equal = FunctionVerifier(lambda s: 0.5)
    tree = MCTS(letters(9), 4, verifier=equal, width=3, in_flight=3, until=STEP).tree(PROMPT)
    assert [bool(child.draws) for child in tree.root.children] == [True, True, True]
    alone = MCTS(letters(9), 4, verifier=equal, width=3, in_flight=1, until=STEP).tree(PROMPT)
    assert sum(node.visits for node in alone.root.children) == tree.root.visits == 12
    for node in tree:
        below = {n.position for n in tree if n.position[: len(node.position)] == node.position and n.visits}
        assert node.visits == len(below) - (node is tree.root), "each node that was drawn counts once"


def test_the_tree_does_not_depend_on_who_is_fast() -> None:
    """Whatever takes how long, results are applied in the order of selection."""
    trees = []
    for salt in range(6):
        rng = random.Random(salt)
        delays = [rng.random() * 0.004 for _ in range(64)]
        generator = letters(4, delay=lambda seed, delays=delays: delays[seed % 64])  # type: ignore[misc]
        search = MCTS(generator, 12, verifier=VALUES, width=2, in_flight=4, until=STEP)
        trees.append(visits(search.tree(PROMPT)))
    assert all(tree == trees[0] for tree in trees)


def test_more_in_flight_is_more_at_once_and_no_more_in_all() -> None:
    now, most = 0, 0

    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return Drawn(f"{index}|", None, 1)

    generator = FunctionGenerator(write, count=lambda text: 1, max_tokens=1)
    for in_flight in (1, 3):
        most = 0
        search = MCTS(generator, 10, verifier=VALUES, width=2, in_flight=in_flight, until=STEP, max_depth=3)
        tree = search.tree(PROMPT)
        assert most == 2 * in_flight
        assert sum(bool(node.draws) for node in tree) >= 7


def test_a_full_tree_ends_the_search_early() -> None:
    search = MCTS(letters(2), 100, verifier=VALUES, width=2, until=STEP)
    tree = search.tree(PROMPT)
    assert len(tree) == 7 and not tree.frontier()
    best = max((f"{a}|{b}." for a in "ab" for b in "ab"), key=hashed)
    assert tree.chosen is not None and tree.chosen.text == best and not tree.chosen.exhausted


def test_equal_draws_are_one_child_with_their_share_of_the_prior() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        return Drawn(("x|", "x|", "x|", "y|")[index], None, 1)

    generator = FunctionGenerator(write, count=lambda text: 1, max_tokens=1)
    equal = FunctionVerifier(lambda s: 0.5)
    search = MCTS(generator, 1, verifier=equal, until=STEP)
    tree = search.tree(PROMPT)
    x, y = tree.root.children
    assert (x.multiplicity, x.visits, y.visits) == (3, 3, 1)
    assert search._priors(tree.root) == {x: 0.75, y: 0.25}


def test_the_prior_may_be_the_probability_of_the_step() -> None:
    table = {(): (0.6, 0.3, 0.1), ("a",): (0.0, 0.0, 1.0), ("b",): (0.0, 0.0, 1.0)}
    with EnumerableEngine("ab$", table) as engine:
        generator = engine.generator(max_tokens=4)
        search = MCTS(generator, 1, verifier=VALUES, width=60, prior="logprob", until=Tokens(1))
        tree = search.tree(PROMPT)
        priors = {node.sequence.text: p for node, p in search._priors(tree.root).items()}
    assert priors == pytest.approx({"a": 0.6, "b": 0.3, "": 0.1})
    with pytest.raises(
        InputError, match="reports none; give the generator logprobs=True, or prior='uniform'"
    ):
        MCTS(letters(3), 4, verifier=VALUES, prior="logprob", until=STEP).solve(PROMPT)


# -- rollouts ---------------------------------------------------------------------------------------------


def rolling(depth: int = 3) -> FunctionGenerator:
    """Steps as `letters` has them; asked to go to the end, it goes there."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        done = prefix.text.count("|")
        if done == 0 or prefix.text.endswith("!"):
            return Drawn("abcdefgh"[index] + "|", None, 1)
        return Drawn("xyz"[index % 3] * (depth - done) + ".", None, depth - done, finish="eos")

    return FunctionGenerator(write, count=len, max_tokens=depth)


ENDS = FunctionVerifier(lambda s: {"x": 0.2, "y": 0.6, "z": 1.0}[s.text[-2]], name="ends")


def test_by_hand_a_value_is_the_mean_of_the_rollouts() -> None:
    search = MCTS(rolling(), 1, width=2, rollouts=2, outcome=ENDS, until=STEP)
    tree = search.tree(PROMPT)
    a, b = tree["0.0"], tree["0.1"]
    assert a.value == pytest.approx((0.2 + 0.6) / 2) == b.value
    assert tree.root.worth == pytest.approx(0.8) and tree.root.visits == 2
    # The rollouts are leaves, and decide like any other.
    assert {n.sequence.text for n in tree.finished_leaves()} == {"a|xx.", "a|yy.", "b|xx.", "b|yy."}
    assert a.open and tree.chosen is not None and tree.chosen.text in ("a|yy.", "b|yy.")


def test_values_and_rollouts_are_mixed() -> None:
    process = FunctionVerifier(lambda s: 0.9 if s.text == "a|" else 0.1, name="process")
    for mix, want in ((0.0, 0.9), (0.25, 0.75 * 0.9 + 0.25 * 0.4), (1.0, 0.4)):
        search = MCTS(rolling(), 1, verifier=process, width=2, rollouts=2, outcome=ENDS, mix=mix, until=STEP)
        assert search.tree(PROMPT)["0.0"].value == pytest.approx(want)


def test_a_leaf_with_rollouts_is_extended_and_they_are_not_drawn_again() -> None:
    search = MCTS(rolling(), 3, width=2, rollouts=2, outcome=ENDS, in_flight=1, until=STEP)
    tree = search.tree(PROMPT)
    result = search.solve(PROMPT)
    a = tree["0.0"]
    assert a.state == "expanded" and sorted(a.draws) == [0, 1, 2, 3]
    assert a.visits == 1 + 2, "its rollouts are in its value; its children count"
    paths = Counter(row.path for row in result.trace.rows if row.kind == "generate")
    assert paths["0/node/0/score/rollout/0"] == 2 and paths["0/node/0.0"] == 2
    assert len(result.candidates) == 8


def test_a_rollout_that_is_cut_is_worth_nothing() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        if not prefix.text:
            return Drawn("a|", None, 1)
        return Drawn("z.", None, 2, finish=("eos", "length")[index])  # type: ignore[arg-type]

    generator = FunctionGenerator(write, count=len, max_tokens=2)
    tree = MCTS(generator, 1, width=1, rollouts=2, outcome=ENDS, until=STEP).tree(PROMPT)
    assert tree["0.0"].value == pytest.approx(0.5)


def test_what_was_cut_brings_nothing_up_however_good_it_looks() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        return Drawn("ab"[index], None, 1, finish=("length", "eos")[index])  # type: ignore[arg-type]

    generator = FunctionGenerator(write, count=len, max_tokens=1)
    verifier = FunctionVerifier(lambda s: {"a": 1.0, "b": 0.3}[s.text])
    tree = MCTS(generator, 1, verifier=verifier, width=2, until=STEP).tree(PROMPT)
    assert tree.root.worth == pytest.approx(0.3)
    assert tree.chosen is not None and tree.chosen.text == "b"


def test_an_outcome_verifier_scores_what_has_finished_and_the_process_verifier_the_rest() -> None:
    seen: dict[str, list[str]] = {"process": [], "outcome": []}

    def noted(name: str) -> Callable[[Sequence], float]:
        def score(sequence: Sequence) -> float:
            seen[name].append(sequence.text)
            return hashed(sequence.text)

        return score

    process = FunctionVerifier(noted("process"), name="process")
    outcome = FunctionVerifier(noted("outcome"), name="outcome")
    search = MCTS(letters(2), 4, verifier=process, outcome=outcome, width=2, until=STEP)
    result = search.solve(PROMPT)
    assert sorted(seen["process"]) == ["a|", "b|"]
    assert sorted(seen["outcome"]) == ["a|a.", "a|b.", "b|a.", "b|b."]
    assert "outcome" in result.sequence.scores


def test_if_nothing_has_finished_the_most_visited_path_is_written_to_its_end(coins: EnumerableEngine) -> None:
    search = MCTS(coins.generator(max_tokens=6), 1, verifier=VALUES, width=2, until=Tokens(1))
    for seed in range(20):
        tree, result = search.tree(PROMPT, seed=seed), search.solve(PROMPT, seed=seed)
        assert result.sequence.finish == "eos" and not result.exhausted
        rest = {row.path for row in result.trace.rows if "rest" in row.path and row.kind == "generate"}
        if not any(child.finished for child in tree.root.children):
            (chosen,) = [child for child in tree.root.children if child.draws]
            assert rest == {f"0/node/rest/{chosen.name}"} and len(chosen.draws) == 2
            assert sum(node.cost.calls for node in tree) == result.usage.calls
        else:
            assert not rest


# -- what every search has to survive ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def coins() -> Iterator[EnumerableEngine]:
    def table(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
        return (0.4, 0.4, 0.2) if len(done) < 3 else (0.0, 0.0, 1.0)

    with EnumerableEngine("ab$", table, name="coins") as engine:
        yield engine


def searches(engine: EnumerableEngine) -> list[MCTS]:
    generator = engine.generator(max_tokens=6)
    return [
        MCTS(generator, 5, verifier=VALUES, width=2, in_flight=2, until=Tokens(1)),
        MCTS(generator, 3, width=2, rollouts=2, outcome=VALUES, in_flight=2, until=Tokens(1)),
        MCTS(generator, 3, verifier=VALUES, width=2, rollouts=1, in_flight=2, until=Tokens(1)),
    ]


def test_under_every_number_of_calls_the_leaves_at_hand_decide(coins: EnumerableEngine) -> None:
    for search in searches(coins):
        results = survives_every_budget(search)
        for result in results:
            if any(c.sequence.finish == "eos" for c in result.candidates):
                assert result.sequence.finish == "eos"


def test_tokens_that_run_out_leave_what_there_is(coins: EnumerableEngine) -> None:
    for search in searches(coins):
        free = search.solve(PROMPT).usage.generated
        assert free is not None
        for tokens in range(0, free, 3):
            result = search.solve(PROMPT, budget=tokens)
            assert result.exhausted and (result.usage.generated or 0) <= tokens


def test_they_resume_in_the_middle(coins: EnumerableEngine) -> None:
    for search in searches(coins):
        resumes(search, every=2)


def test_a_verifier_that_fails_in_the_middle_loses_nothing_that_was_paid_for(coins: EnumerableEngine) -> None:
    generator = coins.generator(max_tokens=6)

    def make(verifier: FunctionVerifier) -> Strategy:
        return MCTS(generator, 4, verifier=verifier, width=2, in_flight=1, until=Tokens(1))

    survives_a_failing_verifier(make, lambda s: hashed(s.text))


def test_a_verdict_in_place_of_a_value_counts_as_wrong() -> None:
    verifier = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text.startswith("a") else 0.5)
    tree = MCTS(letters(2), 3, verifier=verifier, width=2, in_flight=1, until=STEP).tree(PROMPT)
    assert tree["0.0"].worth == 0.0
    assert tree.chosen is not None and tree.chosen.text.startswith("b")


def test_it_is_cancelled_cleanly() -> None:
    is_cancelled_cleanly(MCTS(slow(letters(6)), 9, verifier=VALUES, width=2, in_flight=3, until=STEP))


def test_it_nests_in_best_of_n(coins: EnumerableEngine) -> None:
    result = BestOfN(searches(coins)[0], 3, verifier=VALUES).solve(PROMPT)
    assert len(result.candidates) == 3 and not result.exhausted


def test_what_cannot_work_is_refused_when_it_is_built() -> None:
    for options, message in (
        ({"n": 0}, "n=0; expected an integer ≥ 1"),
        ({"width": 0}, "width=0"),
        ({"in_flight": 0}, "in_flight=0"),
        ({"rollouts": -1}, "rollouts=-1; expected an integer ≥ 0"),
        ({"mix": 1.5}, "mix=1.5; expected a number in"),
        ({"exploration": -1.0}, "exploration=-1.0"),
        ({"prior": "counts"}, "prior='counts'; expected one of uniform, logprob"),
        ({"mix": 0.9}, "mix=0.9 weighs rollouts against the verifier, and there are no rollouts; give"),
        (
            {"mix": 0.9, "verifier": None, "rollouts": 1, "outcome": VALUES},
            "mix=0.9 weighs rollouts against the verifier, and there is no verifier; give",
        ),
        ({"verifier": None}, "nothing values a sequence"),
        ({"verifier": None, "rollouts": 2}, "nothing values a sequence"),
        ({"verifier": None, "outcome": VALUES}, "nothing values a sequence"),
    ):
        given: dict[str, object] = {"n": 2, "verifier": VALUES, **options}
        with pytest.raises(InputError, match=message):
            MCTS(numbers(), **given)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="relative to each other"):
        MCTS(numbers(), 2, rollouts=1, outcome=Relative(lambda s: 0.5))
    with pytest.raises(UnsupportedError):
        MCTS(ReplayGenerator({"p": ["x"]}), 2, verifier=VALUES)


def test_fingerprints_tell_configurations_apart() -> None:
    def make(**options: object) -> str:
        given: dict[str, object] = {"n": 2, "verifier": VALUES, **options}
        return MCTS(numbers(), **given).fingerprint  # type: ignore[arg-type]

    answer = FunctionRule(lambda text: text)
    found = [
        make(), make(n=3), make(width=2), make(rollouts=1), make(rollouts=1, mix=0.1), make(exploration=2.0),
        make(prior="logprob"), make(in_flight=1), make(outcome=first_word), make(verifier=first_word),
        make(verifier=first_word, outcome=VALUES), make(until=STEP), make(aggregator=Majority(answer)),
    ]  # fmt: skip
    assert len(set(found)) == len(found)


def test_on_the_embedded_models() -> None:
    task = ArithmeticTask("validation", levels=(3,), per_level=1)
    (problem,) = task.problems()
    with (
        TorchEngine("tiny-0.5m", threads=1) as model,
        TorchEngine("tiny-prm", threads=1) as judge,
    ):
        generator, prm, orm = (
            model.generator(max_tokens=160),
            ProcessRewardModel(judge),
            OutcomeRewardModel(judge),
        )
        for search in (
            MCTS(generator, 6, verifier=prm, width=3, answer=task.answer),
            MCTS(generator, 6, verifier=prm, width=3, prior="logprob", answer=task.answer),
            MCTS(generator, 2, width=2, rollouts=2, outcome=orm, answer=task.answer),
        ):
            result = search.solve(problem.prompt)
            assert result.sequence.finish == "eos" and result.answer is not None and result.answer.key
            tree: Tree = search.tree(problem.prompt)
            assert tree.chosen == result.sequence
            nodes: list[Node] = list(tree)
            assert tree.graph().number_of_nodes() == len(nodes)


class TestLaws(StrategyLaws):
    def make(self) -> Strategy:
        return MCTS(numbers(), 4, verifier=first_word, width=2, answer=last_word)


class TestLawsOfRollouts(StrategyLaws):
    def make(self) -> Strategy:
        return MCTS(numbers(), 3, width=2, rollouts=2, outcome=first_word, answer=last_word)
