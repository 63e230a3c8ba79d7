"""Particle filtering and particle Gibbs: cases by hand, the normaliser and the target against enumeration, the laws."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from metagen.budget import Budget
from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import Sample as Drawn
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Step, TokenIds, Tokens
from metagen.strategies.aggregators import Majority
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN
from metagen.strategies.tree.gibbs import ParticleGibbs
from metagen.strategies.tree.particles import EDGE, Cloud, ParticleFilter
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.reward import ProcessRewardModel
from tests.strategies.tree.checks import (
    PROMPT,
    has_distribution,
    is_cancelled_cleanly,
    resumes,
    slow,
    survives_a_failing_verifier,
    survives_every_budget,
)

LONGEST = 3


def any_length(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
    if len(done) == LONGEST:
        return 0.0, 0.0, 1.0
    return {(): (0.5, 0.3, 0.2), ("a",): (0.2, 0.6, 0.2), ("b",): (0.5, 0.25, 0.25)}[done[-1:]]


def one_length(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
    a, b, _ = any_length(prompt, done)
    return (a / (a + b), b / (a + b), 0.0) if a + b else (0.0, 0.0, 1.0)


def value(text: str) -> float:
    return (1 + text.count("a")) / (2 + len(text))


VALUES = FunctionVerifier(lambda s: value(s.text), name="share of a")
WORDS = FunctionRule(lambda text: text or None)


@pytest.fixture(scope="module")
def letters() -> Iterator[EnumerableEngine]:
    with EnumerableEngine("ab$", any_length, name="any length") as engine:
        yield engine


@pytest.fixture(scope="module")
def words() -> Iterator[EnumerableEngine]:
    with EnumerableEngine("ab$", one_length, name="one length") as engine:
        yield engine


def make(engine: EnumerableEngine, n: int, **options: object) -> ParticleFilter:
    generator = engine.generator(max_tokens=8)
    given: dict[str, object] = {"verifier": VALUES, "until": Tokens(1), "answer": WORDS, **options}
    return ParticleFilter(generator, n, **given)  # type: ignore[arg-type]  # its options


def odds(text: str, temperature: float = 1.0) -> float:
    """The weight of a text; one without a step has no score, and none to speak of."""
    v = value(text) if text else EDGE
    return (v / (1 - v)) ** (1 / temperature)


def clouds(strategy: ParticleFilter, runs: int) -> list[Cloud]:
    async def main() -> list[Cloud]:
        return [await strategy.acloud(PROMPT, seed=seed) for seed in range(runs)]

    return asyncio.run(main())


def is_unbiased(estimates: list[float], exact: float) -> None:
    """Within four standard errors, over fixed seeds; and not because the estimates are wild.

    So a bias of 30% is found with probability 0.84 at least.
    """
    mean, error = np.mean(estimates), np.std(estimates) / math.sqrt(len(estimates))
    assert error < 0.06 * exact
    assert abs(mean - exact) <= 4 * error


@pytest.mark.parametrize(
    ("n", "resampling", "block"), [(2, "multinomial", 2), (5, "multinomial", 1), (5, "systematic", 2)]
)
def test_the_normaliser_of_the_final_scores_is_that_of_enumeration(
    letters: EnumerableEngine, n: int, resampling: str, block: int
) -> None:
    """With blocks of two letters, sequences end within a step as well as with an empty one."""
    temperature = 0.7
    exact = sum(
        p * odds("".join(y[:-1]), temperature) for y, p in letters.sequences(max_tokens=LONGEST + 1).items()
    )
    strategy = make(
        letters, n, target="final", temperature=temperature, resampling=resampling, until=Tokens(block)
    )
    is_unbiased([math.exp(c.log_normaliser) for c in clouds(strategy, 200)], exact)


def test_the_normaliser_of_all_steps_is_that_of_enumeration(words: EnumerableEngine) -> None:
    """Each letter is a step, and so is the end, which has nothing to score and is weighed as the letter before."""
    exact = 0.0
    for y, p in words.sequences(max_tokens=LONGEST + 1).items():
        text = "".join(y[:-1])
        exact += p * math.prod(odds(text[:t]) for t in range(1, LONGEST + 1)) * odds(text)
    is_unbiased([math.exp(c.log_normaliser) for c in clouds(make(words, 6), 200)], exact)


def test_many_particles_are_draws_of_the_target(letters: EnumerableEngine) -> None:
    """Their weights tend to p(y) φ(v(y)) / Z."""
    gamma = {
        "".join(y[:-1]): p * odds("".join(y[:-1]))
        for y, p in letters.sequences(max_tokens=LONGEST + 1).items()
    }
    total = sum(gamma.values())
    (cloud,) = clouds(make(letters, 2000, target="final", resampling="systematic"), 1)
    found: Counter[str] = Counter()
    for node, weight in cloud.weights.items():
        found[node.sequence.text] += weight  # type: ignore[assignment]  # shares, not counts
    exact = {text: g / total for text, g in gamma.items()}
    assert {text: found[text] for text in exact} == pytest.approx(exact, abs=0.02)
    assert set(found) <= set(exact)


@pytest.mark.parametrize("n", [2, 4])
def test_a_gibbs_step_leaves_the_target_as_it_is(letters: EnumerableEngine, n: int) -> None:
    """From an exact draw of the target, as reference, to another: whatever n is."""
    gamma = {y: p * odds("".join(y[:-1])) for y, p in letters.sequences(max_tokens=LONGEST + 1).items()}
    total, runs = sum(gamma.values()), 700
    strategy = ParticleGibbs(
        letters.generator(max_tokens=8), n, verifier=VALUES, iterations=2, target="final", until=Tokens(1)
    )
    rng = np.random.default_rng(3)
    keys = list(gamma)
    starts = rng.choice(len(keys), runs, p=[gamma[k] / total for k in keys])

    async def ends() -> Counter[str]:
        seen: Counter[str] = Counter()
        for seed, start in enumerate(starts):
            scope = Scope.root("p", seed=seed)
            cloud = await strategy._run(Sequence(PROMPT), scope, steps_of(keys[start]))
            nodes = list(cloud.weights)
            seen[nodes[rng.choice(len(nodes), p=list(cloud.weights.values()))].sequence.text] += 1
        return seen

    exact: dict[str, float] = {}
    for y, g in gamma.items():
        exact["".join(y[:-1])] = exact.get("".join(y[:-1]), 0.0) + g / total
    has_distribution(asyncio.run(ends()), exact)


# -- masks ------------------------------------------------------------------------------------------------

#: "ab" may be written in one token or in two.
SPELLED = Grammar.regex("(a|b){3}b?", canonical=False)


def spelled(prompt: str, done: tuple[str, ...]) -> tuple[float, ...]:
    return (0.1, 0.1, 0.1, 0.7) if done[-1:] == ("a",) else (0.35, 0.35, 0.2, 0.1)


@pytest.fixture(scope="module")
def spelling() -> Iterator[EnumerableEngine]:
    with EnumerableEngine(("a", "b", "ab", "$"), spelled, name="two spellings") as engine:
        yield engine


def allowed(engine: EnumerableEngine) -> dict[tuple[str, ...], float]:
    """What the model writes by itself of the texts that are allowed."""
    every = engine.sequences(max_tokens=5).items()
    return {y: p for y, p in every if y[-1] == "$" and re.fullmatch("[ab]{3}b?", "".join(y[:-1]))}


def weighing(engine: EnumerableEngine, n: int, **options: object) -> ParticleFilter:
    generator = engine.generator(grammar=SPELLED, log_mass=True, max_tokens=8)
    given: dict[str, object] = {"until": Tokens(1), "answer": WORDS, **options}
    return ParticleFilter(generator, n, **given)  # type: ignore[arg-type]  # its options


@pytest.mark.parametrize(("n", "block", "runs"), [(10, 1, 150), (5, 2, 200)])
def test_the_normaliser_of_what_masks_left_is_the_probability_of_the_grammar(
    spelling: EnumerableEngine, n: int, block: int, runs: int
) -> None:
    """Without a verifier, and with one: then Σ p(y) φ(v(y)) over what is allowed."""
    exact = allowed(spelling)
    found = clouds(weighing(spelling, n, until=Tokens(block)), runs)
    is_unbiased([math.exp(c.log_normaliser) for c in found], sum(exact.values()))
    tilted = sum(p * odds("".join(y[:-1]), 3.0) for y, p in exact.items())
    judged = weighing(spelling, n, verifier=VALUES, target="final", temperature=3.0, until=Tokens(block))
    is_unbiased([math.exp(c.log_normaliser) for c in clouds(judged, runs)], tilted)


def test_particles_under_masks_are_draws_of_the_model_given_the_grammar(spelling: EnumerableEngine) -> None:
    """Of their tokens: two spellings of a text are two particles. Local masks alone are another distribution."""
    exact = allowed(spelling)
    total = sum(exact.values())
    local = spelling.sequences(params=SamplingParams(grammar=SPELLED), max_tokens=8)
    (cloud,) = clouds(weighing(spelling, 4000, resampling="systematic"), 1)
    found: dict[tuple[str, ...], float] = {}
    for node, weight in cloud.weights.items():
        assert node.sequence.tokens is not None
        ids = (*(spelling.tokens[i] for i in node.sequence.tokens.ids), "$")
        found[ids] = found.get(ids, 0.0) + weight
    distances = [
        sum(abs(share.get(y, 0.0) - p / total) for y, p in exact.items()) / 2 for share in (local, found)
    ]
    print(
        f"total variation to p(· | grammar): {distances[0]:.3f} of local masks, {distances[1]:.3f} of particles"
    )
    assert distances[0] > 0.1 and distances[1] < 0.03 and set(found) <= set(exact)


def test_a_gibbs_step_under_masks_leaves_the_model_given_the_grammar_as_it_is(
    spelling: EnumerableEngine,
) -> None:
    """From an exact draw, as reference, with what masks left of it at each step."""
    exact, params = allowed(spelling), SamplingParams(grammar=SPELLED, max_tokens=8)
    total, runs = sum(exact.values()), 500
    strategy = ParticleGibbs(
        spelling.generator(grammar=SPELLED, log_mass=True, max_tokens=8), 3, iterations=2, until=Tokens(1), answer=WORDS
    )  # fmt: skip
    rng, keys = np.random.default_rng(3), list(exact)
    starts = rng.choice(len(keys), runs, p=[exact[k] / total for k in keys])

    def reference(tokens: tuple[str, ...]) -> list[tuple[Sequence, Score | None]]:
        steps, ids, left = [], (), 0.0
        for t, token in enumerate(tokens):
            p = spelling.probabilities("?", tokens[:t])
            allowed = spelling._allowed(p, params, tokens[:t])
            assert allowed is not None
            left += math.log(p[allowed].sum())
            ids, ended = (*ids, *([] if token == "$" else [spelling.tokens.index(token)])), token == "$"
            text = "".join(tokens[: t + (not ended)])
            known = TokenIds(ids, spelling.tokenizer_fingerprint)
            steps.append(
                (Sequence(PROMPT, text, known, log_mass=left, finish="eos" if ended else None), None)
            )
        return steps

    async def ends() -> Counter[str]:
        seen: Counter[str] = Counter()
        for seed, start in enumerate(starts):
            scope = Scope.root("p", seed=seed)
            cloud = await strategy._run(Sequence(PROMPT), scope, reference(keys[start]))
            nodes = list(cloud.weights)
            seen[nodes[rng.choice(len(nodes), p=list(cloud.weights.values()))].sequence.text] += 1
        return seen

    shares: dict[str, float] = {}
    for y, p in exact.items():
        shares["".join(y[:-1])] = shares.get("".join(y[:-1]), 0.0) + p / total
    has_distribution(asyncio.run(ends()), shares)


def test_weights_of_masks_are_recorded(spelling: EnumerableEngine) -> None:
    strategy, journal = weighing(spelling, 5), CountingJournal()
    first = strategy.cloud(PROMPT, seed=3, journal=journal)
    paid = journal.recorded
    again = strategy.cloud(PROMPT, seed=3, journal=journal)
    assert paid and journal.recorded == paid
    assert [node.sequence for node in again.weights] == [node.sequence for node in first.weights]
    assert list(again.weights.values()) == list(first.weights.values()) and again.levels == first.levels
    resumes(strategy)


def test_what_was_written_before_counts_as_given(spelling: EnumerableEngine) -> None:
    begun = Sequence(PROMPT, "a", logprob=None)

    async def main() -> Cloud:
        return (await weighing(spelling, 50)._clouds(begun, Scope.root("p")))[0]

    cloud = asyncio.run(main())
    assert min(level.effective for level in cloud.levels) < 49, "steps are weighed"


def test_something_has_to_weigh(letters: EnumerableEngine) -> None:
    for params in ({}, {"grammar": SPELLED}, {"grammar": SPELLED, "log_mass": True, "temperature": 0.0}):
        with pytest.raises(
            InputError, match=r"nothing weighs the particles; give a verifier .* log_mass=True"
        ):
            ParticleFilter(letters.generator(**params), 3, answer=WORDS)  # type: ignore[arg-type]  # some fields
    best = weighing(letters, 40, answer=None).solve(PROMPT, seed=1)
    assert re.fullmatch("[ab]{3}b?", best.text) and best.sequence.log_mass is not None


def steps_of(tokens: tuple[str, ...]) -> list[tuple[Sequence, Score | None]]:
    """A sequence as a reference: each letter, and the end."""
    text = "".join(tokens[:-1])
    steps = [(Sequence(PROMPT, text[:t]), Score(value(text[:t]))) for t in range(1, len(text) + 1)]
    last = Score(value(text)) if text else None
    return [*steps, (Sequence(PROMPT, text, finish="eos"), last)]


def written(tree: dict[str, list[str]]) -> FunctionGenerator:
    """Steps by prefix and number; a step that ends in "." is the last."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        texts = tree[prefix.text]
        text = texts[index % len(texts)]
        return Drawn(text, None, 1, finish="eos" if text.endswith(".") else None)

    return FunctionGenerator(write, count=lambda text: 1, max_tokens=1)


def scored(scores: dict[str, float | Score]) -> FunctionVerifier:
    return FunctionVerifier(lambda s: scores[s.text])


STEP = Step("|")


def test_by_hand_who_weighs_all_goes_on_alone() -> None:
    generator = written({"": ["x|", "y|"], "x|": ["1.", "2."], "y|": ["3.", "4."]})
    verifier = scored({"x|": 1.0, "y|": 0.0, "x|1.": 0.4, "x|2.": 0.6})
    cloud = ParticleFilter(generator, 2, verifier=verifier, until=STEP).cloud(PROMPT)
    assert cloud.tree["0.1"].state == "pruned" and not cloud.tree["0.1"].draws, "y is not gone on with"
    assert [level.particles for level in cloud.levels] == [2, 2]
    assert cloud.levels[0].effective == pytest.approx(1.0, abs=1e-6)
    # Odds 2/3 and 3/2.
    low, high = 2 / 3, 3 / 2
    assert cloud.levels[1].effective == pytest.approx((low + high) ** 2 / (low**2 + high**2))
    assert cloud.levels[1].log_mean == pytest.approx(math.log((low + high) / 2))
    shares = {node.sequence.text: weight for node, weight in cloud.weights.items()}
    assert shares == pytest.approx({"x|1.": low / (low + high), "x|2.": high / (low + high)})
    assert cloud.tree.chosen is not None and cloud.tree.chosen.text == "x|2."
    assert cloud.tree.chosen.scores["function"].value == 0.6


def test_equal_draws_are_one_node_and_as_many_particles() -> None:
    generator = written({"": ["x|", "x|", "y|"], "x|": ["1."], "y|": ["2."]})
    verifier = scored({"x|": 0.5, "y|": 0.5, "x|1.": 0.5, "y|2.": 0.5})
    cloud = ParticleFilter(generator, 3, verifier=verifier, until=STEP).cloud(PROMPT)
    first = cloud.levels[0]
    assert (first.particles, first.distinct, first.effective) == (3, 2, pytest.approx(3.0))
    assert sum(node.multiplicity for node in cloud.tree.finished_leaves()) == 3


def test_the_weights_vote_and_an_aggregator_gets_resampled_particles() -> None:
    """One particle that is sure outweighs two that agree; a majority counts it as often as it is drawn."""
    generator = written({"": ["a1.", "b1.", "c2."]})
    verifier = scored({"a1.": 0.2, "b1.": 0.2, "c2.": 0.9})
    answer = FunctionRule(lambda text: text[-2])
    result = ParticleFilter(generator, 3, verifier=verifier, until=STEP, answer=answer).solve(PROMPT)
    assert result.answer is not None and result.answer.key == "2"
    shares = {c.sequence.text: c.value for c in result.candidates}
    assert shares == pytest.approx({"a1.": 0.25 / 9.5, "b1.": 0.25 / 9.5, "c2.": 9 / 9.5})
    counted = ParticleFilter(generator, 3, verifier=verifier, until=STEP, aggregator=Majority(answer)).solve(
        PROMPT
    )
    assert len(counted.candidates) == 3 and counted.text == "c2."


def test_a_finished_particle_takes_part_until_all_have_finished() -> None:
    """With the score of its end at every level (`steps`), or without being weighed again (`final`)."""
    generator = written({"": ["x.", "y|"], "y|": ["z|"], "y|z|": ["w."]})
    verifier = scored({"x.": 0.5, "y|": 0.5, "y|z|": 0.5, "y|z|w.": 0.5})
    for target in ("steps", "final"):
        survived = set()
        for seed in range(30):
            strategy = ParticleFilter(generator, 2, verifier=verifier, until=STEP, target=target)  # type: ignore[arg-type]
            cloud = strategy.cloud(PROMPT, seed=seed)
            assert all(level.particles == 2 for level in cloud.levels)
            survived.add(tuple(sorted(node.sequence.text for node in cloud.weights)))
        assert survived == {("x.",), ("x.", "y|z|w."), ("y|z|w.",)}


def test_what_is_cut_or_has_no_score_weighs_as_if_it_were_wrong() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        return Drawn("abc"[index], None, 1, finish=("length", "eos", "eos")[index])  # type: ignore[arg-type]

    verifier = scored({"a": 1.0, "b": Score(None, verdict="timeout"), "c": 0.01})
    generator = FunctionGenerator(write, count=len, max_tokens=1)
    cloud = ParticleFilter(generator, 3, verifier=verifier, until=STEP).cloud(PROMPT)
    assert cloud.tree.chosen is not None and cloud.tree.chosen.text == "c"
    assert {node.sequence.text: weight > 0.999 for node, weight in cloud.weights.items()} == {
        "a": False,
        "b": False,
        "c": True,
    }


def test_resampling_depends_on_the_particles_and_not_on_their_order() -> None:
    texts = ["p|", "q|", "r|", "s|"]
    scores: dict[str, float | Score] = {"p|": 0.3, "q|": 0.5, "r|": 0.6, "s|": 0.7}
    found = set()
    for shift in range(4):
        order = texts[shift:] + texts[:shift]
        generator = written({"": order, **{t: ["."] for t in texts}})
        verifier = scored({**scores, **{f"{t}.": 0.5 for t in texts}})
        tree = ParticleFilter(generator, 4, verifier=verifier, until=STEP).cloud(PROMPT, seed=1).tree
        found.add(tuple(sorted((node.sequence.text, node.multiplicity) for node in tree.finished_leaves())))
    assert len(found) == 1


def test_one_particle_is_plain_sampling(letters: EnumerableEngine) -> None:
    exact = {"".join(y[:-1]): p for y, p in letters.sequences(max_tokens=LONGEST + 1).items()}

    async def main() -> list[Sequence]:
        return await make(letters, 1).generate(Sequence(PROMPT), n=800, scope=Scope.root("p"))

    has_distribution(Counter(s.text for s in asyncio.run(main())), exact)


def test_steps_are_drawn_once_and_scored_once(letters: EnumerableEngine) -> None:
    result = make(letters, 6).solve(PROMPT)
    drawn = [row for row in result.trace.rows if row.kind == "generate"]
    scores = [row for row in result.trace.rows if row.kind == "score"]
    assert {row.path.rpartition("/")[0] for row in drawn} == {"0/node"}
    assert len({(row.path, row.content) for row in scores}) == len(scores)
    assert result.usage.prefilled == len("?") + len({r.path for r in drawn}) - 1, (
        "of a node's prefix, its children pay for the last token alone"
    )


# -- Gibbs ------------------------------------------------------------------------------------------------


def gibbs(engine: EnumerableEngine, n: int = 3, iterations: int = 3, **options: object) -> ParticleGibbs:
    return ParticleGibbs(
        engine.generator(max_tokens=8), n, verifier=VALUES, iterations=iterations, until=Tokens(1), answer=WORDS,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


def test_one_iteration_is_the_particle_filter(letters: EnumerableEngine) -> None:
    for seed in range(10):
        journal = CountingJournal()
        once = make(letters, 3).solve(PROMPT, seed=seed, journal=journal)
        paid = journal.recorded
        again = gibbs(letters, iterations=1).solve(PROMPT, seed=seed, journal=journal)
        assert journal.recorded == paid
        assert (again.sequence, again.candidates) == (once.sequence, once.candidates)


def test_the_reference_survives_and_costs_nothing(letters: EnumerableEngine) -> None:
    strategy = gibbs(letters, n=2, iterations=4)

    async def main() -> tuple[list[Cloud], Scope]:
        scope = Scope.root("p", seed=2)
        return await strategy._clouds(Sequence(PROMPT), scope), scope

    found, scope = asyncio.run(main())
    assert len(found) == 4
    for before, after in pairwise(found):
        kept = {node.sequence.text for node in before.weights} & {
            node.sequence.text for node in after.weights
        }
        assert kept, "a particle of the filter before is among those of the next"
    for i in range(1, 4):
        first = [r for r in scope.trace.rows if r.path == f"iteration/{i}/node/0" and r.kind == "generate"]
        assert len(first) == 1, "one of two particles is drawn; the other is there"


def test_the_trees_know_what_they_cost(letters: EnumerableEngine) -> None:
    strategy = gibbs(letters, n=3, iterations=2)
    rows = strategy.solve(PROMPT).trace.rows
    last = [row.usage for row in rows if row.path.startswith("0/iteration/1/")]
    cost = [node.cost for node in strategy.tree(PROMPT)]
    assert sum(c.calls for c in cost) == sum(u.calls for u in last) > 0
    once = make(letters, 3)
    assert sum(node.cost.calls for node in once.tree(PROMPT)) == once.solve(PROMPT).usage.calls


def test_all_filters_decide_together(letters: EnumerableEngine) -> None:
    result = gibbs(letters, n=3, iterations=5).solve(PROMPT)
    shares = [c.value for c in result.candidates]
    assert sum(s for s in shares if s is not None) == pytest.approx(1.0)
    totals: Counter[str] = Counter()
    for candidate in result.candidates:
        totals[candidate.key or ""] += candidate.value or 0.0  # type: ignore[assignment]  # shares, not counts
    assert result.answer is not None and totals[result.answer.key or ""] == max(totals.values())


def test_without_an_answer_rule_a_text_has_the_shares_of_all_filters() -> None:
    """Two texts: one is there in every filter, the other weighs more where it is."""
    generator = written({"": ["x.", "y."]})
    verifier = scored({"x.": 0.5, "y.": 0.6})
    strategy = ParticleGibbs(generator, 2, verifier=verifier, iterations=4, until=STEP)
    result = strategy.solve(PROMPT, seed=1)
    texts = [c.sequence.text for c in result.candidates]
    assert len(texts) == len(set(texts)) and sum(c.value or 0.0 for c in result.candidates) == pytest.approx(
        1.0
    )
    shares = {c.sequence.text: c.value or 0.0 for c in result.candidates}
    assert result.text == max(shares, key=shares.__getitem__)


# -- what every search has to survive ---------------------------------------------------------------------


def test_under_every_number_of_calls_the_particles_at_hand_decide(letters: EnumerableEngine) -> None:
    for strategy in (
        make(letters, 3),
        make(letters, 3, aggregator=Majority(WORDS)),
        gibbs(letters, iterations=2),
    ):
        results = survives_every_budget(strategy)
        assert results[0].text == ""
        with_finished = [r for r in results if any(c.sequence.finish == "eos" for c in r.candidates)]
        assert with_finished and all(r.sequence.finish == "eos" for r in with_finished)


def test_a_leaf_that_weighs_nothing_is_taken_if_it_is_all_that_has_ended() -> None:
    """One of two open particles goes on to a value of 1, beside which e^(-1612) is nothing; then tokens end."""
    generator = written({"": ["x.", "y|", "w|"], "y|": ["z|"], "w|": ["z|"]})
    verifier = scored({"x.": 0.0, "y|": 0.0, "w|": 0.0, "y|z|": 1.0, "w|z|": 1.0})
    strategy = ParticleFilter(
        generator, 3, verifier=verifier, until=STEP, temperature=0.02, resampling="systematic",
        aggregator=Majority(FunctionRule(lambda text: text)),
    )  # fmt: skip
    cloud = strategy.cloud(PROMPT, budget=Budget(generated=4))
    assert {node.sequence.text: weight for node, weight in cloud.weights.items()}["x."] == 0.0
    assert cloud.tree.chosen is not None
    assert (cloud.tree.chosen.text, cloud.tree.chosen.exhausted) == ("x.", True)


def test_no_filter_begins_after_the_one_in_which_the_budget_ended(letters: EnumerableEngine) -> None:
    strategy = gibbs(letters, n=3, iterations=3)
    first = make(letters, 3).solve(PROMPT).usage.calls
    for calls in (1, first - 1):
        result = strategy.solve(PROMPT, budget=Budget(calls=calls))
        assert not any("iteration" in row.path for row in result.trace.rows)


def test_tokens_that_run_out_leave_what_there_is(letters: EnumerableEngine) -> None:
    strategy = make(letters, 4)
    free = strategy.solve(PROMPT).usage.generated
    assert free is not None
    for tokens in range(free):
        result = strategy.solve(PROMPT, budget=tokens)
        assert result.exhausted and (result.usage.generated or 0) <= tokens
        assert result.text or tokens < 2 or result.sequence.finish == "eos"


def test_they_resume_in_the_middle(letters: EnumerableEngine) -> None:
    resumes(make(letters, 3))
    resumes(gibbs(letters, n=2, iterations=2))


def test_a_verifier_that_fails_in_the_middle_loses_nothing_that_was_paid_for(
    letters: EnumerableEngine,
) -> None:
    generator = letters.generator(max_tokens=8)
    survives_a_failing_verifier(
        lambda v: ParticleFilter(generator, 2, verifier=v, until=Tokens(1)), lambda s: value(s.text)
    )
    survives_a_failing_verifier(
        lambda v: ParticleGibbs(generator, 2, verifier=v, iterations=2, until=Tokens(1)),
        lambda s: value(s.text),
    )


def test_it_is_cancelled_cleanly() -> None:
    generator = slow(written({"": ["x|"], "x|": ["y|"], "x|y|": ["z."]}))
    is_cancelled_cleanly(ParticleFilter(generator, 3, verifier=FunctionVerifier(lambda s: 0.5), until=STEP))


def test_it_nests_in_best_of_n(letters: EnumerableEngine) -> None:
    result = BestOfN(make(letters, 2), 3, verifier=VALUES).solve(PROMPT)
    assert len(result.candidates) == 3
    assert {row.path.split("/")[2] for row in result.trace.rows if row.kind == "generate"} == {"0", "1", "2"}


def test_what_cannot_work_is_refused_when_it_is_built(letters: EnumerableEngine) -> None:
    for n, options, message in (
        (0, {}, "n=0; expected an integer ≥ 1"),
        (2, {"temperature": 0.0}, "temperature=0.0; expected a number > 0"),
        (2, {"temperature": math.inf}, "expected a finite number > 0"),
        (2, {"target": "last"}, "target='last'; expected one of steps, final"),
        (2, {"resampling": "all"}, "resampling='all'; expected one of multinomial, systematic"),
        (2, {"max_depth": 0}, "max_depth=0"),
        (
            2,
            {"verifier": None, "temperature": 5.0},
            "temperature=5.0 divides scores, and there is no verifier",
        ),
        (2, {"verifier": None, "target": "final"}, "target='final' says which scores count, and there is no"),
        (2, {"verifier": None}, "give a verifier"),
    ):
        with pytest.raises(InputError, match=message):
            make(letters, n, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="iterations=0"):
        gibbs(letters, iterations=0)
    with pytest.raises(InputError, match="n=1; expected an integer ≥ 2"):
        gibbs(letters, n=1)
    with pytest.raises(UnsupportedError):
        ParticleFilter(ReplayGenerator({"p": ["x"]}), 2, verifier=VALUES)


def test_fingerprints_tell_configurations_apart(letters: EnumerableEngine) -> None:
    found = [
        make(letters, 2), make(letters, 3), make(letters, 2, temperature=2.0), make(letters, 2, target="final"),
        make(letters, 2, resampling="systematic"), make(letters, 2, until=Tokens(2)),
        make(letters, 2, aggregator=Majority(WORDS)), gibbs(letters, 2, 2), gibbs(letters, 2, 3),
    ]  # fmt: skip
    assert len({s.fingerprint for s in found}) == len(found)


def test_on_the_embedded_models() -> None:
    task = ArithmeticTask("validation", levels=(3,), per_level=2)
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        generator, verifier = model.generator(max_tokens=160), ProcessRewardModel(judge)
        for strategy in (
            ParticleFilter(generator, 4, verifier=verifier, answer=task.answer),
            ParticleGibbs(generator, 3, verifier=verifier, iterations=2, answer=task.answer),
        ):
            for problem in task.problems():
                result = strategy.solve(problem.prompt)
                assert result.sequence.finish == "eos" and result.answer is not None and result.answer.key
                cloud = strategy.cloud(problem.prompt)
                assert cloud.tree.chosen == result.sequence
                assert all(1.0 - 1e-9 <= level.effective <= strategy.n + 1e-9 for level in cloud.levels)


class TestLaws(StrategyLaws):
    def make(self) -> Strategy:
        return ParticleFilter(numbers(), 4, verifier=first_word, answer=last_word)


class TestLawsOfGibbs(StrategyLaws):
    def make(self) -> Strategy:
        return ParticleGibbs(numbers(), 3, verifier=first_word, iterations=3, answer=last_word)
