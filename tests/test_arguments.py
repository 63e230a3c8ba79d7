"""What newcomers give that is of the wrong kind: every constructor and call says which argument, and what to give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import metagen
from metagen import (
    MBR,
    MCTS,
    BeamSearch,
    BestOfN,
    Chain,
    EarlyStopping,
    EnumerableEngine,
    FunctionGenerator,
    FunctionRule,
    FunctionVerifier,
    JsonlTask,
    MajorityVote,
    MathRule,
    MemoryJournal,
    OracleVerifier,
    Parallel,
    ProcessRewardModel,
    Prompt,
    RayPool,
    Rebase,
    ReplayGenerator,
    Sample,
    SamplingParams,
    Scope,
    SelfRefine,
    Sequence,
    SQLiteJournal,
    Step,
    Tokens,
    TorchEngine,
)
from metagen.errors import InputError
from metagen.generators.base import MOST
from metagen.generators.likelihood import likelihoods
from metagen.generators.primitive import EngineGenerator
from metagen.strategies.aggregators import Majority
from metagen.strategies.base import wait
from metagen.strategies.chain.typed import Typed
from metagen.strategies.parallel import BordaVote, PessimisticBestOfN, RankedVote, SoftBestOfN
from metagen.strategies.stop_when import StopWhen
from metagen.verifiers.utility.exact import ExactAnswer

ENGINE: Any = EnumerableEngine(["a", "</s>"], lambda prompt, done: [0.5, 0.5], name="even")
G: Any = FunctionGenerator(lambda prefix, seed, i: "1")
RULE: Any = MathRule()
V: Any = FunctionVerifier(lambda y: 0.5)
VOTE: Any = MajorityVote(G, 2, answer=RULE)
ANY: Any = None


def of(make: Any, *given: Any, **named: Any) -> Callable[[], object]:
    return lambda: make(*given, **named)


CASES = [
    (
        of(MajorityVote, "gpt-4o"),
        "MajorityVote: generator='gpt-4o'; expected a Generator; give engine.generator()",
    ),
    (of(MajorityVote, ENGINE, 8, answer=RULE), "it is an engine: give engine.generator()"),
    (of(MajorityVote, FunctionGenerator, 8, answer=RULE), "the class FunctionGenerator.*make one"),
    (of(MajorityVote, lambda prompt: "", 8, answer=RULE), "give FunctionGenerator"),
    (of(MajorityVote, None, 8, answer=RULE), "generator=None"),
    (of(MajorityVote, G, 8, answer=lambda text: text), "answer=the function <lambda>.*give FunctionRule"),
    (of(MajorityVote, G, 8, answer="math"), "answer='math'; expected an AnswerRule; give MathRule"),
    (of(MajorityVote, G, 8, answer=MathRule), "answer=the class MathRule.*make one, MathRule"),
    (of(MajorityVote, G, 8, answer=None), "answer=None"),
    (of(MajorityVote, G, answer=RULE), "n missing; it takes generator"),
    (of(MajorityVote, G, 8, RULE), "too many positional arguments; it takes.*; give answer by name$"),
    (of(MajorityVote, G, 8, anwser=RULE), "'anwser'; did you mean 'answer'"),
    (of(MajorityVote, G, "8", answer=RULE), "n='8'"),
    (of(MajorityVote, G, True, answer=RULE), "n=True"),
    (of(MajorityVote, G, 8.0, answer=RULE), "n=8.0"),
    (of(MajorityVote, G, 10**20, answer=RULE), "n=100000000000000000000; expected at most 1,000,000"),
    (of(BeamSearch, G, 10**20, verifier=V), "expected at most 1,000,000|cannot stop"),
    (of(BestOfN, G, 8, verifier=lambda y: 1.0), "BestOfN: verifier=the function.*give FunctionVerifier"),
    (of(BestOfN, G, 8, verifier="prm"), "verifier='prm'; expected a Verifier; give ProcessRewardModel"),
    (of(BestOfN, G, 8, verifier=OracleVerifier), "the class OracleVerifier"),
    (of(BestOfN, G, 8, verifier=RULE), "expected a Verifier"),
    (of(SamplingParams, temperature="hot"), "temperature='hot'"),
    (of(SamplingParams, temprature=1.0), "did you mean 'temperature'"),
    (of(SamplingParams, max_tokens=100_000_000), "max_tokens=100000000: expected at most 1,000,000"),
    (of(EngineGenerator, "tiny-0.5m"), "engine='tiny-0.5m'; expected an Engine; give TorchEngine"),
    (of(EngineGenerator, TorchEngine), "the class TorchEngine"),
    (of(EngineGenerator, ENGINE, {"temperature": 1}), "give SamplingParams"),
    (of(ProcessRewardModel, "tiny-prm"), "engine='tiny-prm'; expected an Engine"),
    (of(TorchEngine, 3), "TorchEngine: model=3"),
    (of(TorchEngine, "tiny-0.1m", max_batch="8"), "max_batch='8'"),
    (of(RayPool, "x", {}), "make='x'; expected a function"),
    (of(FunctionGenerator, "x"), "function='x'; expected a function"),
    (of(FunctionVerifier, 0.5), "function=0.5"),
    (of(FunctionRule, None), "read=None"),
    (of(MBR, G, 4, utility="bleu"), "utility='bleu'; expected an Utility"),
    (of(MBR, G, 4, utility=lambda a, b: 1.0), "give FunctionUtility"),
    (of(ExactAnswer, "x"), "answer='x'"),
    (of(Rebase, ENGINE, 4, verifier=V), "it is an engine"),
    (of(MCTS, ENGINE, 4, verifier="x"), "MCTS: (generator|verifier)="),
    (of(SoftBestOfN, G, 4, verifier=V, beta="x"), "beta='x'; expected a number"),
    (of(SoftBestOfN, G, 4, verifier=V, beta=math.nan), "beta=nan"),
    (
        of(PessimisticBestOfN, G, 4, verifiers=["a", "b"]),
        r"verifiers=\['a', 'b'\]; expected a list, each a Verifier",
    ),
    (of(BordaVote, G, 4, verifier=V, answer=RULE, power="2"), "power='2'"),
    (of(RankedVote, G, 4, answer=RULE, ballot="x"), "ballot='x'; expected a function"),
    (of(EarlyStopping, G, 4, answer=RULE, window="x"), "window='x'"),
    (of(Parallel, G, 4, Majority), "the class Majority"),
    (of(Sample, "x"), "Sample: generator='x'"),
    (of(SelfRefine, "x"), "generator='x'"),
    (of(StopWhen, G, 3, name="x"), "stops=3"),
    (of(Chain, "x"), "steps='x'"),
    (of(Typed, G, "x"), "Typed: "),
    (of(Step, 3), "delimiter=3"),
    (of(Tokens, "3"), "count='3'"),
    (of(Prompt, 3, text="x"), "problem_id=3"),
    (of(JsonlTask, 3), "path=3"),
    (of(ReplayGenerator, 3), "pool=3"),
    (of(SQLiteJournal, 3), "path=3"),
    (of(VOTE.solve), "prompt missing"),
    (of(VOTE.solve, None), "prompt=None"),
    (of(VOTE.solve, {"role": "user", "content": "x"}), "prompt={"),
    (of(VOTE.solve, [{"role": "user", "content": None}]), "message holds None"),
    (
        of(VOTE.solve, "x", budget="1000"),
        "budget='1000'; expected a Budget or an integer.*give {'generated': 4000}",
    ),
    (of(VOTE.solve, "x", budget=1000.5), "budget=1000.5"),
    (of(VOTE.solve, "x", budget=True), "budget=True"),
    (of(VOTE.solve, "x", seed=None), "seed=None; expected an integer"),
    (of(VOTE.solve, "x", seed="a"), "seed='a'"),
    (
        of(VOTE.solve, "x", journal="a.sqlite"),
        r"journal='a.sqlite'; expected a Journal or None; give SQLiteJournal\(",
    ),
    (of(VOTE.solve, "x", journal=MemoryJournal), "the class MemoryJournal; .*make one"),
    (of(VOTE.solve, "x", emit="x"), "emit='x'; expected a function"),
    (
        lambda: wait(G.generate("x", scope=Scope.root())),
        r"prefix='x'; expected a Sequence; give Sequence.of\(",
    ),
    (lambda: wait(VOTE.generate(Sequence.of("x"), scope=ANY)), "scope=None; expected a Scope"),
    (
        lambda: wait(V.score(["x"], scope=Scope.root())),
        r"sequences=\['x'\]; expected a list, each a Sequence",
    ),
    (lambda: wait(RULE.read(["x"])), r"MathRule.read: sequences=\['x'\]"),
    (of(Scope.root, "x", budget="3"), "budget=.3.; expected a Budget or an integer"),
    (lambda: Scope.root("x").child(ANY or 3), "role=3"),
    (of(likelihoods, "x", ["a"]), "engine='x'"),
]


@pytest.mark.parametrize(("make", "words"), CASES, ids=[words for _, words in CASES])
def test_it_says_which_argument_and_what_to_give(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "object has no attribute" not in str(caught.value)


def test_what_fits_is_taken_as_it_is() -> None:
    assert MajorityVote(G, MOST, answer=RULE).n == MOST
    assert VOTE.solve("x", budget={"calls": 1}, seed=2**70, journal=MemoryJournal()).answer.key == "1"
    assert SamplingParams(temperature=1).temperature == 1
    assert Chain({"a": metagen.Ask(G, "x")}).solve("x").text
