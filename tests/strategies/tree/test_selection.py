"""Beams, DVTS, best-first and depth-first search on trees that are worked out by hand."""

from __future__ import annotations

import pytest

from metagen.generators.engine import Sample
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.node import Tree
from metagen.strategies.tree.rebase import Rebase
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.tree.toys import ANSWER, PROMPT, Shape, chance, insight, table, values

#: Two openings; the better-looking one leads to weaker ends.
STEPS = {
    "": ["a;", "b;", "c;", "d;"],
    "a;": ["e;", "f;"],
    "b;": ["g;", "=2$"],
    "a;e;": ["=1$"],
    "a;f;": ["=1$", "=3$"],
    "b;g;": ["=4$"],
    "c;": ["=5$"],
    "d;": ["=6$"],
}
VALUES = {
    "a;": 0.9, "b;": 0.8, "c;": 0.3, "d;": 0.2, "a;e;": 0.2, "a;f;": 0.6, "b;g;": 0.7, "b;=2": 0.75, "a;e;=1": 0.1,
    "a;f;=1": 0.5, "a;f;=3": 0.55, "b;g;=4": 0.65, "c;=5": 0.95, "d;=6": 0.15,
}  # fmt: skip


def states(tree: Tree) -> dict[str, str]:
    return {n.sequence.text: n.state for n in tree if n.parent}


def test_beams_keep_the_best_n_over_m_of_each_level() -> None:
    """n = 4, m = 2: a and b of the first level are kept.

    Level 2: a draws e f, b draws g =2. Kept: g (0.7), f (0.6). Level 3: =4 twice, =1 =3. Five draws have finished.
    """
    tree = BeamSearch(table(STEPS), 4, m=2, verifier=values(VALUES), answer=ANSWER).tree(PROMPT)
    assert states(tree) == {
        "a;": "expanded", "a;e;": "pruned", "a;f;": "expanded", "a;f;=1": "finished", "a;f;=3": "finished",
        "b;": "expanded", "b;g;": "expanded", "b;g;=4": "finished", "b;=2": "finished", "c;": "pruned", "d;": "pruned",
    }  # fmt: skip
    assert {n.sequence.text: n.multiplicity for n in tree.finished_leaves()}["b;g;=4"] == 2
    assert tree.chosen is not None and tree.chosen.text == "b;g;=4"  # 1.3 against 0.75, 0.55, 0.5


def test_a_beam_of_one_is_greedy_among_m() -> None:
    tree = BeamSearch(table(STEPS), 4, m=4, verifier=values(VALUES)).tree(PROMPT)
    assert [n.sequence.text for n in tree if n.state == "expanded"] == ["", "a;", "a;f;"]
    assert tree.chosen is not None and tree.chosen.text == "a;f;=3"


def test_a_candidate_holds_as_many_places_as_it_has_draws() -> None:
    """n = 6, m = 2: of three places b, the best, drawn once, has one, and a, drawn four times, the other two."""
    steps = {"": ["a;", "a;", "b;", "c;", "a;", "a;"], "a;": ["=1$"], "b;": ["=2$"], "c;": ["=3$"]}
    given = {"a;": 0.5, "b;": 0.9, "c;": 0.4, "a;=1": 0.5, "b;=2": 0.5, "c;=3": 0.5}
    tree = BeamSearch(table(steps), 6, m=2, verifier=values(given)).tree(PROMPT)
    assert {n.sequence.text: n.multiplicity for n in tree.finished_leaves()} == {"a;=1": 4, "b;=2": 2}
    assert states(tree)["c;"] == "pruned"


def test_the_draws_of_beams_that_have_ended_go_to_those_that_have_not() -> None:
    """n = 4, m = 2: of the first level one is open. It has a place, and draws all four."""
    steps = {"": ["=1$", "=2$", "=3$", "x;"], "x;": ["=4$", "=5$", "=6$", "=7$"]}
    tree = BeamSearch(table(steps), 4, m=2, verifier=FunctionVerifier(lambda s: 0.5)).tree(PROMPT)
    assert sorted(n.sequence.text for n in tree.finished_leaves()) == [
        "=1",
        "=2",
        "=3",
        *(f"x;={i}" for i in (4, 5, 6, 7)),
    ]


@pytest.mark.parametrize("rule", [BestFirst, DepthFirst])
def test_draws_that_have_ended_are_counted_one_by_one(rule: type[BestFirst | DepthFirst]) -> None:
    """a ends twice in the same way: that is two, and b is not looked at."""
    steps = {"": ["a;", "b;"], "a;": ["=1$"], "b;": ["=2$"]}
    verifier = values({"a;": 0.9, "b;": 0.8, "a;=1": 0.6, "b;=2": 0.6})
    options = {"in_flight": 1} if rule is BestFirst else {}
    tree = rule(table(steps), 2, m=2, verifier=verifier, **options).tree(PROMPT)
    assert states(tree) == {"a;": "expanded", "a;=1": "finished", "b;": "open"}


def test_lookahead_gives_places_by_draws_too() -> None:
    """n = 4, m = 2, one step ahead: a, drawn three times, has both places; its continuation is one of its draws."""
    steps = {"": ["a;", "a;", "a;", "b;"], "a;": ["=1$"], "b;": ["=2$"]}
    tree = Lookahead(table(steps), 4, m=2, verifier=FunctionVerifier(lambda s: 0.5)).tree(PROMPT)
    assert {n.sequence.text: n.multiplicity for n in tree.finished_leaves()} == {"a;=1": 4, "b;=2": 1}


def test_beams_end_when_enough_has_finished() -> None:
    """n = 2: one draw ends at once, and one at the second level. What is open then is not extended any more."""
    steps = {"": ["=1$", "x;"], "x;": ["=2$", "y;"]}
    tree = BeamSearch(table(steps), 2, m=2, verifier=FunctionVerifier(lambda s: 0.5)).tree(PROMPT)
    assert states(tree) == {"=1": "finished", "x;": "expanded", "x;=2": "finished", "x;y;": "open"}


def test_subtrees_of_dvts_never_compete() -> None:
    """n = 4, m = 2: a of {a, b} and c of {c, d}, though b is better than c. Then f, and =5, which ends its subtree."""
    tree = DVTS(table(STEPS), 4, m=2, verifier=values(VALUES), answer=ANSWER).tree(PROMPT)
    assert states(tree) == {
        "a;": "expanded", "a;e;": "pruned", "a;f;": "expanded", "a;f;=1": "finished", "a;f;=3": "finished",
        "b;": "pruned", "c;": "expanded", "c;=5": "finished", "d;": "pruned",
    }  # fmt: skip
    assert tree.chosen is not None and tree.chosen.text == "c;=5"


def test_subtrees_that_drew_the_same_go_on_by_draws_of_their_own() -> None:
    """Both subtrees begin with a. The node has four draws: two belong to the first subtree, two to the second."""
    steps = {
        "": ["a;"],
        "a;": ["b;", "c;", "d;", "e;"],
        "a;b;": ["=1$"],
        "a;c;": ["=2$"],
        "a;d;": ["=3$"],
        "a;e;": ["=4$"],
    }
    given = {"a;": 0.5, "a;b;": 0.9, "a;c;": 0.8, "a;d;": 0.1, "a;e;": 0.2}
    ends = {f"{text}={i}": 0.5 for i, text in enumerate(("a;b;", "a;c;", "a;d;", "a;e;"), 1)}
    tree = DVTS(table(steps), 4, m=2, verifier=values(given | ends)).tree(PROMPT)
    assert {n.sequence.text: n.multiplicity for n in tree.finished_leaves()} == {"a;b;=1": 2, "a;e;=4": 2}


def test_one_subtree_is_a_beam_of_one() -> None:
    for seed in range(8):
        verifier = FunctionVerifier(insight, name="insight")
        dvts = DVTS(chance(), 4, m=4, verifier=verifier).tree(PROMPT, seed=seed)
        beam = BeamSearch(chance(), 4, m=4, verifier=verifier).tree(PROMPT, seed=seed)
        # The subtree ends with its best candidate; a beam goes on until enough has finished.
        assert {n[:2] for n in Shape.of(dvts).nodes} <= {n[:2] for n in Shape.of(beam).nodes}


def test_best_first_goes_back_to_what_is_better() -> None:
    """m = 2. The root draws a b; a (0.9) gives e f; b (0.8) comes before f (0.6): g =2; g (0.7): =4, and it ends."""
    strategy = BestFirst(table(STEPS), 2, m=2, in_flight=1, verifier=values(VALUES))
    tree = strategy.tree(PROMPT)
    assert states(tree) == {
        "a;": "expanded", "a;e;": "open", "a;f;": "open", "b;": "expanded", "b;g;": "expanded", "b;g;=4": "finished",
        "b;=2": "finished",
    }  # fmt: skip
    assert tree.chosen is not None and tree.chosen.text == "b;=2"
    asked = [r.path for r in strategy.solve(PROMPT).trace.rows if r.kind == "generate" and not r.index]
    assert asked == ["0/node/0", "0/node/0.0", "0/node/0.1", "0/node/0.1.0"]


def test_best_first_with_two_in_flight_takes_the_second_best_along() -> None:
    """After the root, a and b at once; when a has come, f is the best that is open beside b's, still under way."""
    strategy = BestFirst(table(STEPS), 2, m=2, in_flight=2, verifier=values(VALUES))
    expanded = {n.sequence.text for n in strategy.tree(PROMPT) if n.state == "expanded"}
    assert expanded == {"", "a;", "b;", "a;f;", "b;g;"}


def test_best_first_expands_no_more_nodes_than_allowed() -> None:
    for most in (1, 3):
        tree = BestFirst(table(STEPS), 9, m=2, expansions=most, verifier=values(VALUES)).tree(PROMPT)
        assert sum(n.state == "expanded" for n in tree) == most
    assert tree.chosen is not None and tree.chosen.text == "b;=2"


def test_depth_first_goes_back_below_the_threshold() -> None:
    """m = 2, threshold 0.65. a (0.9) gives e and f, both below: back to b (0.8), which gives =2 (0.75), good enough."""
    tree = DepthFirst(table(STEPS), m=2, threshold=0.65, verifier=values(VALUES)).tree(PROMPT)
    assert states(tree) == {
        "a;": "expanded", "a;e;": "pruned", "a;f;": "pruned", "b;": "expanded", "b;g;": "open", "b;=2": "finished",
    }  # fmt: skip
    assert tree.chosen is not None and tree.chosen.text == "b;=2"


def test_depth_first_takes_up_what_was_pruned_when_nothing_is_left() -> None:
    """Nothing reaches 0.95. The best of the pruned is taken up, again and again, until something has finished."""
    tree = DepthFirst(table(STEPS), m=2, threshold=0.95, verifier=values(VALUES)).tree(PROMPT)
    assert [n.sequence.text for n in tree if n.state == "expanded"] == ["", "a;", "b;"]
    assert tree.chosen is not None and tree.chosen.text == "b;=2"


def test_depth_first_goes_on_until_n_leaves_are_good_enough() -> None:
    """=2 and =4 of b; then it is back at the root, with nothing left to go on from."""
    tree = DepthFirst(table(STEPS), 5, m=2, threshold=0.65, verifier=values(VALUES)).tree(PROMPT)
    assert [n.sequence.text for n in tree.finished_leaves()] == ["b;g;=4", "b;=2"]
    assert not tree.frontier()


@pytest.mark.parametrize("most", [1, 2, 5])
def test_depth_first_expands_no_more_nodes_than_allowed(most: int) -> None:
    tree = DepthFirst(table(STEPS), 9, m=2, threshold=0.0, expansions=most, verifier=values(VALUES)).tree(
        PROMPT
    )
    assert sum(n.state == "expanded" for n in tree) == most


def cut(text: str) -> Sample:
    return Sample(text, None, len(text), finish="length")


def test_what_was_cut_is_no_end_however_good_it_looks() -> None:
    steps = {"": [cut("x"), "a;"], "a;": ["=1$"]}
    verifier = values({"x": 0.99, "a;": 0.6, "a;=1": 0.7})
    for rule in (
        DepthFirst(table(steps), m=2, verifier=verifier),
        BestFirst(table(steps), 1, m=2, in_flight=1, verifier=verifier),
        MCTS(table(steps), 1, width=2, verifier=verifier),
    ):
        tree = rule.tree(PROMPT)
        assert tree["0.0"].finished and tree["0.0"].value == 0.0
        assert tree.chosen is not None and (tree.chosen.text, tree.chosen.finish) == ("a;=1", "eos")


def test_a_continuation_that_was_cut_is_worth_nothing() -> None:
    steps = {"": ["a;", "b;"], "a;": [cut("x"), "=1$"], "b;": ["c;", "=2$"], "b;c;": ["=3$"]}
    given = {"a;": 0.5, "b;": 0.5, "a;x": 0.99, "a;=1": 0.1, "b;c;": 0.6, "b;=2": 0.7, "b;c;=3": 0.8}
    tree = Lookahead(table(steps), 2, m=2, verifier=values(given)).tree(PROMPT)
    assert tree["0.0"].asked == 1, "not kept"
    assert tree.chosen is not None and tree.chosen.text == "b;c;=3"


def test_with_width_one_all_rules_are_one_sample_step_by_step() -> None:
    """One draw after another from the same places: the same seeds, hence the same text."""
    verifier = FunctionVerifier(insight, name="insight")
    for seed in range(5):
        texts = {
            strategy.solve(PROMPT, seed=seed).text
            for strategy in (
                Rebase(chance(), 1, verifier=verifier),
                BeamSearch(chance(), 1, m=1, verifier=verifier),
                DVTS(chance(), 1, m=1, verifier=verifier),
                BestFirst(chance(), 1, m=1, in_flight=1, verifier=verifier),
                DepthFirst(chance(), 1, m=1, threshold=0.0, verifier=verifier),
            )
        }
        assert len(texts) == 1
