"""`solve` works, or says at once why not, wherever people call it: threads, processes, loops, servers, notebooks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import metagen as mg
from metagen.errors import EngineError, JournalError, MetagenError
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal, SQLiteJournal
from metagen.sequence import Sequence
from metagen.strategies.base import LOOP

#: Seconds after which something is taken to hang.
LONG = 120


async def writes(prefix: Sequence, seed: int, index: int) -> str:
    await asyncio.sleep(0.001)
    return f"{prefix.prompt.text} {seed % 10}"


def vote() -> mg.MajorityVote:
    return mg.MajorityVote(
        mg.FunctionGenerator(writes, name="writes"), 3, answer=mg.FunctionRule(str, name="all")
    )


def solved(text: str = "x") -> str:
    return vote().solve(text).text


def test_in_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(solved, ["x"] * 32, timeout=LONG)) == {solved()}
    assert sum(thread.name == LOOP for thread in threading.enumerate()) == 1


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver"])
def test_in_other_processes(kind: str) -> None:
    here = solved()  # the loop of this process runs already
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(kind)) as pool:
        assert pool.submit(solved).result(LONG) == here


def test_in_several_loops_one_after_the_other_and_at_once(tmp_path: Path) -> None:
    with SQLiteJournal(tmp_path / "journal.sqlite") as journal:

        def loop(name: str) -> list[str]:
            async def main() -> list[str]:
                results = await asyncio.gather(
                    *(vote().asolve(f"{name} {i}", journal=journal) for i in range(40))
                )
                return [result.text for result in results]

            return asyncio.run(main())

        first = loop("a"), loop("b")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            again = [*pool.map(loop, ["a", "b", "c", "d"], timeout=LONG)]
        assert (again[0], again[1]) == first
        assert journal.count() == 4 * 40 * 3
    with SQLiteJournal(tmp_path / "journal.sqlite", read_only=True) as kept:
        assert kept.count() == 4 * 40 * 3


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_loops_that_ask_for_the_same_pay_once(where: str, tmp_path: Path) -> None:
    paid: list[int] = []
    barrier = threading.Barrier(3)

    async def slow(prefix: Sequence, seed: int, index: int) -> str:
        paid.append(index)
        await asyncio.sleep(0.05)
        return f"{seed}"

    journal: Any = MemoryJournal() if where == "memory" else SQLiteJournal(tmp_path / "journal.sqlite")
    strategy = mg.Sample(mg.FunctionGenerator(slow, name="slow"))

    def loop(_: int) -> str:
        barrier.wait(LONG)
        return asyncio.run(strategy.asolve("x", journal=journal)).text

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(loop, range(3), timeout=LONG))) == 1
    assert paid == [0]
    if where == "disk":
        journal.close()


@pytest.mark.parametrize("ended", [True, False])
def test_a_loop_that_is_an_instant_later_pays_nothing(ended: bool) -> None:
    paid: list[int] = []
    begun = threading.Event()

    async def slow(prefix: Sequence, seed: int, index: int) -> str:
        paid.append(index)
        begun.set()
        await asyncio.sleep(0.05)
        return f"{seed}"

    journal = MemoryJournal()
    strategy = mg.Sample(mg.FunctionGenerator(slow, name="slow"))
    other = threading.Thread(target=lambda: asyncio.run(strategy.asolve("x", journal=journal)))

    class Late(dict[bytes, asyncio.Future[None]]):
        """At the first claim another loop is faster."""

        def setdefault(self, key: bytes, default: Any = None) -> Any:
            if not other.ident:
                other.start()
                other.join(LONG) if ended else begun.wait(LONG)
            return super().setdefault(key, default)

    journal.inflight = Late()
    result = asyncio.run(strategy.asolve("x", journal=journal))
    other.join(LONG)
    assert paid == [0] and result.usage.calls == 1 and journal.inflight == {}
    assert len(result.trace.deliveries) == 1


def test_in_a_task_group_and_beside_other_tasks() -> None:
    async def main() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(vote().asolve("x")) for _ in range(8)]
        return [task.result().text for task in tasks]

    assert set(asyncio.run(asyncio.wait_for(main(), LONG))) == {solved()}


def test_the_blocking_call_works_in_a_loop_of_ones_own_and_is_refused_in_ours() -> None:
    async def handler() -> str:
        return solved()  # it blocks this loop, and works: the work is done in another

    assert asyncio.run(asyncio.wait_for(handler(), LONG)) == solved()

    async def inside(prefix: Sequence, seed: int, index: int) -> str:
        return solved()

    with pytest.raises(MetagenError, match="await"):
        mg.Sample(mg.FunctionGenerator(inside, name="inside")).solve("x")


SERVER = """
import asyncio, json
from aiohttp import ClientSession, web
import metagen as mg
from tests.test_where_solve_works import vote

async def awaits(request):
    return web.json_response((await vote().asolve("x")).text)

async def blocks(request):
    return web.json_response(await asyncio.to_thread(lambda: vote().solve("x").text))

async def main():
    app = web.Application()
    app.router.add_get("/awaits", awaits)
    app.router.add_get("/blocks", blocks)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with ClientSession() as client:
        async def ask(path):
            async with client.get(f"http://127.0.0.1:{port}/{path}") as response:
                return await response.json()
        found = await asyncio.gather(*(ask(path) for path in ["awaits", "blocks"] * 10))
    print(json.dumps(sorted(set(found))))
    await runner.cleanup()

asyncio.run(main())
"""


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(text)
    root = str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=LONG, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_in_the_handlers_of_a_server(tmp_path: Path) -> None:
    assert script(tmp_path, SERVER) == f'["{solved()}"]'


def test_in_a_notebook() -> None:
    cells = [
        "from tests.test_where_solve_works import vote",
        "vote().solve('x').text",
        "(await vote().asolve('x')).text",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    root = str(Path(__file__).parents[1])
    client = NotebookClient(
        notebook, timeout=LONG, kernel_name="python3", resources={"metadata": {"path": root}}
    )
    client.execute()
    assert [cell.outputs[0]["data"]["text/plain"] for cell in notebook.cells[1:]] == [repr(solved())] * 2


def test_in_the_workers_of_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(
        "import pytest\nfrom tests.test_where_solve_works import solved\n"
        f"@pytest.mark.parametrize('i', range(4))\ndef test_it(i):\n    assert solved() == {solved()!r}\n"
    )
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, timeout=LONG, env={**os.environ, "PYTHONPATH": root}, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def forked(work: Callable[[], str]) -> str:
    """What the work says in a child that was forked off."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            said = work()
        except MetagenError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - the child must end here
            said = f"another error: {error!r}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_is_told_what_it_cannot_use(tmp_path: Path) -> None:
    here = solved()
    assert forked(solved) == here
    with SQLiteJournal(tmp_path / "journal.sqlite") as journal:
        assert "JournalError" in forked(lambda: vote().solve("y", journal=journal).text), (
            "before it has a seed"
        )
        vote().solve("x", journal=journal)
        said = forked(lambda: vote().solve("y", journal=journal).text)
        assert said.startswith("JournalError: ")
        assert f"opened in process {os.getpid()}" in said
        assert vote().solve("y", journal=journal).text
        assert journal.count() == 6
    with TorchEngine(resolve("tiny-0.1m")) as engine:
        model = mg.Sample(engine.generator(max_tokens=4))
        assert model.solve("1+1=").text
        said = forked(lambda: model.solve("1+1=").text)
        assert said.startswith("EngineError: ")
        assert "fork" in said
    assert issubclass(EngineError, MetagenError)
    assert issubclass(JournalError, MetagenError)
