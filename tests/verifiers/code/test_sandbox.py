"""One execution: what goes in, what comes out, and what is left behind."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import abc
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import InputError, MetagenError
from metagen.verifiers.code import bubblewrap
from metagen.verifiers.code.cgroup import GroupError, Groups
from metagen.verifiers.code.execution import SandboxError
from metagen.verifiers.code.isolation import IsolationError, NoIsolation
from metagen.verifiers.code.language import Python, Start
from metagen.verifiers.code.limits import MIB, Limits
from metagen.verifiers.code.process import Process
from metagen.verifiers.code.sandbox import Outcome, Sandbox
from tests.verifiers.code.test_hazards import remains


class Nowhere(NoIsolation):
    def command(self, inner: abc.Sequence[str], limits: Limits, **view: Any) -> list[str]:
        return ["/nowhere/bwrap", *inner]


class Elsewhere(Python):
    """An interpreter that the sandbox has not got."""

    def script(self, file: str) -> Start:
        return Start(["/nowhere/python", file])


def execute(sandbox: Sandbox, program: str, stdin: str = "", **limits: float) -> Outcome:
    return asyncio.run(sandbox.execute(program, stdin=stdin, limits=replace(sandbox.limits, **limits)))


def test_a_script_runs_to_its_end(sandbox: Sandbox) -> None:
    outcome = execute(sandbox, "import sys\nprint('hello')\nprint('there', file=sys.stderr)")
    assert (outcome.verdict, outcome.stdout, outcome.stderr) == ("finished", "hello\n", "there\n")


def test_a_script_is_main_and_waits_for_its_threads(sandbox: Sandbox) -> None:
    program = """
import threading, time
def late():
    time.sleep(0.1)
    print(__name__)
threading.Thread(target=late).start()
"""
    assert execute(sandbox, program).stdout == "__main__\n"


def test_input_is_read(sandbox: Sandbox) -> None:
    assert execute(sandbox, "print(input('something '))", "new").stdout == "something new\n"
    large = "x" * 1_000_000
    assert execute(sandbox, "import sys\nprint(len(sys.stdin.read()))", large).stdout == "1000000\n"
    assert execute(sandbox, "pass", large).verdict == "finished"


def test_no_input_is_an_error_and_no_hang(sandbox: Sandbox) -> None:
    outcome = execute(sandbox, "input()")
    assert outcome.verdict == "raised" and "EOFError" in outcome.detail


def test_the_deadline_is_of_the_wall(sandbox: Sandbox) -> None:
    program = "import time\ntime.sleep(1)\nprint('done')"
    assert execute(sandbox, program, wall=0.5).verdict == "timeout"
    assert execute(sandbox, program, wall=30).stdout == "done\n"


def test_a_traceback_shows_the_program_and_nothing_else(sandbox: Sandbox) -> None:
    detail = execute(sandbox, "def g():\n    return 1 / 0\n\ng()\n").detail
    assert 'File "/tmp/program.py", line 2, in g' in detail and "return 1 / 0" in detail
    assert detail.endswith("ZeroDivisionError: division by zero\n")
    assert "<inside>" not in detail


@pytest.mark.parametrize(
    ("code", "verdict"), [("0", "finished"), ("None", "finished"), ("3", "raised"), ("'bad'", "raised")]
)
def test_exit_codes_of_scripts(sandbox: Sandbox, code: str, verdict: str) -> None:
    assert execute(sandbox, f"import sys\nsys.exit({code})").verdict == verdict


def test_expressions_are_evaluated_where_the_program_is(sandbox: Sandbox) -> None:
    program = "n = 0\ndef f(x):\n    global n\n    n += 1\n    return {x, n}"
    outcome = asyncio.run(
        sandbox.evaluate(program, ["f('a')", "f(f)", "f([])", "n", "(1.0, True)", "(1, 1)"])
    )
    assert [a.verdict for a in outcome.answers] == [
        "finished",
        "unrepresentable",
        "raised",
        *["finished"] * 3,
    ]
    assert outcome.answers[0].text in ("{'a', 1}", "{1, 'a'}")
    assert "unhashable" in outcome.answers[2].text
    assert outcome.answers[4].key == outcome.answers[5].key
    assert outcome.verdict == "finished"


def test_brackets_in_a_text_are_text(sandbox: Sandbox) -> None:
    outcome = asyncio.run(sandbox.evaluate("", ["'[{' * 300_000 + chr(34) + '[' * 9"]))
    assert outcome.verdict == "finished" and len(outcome.answers[0].text) == 302


def test_what_ends_the_process_ends_the_answers(sandbox: Sandbox) -> None:
    program = "import os\ndef f(x): return os._exit(0) if x else 1"
    outcome = asyncio.run(sandbox.evaluate(program, ["f(0)", "f(1)", "f(0)"]))
    assert outcome.verdict == "crashed" and len(outcome.answers) == 1


def test_every_execution_is_a_fresh_one(sandbox: Sandbox) -> None:
    plant = """
import builtins, os, sys
builtins.len = None
open('/tmp/planted', 'w')
os.environ['A'] = 'b'
sys.path.append('x')
"""
    look = "import os, sys\nprint(os.listdir('/tmp'), 'A' in os.environ, 'x' in sys.path)"
    assert execute(sandbox, plant).verdict == "finished"
    assert execute(sandbox, look).stdout == "['program.py'] False False\n"


def test_it_sees_nothing_but_the_system(sandbox: Sandbox) -> None:
    program = """
import os
print(set(os.environ) <= {'LC_CTYPE', 'PWD'}, os.getcwd(), os.listdir('/tmp'), os.getuid() >= 1000)
print(sorted(os.listdir('/')))
"""
    words = execute(sandbox, program).stdout
    assert words.startswith("True /tmp ['program.py'] True\n")
    for hidden in ("home", "proc", "sys", "run", "var", "mnt"):
        assert f"'{hidden}'" not in words


def test_it_has_no_capabilities_and_no_files_of_ours(sandbox: Sandbox) -> None:
    program = """
import ctypes, os
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capget(header, data) == 0
fds = []
for fd in range(256):
    try: fds.append(os.fstat(fd) and fd)
    except OSError: pass
print(list(data), len(fds), os.getgroups())
"""
    assert execute(sandbox, program).stdout == "[0, 0, 0, 0, 0, 0] 3 []\n"


def test_processes_are_counted_for_each_run(sandbox: Sandbox) -> None:
    """The interpreter is one of them; runs at the same time do not share the limit."""
    assert asyncio.run(counted(sandbox)) == [sandbox.limits.processes - 1] * 2


async def counted(sandbox: Sandbox) -> list[int]:
    """How many children a program can have at once, in two runs side by side."""
    program = """
import os, time
n = 0
try:
    while True:
        if not os.fork():
            time.sleep(100)
        n += 1
except OSError:
    print(n)
"""
    return [int(o.stdout) for o in await asyncio.gather(*(sandbox.execute(program) for _ in range(2)))]


def test_packages_are_seen_when_named(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("x = 3")
    tmp_path.chmod(0o755)
    try:
        sandbox = Sandbox(Python(packages=(tmp_path,)))
    except IsolationError as error:
        pytest.skip(f"untrusted programs cannot be isolated on this machine: {error}")
    assert execute(sandbox, "import theirs\nprint(theirs.x)").stdout == "3\n"
    assert execute(sandbox, f"open({str(tmp_path / 'theirs.py')!r}, 'w')").verdict == "raised"


def test_packages_of_the_system_are_seen_when_named(sandbox: Sandbox) -> None:
    place = Path("/usr/lib/python3/dist-packages")
    found = [path for path in place.glob("*") if (path / "__init__.py").exists()]
    if not found:
        pytest.skip(f"no packages in {str(place)!r} on this machine")
    look = f"import os\nprint(len(os.listdir({str(place)!r})), os.path.exists({str(found[0] / '__init__.py')!r}))"
    for packages, seen in (
        ((), "0 False"),
        ((found[0],), "1 True"),
        ((place,), f"{len(list(place.iterdir()))} True"),
    ):
        assert execute(Sandbox(Python(packages=packages), sandbox.limits), look).stdout == f"{seen}\n"


def test_another_interpreter_runs_the_sources(sandbox: Sandbox) -> None:
    other = shutil.which("python3", path="/usr/bin:/bin")
    if other is None or Path(other).resolve() == Python().interpreter:
        pytest.skip("there is no other Python on this machine")
    assert execute(Sandbox(Python(Path(other))), "print('hello')").stdout == "hello\n"


def test_at_most_so_many_run_at_once_over_all_loops(sandbox: Sandbox) -> None:
    """Each candidate's sleep is an interval; no more than two overlap, from two loops in two threads."""
    narrow = Sandbox(limits=sandbox.limits, concurrency=2)
    program = "import time\nt = time.monotonic()\ntime.sleep(0.2)\nprint(t, time.monotonic())"
    spans: list[tuple[float, float]] = []

    async def several() -> None:
        for outcome in await asyncio.gather(*(narrow.execute(program) for _ in range(4))):
            begin, end = map(float, outcome.stdout.split())
            spans.append((begin, end))

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spans) == 8
    assert max(sum(b <= begin < e for b, e in spans) for begin, _ in spans) <= 2


def test_cancelling_kills_the_tree_and_leaves_nothing(sandbox: Sandbox) -> None:
    program = """
import os, time
for _ in range(3):
    if not os.fork(): time.sleep(1000)
time.sleep(1000)
"""
    before = len(list(Path("/proc/self/fd").iterdir()))

    async def cancelled() -> None:
        for pause in (0.0, 0.01, 0.05, 0.3):
            tasks = [asyncio.create_task(sandbox.execute(program)) for _ in range(3)]
            await asyncio.sleep(pause)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in results)
        assert (await sandbox.execute("print(1)")).stdout == "1\n"  # all places are free again

    asyncio.run(cancelled())
    assert remains() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("how", ["execute", "evaluate"])
@pytest.mark.parametrize("times", [1, 2])
def test_cancelling_while_it_closes_leaves_nothing(
    sandbox: Sandbox, how: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[dict[str, object]] = []
    asyncio.run(sandbox.evaluate("", []))  # a nest stays
    before = len(list(Path("/proc/self/fd").iterdir()))

    async def cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        closing = asyncio.Event()
        close = Process.close

        async def tell(self: Process) -> None:
            closing.set()
            await close(self)

        monkeypatch.setattr(Process, "close", tell)
        limits = replace(sandbox.limits, wall=0.2)
        run = {"execute": sandbox.execute, "evaluate": partial(sandbox.evaluate, expressions=[])}[how]
        task = asyncio.create_task(run("while True: pass", limits=limits))
        await closing.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert errors == []
    assert remains() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


HELD = """
import asyncio
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.sandbox import Sandbox

async def forever():
    sandbox = Sandbox()
    async with sandbox.place(), sandbox.open(Limits(wall=1000)) as session:
        program = "print('x', flush=True)\\nwhile True: pass"
        session.send({"id": 1, "op": "load", "name": "__main__", "source": program})
        while not session.stdout:
            await asyncio.sleep(0.01)
        print(session.process.pid, flush=True)
        await asyncio.sleep(1000)

asyncio.run(forever())
"""


def test_when_this_process_dies_so_do_its_candidates(sandbox: Sandbox) -> None:
    """SIGKILL leaves no time to clean up; the kernel does it."""
    with subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        assert gone(pid, seconds=0) is False
        holder.kill()
    assert gone(pid)


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether a process ends within some time."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_sandbox_that_does_not_start_is_no_verdict(sandbox: Sandbox) -> None:
    broken = Sandbox(Python(Path("/bin/true").resolve()), sandbox.limits)
    with pytest.raises(SandboxError, match="did not start"):
        asyncio.run(broken.evaluate("x = 1", ["x"]))
    missing = Sandbox(Elsewhere(), sandbox.limits)
    with pytest.raises(SandboxError, match="did not start"):
        execute(missing, "print(1)")
    assert remains() == []


def test_without_isolation_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    bubblewrap._find.cache_clear()
    try:
        with pytest.raises(IsolationError, match="apt-get install bubblewrap") as refusal:
            Sandbox()
    finally:
        bubblewrap._find.cache_clear()
    assert isinstance(refusal.value, InputError)
    assert "run_untrusted_programs_without_isolation=True" in str(refusal.value)


def test_an_isolation_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    bubblewrap._find.cache_clear()
    try:
        with pytest.raises(IsolationError, match="No permissions to create new namespace"):
            Sandbox()
    finally:
        bubblewrap._find.cache_clear()


def test_a_flag_that_says_so_runs_without_isolation(sandbox: Sandbox, tmp_path: Path) -> None:
    open_air = Sandbox(limits=sandbox.limits, run_untrusted_programs_without_isolation=True)
    assert isinstance(open_air.isolation, NoIsolation)
    assert "nothing is isolated" in open_air.holds[0] and "no limit on disk" in open_air.holds[1]
    (tmp_path / "file").write_text("read")
    assert execute(open_air, f"print(open({str(tmp_path / 'file')!r}).read())").stdout == "read\n"
    assert execute(open_air, "while True: pass", wall=0.5).verdict == "timeout"
    child = (
        "import subprocess\nprint(subprocess.Popen(['/bin/sleep', '1000']).pid, flush=True)\nwhile True: pass"
    )
    assert gone(int(execute(open_air, child, wall=1).stdout))


def test_what_holds_is_said(sandbox: Sandbox) -> None:
    words = " ".join(sandbox.holds)
    assert "no network" in words and "memory" in words
    plain = Sandbox(limits=sandbox.limits, control_groups=False)
    assert "each process has its limit" in " ".join(plain.holds)


@pytest.mark.parametrize("field", ["wall", "memory", "output", "cpu"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1"])
def test_limits_are_finite_and_positive(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Limits(**{field: value})  # type: ignore[arg-type]  # that is what is tested


def test_sizes_are_whole_numbers() -> None:
    with pytest.raises(InputError, match=r"'memory' is a whole number, got 1000000000\.0"):
        Limits(memory=1e9)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(InputError, match=r"'processes' is a whole number, got 1\.5"):
        Limits(processes=1.5)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("concurrency", [0, -1, 1.5])
def test_at_least_one_may_run(concurrency: float) -> None:
    with pytest.raises(InputError, match=f"concurrency={concurrency!r}"):
        Sandbox(concurrency=concurrency)  # type: ignore[arg-type]  # as above


def test_what_cannot_be_started_is_an_error_of_ours(sandbox: Sandbox, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    broken = Sandbox(limits=sandbox.limits, isolation=Nowhere(), control_groups=False)
    with pytest.raises(SandboxError, match="/nowhere/bwrap"):
        execute(broken, "print(1)")
    # A control group tells what a script was killed for; without one the interpreter does not stand.
    with suppress(SandboxError):
        assert execute(sandbox, "print(1)", memory=MIB).verdict == "memory"
    held = Sandbox(limits=sandbox.limits)
    held._groups = Groups(tmp_path / "none", None)
    with pytest.raises(GroupError, match="control_groups=False"):
        execute(held, "print(1)")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_such_interpreter() -> None:
    with pytest.raises(MetagenError, match="/nowhere/python"):
        Python(Path("/nowhere/python"))
    with pytest.raises(MetagenError, match="python3"):
        Python(Path("python3"))


HANDLED = "import signal; signal.signal(signal.SIGXCPU, lambda *_: print(1, flush=True))"


@pytest.mark.parametrize("before", ["", HANDLED])
def test_processor_time_binds_before_the_wall(sandbox: Sandbox, before: str) -> None:
    """A program that handles the kernel's signal is killed a second later."""
    outcome = execute(sandbox, f"{before}\nwhile True: pass", wall=60, cpu=0.5)
    assert bool(outcome.stdout) == bool(before)
    assert outcome.verdict == "timeout" and "processor time" in outcome.detail
