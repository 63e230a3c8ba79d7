"""Blockwise decoding: its exact policy, the identities with best-of-n and with sampling, streaming, budgets."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from metagen.analysis.alignment import kl_bound
from metagen.budget import Budget
from metagen.errors import InputError, MetagenError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence, Step, Tokens, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, Sample
from metagen.strategies.tree.blockwise import Blockwise
from metagen.strategies.tree.split import Split
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.recorded import RecordedVerifier
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

LONGEST = 4


def table(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
    """Up to four letters; what comes next depends on the last one."""
    if len(done) == LONGEST:
        return 0.0, 0.0, 1.0
    return {(): (0.5, 0.3, 0.2), ("a",): (0.2, 0.6, 0.2), ("b",): (0.5, 0.25, 0.25)}[done[-1:]]


def values(sequence: Sequence) -> float:
    """Prefers many a's among few letters; some texts tie."""
    return (1 + sequence.text.count("a")) / (2 + len(sequence.text))


@pytest.fixture(scope="module")
def letters() -> Iterator[EnumerableEngine]:
    with EnumerableEngine("ab$", table, name="letters") as engine:
        yield engine


VALUES = FunctionVerifier(values, name="share of a")


def policy(engine: EnumerableEngine, n: int, block: int) -> dict[str, float]:
    """The exact distribution of the texts that blockwise decoding ends with.

    Among n i.i.d. blocks the one with the highest (value, digest) wins; F(z)^n - F⁻(z)^n, where equal texts, one
    ended and one not, share in proportion to their probability.
    """
    ends: dict[str, float] = {}
    open_: dict[tuple[str, ...], float] = {(): 1.0}
    while open_:
        after: dict[tuple[str, ...], float] = {}
        for done, mass in open_.items():
            blocks = [(done, 1.0, False)]
            for _ in range(block):
                blocks = [
                    (d, m, True) if over else ((*d, t) if t != "$" else d, m * p, t == "$")
                    for d, m, over in blocks
                    for t, p in (
                        [("", 1.0)] if over else zip("ab$", engine.probabilities("?", d), strict=True)
                    )
                    if p > 0
                ]
            classes: dict[str, float] = {}
            for d, m, _ in blocks:
                classes["".join(d)] = classes.get("".join(d), 0.0) + m
            salt = PROMPT.digest.hex()
            order = sorted(classes, key=lambda t: (values(Sequence(PROMPT, t)), digest(salt, t)))
            below, won = 0.0, {}
            for text in order:
                won[text] = (below + classes[text]) ** n - below**n
                below += classes[text]
            for d, m, over in blocks:
                share = mass * won["".join(d)] * m / classes["".join(d)]
                if over:
                    ends["".join(d)] = ends.get("".join(d), 0.0) + share
                else:
                    after[d] = after.get(d, 0.0) + share
        open_ = after
    return ends


def draws(strategy: Strategy, n: int) -> list[Sequence]:
    async def main() -> list[Sequence]:
        return await strategy.generate(Sequence(PROMPT), n=n, scope=Scope.root("p"))

    return asyncio.run(main())


@pytest.mark.parametrize(("n", "block"), [(2, 1), (3, 2), (4, LONGEST + 1)])
def test_its_policy_is_the_exact_one(letters: EnumerableEngine, n: int, block: int) -> None:
    drawn = draws(Blockwise(letters.generator(max_tokens=8), n, verifier=VALUES, block=block), 800)
    assert {s.finish for s in drawn} == {"eos"}
    exact = policy(letters, n, block)
    assert sum(exact.values()) == pytest.approx(1.0)
    has_distribution(Counter(s.text for s in drawn), exact)


@pytest.mark.parametrize(("n", "block"), [(2, 1), (4, 1), (3, 2), (4, LONGEST + 1)])
def test_it_stays_within_its_bound_of_the_generator(letters: EnumerableEngine, n: int, block: int) -> None:
    chosen, plain = policy(letters, n, block), policy(letters, 1, block)
    kl = sum(p * math.log(p / plain[text]) for text, p in chosen.items() if p)
    # A block that holds the end token alone is a block as well.
    blocks = sum(p * math.ceil((len(text) + 1) / block) for text, p in chosen.items())
    assert 0 < kl <= kl_bound(n, blocks)


def test_one_block_is_best_of_n(letters: EnumerableEngine) -> None:
    """On equal seeds: the same samples, scores and choice, so that the second of them pays for nothing."""
    generator = letters.generator(max_tokens=8)
    for seed in range(20):
        journal = CountingJournal()
        best = BestOfN(generator, 5, verifier=VALUES).solve(PROMPT, seed=seed, journal=journal)
        paid = journal.recorded
        blockwise = Blockwise(generator, 5, verifier=VALUES).solve(PROMPT, seed=seed, journal=journal)
        assert journal.recorded == paid
        assert (blockwise.sequence, blockwise.candidates) == (best.sequence, best.candidates)


def test_rewards_that_a_map_makes_equal_are_told_apart_as_by_best_of_n(letters: EnumerableEngine) -> None:
    def reward(sequence: Sequence) -> Score:
        raw = 38.0 + sequence.text.count("a") + len(sequence.text) / 10
        return Score(1.0, raw=raw)

    judge, generator = FunctionVerifier(reward, name="large rewards"), letters.generator(max_tokens=8)
    for seed in range(10):
        best = BestOfN(generator, 5, verifier=judge).solve(PROMPT, seed=seed)
        assert Blockwise(generator, 5, verifier=judge).solve(PROMPT, seed=seed).text == best.text


def test_one_candidate_is_plain_sampling(letters: EnumerableEngine) -> None:
    generator = letters.generator(max_tokens=8)
    exact = {"".join(k[:-1]): p for k, p in letters.sequences(max_tokens=LONGEST + 1).items()}
    drawn = draws(Blockwise(generator, 1, verifier=VALUES, block=2), 800)
    has_distribution(Counter(s.text for s in drawn), exact)
    # In one block it is the very sample.
    assert Blockwise(generator, 1, verifier=VALUES).solve(PROMPT).text == Sample(generator).solve(PROMPT).text


def test_each_block_is_streamed_when_it_is_committed_to(letters: EnumerableEngine) -> None:
    heard: list[Sequence] = []
    strategy = Blockwise(letters.generator(max_tokens=8), 3, verifier=VALUES, block=Tokens(1))
    result = strategy.solve(PROMPT, seed=5, emit=heard.append)
    assert len(heard) >= 3 and heard[-1] == result.sequence
    assert all(after.extends(before) for before, after in pairwise(heard))
    assert result.sequence.scores["share of a"].value == values(result.sequence)
    paths = {row.path for row in result.trace.rows}
    assert {"0/sample", "0/score", "0/block/1/sample", "0/block/1/score"} <= paths


def written(*blocks: tuple[str, ...]) -> FunctionGenerator:
    """Candidates by block; a text that ends in "." has ended, one in "…" is cut within its step."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        text = blocks[prefix.text.count("|")][index]
        return Drawn(
            text, None, len(text), finish="eos" if text.endswith(".") else None, cut=text.endswith("…")
        )

    return FunctionGenerator(write, count=len, max_tokens=8)


def scored(**by_end: float) -> FunctionVerifier:
    return FunctionVerifier(lambda s: by_end[s.text[-2]])


def test_by_hand_the_best_of_each_block_is_continued() -> None:
    generator = written(("x|", "y|", "z|"), ("p|", "q|", "r|"), ("u.", "v.", "w."))
    verifier = scored(x=0.1, y=0.8, z=0.5, p=0.9, q=0.2, r=0.3, u=0.1, v=0.2, w=0.3)
    result = Blockwise(generator, 3, verifier=verifier, block=Step("|")).solve(PROMPT)
    assert result.text == "y|p|w." and not result.exhausted
    assert result.usage.calls == 18


def test_blocks_may_end_where_a_function_says() -> None:
    generator = written(("x|y", "z|"), ("a|", "b|"), ("u.", "v."))
    verifier = FunctionVerifier(lambda s: {"|y": 0.9, "z|": 0.1, "a|": 0.2, "b|": 0.8}.get(s.text[-2:], 0.5))
    bars = Split(lambda text: text.find("|") + 1 or None, "bars", 4)
    result = Blockwise(generator, 2, verifier=verifier, block=bars).solve(PROMPT)
    assert result.text.startswith("x|yb|") and result.sequence.steps == (2, 5)


def test_an_end_that_adds_nothing_is_not_scored_again() -> None:
    seen: list[str] = []
    steps = {"": ["a;", "b;"], "a;": ["", "c."]}

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        text = steps[prefix.text][index]
        return Drawn(text, None, 1, finish=None if text.endswith(";") else "eos")

    def look(sequence: Sequence) -> float:
        seen.append(sequence.text)
        return {"a;": 0.8, "b;": 0.2, "a;c.": 0.1}[sequence.text]

    generator = FunctionGenerator(write, count=lambda text: 1, max_tokens=1)
    result = Blockwise(generator, 2, verifier=FunctionVerifier(look), block=Step(";")).solve(PROMPT)
    assert (result.text, result.sequence.finish) == ("a;", "eos")
    assert result.sequence.scores["function"].value == 0.8 and sorted(seen) == ["a;", "a;c.", "b;"]


def test_what_breaks_off_or_has_no_answer_loses_to_what_goes_on_and_to_what_has_ended_well() -> None:
    verifier = FunctionVerifier(lambda s: {"x": 0.9, "y": 0.2, "z": 0.1}[s.text[-2]])
    for texts, chosen in ((("x…", "y|"), "y|z."), (("x…", "y."), "y."), (("x.", "y|"), "x.")):
        generator = written(texts, ("z.", "z."))
        assert Blockwise(generator, 2, verifier=verifier, block=Step("|")).solve(PROMPT).text == chosen
    # The last word of "a 3" is an answer; an empty text has none.
    generator = FunctionGenerator(lambda p, s, i: ("", "a 3")[i])
    sure = FunctionVerifier(lambda s: float(not s.text))
    result = Blockwise(generator, 2, verifier=sure, answer=last_word).solve(PROMPT)
    assert result.text == "a 3" and result.answer is not None and result.answer.key == "3"


def test_verdicts_instead_of_values_lose() -> None:
    verifier = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text == "x." else 0.0)
    assert Blockwise(written(("x.", "y.")), 2, verifier=verifier).solve(PROMPT).text == "y."


def test_blocks_need_a_verifier_of_beginnings(letters: EnumerableEngine) -> None:
    generator, whole = letters.generator(max_tokens=8), RecordedVerifier("reward")
    with pytest.raises(
        UnsupportedError, match="Blockwise needs scores of steps; 'reward' scores whole solutions only"
    ):
        Blockwise(generator, 2, verifier=whole, block=2)
    assert Blockwise(generator, 2, verifier=whole).n == 2  # one block is the whole
    for block in (2, None):
        with pytest.raises(InputError, match="give ProcessRewardModel"):
            Blockwise(generator, 2, verifier=None, block=block)  # type: ignore[arg-type]  # that is the fault


def test_a_block_of_nothing_is_an_error_and_no_endless_loop() -> None:
    silent = FunctionGenerator(lambda p, s, i: Drawn("", None, 0))
    with pytest.raises(MetagenError, match="wrote nothing for block 0"):
        Blockwise(silent, 2, verifier=VALUES, block=4).solve(PROMPT)


def test_under_every_number_of_calls_what_was_streamed_stands(letters: EnumerableEngine) -> None:
    strategy = Blockwise(letters.generator(max_tokens=8), 3, verifier=VALUES, block=1)
    results = survives_every_budget(strategy)
    assert results[0].text == ""
    for calls in range(len(results)):
        heard: list[Sequence] = []
        result = strategy.solve(PROMPT, budget=Budget(calls=calls), emit=heard.append)
        assert not heard or result.text == heard[-1].text


def test_when_calls_end_within_a_block_its_candidates_at_hand_decide() -> None:
    generator = written(("x|", "y|", "z|"), ("p|", "q|", "r|"), ("u.", "v.", "w."))
    verifier = scored(x=0.1, y=0.8, z=0.5, p=0.1, q=0.2, r=0.3, u=0.1, v=0.2, w=0.3)
    strategy = Blockwise(generator, 3, verifier=verifier, block=Step("|"))
    results = survives_every_budget(strategy)
    # Three calls draw a block; of its scores the first come first. What nobody scored is any of those drawn.
    assert [r.text for r in results[4:8]] == ["x|", "y|", "y|", "y|p|"]
    assert {r.text for r in results[1:4]} <= {"x|", "y|", "z|"}
    assert [r.text for r in results[10:13]] == ["y|p|", "y|q|", "y|r|"]
    assert results[18].text == "y|r|w."


def test_tokens_that_run_out_leave_the_best_of_what_there_is(letters: EnumerableEngine) -> None:
    strategy = Blockwise(letters.generator(max_tokens=8), 4, verifier=VALUES, block=2)
    free = strategy.solve(PROMPT).usage.generated
    assert free is not None
    for tokens in range(free):
        result = strategy.solve(PROMPT, budget=tokens)
        assert result.exhausted and (result.usage.generated or 0) <= tokens


def test_it_resumes_in_the_middle(letters: EnumerableEngine) -> None:
    resumes(Blockwise(letters.generator(max_tokens=8), 3, verifier=VALUES, block=1))


def test_a_verifier_that_fails_in_the_middle_loses_nothing_that_was_paid_for(
    letters: EnumerableEngine,
) -> None:
    generator = letters.generator(max_tokens=8)
    survives_a_failing_verifier(lambda v: Blockwise(generator, 2, verifier=v, block=1), values)


def test_it_is_cancelled_cleanly() -> None:
    generator = slow(written(("x|", "y|"), ("p|", "q|"), ("u.", "v.")))
    is_cancelled_cleanly(Blockwise(generator, 2, verifier=FunctionVerifier(lambda s: 0.5), block=Step("|")))


def test_it_nests_in_best_of_n_and_best_of_n_in_it(letters: EnumerableEngine) -> None:
    inner = Blockwise(letters.generator(max_tokens=8), 2, verifier=VALUES, block=1)
    outer = BestOfN(inner, 3, verifier=VALUES).solve(PROMPT)
    assert len(outer.candidates) == 3
    assert outer.sequence.scores["share of a"].value == max(c.value or 0 for c in outer.candidates)
    reverse = Blockwise(BestOfN(letters.generator(max_tokens=8), 2, verifier=VALUES), 2, verifier=VALUES)
    assert reverse.solve(PROMPT).text
    with pytest.raises(UnsupportedError, match="cannot stop at the end of a step"):
        Blockwise(BestOfN(numbers(), 2, verifier=VALUES), 2, verifier=VALUES, block=Tokens(4))


def test_what_cannot_work_is_refused_when_it_is_built() -> None:
    with pytest.raises(InputError, match="n=0; expected an integer ≥ 1"):
        Blockwise(numbers(), 0, verifier=VALUES)
    with pytest.raises(InputError, match="block=0; expected a Step or a Tokens or a Split or an integer ≥ 1"):
        Blockwise(numbers(), 2, verifier=VALUES, block=0)
    with pytest.raises(InputError, match=r"block=.*; expected a Step"):
        Blockwise(numbers(), 2, verifier=VALUES, block="|")  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(UnsupportedError, match="cannot continue a partial sequence"):
        Blockwise(ReplayGenerator({"p": ["x"]}), 2, verifier=VALUES, block=3)
    beams = numbers()
    beams.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        Blockwise(beams, 2, verifier=VALUES)
    assert not Blockwise(ReplayGenerator({"p": ["x"]}), 1, verifier=VALUES).accepts_prefix


def test_fingerprints_tell_configurations_apart() -> None:
    def make(n: int = 2, block: Until | int = 3, verifier: FunctionVerifier = VALUES) -> str:
        return Blockwise(numbers(), n, verifier=verifier, block=block).fingerprint

    others = [
        make(),
        make(n=3),
        make(block=4),
        make(block=Step()),
        make(block=None),
        make(verifier=first_word),
    ]
    assert len(set(others)) == len(others) and make(block=Tokens(3)) == make(block=3)


def test_on_the_embedded_models_steps_are_chosen_by_the_process_reward_model() -> None:
    task = ArithmeticTask("validation", levels=(3,), per_level=2)
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        verifier = ProcessRewardModel(judge)
        generator = model.generator(max_tokens=160)
        strategy = Blockwise(generator, 4, verifier=verifier, block=Step(task.delimiter), answer=task.answer)
        for problem in task.problems():
            heard: list[Sequence] = []
            result = strategy.solve(problem.prompt, emit=heard.append)
            assert result.sequence.finish == "eos" and result.answer is not None and result.answer.key
            assert [len(s.steps) for s in heard[:-1]] == list(range(1, len(heard)))
            # The prompt is read once, and each block costs its own tokens, but for the last one of its prefix.
            usage = [r.usage for r in result.trace.rows if r.kind == "generate"]
            assert sum(u.prefilled or 0 for u in usage) <= len(model.render(Sequence(problem.prompt))) + len(
                heard
            )


class TestLaws(StrategyLaws):
    prompt = Prompt("law", text="A prompt.")

    def make(self) -> Strategy:
        return Blockwise(numbers(), 3, verifier=first_word, answer=last_word)


class TestLawsOfBlocks(StrategyLaws):
    make_block: Callable[[], Until] = staticmethod(lambda: Tokens(2))

    def make(self) -> Strategy:
        return Blockwise(numbers(), 2, verifier=first_word, block=self.make_block())
