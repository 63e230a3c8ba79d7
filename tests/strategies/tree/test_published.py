"""Searches make the draws and find the ends that the published rules do, on the same trees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from metagen.generators.engine import Sample
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence, digest
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.node import Tree
from metagen.strategies.tree.rebase import Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.reward import ProcessRewardModel
from tests.strategies.tree import published
from tests.strategies.tree.published import Draw, Drawn, Run
from tests.strategies.tree.toys import PROMPT


def made_up(number: int, letters: int) -> Draw:
    """Tree `number`: draws by chance of so many letters, all different for 0; scores without ties."""

    def draw(text: str, k: int) -> Drawn:
        chance = random.Random(f"{number} {text} {k}")
        # Some letters come often, as the likely steps of a model do.
        likely = chr(ord("a") + min(chance.randrange(letters), chance.randrange(letters))) if letters else ""
        letter = likely or chr(0x4E00 + k)
        depth = text.count(";")
        ended = depth >= 1 and (depth >= 5 or random.Random(f"{number} {text} {letter}").random() < 0.3)
        whole = f"{text}{letter}{'.' if ended else ';'}"
        return Drawn(whole, ended, int.from_bytes(digest(f"{number} {whole}")[:6], "little") / 2**48)

    return draw


def parts(draw: Draw) -> tuple[FunctionGenerator, FunctionVerifier]:
    """A generator and a verifier that show a tree to a search."""
    scores: dict[str, float] = {}

    def write(prefix: Sequence, seed: int, index: int) -> Sample:
        drawn = draw(prefix.text, index)
        scores[drawn.text] = drawn.score
        text = drawn.text[len(prefix.text) :]
        return Sample(text, None, len(text), finish="eos" if drawn.ended else None, step_end=len(text))

    generator = FunctionGenerator(write, name="tree", count=len, max_tokens=99)
    return generator, FunctionVerifier(lambda sequence: scores[sequence.text], name="scores")


def found(tree: Tree) -> Run:
    """What a search did, as the published rules tell it."""
    run = Run(lambda text, k: Drawn("", True, 0.0))
    run.draws = Counter({n.sequence.text: len(n.draws) for n in tree if n.draws})
    run.ends = Counter({n.sequence.text: n.multiplicity for n in tree.finished_leaves()})
    return run


Search = Callable[..., TreeSearch]
Rule = Callable[[Draw], Run]
SEARCHES: dict[str, tuple[Search, Rule]] = {
    "beams": (lambda g, v: BeamSearch(g, 16, m=4, verifier=v), lambda d: published.beams(d, 16, 4)),
    "one beam": (lambda g, v: BeamSearch(g, 6, m=6, verifier=v), lambda d: published.beams(d, 6, 6)),
    "beams of one": (lambda g, v: BeamSearch(g, 5, m=1, verifier=v), lambda d: published.beams(d, 5, 1)),
    "lookahead of no step": (
        lambda g, v: Lookahead(g, 8, m=2, ahead=0, verifier=v),
        lambda d: published.beams(d, 8, 2),
    ),
    "dvts": (lambda g, v: DVTS(g, 16, m=4, verifier=v), lambda d: published.diverse_trees(d, 16, 4)),
    "best first": (
        lambda g, v: BestFirst(g, 4, m=4, in_flight=1, verifier=v),
        lambda d: published.best_first(d, 4, 4),
    ),
    "depth first": (
        lambda g, v: DepthFirst(g, 3, m=3, threshold=0.4, verifier=v),
        lambda d: published.depth_first(d, 3, 3, 0.4),
    ),
}


@pytest.mark.parametrize("letters", [0, 2, 4, 9])
@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_draws_and_ends_on_made_up_trees(name: str, letters: int) -> None:
    search, rule = SEARCHES[name]
    equal = 0
    for number in range(25):
        draw = made_up(number, letters)
        there = rule(draw)
        if name == "depth first" and there.ends.total() < 3:
            continue  # it has given up; the library goes on with what it has pruned, as its page says
        here = found(search(*parts(draw)).tree(PROMPT))
        assert here.draws == there.draws
        assert +here.ends == +there.ends
        equal += any(count > 1 for count in here.ends.values())
    assert equal or not letters, "trees with equal steps are among them"


def rebase(draw: Draw) -> Tree:
    generator, verifier = parts(draw)
    return Rebase(generator, 16, verifier=verifier).tree(PROMPT)


def test_rebase_makes_the_same_draws_where_all_steps_differ() -> None:
    """Equal steps are one node here, with the weight of all, and one ceiling; the published rule has several."""
    differ = 0
    for number in range(25):
        distinct, few = made_up(number, 0), made_up(number, 2)
        here, there = found(rebase(distinct)), published.reward_balanced(distinct, 16)
        assert (here.draws, +here.ends) == (there.draws, +there.ends)
        here, there = found(rebase(few)), published.reward_balanced(few, 16)
        assert here.ends.total() == there.ends.total() == 16
        differ += here.draws != there.draws
    assert differ


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[TorchEngine, TorchEngine]]:
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        yield model, judge


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_draws_and_ends_on_trees_of_a_model(
    name: str, engines: tuple[TorchEngine, TorchEngine]
) -> None:
    """What the model drew and the reward model said is recorded from the search; the rule asks for nothing else."""
    search, rule = SEARCHES[name]
    task = ArithmeticTask("validation", levels=(2, 5), per_level=2)
    generator, verifier = engines[0].generator(max_tokens=200), ProcessRewardModel(engines[1])
    for problem in task.problems():
        tree = search(generator, verifier).tree(problem.prompt, seed=3)
        record = {
            (node.sequence.text, k): Drawn(child.sequence.text, child.finished, child.value or 0.0)
            for node in tree
            for k, child in node.draws.items()
        }
        there, here = rule(lambda text, k, record=record: record[text, k]), found(tree)  # type: ignore[misc]
        if name == "depth first" and there.ends.total() < 3:
            continue
        assert (here.draws, +here.ends) == (there.draws, +there.ends)
