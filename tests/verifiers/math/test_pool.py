"""Worker processes: killed, replaced, shared, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from metagen.verifiers.math import MathRule
from metagen.verifiers.math.canonical import TIMEOUT, Verdict
from metagen.verifiers.math.child import Worker, WorkerError
from metagen.verifiers.math.pool import Pool

HANGS = "\\sum_{k=1}^{10^{9}} k!"
ASKS = [f"\\tan {k}x" for k in range(2, 30)]


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def ask(pool: Pool, answer: str, deadline: float = 10.0) -> Future[Verdict]:
    return pool.submit(answer, "hundredths", deadline)


def pids(pool: Pool) -> set[int]:
    return {worker._process.pid for worker in pool._serving}


def alive(pid: int) -> bool:
    """Whether a process runs, zombies not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


def test_no_process_starts_before_it_is_needed(pool: Pool) -> None:
    assert pids(pool) == set()
    assert ask(pool, ASKS[0]).result().key
    assert len(pids(pool)) == 1


def test_a_process_serves_many_answers(pool: Pool) -> None:
    first = ask(pool, ASKS[0]).result()
    before = pids(pool)
    futures = [ask(pool, a) for a in ASKS]
    assert len({f.result().key for f in futures}) == len(ASKS)
    assert ask(pool, ASKS[0]).result() == first
    assert before <= pids(pool) and len(pids(pool)) <= 2


def test_one_that_is_late_is_killed_and_replaced_and_the_others_are_answered(pool: Pool) -> None:
    ask(pool, ASKS[0]).result()
    (old,) = pids(pool)
    futures = [ask(pool, HANGS, 0.5), *(ask(pool, a) for a in ASKS)]
    assert futures[0].result() == TIMEOUT
    assert all(f.result().key for f in futures[1:])
    assert gone(old) or old in pids(pool)
    assert len(pids(pool)) <= 3, "two, and a spare one once an answer was slow"


def test_slow_batches_do_not_starve_the_others() -> None:
    """One worker; eight answers that hang wait in one batch, a quick one comes last: its batch is served second."""
    pool = Pool(1)
    try:
        ask(pool, ASKS[0]).result()
        slow = [pool.submit(f"{HANGS}+{k}", "hundredths", 1.0, "slow") for k in range(8)]
        quick = pool.submit(ASKS[1], "hundredths", 10.0, "quick")
        assert quick.result(60).key
        assert sum(future.done() for future in slow) <= 2
    finally:
        pool.close()


def test_a_call_has_a_time_of_its_own(pool: Pool) -> None:
    """What is not judged then is a timeout, and not remembered as one."""
    rule = MathRule(deadline=30.0, within=1.0, pool=pool)
    answers = asyncio.run(rule.judge([HANGS, f"{HANGS}+1", ASKS[0], "1/2"]))
    assert [a.verdict for a in answers] == ["timeout", "timeout", "timeout", None]
    assert pool._known == {}
    assert MathRule().fingerprint != MathRule(within=1.0).fingerprint


def test_verdicts_are_kept_under_their_deadline(pool: Pool) -> None:
    assert ask(pool, HANGS, 0.5).result() == TIMEOUT
    begun = time.monotonic()
    assert ask(pool, HANGS, 0.5).done()
    assert time.monotonic() - begun < 0.1
    assert not ask(pool, HANGS, 0.6).done()


def test_a_process_that_is_killed_by_others_is_replaced(pool: Pool) -> None:
    ask(pool, ASKS[0]).result()
    for pid in pids(pool):
        os.kill(pid, signal.SIGKILL)
    assert [ask(pool, a).result().key is not None for a in ASKS[:4]] == [True] * 4


def test_what_kills_every_process_is_given_up() -> None:
    pool = Pool(1)
    future = ask(pool, HANGS, 60.0)
    for _ in range(2):
        end = time.monotonic() + 60
        while not any(worker._ready for worker in list(pool._serving)) and time.monotonic() < end:
            time.sleep(0.01)
        (pid,) = pids(pool)
        os.kill(pid, signal.SIGKILL)
        while pid in pids(pool) and time.monotonic() < end:
            time.sleep(0.01)
    assert future.result(60) == TIMEOUT
    pool.close()


def test_cancelled_answers_are_not_asked(pool: Pool) -> None:
    futures = [ask(pool, HANGS, 1.0), ask(pool, HANGS + "+1", 1.0), ask(pool, ASKS[0])]
    assert futures[2].cancel()
    assert ask(pool, ASKS[1]).result().key


def test_from_threads_and_from_several_event_loops(pool: Pool) -> None:
    rule = MathRule(pool=pool)

    def judge(k: int) -> list[str | None]:
        return [a.key for a in asyncio.run(rule.judge([*ASKS[k : k + 5], "1/2"]))]

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(judge, range(16)))
    assert all(None not in keys and keys[-1] == "1/2" for keys in results)
    assert results[0][1:5] == results[1][0:4]


def test_a_cancelled_task_leaves_the_pool_usable(pool: Pool) -> None:
    rule = MathRule(deadline=1.0, pool=pool)

    async def cancel() -> None:
        task = asyncio.create_task(rule.judge([HANGS, *ASKS]))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert asyncio.run(rule.judge(ASKS[:2]))[0].key


def test_closing_ends_all_processes_and_leaves_no_zombie() -> None:
    pool = Pool(2)
    futures = [ask(pool, HANGS, 60.0), ask(pool, HANGS + "+1", 60.0), ask(pool, ASKS[0])]
    while len(pids(pool)) < 2:
        time.sleep(0.01)
    children = pids(pool)
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert all(isinstance(f.exception(10), WorkerError) for f in futures)
    with pytest.raises(WorkerError, match="closed"):
        ask(pool, ASKS[0])


def test_an_error_says_when_processes_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    pool = Pool(1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerError, match=r"did not start.*metagen\[math\]"):
        ask(pool, ASKS[0]).result(60)
    pool.close()


SCRIPT = """
    import asyncio, os, sys
    from metagen.verifiers.math import MathRule
    from metagen.verifiers.math.pool import shared
    assert not {"sympy", "mpmath", "math_verify"} & set(sys.modules)
    rule = MathRule(deadline=30)
    assert asyncio.run(rule.key("\\\\tan 2x")) == asyncio.run(rule.key("\\\\frac{1}{\\\\cot 2x}"))
    assert not {"sympy", "mpmath", "math_verify"} & set(sys.modules)
    print(*(w._process.pid for w in shared()._serving), flush=True)
"""


def script(tmp_path: Path, more: str) -> subprocess.Popen[str]:
    """A program without a main guard, as people write them."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(SCRIPT) + textwrap.dedent(more), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_program_without_a_main_guard_runs_once_and_leaves_nothing(tmp_path: Path) -> None:
    out, error = script(tmp_path, "").communicate(timeout=120)
    assert error == "" and len(out.splitlines()) == 1
    assert all(gone(int(pid)) for pid in out.split())


def test_workers_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    process = script(tmp_path, f"asyncio.run(MathRule(deadline=3).key({HANGS!r}))")
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    time.sleep(0.5)
    process.kill()
    process.communicate()
    # One that is busy when its parent dies is ended by its own alarm.
    assert workers and all(gone(pid, 60) for pid in workers)


def test_a_pause_of_the_machine_is_no_delay(tmp_path: Path) -> None:
    more = """
        print("asks", flush=True)
        print(asyncio.run(MathRule(deadline=4).judge(["\\\\int_0^1 \\\\frac{x^2 e^x}{3}\\\\,dx"])))
    """
    process = script(tmp_path, more)
    assert process.stdout is not None
    while process.stdout.readline() != "asks\n":
        pass
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(6.0)
    os.killpg(process.pid, signal.SIGCONT)
    out, error = process.communicate(timeout=120)
    assert error == "" and "verdict=None" in out, out


def test_an_exit_in_the_middle_of_an_answer_is_quiet(tmp_path: Path) -> None:
    more = f"""
        async def leave():
            asyncio.ensure_future(rule.key({HANGS!r}))
            await asyncio.sleep(0.3)
        asyncio.run(leave())
    """
    out, error = script(tmp_path, more).communicate(timeout=120)
    assert error == ""
    assert all(gone(int(pid)) for pid in out.split())


def test_a_forked_child_has_a_pool_of_its_own(tmp_path: Path) -> None:
    more = """
        if os.fork() == 0:
            assert asyncio.run(rule.key("\\\\tan 3x")).startswith("function")
            print("child", len(shared()._serving), flush=True)
            shared().close()
            os._exit(0)
        os.wait()
        assert asyncio.run(rule.key("\\\\tan 4x")).startswith("function")
    """
    out, error = script(tmp_path, more).communicate(timeout=120)
    assert error == "" and "child 1" in out


def test_workers_see_neither_the_working_directory_nor_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sympy.py").write_text("raise SystemExit('imported from the working directory')", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    pool = Pool(1)
    assert ask(pool, ASKS[0]).result(120).key
    (pid,) = pids(pool)
    os.kill(pid, signal.SIGINT)
    assert ask(pool, ASKS[1]).result(120).key
    assert pids(pool) == {pid}
    pool.close()


def test_a_worker_that_uses_too_much_memory_is_given_up() -> None:
    worker = Worker()
    limits = ""
    for _ in range(600):
        limits = Path(f"/proc/{worker._process.pid}/limits").read_text("utf-8")
        if "2147483648" in limits:
            break
        time.sleep(0.1)
    worker.close()
    assert "2147483648" in limits


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_under_ray(tmp_path: Path) -> None:
    more = """
        import ray
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        @ray.remote
        class Actor:
            async def keys(self, answers):
                return [a.key for a in await MathRule().judge(answers)]
        actors = [Actor.remote() for _ in range(2)]
        keys = ray.get([a.keys.remote(["\\\\tan 2x", "\\\\tan 3x", "1/2"]) for a in actors])
        assert keys[0] == keys[1] and None not in keys[0], keys
        ray.shutdown()
        print("under ray")
    """
    out, error = script(tmp_path, more).communicate(timeout=300)
    assert "under ray" in out, error
