"""Programs that are copies of one server: each finds the world of a process that started alone, and none the others."""

import asyncio
import gc
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.verifiers.code import nest
from metagen.verifiers.code.bubblewrap import Bubblewrap
from metagen.verifiers.code.execution import SandboxError, Stopped
from metagen.verifiers.code.language import Python
from metagen.verifiers.code.nest import Nest
from metagen.verifiers.code.sandbox import Outcome, Sandbox, load
from metagen.verifiers.code.session import Session
from tests.verifiers.code.test_hazards import parent, pids, remains
from tests.verifiers.code.test_sandbox import gone


@pytest.fixture(params=["as it is here", "as an ordinary user"])
def warm(request: pytest.FixtureRequest, sandbox: Sandbox) -> Iterator[Sandbox]:
    """A sandbox whose programs are copies, in nests of its own."""
    isolation, interpreter, groups = sandbox.isolation, sandbox.language, True
    if request.param == "as an ordinary user":
        setpriv, system = shutil.which("setpriv"), shutil.which("python3", path="/usr/bin:/bin")
        if not (isinstance(isolation, Bubblewrap) and isolation.root and setpriv and system):
            pytest.skip(
                "the sandbox as it is here is an ordinary user's, or there is no interpreter that all may read"
            )
        nobody = (setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--")
        isolation, interpreter, groups = (
            replace(isolation, root=False, prefix=nobody),
            Python(Path(system)),
            False,
        )
    found = Sandbox(interpreter, sandbox.limits, isolation=isolation, control_groups=groups, concurrency=4)
    if not found._nests.offer(found.language):
        pytest.skip("no server can confine its copies on this machine")
    yield found
    assert remains() == []


def current(sandbox: Sandbox) -> Nest:
    """The nest of candidates in this thread."""
    found: Nest = sandbox._nests._of_thread.nests[os.getpid(), "candidate"]
    return found


def evaluate(sandbox: Sandbox, program: str, *expressions: str, **limits: float) -> Outcome:
    return asyncio.run(sandbox.evaluate(program, expressions, limits=replace(sandbox.limits, **limits)))


def texts(outcome: Outcome) -> list[str]:
    assert outcome.verdict == "finished", outcome
    return [answer.text for answer in outcome.answers]


WORLD = """
import ctypes, os, resource, signal, sys, threading
before = set(sys.modules)
ours = {"ctypes", "ctypes._endian", "_ctypes", "struct", "_struct", "resource", "threading", "solution"}
modules = sorted(before - ours)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capget(header, data) == 0
def fds():
    found = []
    for fd in range(256):
        try: found.append(os.fstat(fd) and fd)
        except OSError: pass
    return found
def paths(top):
    return sorted((entry.path, entry.is_symlink(), entry.stat().st_mode) for entry in os.scandir(top))
limits = [(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name[:7] == "RLIMIT_"]
handlers = [(number, str(signal.getsignal(number))) for number in signal.valid_signals()]
"""
SEEN = (
    "modules", "limits", "list(data)", "len(fds())", "os.getgroups()", "os.getcwd()", "dict(os.environ)", "sys.path",
    "os.getpid() < 3, os.getppid()", "paths('/')", "paths('/tmp')", "paths('/dev')", "paths('/etc')", "os.umask(0)",
    "handlers", "signal.pthread_sigmask(0, [])", "threading.active_count(), threading.current_thread().name",
    "os.statvfs('/tmp').f_blocks", "os.statvfs('/').f_flag & os.ST_RDONLY", "os.nice(0)", "os.uname()[1]",
    "[str(s) for s in (sys.stdin, sys.stdout, sys.stderr)]", "sys.flags", "sys.stdout.seekable(), sys.stdout.isatty()",
    "__name__, sorted(globals())", "sys.getrecursionlimit()", "os.getsid(0) == os.getpgid(0) < 3",
    "__import__('gc').isenabled()",
)  # fmt: skip


def test_the_world_of_a_copy_is_that_of_a_process_alone(
    warm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = evaluate(warm, WORLD, *SEEN)
    monkeypatch.setattr(warm._nests, "offer", lambda language: None)
    alone = evaluate(warm, WORLD, *SEEN)
    for what, one, other in zip(SEEN, texts(copy), texts(alone), strict=True):
        assert one == other, what


PLANT = """
import builtins, ctypes, gc, os, signal, socket, sys
builtins.len = None
sys.modules["json"] = sys.modules["re"] = None
sys.path.append("x")
os.environ["A"] = "b"
os.umask(0o77)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in ("/tmp/planted", "/dev/shm/planted"):
    open(name, "w").write("x" * 1000)
os.mkdir("/tmp/folder")
os.chdir("/tmp/folder")
server = socket.socket(socket.AF_UNIX)
server.bind("\\0planted")
server.listen()
if not os.fork():
    os.setsid()
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: signal.pause()
"""
LOOK = """
import builtins, os, signal, socket, sys
found = []
found += os.listdir("/tmp") + [os.getcwd()]
found += [len("ab"), "x" in sys.path, "A" in os.environ, oct(os.umask(0)), signal.getsignal(signal.SIGTERM)]
import json
try: socket.socket(socket.AF_UNIX).connect("\\0planted"); found.append("a socket")
except OSError: pass
others = []
for pid in range(1, 1000):
    try: os.kill(pid, 0); others.append(pid)
    except PermissionError: others.append(pid)
    except ProcessLookupError: pass
"""


@pytest.mark.parametrize("together", [False, True])
def test_nothing_of_another_program_is_found(warm: Sandbox, together: bool) -> None:
    """Neither after it has ended nor while it runs."""

    async def planted() -> tuple[Outcome, list[bool]]:
        async with AsyncExitStack() as stack:
            if together:
                place = await stack.enter_async_context(warm.open(warm.limits))
                verdict, _ = await load(place, PLANT, "solution")
            else:
                verdict = (await warm.evaluate(PLANT, [])).verdict
            assert verdict == "finished"
            first = current(warm)
            outcome = await warm.evaluate(LOOK, ["found", "others"])
            return outcome, [first is current(warm)]

    outcome, same = asyncio.run(planted())
    assert same == [True]
    assert texts(outcome) == ["['/tmp', 2, False, False, '0o22', <Handlers.SIG_DFL: 0>]", "[1, 2]"] or texts(
        outcome
    ) == [
        "['/tmp', 2, False, False, '0o22', 0]",
        "[1, 2]",
    ]


OWN_GROUP = ("os.kill(0, 9)", "os.killpg(os.getpgid(0), 9)")


@pytest.mark.parametrize(
    "attack",
    [
        *OWN_GROUP,
        "os.kill(-1, 9)",
        "os.kill(os.getppid(), 9)",
        "[os.kill(os.getppid(), n) for n in range(1, 32)]",
        "os.kill(1, 2)",
        "[kill(pid, n) for pid in range(-40, 1000) for n in (19, 2, 15, 10, 9) if pid not in own]",
        "[prlimit(pid, n) for pid in (1, os.getppid()) for n in (0, 6, 7, 9)]",
        "os.fork() or os.setsid() or os.kill(0, 9)",
    ],
)
def test_signals_and_limits_reach_no_other_program(warm: Sandbox, attack: str) -> None:
    program = """
import os, resource
own = (0, -os.getpgid(0), os.getpid())
def kill(*args):
    try: os.kill(*args)
    except OSError: pass
def prlimit(pid, n):
    try: resource.prlimit(pid, n, (1, 1))
    except (OSError, ValueError): pass
"""

    async def attacked() -> None:
        async with warm.open(replace(warm.limits, wall=60.0)) as beside:
            assert (await load(beside, "def f(x): return x * x", "solution"))[0] == "finished"
            first = current(warm)
            outcome = await warm.evaluate(program, [attack], limits=replace(warm.limits, wall=0.5))
            # The first reach their sender; the others have tried all that they name.
            assert outcome.verdict == ("crashed" if attack in OWN_GROUP else "finished"), outcome
            assert (await beside.ask({"op": "eval", "code": "f(3)"}))["returned"] == 9
            assert (await warm.evaluate("", ["1"])).verdict == "finished"
            assert current(warm) is first

    asyncio.run(attacked())


def test_a_copy_knows_the_secret_of_no_other(warm: Sandbox) -> None:
    """The nonce with which one is answered is in the memory of that one alone, as far as its objects tell."""
    program = """
import gc, re, sys
def secrets():
    found, seen, waiting = set(), set(), [sys.modules, *gc.get_objects(), *sys._current_frames().values()]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen: continue
        seen.add(id(thing))
        if isinstance(thing, bytes): thing = thing.decode("latin-1")
        if isinstance(thing, str): found |= set(re.findall("(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", thing))
        else: waiting += gc.get_referents(thing)
    return sorted(found)
"""

    async def several() -> None:
        async with AsyncExitStack() as stack:
            sessions: list[Session] = []
            for _ in range(3):
                sessions.append(await stack.enter_async_context(warm.open(warm.limits)))
                assert (await load(sessions[-1], program, "solution"))[0] == "finished"
            for session in sessions:
                found = (await session.ask({"op": "eval", "code": "secrets()"}))["returned"]
                assert found == [session._nonce]

    asyncio.run(several())


def test_each_has_a_user_of_its_own(warm: Sandbox) -> None:
    """As root; another's are in user namespaces of their own, where none sees the others."""
    users = {texts(evaluate(warm, "import os", "os.getresuid()"))[0] for _ in range(3)}
    assert len(users) == (3 if warm.isolation.root else 1)  # type: ignore[attr-defined]  # bubblewrap, says the fixture


def test_processes_are_counted_for_each(warm: Sandbox) -> None:
    program = """
import os, time
def count():
    n = 0
    try:
        while True:
            if not os.fork(): time.sleep(100)
            n += 1
    except OSError:
        return n
"""

    async def both() -> list[Outcome]:
        return list(await asyncio.gather(*(warm.evaluate(program, ["count()"]) for _ in range(2))))

    assert [texts(outcome) for outcome in asyncio.run(both())] == [[str(warm.limits.processes - 1)]] * 2


def test_the_end_of_a_server_is_no_verdict(warm: Sandbox) -> None:
    """Whoever ends it, no program is blamed, and the next ones get another."""

    async def ended() -> None:
        async with warm.open(warm.limits) as session:
            assert (await load(session, "import time", "solution"))[0] == "finished"
            first = current(warm)
            inner = next(int(pid) for pid in pids() if parent(int(pid)) == first.pid)
            server = next(int(pid) for pid in pids() if parent(int(pid)) == inner)
            os.kill(server, signal.SIGKILL)
            with pytest.raises(SandboxError, match="because the process that started it did"):
                await session.ask({"op": "eval", "code": "time.sleep(60)"})
        assert (await warm.evaluate("", ["1"])).verdict == "finished"
        assert current(warm) is not first

    asyncio.run(ended())


def test_an_exit_is_of_the_program_that_exits(warm: Sandbox) -> None:
    async def exits() -> list[str]:
        async with AsyncExitStack() as stack:
            details = []
            for code in (3, 0, 7):
                session = await stack.enter_async_context(warm.open(warm.limits))
                with pytest.raises(Stopped) as stop:
                    await session.ask(
                        {"op": "load", "source": f"import os\nos._exit({code})", "name": "solution"}
                    )
                details.append(stop.value.detail)
            return details

    assert asyncio.run(exits()) == [
        f"the program ended with exit status {n} before it answered" for n in (3, 0, 7)
    ]


def test_a_server_serves_so_many(warm: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest, "PROGRAMS", 2)
    servers, orders = [], []
    for _ in range(4):
        orders += texts(evaluate(warm, "", "hash('a')"))
        servers.append(current(warm).pid)
    assert servers[0] == servers[1] != servers[2] == servers[3]
    assert orders[0] == orders[1] != orders[2] == orders[3]


def test_a_thread_has_servers_of_its_own(warm: Sandbox) -> None:
    """The kernel ends them with it."""
    evaluate(warm, "")
    own, others = current(warm).pid, []

    def elsewhere() -> None:
        evaluate(warm, "", "1")
        others.append(current(warm).pid)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert others != [own]
    assert texts(evaluate(warm, "", "1")) == ["1"]
    assert current(warm).pid == own
    gc.collect()
    assert gone(others[0])


def test_where_no_server_works_programs_start_alone(warm: Sandbox) -> None:
    assert isinstance(warm.isolation, Bubblewrap)
    without = Sandbox(
        warm.language, warm.limits, isolation=replace(warm.isolation, filter=None), control_groups=False
    )
    assert not without._nests.offer(without.language)
    assert texts(evaluate(without, "", "1")) == ["1"]
    missing = Python(Path("/bin/true").resolve())
    assert not warm._nests.offer(missing)


@pytest.mark.parametrize("path", ["/nonexistent", "/bin/false"])
def test_a_server_that_cannot_start_leaves_nothing(
    warm: Sandbox, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No open file, no process; and it closes each file once, for the number may be another thread's by then."""
    assert isinstance(warm.isolation, Bubblewrap)
    close, twice = os.close, []

    def record(fd: int) -> None:
        try:
            close(fd)
        except OSError:
            twice.append(fd)

    def files() -> list[str]:
        gc.collect()
        return sorted(file.name for file in Path("/proc/self/fd").iterdir())

    def children() -> set[str]:
        return {pid for pid in pids() if parent(int(pid)) == os.getpid()}

    before, others = files(), children()
    monkeypatch.setattr(os, "close", record)
    assert not nest.works.__wrapped__(replace(warm.isolation, path=path), Python())
    assert files() == before
    assert twice == []
    assert children() == others


def test_packages_below_tmp_are_seen(warm: Sandbox, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    (tmp_path / "theirs.py").write_text("x = 3")
    assert isinstance(warm.language, Python)
    packages = replace(warm.language, packages=(tmp_path,))
    found = Sandbox(packages, warm.limits, isolation=warm.isolation, control_groups=False)
    assert texts(evaluate(found, "import theirs", "theirs.x")) == ["3"]
