"""What each call had waited for: a clock for each delivery, and the deliveries behind it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from metagen import batch
from metagen.budget import Budget
from metagen.generators.engine import Sample
from metagen.generators.function import FunctionGenerator
from metagen.history import History, behind
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask
from metagen.strategies.parallel import BestOfN, MajorityVote
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.rebase import AsyncRebase, Rebase
from metagen.testing import UnsteadyJournal, first_word, last_word, numbers
from metagen.trace import Trace
from tests.test_scope import Writer, run

PROMPT = Prompt("p", text="one two three")


def clocks(trace: Trace) -> dict[str, int]:
    """The clock of the last delivery at each path."""
    return {trace.rows[one.first].path: one.clock for one in trace.deliveries}


def before(trace: Trace, path: str) -> set[str]:
    """The paths of all that a call had waited for."""
    found: set[int] = set()
    todo = [k for k, one in enumerate(trace.deliveries) if trace.rows[one.first].path == path]
    while todo:
        new = set(trace.deliveries[todo.pop()].after) - found
        found |= new
        todo += new
    return {trace.rows[trace.deliveries[k].first].path for k in found}


def told(work: Callable[[Scope], Awaitable[object]], budget: Budget | None = None) -> Trace:
    async def main() -> Trace:
        scope = Scope.root("p", budget=budget)
        await work(scope)
        return scope.trace

    return run(main())


async def asked(scope: Scope, role: str) -> None:
    await Writer(seconds=0.0001)(scope.child(role))


def test_one_after_the_other_counts_and_side_by_side_does_not() -> None:
    async def work(scope: Scope) -> None:
        await asked(scope, "a")

        async def two(i: int) -> None:
            await asked(scope, f"b/{i}")
            if i:
                await asked(scope, f"c/{i}")

        await scope.gather(*(two(i) for i in range(3)))
        await asked(scope, "d")

    trace = told(work)
    assert clocks(trace) == {"a": 1, "b/0": 2, "b/1": 2, "b/2": 2, "c/1": 3, "c/2": 3, "d": 4}
    assert before(trace, "c/1") == {"a", "b/1"}
    assert before(trace, "d") == {"a", "b/0", "b/1", "b/2", "c/1", "c/2"}
    assert trace.rounds == 4
    (last,) = (one for one in trace.deliveries if trace.rows[one.first].path == "d")
    assert {trace.rows[trace.deliveries[k].first].path for k in last.after} == {"b/0", "c/1", "c/2"}


def test_nothing_is_behind_who_only_looked_on() -> None:
    async def work(scope: Scope) -> None:
        await asked(scope, "a")
        await scope.gather(asyncio.sleep(0), asyncio.sleep(0))
        await scope.gather()
        await asked(scope, "b")

    trace = told(work)
    assert [one.after for one in trace.deliveries] == [(), (0,)]


def test_a_refused_call_keeps_nobody_waiting() -> None:
    async def work(scope: Scope) -> None:
        await asked(scope, "a")
        assert await scope.attempt(asked(scope.child("poor", budget=Budget(calls=0)), "b")) is None
        await asked(scope, "c")

    trace = told(work)
    assert clocks(trace) == {"a": 1, "poor/b": 2, "c": 2}
    assert before(trace, "c") == {"a"}


@pytest.mark.parametrize(("budget", "clock"), [(None, 1), (Budget(calls=9), 3)])
def test_pieces_that_a_limit_sends_in_turn_wait_for_one_another(budget: Budget | None, clock: int) -> None:
    async def work(scope: Scope) -> None:
        await scope.batch(range(3), lambda i: asked(scope, str(i)))
        await asked(scope, "end")

    trace = told(work, budget)
    assert clocks(trace)["2"] == clock
    assert clocks(trace)["end"] == clock + 1
    assert before(trace, "end") == {"0", "1", "2"}


def test_a_replay_has_the_history_of_the_run() -> None:
    strategy = MCTS(numbers(), 6, verifier=first_word, answer=last_word, width=2, in_flight=2)
    journal = MemoryJournal()
    first = strategy.solve(PROMPT, journal=journal).trace
    again = strategy.solve(PROMPT, journal=journal).trace
    assert clocks(again) == clocks(first)
    assert {path: before(again, path) for path in clocks(again)} == {
        p: before(first, p) for p in clocks(first)
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["mcts", "async", "rebase", "chain"])
def test_it_does_not_hang_on_who_is_faster(name: str, seed: int) -> None:
    made = SEARCHES[name]()
    quiet, moody = made.solve(PROMPT).trace, made.solve(PROMPT, journal=UnsteadyJournal(seed)).trace
    assert {path: before(moody, path) for path in clocks(moody)} == {
        p: before(quiet, p) for p in clocks(quiet)
    }


def says(prefix: Sequence, seed: int, index: int) -> str:
    return f"{seed % 7} is so; it is {seed % 3}"


def chain() -> Strategy:
    model = FunctionGenerator(says, name="says", count=lambda text: len(text.split()), max_tokens=9)
    return Chain({
        "plan": Ask(model, "{prompt}"),
        "left": Ask(model, "{plan} left"),
        "right": Ask(model, "{plan} right"),
        "more": Ask(model, "{left} more"),
        "end": Ask(model, "{more} {right}"),
    })  # fmt: skip


SEARCHES: dict[str, Callable[[], Strategy]] = {
    "mcts": lambda: MCTS(numbers(), 8, verifier=first_word, answer=last_word, width=2, in_flight=4),
    "async": lambda: AsyncRebase(numbers(), 4, verifier=first_word, answer=last_word),
    "rebase": lambda: Rebase(numbers(), 4, verifier=first_word, answer=last_word),
    "chain": chain,
}


def test_a_step_of_a_chain_waits_for_what_it_reads() -> None:
    trace = chain().solve(PROMPT).trace
    at = clocks(trace)
    assert at == {"0/plan": 1, "0/left": 2, "0/right": 2, "0/more": 3, "0/end": 4}
    assert before(trace, "0/more") == {"0/plan", "0/left"}
    assert before(trace, "0/end") == {"0/plan", "0/left", "0/right", "0/more"}


@pytest.mark.parametrize(
    ("strategy", "rounds"),
    [
        (lambda: MajorityVote(numbers(), 8, answer=last_word), 1),
        (lambda: BestOfN(numbers(), 8, verifier=first_word), 2),
        (lambda: Refinement(numbers(), verifier=first_word, rounds=0), 2),
    ],
)
def test_rounds_of_plain_strategies(strategy: Callable[[], Strategy], rounds: int) -> None:
    assert strategy().solve(PROMPT).trace.rounds == rounds


@pytest.mark.parametrize(
    ("search", "rounds"),
    [
        # A draw and its scores for each simulation, one after the other, and the last write-up.
        (lambda model: MCTS(model, 5, verifier=first_word, width=2, in_flight=1, max_depth=9), 12),
        # Two side by side: the third is chosen when the first has been applied, and so on.
        (lambda model: MCTS(model, 6, verifier=first_word, width=2, in_flight=2, max_depth=9), 10),
        (lambda model: BestFirst(model, verifier=first_word, m=2, in_flight=1, expansions=4, max_depth=9), 8),
        # Draws and scores of three levels, with a look ahead behind the first two.
        (lambda model: Lookahead(model, 2, verifier=first_word, m=2, max_depth=3), 10),
    ],
)
def test_rounds_of_searches_that_choose_by_scores(
    search: Callable[[FunctionGenerator], Strategy], rounds: int
) -> None:
    trace = search(steps()).solve(PROMPT).trace
    assert trace.rounds == rounds


def steps() -> FunctionGenerator:
    def step(prefix: Sequence, seed: int, index: int) -> Sample:
        text = f"0.{seed % 97} and\n"
        return Sample(text, None, None, finish=None, step_end=len(text))

    return FunctionGenerator(step, name="steps", count=lambda text: len(text.split()), max_tokens=4)


def test_a_search_by_levels_waits_for_all_of_the_level_before() -> None:
    trace = SEARCHES["rebase"]().solve(PROMPT).trace
    paths = {path for path in clocks(trace) if "/node/" in path and not path.endswith("score")}
    depth = {path: path.rpartition("/")[2].count(".") for path in paths}
    for path in paths:
        above = {other for other in paths if depth[other] < depth[path]}
        assert before(trace, path) & paths == above


def test_another_problem_inside_of_a_line_of_work_is_none_of_its_history() -> None:
    async def work(scope: Scope) -> None:
        await asked(scope, "a")
        other = Scope.root("other")
        await asked(other, "x")
        assert other.trace.rounds == 1
        await asked(scope, "b")
        await asked(other, "y")
        assert clocks(other.trace) == {"x": 1, "y": 2}

    assert clocks(told(work)) == {"a": 1, "b": 2}


def test_histories_that_nobody_holds_are_forgotten() -> None:
    async def main() -> list[weakref.ref[History]]:
        gone = []
        for i in range(50):
            scope = Scope.root(str(i))
            await asked(scope, "a")
            gone.append(weakref.ref(scope.history))
        return gone

    gone = run(main())
    gc.collect()
    assert not any(one() for one in gone)


def test_behind_by_hand() -> None:
    assert behind((1,), (1,), [(1,), (1,)]) == (1,)  # nobody moved
    assert behind((1,), (1,), [(2,), (3, 4), (1,)]) == (2, 3, 4)
    assert behind((1, 5), (1,), [(2,)]) == (5, 2)  # what was seen meanwhile stays
    assert behind((), (), [()]) == ()


@pytest.mark.parametrize(
    "mutant",
    [
        lambda self, fork, ends: None,  # forgets what was joined
        lambda self, fork, ends: self.go_on(fork),
        lambda self, fork, ends: self.go_on(next(iter(ends), fork)),  # sees one of them
    ],
)
def test_a_join_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., None]) -> None:
    monkeypatch.setattr(History, "join", mutant)
    with pytest.raises(AssertionError):
        test_one_after_the_other_counts_and_side_by_side_does_not()


def test_pieces_in_turn_that_were_taken_for_side_by_side_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_is_limited", lambda scope, stage: False)
    with pytest.raises(AssertionError):
        test_pieces_that_a_limit_sends_in_turn_wait_for_one_another(Budget(calls=9), 3)
