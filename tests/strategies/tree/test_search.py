"""What all searches share: steps of every kind, duplicates, empty steps, the last depth, and the vote at the end."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import networkx
import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Step, Tokens
from metagen.strategies.aggregate import Selection
from metagen.strategies.aggregators import Best, Majority, Weighted
from metagen.strategies.parallel import MajorityVote, Sample
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.node import Node, Tree
from metagen.strategies.tree.rebase import Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.strategies.tree.split import Split
from metagen.tasks.programs.verifier import PublicExamples
from metagen.testing import CountingJournal
from metagen.verifiers.base import Verifier
from metagen.verifiers.code.tested import Tested
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.equations import EquationVerifier
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.recorded import RecordedVerifier
from metagen.verifiers.reward import OutcomeRewardModel
from tests.strategies.tree.toys import ANSWER, PROMPT, chance, insight, table, values

HALF = FunctionVerifier(lambda s: 0.5)


class Levels(TreeSearch):
    """Every open node gets n draws, level by level."""

    needs_scores = False

    def __init__(self, generator, n, verifier=None, **options):  # type: ignore[no-untyped-def]  # options of the base
        super().__init__(generator, verifier=verifier, **options)
        self.n = n

    async def explore(self, growth: Growth) -> None:
        nodes = [growth.tree.root]
        while nodes:
            nodes = [node for node in await growth.level([(node, self.n) for node in nodes]) if node.open]


# -- the tree ----------------------------------------------------------------------------------------------


def sequence(text: str, finish: str | None = None) -> Sequence:
    return Sequence(PROMPT, text, finish=finish)  # type: ignore[arg-type]  # one of the finishes


def test_draws_become_children_and_equal_ones_one_child() -> None:
    tree = Tree(Sequence(PROMPT))
    texts = [sequence("a"), sequence("b"), sequence("a"), sequence("a", "eos")]
    drawn = tree.add(tree.root, 0, texts, [Score(0.1), Score(0.2), Score(0.1), Score(0.3)])
    assert [n.name for n in drawn] == ["0.0", "0.1", "0.0", "0.3"], "a text that ended is another"
    later = tree.add(tree.root, 4, [sequence("b"), sequence("c")], [None, Score(0.4)])
    assert [n.name for n in later] == ["0.1", "0.5"]
    assert [(n.name, n.multiplicity, n.value) for n in tree.root.children] == [
        ("0.0", 2, 0.1), ("0.1", 2, 0.2), ("0.3", 1, 0.3), ("0.5", 1, 0.4),
    ]  # fmt: skip
    assert tree["0.3"].finished and tree["0.3"].state == "finished" and tree.root.state == "expanded"
    assert (
        [n.name for n in tree.finished_leaves()] == ["0.3"] and len(tree.frontier()) == 3 and len(tree) == 5
    )
    with pytest.raises(KeyError):
        tree["0.2"]


def test_positions_are_in_the_order_of_numbers_not_of_letters() -> None:
    tree = Tree(Sequence(PROMPT))
    tree.add(tree.root, 0, [sequence(f"{i};") for i in range(12)], [None] * 12)
    tree.add(tree["0.2"], 0, [sequence("2;x")], [None])
    assert [n.name for n in tree][2:6] == ["0.1", "0.2", "0.2.0", "0.3"]
    assert [n.name for n in tree["0.2.0"].path()] == ["0", "0.2", "0.2.0"]
    assert (tree["0.2.0"].step, tree["0.2.0"].depth) == ("x", 2)
    assert repr(tree["0.2.0"]) == "Node(0.2.0, 'x', open)"


def test_the_graph_says_all_that_a_picture_needs() -> None:
    strategy = Rebase(chance(), 6, verifier=FunctionVerifier(insight), answer=ANSWER)
    result, tree = strategy.solve(PROMPT), strategy.tree(PROMPT)
    graph = tree.graph()
    assert networkx.is_arborescence(graph) and len(graph) == len(tree)
    way = [name for name, chosen in graph.nodes(data="chosen") if chosen]
    assert way[0] == "0" and graph.nodes[way[-1]]["text"] == result.text
    assert all(b.startswith(f"{a}.") for a, b in pairwise(way))
    assert "".join(graph.nodes[name]["step"] for name in way) == result.text
    generated = [cost for _, cost in graph.nodes(data="generated")]
    assert sum(generated) == result.usage.generated, "every token is the cost of a node"
    assert tree.root.cost.calls == 6 + len(tree.root.children)


# -- steps ---------------------------------------------------------------------------------------------------


def words(tokens: str = "ab;$") -> EnumerableEngine:
    """Letters, a delimiter and the end, all equally likely."""
    return EnumerableEngine(
        tuple(tokens), lambda prompt, done: [1 / len(tokens)] * len(tokens), name=f"words {tokens}"
    )


@pytest.mark.parametrize(
    "until", [Step(";", 6), Tokens(3), Split(lambda t: t.find(";") + 1 or None, "semicolon", 2, 3)]
)
def test_steps_by_delimiter_by_tokens_and_by_a_function(until: Step | Tokens | Split) -> None:
    with words() as engine:
        strategy = Levels(
            engine.generator(max_tokens=12), 2, FunctionVerifier(insight), until=until, max_depth=3
        )
        tree = strategy.tree(PROMPT, seed=3)
    inner = [n for n in tree if n.parent and n.depth < 3 and not n.finished]
    assert inner
    for node in inner:
        if isinstance(until, Tokens):
            assert len(node.step) == 3
        elif isinstance(until, Step):
            assert node.step.endswith(";") != (len(node.step) == 6 and node.sequence.cut)
        else:
            assert len(node.step) <= 6 and (";" in node.sequence.text) == bool(node.sequence.steps)
            assert node.sequence.cut == (len(node.step) == 6 and not ends_in(node))
    for node in tree:
        known = node.sequence.tokens
        assert known is None or known.ids[: len(node.sequence.text)] == words().encode(node.sequence.text)
        if node.depth == 3:
            assert node.finished, "the last step is the whole rest"


def ends_in(node: Node) -> bool:
    """Whether a step ended in what this node adds."""
    start = len(node.parent.sequence.text) if node.parent else 0
    return any(end > start for end in node.sequence.steps)


def test_a_function_that_ends_nothing_or_too_much_is_refused() -> None:
    for length in (0, -1, 99):
        generator = FunctionGenerator(lambda p, s, i: Drawn("ab", None, 2), name="ab")
        strategy = Levels(generator, 1, HALF, until=Split(lambda t, length=length: length, f"{length}"))  # type: ignore[misc]
        with pytest.raises(InputError, match=f"a step of 2 characters ends after {length}"):
            strategy.solve(PROMPT)
    for block in (0, 2.5):
        with pytest.raises(InputError, match=f"block={block}"):
            Split(lambda t: None, "none", block=block)  # type: ignore[arg-type]  # that is the mistake


def test_what_a_prefix_holds_already_ends_no_step_of_a_function() -> None:
    """A step begins where the prefix ends, whoever wrote it."""
    generator = FunctionGenerator(
        lambda p, s, i: Drawn("x;"[len(p.text) % 2], None, 1), count=len, max_tokens=1
    )
    semicolon = Split(lambda t: t.find(";") + 1 or None, "semicolon", 1)
    strategy = Levels(generator, 1, HALF, until=semicolon, max_depth=2)

    async def main() -> list[str]:
        tree = await strategy._search(Sequence(PROMPT, "from;elsewhere;x"), Scope.root("p"))
        return [node.step for node in tree]

    assert asyncio.run(main())[1] == "x;"


def test_a_step_cut_by_its_length_goes_on() -> None:
    """No delimiter ever comes: steps are blocks, and none of them is taken for a finished sequence."""
    endless = EnumerableEngine(
        ("a", "$"), lambda p, done: [1.0, 0.0] if len(done) < 9 else [0.0, 1.0], name="nine"
    )
    seen: list[bool] = []
    verifier = FunctionVerifier(lambda s: 1.0 if seen.append(s.finish is None) else 0.5)
    with endless as engine:
        tree = Rebase(engine.generator(), 2, verifier=verifier, until=Step("\n", 4)).tree(PROMPT)
    assert [(n.name, n.sequence.text, n.sequence.cut, n.state) for n in tree][1:] == [
        ("0.0", "a" * 4, True, "expanded"),
        ("0.0.0", "a" * 8, True, "expanded"),
        ("0.0.0.0", "a" * 9, False, "finished"),
    ]
    assert seen == [True, True, False]


def test_without_a_limit_the_step_is_the_whole_rest() -> None:
    nine = EnumerableEngine(
        ("a", "$"), lambda p, done: [1.0, 0.0] if len(done) < 9 else [0.0, 1.0], name="nine"
    )
    with nine as engine:
        tree = Rebase(engine.generator(), 2, verifier=HALF, until=Step("\n")).tree(PROMPT)
    assert [n.sequence.text for n in tree] == ["", "a" * 9]


def test_max_tokens_of_the_generator_counts_ancestors() -> None:
    nine = EnumerableEngine(("a", "$"), lambda p, done: [1.0, 0.0], name="endless")
    with nine as engine:
        tree = Rebase(engine.generator(max_tokens=10), 2, verifier=HALF, until=Tokens(4)).tree(PROMPT)
    assert [len(n.sequence.text) for n in tree] == [0, 4, 8, 10]
    assert tree.finished_leaves()[0].sequence.finish == "length"


def test_an_empty_step_is_never_scored_and_has_its_parents_score() -> None:
    """A blank line, and an end right after a step: neither says anything new."""
    blank, end = Drawn("\n", None, 1, step_end=1), Drawn("", None, 1, finish="eos")
    seen: list[str] = []
    steps = {"": ["a;"], "a;": [blank, end], "a;\n": ["b;"], "a;\nb;": [end]}
    strategy = Levels(table(steps), 2, values({"a;": 0.7, "a;\nb;": 0.4}, seen=seen))
    tree = strategy.tree(PROMPT)
    assert seen == ["a;", "a;\nb;"]
    assert [(n.name, n.sequence.text, n.value, n.state) for n in tree][1:] == [
        ("0.0", "a;", 0.7, "expanded"),
        ("0.0.0", "a;\n", 0.7, "expanded"),
        ("0.0.0.0", "a;\nb;", 0.4, "expanded"),
        ("0.0.0.0.0", "a;\nb;", 0.4, "finished"),
        ("0.0.1", "a;", 0.7, "finished"),
    ]
    assert tree.chosen is not None and tree.chosen.text == "a;"


def test_nothing_at_all_is_no_candidate_for_an_answer() -> None:
    """The root's own end has no score, and loses to whatever has an answer."""
    end = Drawn("", None, 1, finish="eos")
    tree = Rebase(table({"": [end, "=1$"]}), 4, verifier=values({"=1": 0.1}), answer=ANSWER).tree(PROMPT)
    assert [(n.value, n.multiplicity) for n in tree.finished_leaves()] == [(None, 2), (0.1, 2)]
    assert tree.chosen is not None and tree.chosen.text == "=1"


def test_verdicts_instead_of_scores_keep_their_nodes() -> None:
    """A node without a value counts as zero; it does not vanish."""
    silent = FunctionVerifier(lambda s: Score(None, verdict="timeout"))
    tree = Rebase(chance(), 4, verifier=silent, answer=ANSWER).tree(PROMPT)
    assert sum(n.multiplicity for n in tree.finished_leaves()) == 4
    assert tree.chosen is not None and tree.chosen.finish == "eos"


def test_a_strategy_that_stops_at_steps_serves_as_the_generator() -> None:
    inner = Sample(chance())
    tree = Rebase(inner, 4, verifier=FunctionVerifier(insight), answer=ANSWER).tree(PROMPT)
    assert sum(n.multiplicity for n in tree.finished_leaves()) == 4 and max(n.depth for n in tree) >= 3
    with pytest.raises(UnsupportedError, match="cannot stop at the end of a step"):
        Rebase(MajorityVote(chance(), 2, answer=ANSWER), verifier=HALF)


# -- the end ---------------------------------------------------------------------------------------------------

STEPS = {"": ["a=1$", "b=2$", "b=2$", "c=3$"]}
SCORES = {"a=1": 0.6, "b=2": 0.35, "c=3": 0.1}


def test_leaves_vote_with_their_multiplicity_by_default() -> None:
    verifier = values(SCORES)
    voted = Levels(table(STEPS), 4, verifier, answer=ANSWER).solve(PROMPT)
    assert voted.text == "b=2" and voted.answer is not None and voted.answer.key == "2"  # 0.7 against 0.6
    assert voted.sequence.scores["values"].value == 0.35
    assert [c.key for c in voted.candidates] == ["1", "2", "2", "3"]
    assert Levels(table(STEPS), 4, verifier).solve(PROMPT).text == "a=1"
    assert Levels(table(STEPS), 4, answer=ANSWER).solve(PROMPT).text == "b=2"
    with pytest.raises(InputError, match="nothing chooses among the leaves"):
        Levels(table(STEPS), 4)


def test_any_aggregator_serves_and_one_of_its_own_verifier_asks_it() -> None:
    other = FunctionVerifier(lambda s: 0.9 if s.text == "c=3" else 0.1, name="other")
    search = values(SCORES)
    for aggregator, text, scored in (
        (Majority(ANSWER), "b=2", 3), (Best(search), "a=1", 3), (Weighted(search, ANSWER), "b=2", 3),
        (Best(other, answer=ANSWER), "c=3", 6),
    ):  # fmt: skip
        result = Levels(table(STEPS), 4, search, aggregator=aggregator).solve(PROMPT)
        rows = [row for row in result.trace.rows if row.kind == "score"]
        assert (result.text, len(rows)) == (text, scored)
    assert {row.path for row in rows} == {"0/node/0/score", "0/score"}
    assert [c.value for c in result.candidates] == [0.1, 0.1, 0.1, 0.9]


def test_when_the_budget_ends_before_anything_has_finished_the_best_open_node_is_returned() -> None:
    steps = {"": ["a;", "b;"], "a;": ["c;"], "b;": ["=1$"]}
    strategy = Levels(
        table(steps), 2, values({"a;": 0.2, "b;": 0.9, "a;c;": 0.1, "b;=1": 0.5}), answer=ANSWER
    )
    result = strategy.solve(PROMPT, budget={"calls": 4})
    assert (result.text, result.exhausted, result.sequence.finish) == ("b;", True, None)
    assert [(c.sequence.text, c.value) for c in result.candidates] == [("a;", None), ("b;", None)]
    assert strategy.solve(PROMPT, budget={"calls": 0}).text == ""


@pytest.mark.parametrize("tokens", [24, 28])
def test_what_a_budget_cut_in_the_middle_of_a_step_loses_to_an_open_node(tokens: int) -> None:
    """However good it looks: here, the more there is of it the better."""
    verifier = FunctionVerifier(lambda s: 1 - 0.9 ** (1 + len(s.text)))
    engine = EnumerableEngine(tuple("ab;$"), lambda p, done: (0.4, 0.4, 0.15, 0.05), name="long steps")
    with engine:
        tree = Rebase(engine.generator(max_tokens=60), 4, verifier=verifier, until=Step(";", 8)).tree(
            PROMPT, seed=1, budget=tokens
        )
    cut, best = (
        [n for n in tree.finished_leaves() if not n.complete],
        max(n.value or 0.0 for n in tree.frontier()),
    )
    assert cut and all(not n.value for n in cut) and not tree.complete()
    assert tree.chosen is not None and tree.chosen.exhausted
    assert tree.chosen.finish is None and tree.chosen.scores["function"].value == best


def test_an_aggregator_whose_budget_ends_leaves_the_best_that_it_was_offered() -> None:
    """In `tree` as in `solve`."""

    class Spent(Best):
        async def choose(self, pool: object, salt: str, scope: Scope) -> Selection:
            raise BudgetExhausted("calls", 1.0, 1.0, 0.0, "somebody")

    strategy = Levels(table(STEPS), 4, values(SCORES), aggregator=Spent(values(SCORES)))
    for chosen in (strategy.solve(PROMPT).sequence, strategy.tree(PROMPT).chosen):
        assert chosen is not None and (chosen.text, chosen.exhausted) == ("a=1", True)


def test_a_budget_of_its_own_for_an_aggregator_that_spends() -> None:
    class Spends(Majority):
        @property
        def spends(self) -> bool:
            return True

    strategy = Levels(table(STEPS), 4, values(SCORES), aggregator=Spends(ANSWER))
    result = strategy.solve(PROMPT, budget={"calls": 8})
    assert result.exhausted and result.usage.calls == 4, "half of the budget is kept"


@pytest.mark.parametrize("calls", range(1, 20))
def test_a_judge_of_the_leaves_has_its_part_of_the_budget(calls: int) -> None:
    """The smaller half, and what the search leaves of its own. Whom it does not reach has no value."""
    judge = FunctionVerifier(insight, name="judge")
    strategy = Rebase(chance(), 3, verifier=HALF, aggregator=Best(judge))
    result = strategy.solve(PROMPT, budget=Budget(calls=calls))
    judged = [row for row in result.trace.rows if row.path == "0/score" and row.status == "complete"]
    assert result.usage.calls <= calls and result.sequence.extends(Sequence(PROMPT))
    assert calls < 2 or len(judged) >= min(calls // 2, len({c.sequence.text for c in result.candidates}))


@pytest.mark.parametrize(
    ("judge", "budget", "text"),
    [
        (EquationVerifier(), Budget(calls=2), "a;b=1"),
        (FunctionVerifier(insight, name="judge"), Budget(calls=2), "a;"),
        (FunctionVerifier(insight, name="judge"), Budget(generated=20), "a;b=1"),
        (Ensemble([FunctionVerifier(insight, name="judge")]), Budget(generated=20), "a;b=1"),
    ],
)
def test_nothing_is_kept_for_a_judge_that_cannot_spend_it(judge: Verifier, budget: Budget, text: str) -> None:
    """No calls for one that costs nothing, no generated tokens for one that only reads."""
    generator = table({"": ["a;"], "a;": ["b=1$"]})
    assert Levels(generator, 1, aggregator=Best(judge)).solve(PROMPT, budget=budget).text == text


def test_a_verifier_that_compares_candidates_cannot_lead_a_search() -> None:
    class Relative(FunctionVerifier):
        relative = True

    verifier = Relative(insight, name="relative")
    with pytest.raises(UnsupportedError, match="'relative' scores candidates relative to each other"):
        Rebase(chance(), verifier=verifier)
    assert Rebase(chance(), 3, verifier=HALF, aggregator=Best(verifier)).solve(PROMPT).text


def test_outcome_reward_models_cannot_lead_a_search(tmp_path: Path) -> None:
    class Outcome(OutcomeRewardModel):
        def __init__(self) -> None:
            self.name = "orm"

    for verifier in (Outcome(), Ensemble([HALF, Outcome()])):
        with pytest.raises(UnsupportedError, match="'orm' scores whole solutions only"):
            Rebase(chance(), verifier=verifier)


@pytest.mark.parametrize(
    "verifier",
    [PublicExamples(), RecordedVerifier("reward"), Ensemble([HALF, PublicExamples()])],
    ids=["examples", "recorded", "ensemble"],
)
def test_verifiers_of_whole_solutions_cannot_lead_a_search(verifier: Verifier) -> None:
    for rule in (Rebase, BestFirst, MCTS):
        with pytest.raises(UnsupportedError, match="scores whole solutions only: give a process verifier"):
            rule(chance(), verifier=verifier)
    assert Rebase(chance(), verifier=HALF, aggregator=Best(verifier)).aggregator.verifier is verifier
    assert Tested.whole and not HALF.whole
    MCTS(chance(), rollouts=1, outcome=verifier)  # for what has finished, as for the aggregator


# -- growing -----------------------------------------------------------------------------------------------------


def test_a_few_in_flight_whose_results_count_in_the_order_of_choice() -> None:
    """The first takes longest. Nothing is applied before it, and the third starts when it is."""
    order: list[str] = []

    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        order.append(f"ask {index}")
        await asyncio.sleep(0.03 * (3 - index))
        order.append(f"get {index}")
        return Drawn(f"{index};", None, 1)

    async def main(budget: Budget | None) -> list[str]:
        order.clear()
        scope = Scope.root("p", budget=budget)
        generator = FunctionGenerator(write, count=len, max_tokens=2)
        growth = Growth(
            Tree(Sequence(PROMPT)), scope, generator=generator, verifier=HALF, until=None, max_depth=9
        )
        left = iter(range(3))

        def choose() -> Wanted | None:
            return None if next(left, None) is None else (growth.tree.root, 1)

        await growth.steady(2, choose, lambda node, children: order.append(f"apply {children[0].name}"))
        return [what for what in order if "get" not in what]

    # The second has been there for long when the first is applied, and is applied before the third gets to ask.
    expected = ["ask 0", "ask 1", "apply 0.0", "apply 0.1", "ask 2", "apply 0.2"]
    assert asyncio.run(main(None)) == asyncio.run(main(Budget(calls=50))) == expected


def test_scores_start_as_children_arrive_unless_a_limit_binds_both() -> None:
    order: list[str] = []
    overlaps, scored = False, threading.Event()

    async def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        if prefix.text:
            if prefix.text == "b;":
                await asyncio.to_thread(scored.wait, 60 if overlaps else 0.05)
            order.append(f"drawn after {prefix.text}")
            return Drawn(f"{prefix.text}=1", None, 1, finish="eos")
        return Drawn("ab"[index] + ";", None, 1)

    def look(s: Sequence) -> float:
        order.append(f"scored {s.text}")
        if s.text == "a;a;=1":
            scored.set()
        return 0.5

    strategy = Levels(
        FunctionGenerator(write, name="two", count=len, max_tokens=9), 2, FunctionVerifier(look), max_depth=2
    )
    for budget, overlaps in ((None, True), (Budget(generated=10_000), True), (Budget(calls=1000), False)):
        order.clear()
        scored.clear()
        strategy.solve(PROMPT, budget=budget)
        assert (order.index("scored a;a;=1") < order.index("drawn after b;")) == overlaps


def test_more_draws_of_a_node_are_its_next_ones_and_known_children_are_not_scored_again() -> None:
    seen: list[str] = []
    steps = {"": ["a;", "b;", "a;", "c;"]}

    async def main() -> list[list[str]]:
        scope = Scope.root("p", seed=1)
        verifier = values({"a;": 0.1, "b;": 0.2, "c;": 0.3}, seen=seen)
        growth = Growth(
            Tree(Sequence(PROMPT)),
            scope,
            generator=table(steps),
            verifier=verifier,
            until=Step(";"),
            max_depth=9,
        )
        return [[n.name for n in await growth.level([(growth.tree.root, n)])] for n in (2, 1, 1)]

    assert asyncio.run(main()) == [["0.0", "0.1"], ["0.0"], ["0.3"]]
    assert seen == ["a;", "b;", "c;"]


def test_a_budget_that_ends_in_a_level_keeps_what_it_brought() -> None:
    async def main() -> tuple[int, int]:
        scope = Scope.root("p", budget=Budget(calls=3))
        growth = Growth(
            Tree(Sequence(PROMPT)), scope, generator=chance(), verifier=FunctionVerifier(insight), until=Step(";"),
            max_depth=9,
        )  # fmt: skip
        children = await growth.level([(growth.tree.root, 2)])
        with pytest.raises(BudgetExhausted):
            await growth.level([(node, 1) for node in children])
        return len(children), len(growth.tree)

    children, nodes = asyncio.run(main())
    assert nodes == 1 + children + (children == 1)


def test_the_tree_of_a_solve_is_in_its_journal(tmp_path: Path) -> None:
    strategy = Rebase(chance(), 5, verifier=FunctionVerifier(insight), answer=ANSWER)
    with SQLiteJournal(tmp_path / "journal.sqlite", seed=4) as journal:
        result = strategy.solve(PROMPT, seed=4, journal=journal)
    with SQLiteJournal(tmp_path / "journal.sqlite", read_only=True) as journal:
        assert strategy.tree(PROMPT, seed=4, journal=journal).chosen == result.sequence


def test_rules_share_what_they_draw() -> None:
    """Nodes are named by positions, so another rule over the same parts pays for what is new alone."""
    journal, verifier = CountingJournal(), FunctionVerifier(insight, name="insight")
    Rebase(chance(), 6, verifier=verifier).solve(PROMPT, journal=journal)
    paid, other = journal.recorded, Rebase(chance(), 6, verifier=verifier, temperature=9.0)
    calls = other.solve(PROMPT, journal=journal).usage.calls
    assert 0 < journal.recorded - paid < calls - 6, "at least the first level is there"
