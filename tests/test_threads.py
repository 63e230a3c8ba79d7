"""Plain functions run in threads: one that takes its time holds up nobody, and one that never ends is left behind."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from metagen import threads
from metagen.budget import Budget
from metagen.errors import PluginError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import BestOfN, Sample
from metagen.strategies.tools import Tool, ToolError
from metagen.verifiers.function import FunctionVerifier

PROMPT = Prompt("p", text="one two three")
#: Seconds after which something is taken to hang.
LONG = 120


@pytest.fixture
def gate() -> threading.Event:
    """Opened at the end, so that no thread is left waiting."""
    event = threading.Event()
    yield event  # type: ignore[misc]
    event.set()


def run(work: Callable[[Scope], object]) -> object:
    async def main() -> object:
        return await asyncio.wait_for(work(Scope.root("p")), LONG)  # type: ignore[arg-type]

    return asyncio.run(main())


def says(text: str = "x") -> Callable[[Sequence, int, int], str]:
    return lambda prefix, seed, index: text


def test_a_deadline_ends_a_function_that_does_not(gate: threading.Event) -> None:
    def waits(prefix: Sequence, seed: int, index: int) -> str:
        gate.wait(LONG)
        return "late"

    result = Sample(FunctionGenerator(waits, name="waits")).solve(PROMPT, budget=Budget(seconds=0.2))
    assert not gate.is_set()
    assert result.exhausted and result.text == ""


def test_a_verifier_that_does_not_end_is_ended_too(gate: threading.Event) -> None:
    def waits(sequence: Sequence) -> float:
        gate.wait(LONG)
        return 1.0

    best = BestOfN(FunctionGenerator(says(), name="x"), 2, verifier=FunctionVerifier(waits, name="waits"))
    assert best.solve(PROMPT, budget=Budget(seconds=0.2)).exhausted
    assert not gate.is_set()


def test_who_waits_for_another_is_not_held_up_by_it(gate: threading.Event) -> None:
    def opens(prefix: Sequence, seed: int, index: int) -> str:
        gate.set()
        return "opened"

    def waits(prefix: Sequence, seed: int, index: int) -> str:
        return "through" if gate.wait(LONG) else "stuck"

    first, second = FunctionGenerator(waits, name="waits"), FunctionGenerator(opens, name="opens")

    async def both(scope: Scope) -> list[list[Sequence]]:
        prefix = Sequence(PROMPT)
        return await scope.gather(
            first.generate(prefix, scope=scope.child("a")), second.generate(prefix, scope=scope.child("b"))
        )

    assert [[s.text for s in some] for some in run(both)] == [["through"], ["opened"]]  # type: ignore[attr-defined]


def test_functions_of_one_object_run_one_at_a_time_and_in_order() -> None:
    inside, most, order = [0], [0], list[int]()

    def counts(prefix: Sequence, seed: int, index: int) -> str:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        order.append(index)
        for _ in range(1000):
            pass
        inside[0] -= 1
        return str(index)

    found = run(
        lambda scope: FunctionGenerator(counts, name="c").generate(Sequence(PROMPT), n=50, scope=scope)
    )
    assert [s.text for s in found] == [str(i) for i in range(50)]  # type: ignore[attr-defined]
    assert (most[0], order) == (1, list(range(50)))


def test_who_is_left_behind_keeps_nobody_waiting(gate: threading.Event) -> None:
    calls: list[int] = []

    def once(prefix: Sequence, seed: int, index: int) -> str:
        calls.append(index)
        if len(calls) == 1:
            gate.wait(LONG)
        return "x"

    generator = FunctionGenerator(once, name="once")
    assert Sample(generator).solve(PROMPT, budget=Budget(seconds=0.2)).text == ""
    assert Sample(generator).solve(PROMPT).text == "x"
    assert not gate.is_set()


def test_what_was_asked_for_behind_it_goes_on_elsewhere(gate: threading.Event) -> None:
    begun = threading.Event()
    worker = threads.Worker()

    def waits() -> None:
        begun.set()
        gate.wait(LONG)

    async def main() -> list[int]:
        first = asyncio.create_task(worker.run(waits))
        others = [asyncio.create_task(worker.run(int, str(i))) for i in range(3)]
        await asyncio.to_thread(begun.wait, LONG)
        first.cancel()
        return await asyncio.gather(*others)

    assert asyncio.run(main()) == [0, 1, 2]
    assert not gate.is_set()


def test_what_is_cancelled_before_it_began_never_begins(gate: threading.Event) -> None:
    worker, ran = threads.Worker(), list[str]()
    begun = threading.Event()

    def waits() -> None:
        begun.set()
        gate.wait(LONG)

    async def main() -> None:
        first = asyncio.create_task(worker.run(waits))
        second = asyncio.create_task(worker.run(ran.append, "second"))
        third = asyncio.create_task(worker.run(ran.append, "third"))
        await asyncio.to_thread(begun.wait, LONG)
        second.cancel()
        await asyncio.wait([second])
        assert not ran  # the first still has the thread
        gate.set()
        await asyncio.gather(first, third)

    asyncio.run(main())
    assert ran == ["third"]


def test_a_function_may_solve_by_what_it_is_a_part_of() -> None:
    def nested(prefix: Sequence, seed: int, index: int) -> str:
        if prefix.prompt.text == "inner":
            return "innermost"
        return strategy.solve("inner").text + " and out"

    strategy = Sample(FunctionGenerator(nested, name="nested"))
    assert strategy.solve(PROMPT).text == "innermost and out"


def test_errors_name_the_function_and_its_line() -> None:
    def breaks(prefix: Sequence, seed: int, index: int) -> str:
        raise ValueError("broken here")

    line = breaks.__code__.co_firstlineno + 1
    with pytest.raises(
        PluginError, match=rf"'breaks' of FunctionGenerator.*test_threads.py:{line}\) raised ValueError"
    ):
        Sample(FunctionGenerator(breaks, name="b")).solve(PROMPT)
    with pytest.raises(PluginError, match="takes 0 positional arguments"):
        Sample(FunctionGenerator(lambda: "x", name="none")).solve(PROMPT)  # type: ignore[arg-type, misc]

    def stops(prefix: Sequence, seed: int, index: int) -> str:
        return next(iter([]))

    with pytest.raises(PluginError, match="StopIteration"):
        Sample(FunctionGenerator(stops, name="stops")).solve(PROMPT)


def test_context_variables_are_seen() -> None:
    mine = contextvars.ContextVar[str]("mine")
    mine.set("carried")

    async def main() -> str:
        return await threads.run(Sample(FunctionGenerator(says())), mine.get)

    assert asyncio.run(main()) == "carried"


def test_a_plain_tool_has_its_time_out(gate: threading.Event) -> None:
    def waits() -> str:
        gate.wait(LONG)
        return "late"

    tool = Tool(waits, timeout=0.1, attempts=2, wait=0.0)
    with pytest.raises(ToolError, match="in the last of 2 attempts"):
        run(lambda scope: tool.call({}, scope))


def test_an_idle_thread_ends_and_so_does_that_of_an_object_that_is_gone() -> None:
    def here(prefix: Sequence, seed: int, index: int) -> str:
        found.append(threading.current_thread())
        return "x"

    found: list[threading.Thread] = []
    generator = FunctionGenerator(here, name="here")
    Sample(generator).solve(PROMPT)
    found[0].join(LONG)
    assert not found[0].is_alive()
    Sample(generator).solve(PROMPT)
    del generator
    gc.collect()
    found[1].join(LONG)
    assert not found[1].is_alive()


SCRIPT = """
import os, signal, sys, threading
import metagen as mg

# Whoever runs the tests in the background has them ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

def waits(prefix, seed, index):
    print("begun", flush=True)
    threading.Event().wait()

{then}
"""


def begun(tmp_path: Path, then: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(then=then))
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_process_ends_whatever_its_functions_do(tmp_path: Path) -> None:
    child = begun(
        tmp_path,
        "mg.Sample(mg.FunctionGenerator(waits)).solve('x', budget=mg.Budget(seconds=0.2)); print('end')",
    )
    out, err = child.communicate(timeout=LONG)
    assert (out, child.returncode) == ("begun\nend\n", 0), err


def test_an_interrupt_ends_a_function_that_does_not(tmp_path: Path) -> None:
    child = begun(tmp_path, "mg.Sample(mg.FunctionGenerator(waits)).solve('x')")
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=LONG)
    assert "KeyboardInterrupt" in err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    then = """
async def says(prefix, seed, index):
    return "async"

import asyncio
plain = mg.FunctionGenerator(lambda prefix, seed, index: "plain", name="plain")
strategy = mg.Sample(plain)
print(strategy.solve("x").text, flush=True)
if (child := os.fork()) == 0:
    print(asyncio.run(strategy.asolve("y")).text, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    child = begun(tmp_path, then)
    out, err = child.communicate(timeout=LONG)
    assert out == "plain\nplain\n", err
