"""What others plug in, and get wrong: the message names the object, the method, what came and what was expected."""

from __future__ import annotations

import asyncio
import math
import traceback
from collections import abc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metagen
from metagen import (
    Aggregator,
    Answer,
    AnswerRule,
    BestOfN,
    EnumerableEngine,
    FunctionGenerator,
    FunctionRule,
    FunctionVerifier,
    Generator,
    MajorityVote,
    MathRule,
    OracleVerifier,
    Parallel,
    Problem,
    Prompt,
    Scope,
    Score,
    Sequence,
    Strategy,
    Task,
    Tokens,
    Tool,
    Verifier,
)
from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, DataError, InputError, MetagenError, PluginError
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest
from metagen.generators.primitive import EngineGenerator, Primitive
from metagen.sequence import Until
from metagen.strategies.adaptive.stopping import StoppingRule
from metagen.strategies.aggregate import Selection
from metagen.strategies.aggregators import Majority
from metagen.strategies.candidates import Candidate
from metagen.strategies.mixture import MixtureOfAgents
from metagen.strategies.parallel import RankedVote
from metagen.strategies.stop_when import StopWhen
from metagen.verifiers.base import PrimitiveVerifier
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.embedding import EmbeddingCosine, FunctionEmbedder
from metagen.verifiers.utility.pairs import FunctionUtility

HERE = "test_border.py"
WRITER = FunctionGenerator(lambda prefix, seed, i: f"A: {i % 3}", name="writer")
RULE = FunctionRule(lambda text: text.partition("A: ")[2] or None, name="rule")


class Writes(Generator):
    """Returns whatever it is made with, or calls it."""

    def __init__(self, made: Callable[[Sequence, int], Any]) -> None:
        self.made = made

    @property
    def fingerprint(self) -> str:
        return "writes"

    async def generate(
        self, prefix: Sequence, *, n: int = 1, start: int = 0, until: Until = None, scope: Scope
    ) -> list[Sequence]:
        return self.made(prefix, n)  # type: ignore[no-any-return]


class Scores(Verifier):
    name = "scores"

    def __init__(self, made: Callable[[abc.Sequence[Sequence]], Any]) -> None:
        self.made = made

    @property
    def fingerprint(self) -> str:
        return "scores"

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        return self.made(sequences)  # type: ignore[no-any-return]


class Reads(AnswerRule):
    def __init__(self, made: Callable[[abc.Sequence[Sequence]], Any], key: Any = "1") -> None:
        self.made, self.one = made, key

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return self.made(sequences)  # type: ignore[no-any-return]

    async def key(self, answer: str) -> str | None:
        return self.one  # type: ignore[no-any-return]


class Runs(Strategy):
    def __init__(self, made: Callable[[Sequence, Scope], Awaitable[Any]]) -> None:
        self.made = made

    @property
    def fingerprint(self) -> str:
        return "runs"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        return await self.made(prefix, scope)  # type: ignore[no-any-return]


class Chooses(Aggregator):
    def __init__(self, made: Any) -> None:
        self.made = made

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        return self.made  # type: ignore[no-any-return]


class Compares(Utility):
    def __init__(self, made: Any) -> None:
        self.made = made

    @property
    def fingerprint(self) -> str:
        return "compares"

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Any:
        return self.made


def refused(work: Callable[[], object], *words: str) -> PluginError:
    """The error of a plug-in: of the user, and with these words."""
    with pytest.raises(PluginError) as caught:
        work()
    message = str(caught.value)
    for word in (HERE, *words):
        assert word in message, message
    assert isinstance(caught.value, InputError)
    return caught.value


def best(verifier: Verifier) -> Callable[[], object]:
    return lambda: BestOfN(WRITER, 3, verifier=verifier).solve("Q")


def vote(rule: AnswerRule) -> Callable[[], object]:
    return lambda: MajorityVote(WRITER, 3, answer=rule).solve("Q")


def boom(*_: object) -> Any:
    raise KeyError("boom")


# -- what is returned ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda prefix, n: None, ["Writes.generate", "returned None", "expected a list, each a Sequence"]),
        (lambda prefix, n: ["text"] * n, ["Writes.generate", "'text'", "expected a list, each a Sequence"]),
        (lambda prefix, n: [], ["Writes.generate", "expected n=3", "there are 0"]),
        (lambda prefix, n: [prefix.extend("a", finish="eos")], ["expected n=3", "there are 1", "exhausted"]),
        (lambda prefix, n: [prefix.extend("a", finish="eos")] * 9, ["expected n=3", "there are 9"]),
        (lambda prefix, n: [Sequence.of("other").extend("a", finish="eos")] * n, ["does not extend"]),
        (boom, ["Writes.generate", "raised KeyError: 'boom'"]),
    ],
)
def test_a_generator(made: Callable[[Sequence, int], Any], words: list[str]) -> None:
    refused(lambda: MajorityVote(Writes(made), 3, answer=RULE).solve("Q"), *words)


def test_a_generator_may_fall_short_where_it_says_that_a_budget_ended() -> None:
    from dataclasses import replace

    generator = Writes(lambda prefix, n: [replace(prefix.extend("A: 1", finish="length"), exhausted=True)])
    assert len(MajorityVote(generator, 3, answer=RULE).solve("Q").candidates) == 1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda ys: None, ["Scores.score", "returned None", "expected a list, each a Score"]),
        (lambda ys: [0.5] * len(ys), ["Scores.score", "0.5", "expected a list, each a Score"]),
        (lambda ys: [Score(0.5)], ["Scores.score", "1", "for 3 sequences"]),
        (boom, ["Scores.score", "raised KeyError: 'boom'"]),
    ],
)
def test_a_verifier(made: Callable[[abc.Sequence[Sequence]], Any], words: list[str]) -> None:
    refused(best(Scores(made)), *words)


def test_a_primitive_verifier_and_a_primitive_generator() -> None:
    class Evaluates(PrimitiveVerifier):
        outcomes: Any = None

        @property
        def fingerprint(self) -> str:
            return "evaluates"

        async def evaluate(
            self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended
        ) -> list[Outcome]:
            return self.outcomes  # type: ignore[no-any-return]

        def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
            return Usage(calls=len(sequences))

    class Draws(Primitive):
        @property
        def fingerprint(self) -> str:
            return "draws"

        async def sample(self, *given: Any) -> list[Outcome]:
            return [Outcome({"text": "A: 1", "finish": "eos"}, Usage())]

        def worst(self, *given: Any) -> Any:
            return 8

    refused(best(Evaluates()), "Evaluates.evaluate", "returned None", "expected a list, each an Outcome")
    few = Evaluates()
    few.outcomes = [Outcome({"value": 0.5}, Usage())]
    refused(best(few), "Evaluates.evaluate", "for 3 sequences")
    refused(lambda: MajorityVote(Draws(), 3, answer=RULE).solve("Q"), "Draws.sample", "for 3 items")
    limited = MajorityVote(Draws(), 1, answer=RULE)
    refused(lambda: limited.solve("Q", budget={"calls": 3}), "Draws.worst", "returned 8", "Usage")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Reads(lambda ys: None), ["Reads.read", "returned None", "expected a list, each an Answer"]),
        (Reads(lambda ys: ["1"] * len(ys)), ["Reads.read", "'1'", "expected a list, each an Answer"]),
        (Reads(lambda ys: [Answer("1", "1")]), ["Reads.read", "for 3 sequences"]),
        (Reads(boom), ["Reads.read", "raised KeyError: 'boom'"]),
    ],
)
def test_an_answer_rule(rule: AnswerRule, words: list[str]) -> None:
    refused(vote(rule), *words)


def test_an_answer_rules_key() -> None:
    rule = Reads(lambda ys: [Answer("1", "1") for _ in ys], key=1)
    ranked = RankedVote(WRITER, 2, answer=rule, ballot=lambda text: [text])
    refused(lambda: ranked.solve("Q"), "Reads.key", "returned 1", "a text or None")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("text", ["Runs.run", "returned 'text'", "expected a Sequence"]),
        (None, ["Runs.run", "returned None", "expected a Sequence"]),
    ],
)
def test_a_strategy(made: Any, words: list[str]) -> None:
    async def run(prefix: Sequence, scope: Scope) -> Any:
        return made

    refused(lambda: Runs(run).solve("Q"), *words)


def test_a_strategy_that_forgets_its_prefix_or_a_scopes_rules() -> None:
    async def other(prefix: Sequence, scope: Scope) -> Sequence:
        return Sequence.of("something else").extend("a")

    async def twice(prefix: Sequence, scope: Scope) -> Sequence:
        scope.child("sample")
        scope.child("sample")
        return prefix

    refused(lambda: Runs(other).solve("Q"), "Runs.run", "does not extend its prefix")
    refused(lambda: Runs(twice).solve("Q"), "Runs.run", "already has a child 'sample'")


def test_what_is_not_awaited_and_what_is_not_async() -> None:
    class Forgets(Runs):
        async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
            return WRITER.generate(prefix, scope=scope)  # type: ignore[return-value]

    class Plain(Scores):
        def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:  # type: ignore[override]
            return [Score(0.5) for _ in sequences]

    async def nothing(prefix: Sequence, scope: Scope) -> None: ...

    error = refused(lambda: Forgets(nothing).solve("Q"), "Forgets.run", "coroutine", "await")
    assert "never awaited" in str(error)
    refused(best(Plain(lambda ys: ys)), "Plain.score", "async def")


def test_an_aggregator_a_utility_and_a_stopping_rule() -> None:
    for wrong in (None, 0):
        work = Parallel(WRITER, 2, Chooses(wrong))
        refused(
            lambda work=work: work.solve("Q"), "Chooses.choose", f"returned {wrong}", "expected a Selection"
        )  # type: ignore[misc]
    refused(
        lambda: Parallel(WRITER, 2, Chooses(Selection(7, {}))).solve("Q"),
        "Chooses.choose",
        "7",
        "2 candidates",
    )
    mbr = metagen.MBR(WRITER, 3, utility=Compares(None))
    refused(lambda: mbr.solve("Q"), "Compares.matrix", "returned None", "array")
    shaped = metagen.MBR(WRITER, 3, utility=Compares(np.ones((2, 2))))
    refused(lambda: shaped.solve("Q"), "Compares.matrix", "(2, 2)", "(3, 3)")


def test_a_task() -> None:
    class Asks(Task):
        grades: Any = (math.nan,)
        asked: Any = (Problem(Prompt("p", text="Q"), "1"),)

        @property
        def answer(self) -> AnswerRule:
            return RULE

        def problems(self) -> Iterator[Problem]:
            yield from self.asked

        async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
            return list(self.grades)

    task, done = Asks(), [Sequence.of("Q").extend("A: 1")]
    problem = next(task.problems())
    (unknown,) = asyncio.run(task.grade(problem, done))
    assert math.isnan(unknown), "nobody knows"
    task.grades = (2.0,)
    refused(lambda: asyncio.run(task.grade(problem, done)), "Asks.grade", "2.0", "[0, 1]")
    task.grades = (1.0, 1.0)
    refused(lambda: asyncio.run(task.grade(problem, done)), "Asks.grade", "2", "for 1 sequences")
    task.asked = ({"id": "1"},)
    refused(lambda: next(task.problems()), "Asks.problems", "expected a Problem")


def test_an_engine() -> None:
    class Broken(EnumerableEngine):
        answer: Any = None

        async def generate(self, request: GenerateRequest) -> Generated:
            return self.answer  # type: ignore[no-any-return]

        async def evaluate(self, requests: list[EvaluateRequest]) -> Any:
            return []

    engine = Broken(["a", "</s>"], {(): [1.0, 0.0]})
    with engine:
        generator = EngineGenerator(engine)
        refused(
            lambda: MajorityVote(generator, 3, answer=RULE).solve("Q"), "Broken.generate", "returned None"
        )
        engine.answer = Generated(())
        refused(
            lambda: MajorityVote(generator, 3, answer=RULE).solve("Q"),
            "Broken.generate",
            "0 samples",
            "3 seeds",
        )


# -- functions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda y: None, ["FunctionVerifier", "<lambda>", "returned None", "a number"]),
        (lambda y: "good", ["FunctionVerifier", "returned 'good'", "a number"]),
        (lambda y: 1.5, ["FunctionVerifier", "returned 1.5", "[0, 1]"]),
        (lambda y: math.nan, ["FunctionVerifier", "returned nan", "[0, 1]"]),
        (boom, ["FunctionVerifier", "'boom'", "raised KeyError"]),
    ],
)
def test_a_function_that_scores(made: Callable[[Sequence], Any], words: list[str]) -> None:
    refused(best(FunctionVerifier(made)), *words)


def test_a_function_that_scores_and_is_async() -> None:
    async def later(y: Sequence) -> float:
        return 5.0

    refused(best(FunctionVerifier(later)), "FunctionVerifier", "later", "returned 5.0", "[0, 1]")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda prefix, seed, i: None, ["FunctionGenerator", "returned None", "a text or a Sample"]),
        (lambda prefix, seed, i: 3, ["FunctionGenerator", "returned 3"]),
        (lambda prefix: "text", ["FunctionGenerator", "raised TypeError"]),
        (boom, ["FunctionGenerator", "raised KeyError: 'boom'"]),
    ],
)
def test_a_function_that_writes(made: Callable[..., Any], words: list[str]) -> None:
    refused(lambda: MajorityVote(FunctionGenerator(made), 3, answer=RULE).solve("Q"), *words)


def test_other_functions() -> None:
    refused(vote(FunctionRule(lambda text: 7)), "FunctionRule", "returned 7", "text or None")  # type: ignore[arg-type,return-value]
    refused(vote(FunctionRule(boom)), "FunctionRule", "raised KeyError")
    refused(vote(FunctionRule(lambda text: text, key=lambda text: 3)), "FunctionRule", "returned 3")  # type: ignore[arg-type,return-value]

    def lies(text: str) -> int:
        return len(text) / 2  # type: ignore[return-value]

    counted = FunctionGenerator(lambda prefix, seed, i: "text", count=lies)
    refused(lambda: MajorityVote(counted, 1, answer=RULE).solve("Q"), "FunctionGenerator", "lies", "integer")
    for wrong in ("near", boom):
        utility = FunctionUtility(wrong if callable(wrong) else lambda a, b, wrong=wrong: wrong)
        refused(lambda utility=utility: metagen.MBR(WRITER, 2, utility=utility).solve("Q"), "FunctionUtility")  # type: ignore[misc]
    embed = EmbeddingCosine(FunctionEmbedder(boom))
    refused(lambda: metagen.MBR(WRITER, 2, utility=embed).solve("Q"), "FunctionEmbedder", "raised KeyError")
    ranked = RankedVote(WRITER, 2, answer=RULE, ballot=lambda text: None)  # type: ignore[arg-type,return-value]
    refused(lambda: ranked.solve("Q"), "Ranked", "returned None", "a list, each a text")


def test_a_function_that_stops_and_one_that_runs() -> None:
    engine = EnumerableEngine(["a", "</s>"], lambda prompt, done: [1.0, 0.0], name="on")
    with engine:
        stopped = StopWhen(engine.generator(max_tokens=8), boom, name="boom", every=Tokens(1))
        refused(lambda: stopped.solve("a"), "StopWhen", "raised KeyError")

    @metagen.strategy()
    async def program(prefix: Sequence, scope: Scope) -> Any:
        return None

    refused(
        lambda: program.solve("Q"), "FunctionStrategy", "program", "returned None", "a Sequence or a text"
    )


def test_a_tool() -> None:
    def search(query: str) -> str:
        return boom()  # type: ignore[no-any-return]

    async def use(prefix: Sequence, scope: Scope) -> Sequence:
        await Tool(search, attempts=1).call({"query": "x"}, scope)
        return prefix

    error = refused(lambda: Runs(use).solve("Q"), "the tool 'search'", "raised KeyError: 'boom'")
    assert isinstance(error.__cause__, KeyError)


# -- whose it is -----------------------------------------------------------------------------------


def test_the_traceback_is_kept_and_the_cause_is_chained() -> None:
    error = refused(best(Scores(boom)), "raised KeyError: 'boom'")
    assert isinstance(error.__cause__, KeyError)
    told = "".join(traceback.format_exception(error.__cause__))
    assert 'raise KeyError("boom")' in told


def test_the_innermost_part_is_named_once() -> None:
    inner = BestOfN(WRITER, 2, verifier=Scores(boom))

    async def run(prefix: Sequence, scope: Scope) -> Sequence:
        (done,) = await inner.generate(prefix, scope=scope.child("inner"))
        return done

    error = refused(lambda: Runs(run).solve("Q"), "Scores.score")
    assert "Runs.run" not in str(error)


def test_errors_of_metagen_pass_and_say_where_they_came_from() -> None:
    for wrong in (1.5, math.nan, "high"):
        with pytest.raises(InputError, match=r"\[0, 1\].*raised in Scores.score, .*test_border.py:\d"):
            best(Scores(lambda ys, wrong=wrong: [Score(wrong)] * len(ys)))()  # type: ignore[misc]

    def empty(ys: abc.Sequence[Sequence]) -> list[Score]:
        raise InputError("the rubric is empty; give it a line")

    def spent(ys: abc.Sequence[Sequence]) -> list[Score]:
        raise BudgetExhausted("calls", 3, 1, 0)

    with pytest.raises(
        InputError, match=r"the rubric is empty.*\(raised in Scores.score, .*test_border.py:\d"
    ):
        best(Scores(empty))()
    assert best(Scores(spent))() is not None  # a budget that ends is no fault


def test_metagens_own_faults_stay_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What breaks inside of metagen is not laid at anybody's door."""

    def broken(*given: object, **named: object) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr("metagen.strategies.aggregators.majority_vote", broken)
    with pytest.raises(KeyError, match="ours"):
        MajorityVote(WRITER, 2, answer=MathRule()).solve("Q")


def test_a_guarded_class_is_what_it_was() -> None:
    assert Writes.generate.__name__ == "generate" and asyncio.iscoroutinefunction(Writes.generate)
    with pytest.raises(TypeError, match="abstract"):
        type("Abstract", (Writes,), {"generate": Generator.generate})(None)
    assert issubclass(PluginError, MetagenError)


class Stops(StoppingRule):
    def stops(self, classes: Any, weights: Any) -> Any:
        return True


def test_a_stopping_rule() -> None:
    rule = metagen.Adaptive(WRITER, 3, Majority(RULE), Stops())
    refused(lambda: rule.solve("Q"), "Stops.stops", "returned True", "an array")


def test_an_oracle_marks_whatever_it_is_in_however_deep() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    class Wraps(Verifier):
        def __init__(self, *inner: Verifier) -> None:
            self.inner = {"first": list(inner)}

        @property
        def fingerprint(self) -> str:
            return "wraps"

        async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
            return [Score(0.5) for _ in sequences]

    oracle, honest = OracleVerifier(grade), FunctionVerifier(lambda y: 0.5)
    for verifier, knows in ((oracle, True), (Wraps(honest), False), (Wraps(honest, Wraps(oracle)), True)):
        inner = BestOfN(WRITER, 2, verifier=verifier)
        assert inner.oracle is knows
        assert MajorityVote(inner, 2, answer=RULE).solve("Q").oracle is knows
        assert metagen.Chain({"a": metagen.Ask(inner, "x")}).oracle is knows
        assert MixtureOfAgents([[WRITER, inner]], WRITER).oracle is knows


@pytest.mark.parametrize("level", [-1, 2**31, 2.5, "3"])
def test_a_level_of_a_problem(level: Any) -> None:
    with pytest.raises(DataError, match=r"problem 'p': level=.*expected an integer from 0 to 2,147,483,647"):
        Problem(Prompt("p", text="Q"), "1", level)
    assert Problem(Prompt("p", text="Q"), "1", np.int64(3)).level == 3  # type: ignore[arg-type]  # as tables give it
