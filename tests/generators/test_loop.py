"""A loop in a thread of its own: what crosses, in both directions, and what is left when it ends, however it ends."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

from metagen.errors import EngineError
from metagen.generators.loop import Loop

T = TypeVar("T")


class Living:
    """What lives in a loop, and notes what happens to it and to the work."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.started = threading.Event()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[str]:
        self.notes.append(f"entered in {threading.current_thread().name}")
        aside = asyncio.create_task(self._aside())
        await asyncio.sleep(0)
        try:
            yield "alive"
        finally:
            self.notes.append("left" if not aside.done() else "left too late")

    async def _aside(self) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            self.notes.append("aside cancelled")

    async def work(self, name: str = "work", seconds: float = 60.0, after: float = 0.0) -> str:
        """after: seconds that it takes to end once it is cancelled."""
        self.started.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(after)
            self.notes.append(f"{name} cancelled")
            raise
        return name


@pytest.fixture
def living() -> Living:
    return Living()


@pytest.fixture
def loop(living: Living) -> Iterator[Loop[str]]:
    loop = Loop(living.live, shown="it", patience=5.0)
    assert loop.open() == "alive"
    yield loop
    loop.close()


def in_thread(function: Callable[[], T]) -> Future[T]:
    """What a function comes to, in a thread that keeps nobody from ending."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the test is told
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def hears_of_the_close(loop: Loop[str], work: Coroutine[Any, Any, str]) -> None:
    with pytest.raises(EngineError, match="was closed while"):
        loop.wait(work)


# -- work ------------------------------------------------------------------------------------------


def test_results_and_errors_come_back_to_any_loop_and_any_thread(loop: Loop[str]) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise KeyError("a place")

    async def main() -> list[Any]:
        return await asyncio.gather(loop.run(where()), loop.run(fail()), return_exceptions=True)

    for found in (asyncio.run(main()), asyncio.run(main())):
        assert found[0] == "engine it"
        assert isinstance(found[1], KeyError) and found[1].args == ("a place",)
    assert loop.wait(where()) == "engine it"
    with pytest.raises(KeyError, match="a place"):
        loop.wait(fail())


def test_work_may_ask_its_own_loop(loop: Loop[str], living: Living) -> None:
    async def outer() -> str:
        with pytest.raises(EngineError, match="cannot wait for itself"):
            loop.wait(living.work())
        return await loop.run(living.work("inner", 0.0))

    assert loop.wait(outer()) == "inner"


def test_a_cancelled_wait_cancels_the_work_and_lasts_until_it_has_ended(
    loop: Loop[str], living: Living
) -> None:
    async def main() -> None:
        task = asyncio.create_task(loop.run(living.work(after=0.1)))
        await asyncio.to_thread(living.started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert living.notes[1:] == ["work cancelled"]

    asyncio.run(main())


def test_work_that_has_not_begun_when_its_wait_is_cancelled_is_cancelled_too(
    loop: Loop[str], living: Living
) -> None:
    async def main() -> None:
        task = asyncio.create_task(loop.run(living.work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert loop.wait(living.work("next", 0.0)) == "next"


def test_who_cancels_work_in_its_loop_cancels_who_waits_for_it(loop: Loop[str]) -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await loop.run(give_up())

    asyncio.run(main())
    assert loop.state == "open"


def test_work_that_does_not_end_keeps_nobody_longer_than_patience(living: Living) -> None:
    loop = Loop(living.live, shown="it", patience=0.2)
    loop.open()

    async def main() -> None:
        task = asyncio.create_task(loop.run(living.work(after=60)))
        await asyncio.to_thread(living.started.wait)
        task.cancel()
        await asyncio.wait({task}, timeout=30)
        assert task.cancelled() and "work cancelled" not in living.notes

    asyncio.run(main())
    living.started.clear()
    waits = in_thread(lambda: hears_of_the_close(loop, living.work(after=60)))
    living.started.wait()
    loop.close()
    waits.result(30)


def test_a_loop_that_ends_before_the_work_that_it_waits_for_does_no_harm(
    loop: Loop[str], living: Living
) -> None:
    here = asyncio.new_event_loop()
    task = here.create_task(loop.run(living.work(seconds=0.1)))
    here.run_until_complete(asyncio.sleep(0.02))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
    here.close()
    assert loop.wait(living.work("later", 0.2)) == "later"


# -- the end ---------------------------------------------------------------------------------------


def test_closing_cancels_the_work_then_leaves_what_lives_there_then_ends_what_is_left(
    loop: Loop[str], living: Living
) -> None:
    async def main() -> None:
        task = asyncio.create_task(loop.run(living.work(after=0.05)))
        await asyncio.to_thread(living.started.wait)
        assert await asyncio.to_thread(loop.close)
        with pytest.raises(EngineError, match="it was closed while a request was running; make a new engine"):
            await task

    asyncio.run(main())
    assert living.notes == ["entered in engine it", "work cancelled", "left", "aside cancelled"]
    assert not any(thread.name == "engine it" for thread in threading.enumerate())
    assert not loop.close() and loop.state == "closed"


def test_a_thread_that_waits_hears_of_the_close(loop: Loop[str], living: Living) -> None:
    waits = in_thread(lambda: hears_of_the_close(loop, living.work()))
    living.started.wait()
    loop.close()
    waits.result(10)


def test_work_may_close_its_own_loop(loop: Loop[str], living: Living) -> None:
    async def closes() -> None:
        loop.close()
        await asyncio.sleep(60)

    with pytest.raises(EngineError, match="was closed"):
        loop.wait(closes())
    loop.close()
    assert living.notes[-2:] == ["left", "aside cancelled"]


def test_what_goes_wrong_when_it_is_left_is_raised_by_close() -> None:
    @asynccontextmanager
    async def live() -> AsyncIterator[None]:
        yield
        raise OSError("no way out")

    loop = Loop(live, shown="it")
    loop.open()
    with pytest.raises(OSError, match="no way out"):
        loop.close()
    assert loop.state == "closed"


@pytest.mark.parametrize(
    ("before", "says"), [(True, r"use it inside `with pool:`"), (False, "make a new pool")]
)
def test_what_is_not_open_is_refused_and_its_coroutine_closed(
    living: Living, before: bool, says: str
) -> None:
    loop = Loop(living.live, shown="it", what="pool")
    if not before:
        loop.open()
        loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EngineError, match=says):
            loop.wait(living.work())
        with pytest.raises(EngineError, match=says):
            asyncio.run(loop.run(living.work()))
    loop.close()
    with pytest.raises(EngineError, match="opened before"):
        loop.open()


def test_a_thread_that_ends_by_itself_wakes_who_waits_and_leaves_what_lives_there(
    loop: Loop[str], living: Living
) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)

    with pytest.raises(EngineError, match=r"has failed: RuntimeError.*while a request was running"):
        loop.wait(stop())
    with pytest.raises(EngineError, match=r"it is failed: RuntimeError.'Event loop stopped"):
        loop.wait(living.work())
    assert not loop.close()
    assert living.notes[-1] in ("left", "left too late", "aside cancelled")


# -- opening ---------------------------------------------------------------------------------------


def test_what_goes_wrong_at_the_opening_is_raised_there() -> None:
    @asynccontextmanager
    async def live() -> AsyncIterator[None]:
        raise OSError("nothing there")
        yield

    loop = Loop(live, shown="it")
    with pytest.raises(OSError, match="nothing there"):
        loop.open()
    assert loop.state == "failed" and not loop.close()
    with pytest.raises(EngineError, match="opened before"):
        loop.open()


@pytest.mark.parametrize("blocks", [False, True])
def test_it_may_be_closed_while_it_opens(blocks: bool) -> None:
    entering, notes = threading.Event(), []

    @asynccontextmanager
    async def live() -> AsyncIterator[None]:
        entering.set()
        try:
            if blocks:
                time.sleep(0.3)  # noqa: ASYNC251 - as libraries do that load a model
            else:
                await asyncio.sleep(60)
            yield
        finally:
            notes.append("left")

    loop = Loop(live, shown="it")
    opening = in_thread(loop.open)
    entering.wait()
    loop.close()
    with pytest.raises(EngineError, match="it was closed while it was being opened; make a new engine"):
        opening.result(10)
    assert notes == ["left"]


# -- all at once, and other processes --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_cancelled_and_closed_when_everybody_comes_to_an_end(seed: int) -> None:
    """Several loops ask at once, cancel at random, and find it closed in the middle."""
    draw = random.Random(seed)
    living = Living()
    loop = Loop(living.live, shown="it", patience=5.0)
    loop.open()
    outcomes: list[Any] = []

    async def ask(seconds: float, cancel: float) -> None:
        task = asyncio.create_task(loop.run(living.work("done", seconds, after=0.001)))
        await asyncio.sleep(cancel)
        task.cancel()
        with suppress(asyncio.CancelledError):
            try:
                outcomes.append(await task)
            except EngineError as error:
                outcomes.append(error)
            return
        outcomes.append("cancelled")

    async def main(times: list[tuple[float, float]]) -> None:
        await asyncio.gather(*(ask(*one) for one in times))

    lots = [[(draw.uniform(0, 0.2), draw.uniform(0, 0.3)) for _ in range(60)] for _ in range(4)]
    asking = [in_thread(lambda lot=lot: asyncio.run(main(lot))) for lot in lots]  # type: ignore[misc]
    time.sleep(0.12)
    loop.close()
    for one in asking:
        one.result(30)
    assert len(outcomes) == 240
    assert {one if isinstance(one, str) else type(one) for one in outcomes} <= {
        "done", "cancelled", EngineError,
    }  # fmt: skip


def script(body: str) -> subprocess.CompletedProcess[str]:
    head = """
        import asyncio, contextlib, os, sys
        from metagen.errors import EngineError
        from metagen.generators.loop import Loop

        @contextlib.asynccontextmanager
        async def live():
            yield

        async def say(word):
            return word

        loop = Loop(live, shown="it")
        loop.open()
    """
    text = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_program_ends_though_nobody_closed_it() -> None:
    done = script("""
        import threading
        def waits():
            loop.wait(asyncio.sleep(600))
        threading.Thread(target=waits, daemon=True).start()
        print(loop.wait(say("said")))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\n", "")


def test_a_process_that_was_forked_off_is_told_so_and_leaves_its_parent_alone() -> None:
    done = script("""
        child = os.fork()
        if not child:
            for act in (lambda: loop.wait(say("x")), lambda: asyncio.run(loop.run(say("x"))), loop.open):
                try:
                    act()
                except EngineError as error:
                    print("forked" in str(error), flush=True)
            print(loop.close(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(loop.wait(say("said")))
        print(loop.close())
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 3 + ["False", "said", "True"]), (
        done.stderr
    )


def test_an_error_that_nobody_waited_for_is_for_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An answer may fail as the loop ends, when nobody can look at it any more."""

    @asynccontextmanager
    async def live() -> AsyncIterator[None]:
        yield

    async def leaves() -> None:
        asyncio.get_running_loop().create_future().set_exception(RuntimeError("late"))

    loop = Loop(live, shown="engine")
    loop.open()
    loop.wait(leaves())
    gc.collect()
    loop.close()
    assert "never retrieved" not in capfd.readouterr().err
    assert any("late" in str(record.__dict__.get("error")) for record in caplog.records)
