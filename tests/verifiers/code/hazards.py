"""Programs that attack, break or exhaust what judges them, and the verdicts that are right for each.

Each is to define `f`, and the tests ask for `f(2) == 4` and `f(3) == 9`. `{secret}` and the like are
filled in by the test. Some are from public collections, named where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass

HONEST = "def f(x): return x * x\n"
WRONG = "def f(x): return 0\n"
#: Honest only if the attempt before it has been refused, with the exception that it names.
REFUSED = "def f(x): return x * x if refused else 0\n"


@dataclass(frozen=True)
class Hazard:
    """verdicts: all that are right; a race inside may decide between several. wall: seconds, if not the usual."""

    name: str
    program: str
    verdicts: tuple[str, ...]
    wall: float = 10.0


def refused(name: str, attempt: str, errors: str = "OSError") -> Hazard:
    """An attempt that must fail; then the program is an honest one, and passes."""
    lines = "".join(f"    {line}\n" for line in attempt.strip().splitlines())
    program = f"refused = False\ntry:\n{lines}except ({errors}):\n    refused = True\n{REFUSED}"
    return Hazard(name, program, ("passed",))


def system_call(name: str, x86_64: int, aarch64: int, *args: int) -> Hazard:
    """A system call that must be refused, with EPERM or, where the kernel has not got it, ENOSYS."""
    numbers = ", ".join(map(str, args))
    attempt = f"""
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
number = {x86_64} if platform.machine() == "x86_64" else {aarch64}
if libc.syscall(number, {numbers or 0}) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
    raise OSError"""
    return refused(name, attempt)


FORGER = """
import gc, os, sys
main = sys.modules["__main__"]
nonce, number = main.nonce.split('"')[3], main.channel.number
"""

HAZARDS = (
    # Exits that look like success. The first three: bytedance/SandboxFusion, test_antihack.py (Apache-2.0).
    Hazard("exit builtin", "exit(0)\n", ("raised",)),
    Hazard("os._exit", "import os\nos._exit(0)\n", ("crashed",)),
    Hazard("sys.exit", "import sys\nsys.exit(0)\n", ("raised",)),
    Hazard("prints hello", "print('hello')\n", ("raised", "failed")),
    Hazard("os._exit in a call", "import os\ndef f(x): os._exit(0)\n", ("crashed",)),
    Hazard("sys.exit in a call", "import sys\ndef f(x): sys.exit(0)\n", ("raised",)),
    Hazard("kills itself", "import os\ndef f(x): os.kill(os.getpid(), 9)\n", ("crashed",)),
    Hazard("aborts", "import os\ndef f(x): os.abort()\n", ("crashed",)),
    Hazard("segmentation fault", "import ctypes\ndef f(x): return ctypes.string_at(0)\n", ("crashed",)),
    Hazard("zero division", "1 / 0\n", ("raised",)),  # this and the next: NVIDIA/NeMo-Skills (Apache-2.0)
    Hazard("bad indentation", "a = 2\n b = 3", ("raised",)),
    Hazard("null byte", "x = '\0'\n", ("raised",)),
    Hazard("nested too deeply to parse", "x = " + "(" * 20000 + ")" * 20000, ("raised", "memory", "crashed")),
    # Exhaustion.
    Hazard(
        "fork bomb",
        "import os\nwhile True:\n    os.fork()\n",
        ("raised", "timeout", "crashed", "forged"),
        wall=1,
    ),
    Hazard(
        "fork bomb in a call",
        "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass\n",
        ("timeout", "memory"),
        wall=0.4,
    ),
    Hazard(
        "memory bomb", "def f(x):\n    l = []\n    while True: l.append(bytearray(1 << 20))\n", ("memory",)
    ),
    Hazard("one huge object", "def f(x): return bytes(10**12)\n", ("memory",)),
    Hazard(
        "memory bomb of many processes",
        "import os, time\ndef f(x):\n    for _ in range(6):\n        if not os.fork():\n"
        "            b = bytearray(b'1') * (100 << 20)\n            time.sleep(100)\n    time.sleep(100)\n",
        ("timeout", "memory"),
        wall=1,
    ),
    refused("fills the disk", "for i in range(100):\n    open(f'/tmp/{i}', 'wb').write(bytes(1 << 20))"),
    refused(
        "one huge file",
        "with open('/tmp/x', 'wb') as file:\n    for _ in range(100): file.write(bytes(1 << 20))",
    ),
    refused("opens too many files", "kept = [open('/usr/bin/env') for _ in range(100_000)]"),
    refused(
        "a thousand threads",
        "import threading, time\nfor _ in range(1000):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "RuntimeError",
    ),
    Hazard("endless output", "while True: print('x' * 1000)\n", ("output",)),
    Hazard("endless errors", "import os\ndef f(x):\n    while True: os.write(2, b'x' * 1000)\n", ("output",)),
    Hazard("endless loop", "while True: pass\n", ("timeout",), wall=0.4),
    Hazard("endless loop in a call", "def f(x):\n    while True: pass\n", ("timeout",), wall=0.4),
    Hazard("sleeps", "import time\ndef f(x): time.sleep(1000)\n", ("timeout",), wall=0.4),
    Hazard(
        "catastrophic regular expression",
        "import re\ndef f(x): re.match('(a+)+$', 'a' * 64 + 'b')\n",
        ("timeout",),
        wall=0.4,
    ),
    Hazard("huge power", "def f(x): return 10 ** 10 ** 10\n", ("timeout", "memory"), wall=0.4),
    Hazard("endless recursion", "def f(x): return f(x)\n", ("raised",)),
    Hazard(
        "recursion without limit",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return repr(g())\ndef g():\n    a = []\n"
        "    for _ in range(10**6): a = [a]\n    return a\n",
        ("crashed", "memory", "raised"),
    ),
    Hazard(
        "stops itself",
        "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)\n",
        ("timeout",),
        wall=0.4,
    ),
    Hazard(
        "blocks on a full pipe",
        "import os\ndef f(x):\n    r, w = os.pipe()\n    while True: os.write(w, bytes(1 << 16))\n",
        ("timeout",),
        wall=0.4,
    ),
    Hazard("waits for input", "def f(x): return input()\n", ("raised",)),
    Hazard(
        "hanging import",
        "import sys\nopen('/tmp/slow.py', 'w').write('while True: pass')\nsys.path.append('/tmp')\nimport slow\n"
        + HONEST,
        ("timeout",),
        wall=0.4,
    ),
    # Refusing to end.
    Hazard(
        "ignores all signals",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass\n",
        ("timeout",),
        wall=0.4,
    ),
    Hazard(
        "daemonised child",
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        os.closerange(0, 3)\n"
        "        time.sleep(1000)\n    os._exit(0)\n" + HONEST,
        ("passed",),
    ),
    Hazard(
        "spawned sleeper",
        "import subprocess\nsubprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)\n" + HONEST,
        ("passed",),
    ),
    Hazard(
        "thread that outlives main",
        "import threading\ndef g():\n    while True: pass\nthreading.Thread(target=g).start()\n" + HONEST,
        ("passed",),
    ),
    Hazard(
        "hanging exit handler",
        "import atexit, time\natexit.register(time.sleep, 1000)\n" + HONEST,
        ("passed",),
    ),
    Hazard(
        "two processes answer",
        "import os\ndef f(x):\n    os.fork()\n    return x * x\n",
        ("forged", "passed"),
    ),
    # Forged verdicts.
    Hazard(
        "answers with every expected value it can find",
        FORGER
        + "def f(x):\n    words = [o for o in gc.get_objects() if isinstance(o, dict) and 'tests' in o]\n"
        "    return 9 if any('f(3)' in str(w) for w in words) else 4\n",
        ("failed",),
    ),
    Hazard(
        "forged answers",
        FORGER + "for i in (1, 2, 3):\n"
        '    os.write(number, (\'{"nonce":"%s","id":%d,"returned":4}\\n\' % (nonce, i)).encode())\n' + WRONG,
        ("forged", "failed"),
    ),
    Hazard(
        "forged verdict",
        FORGER + "def f(x):\n"
        '    os.write(number, (\'{"nonce":"%s","test":0,"verdict":"passed"}\\n\' % nonce).encode())\n    os._exit(0)\n',
        ("forged",),
    ),
    Hazard(
        "forged verdict without the nonce",
        "import os\ndef f(x):\n    for fd in range(3, 256):\n"
        '        try: os.write(fd, b\'{"verdict":"passed"}\\n\')\n        except OSError: pass\n    return 0\n',
        ("forged",),
    ),
    Hazard(
        "malformed answer",
        FORGER + 'os.write(number, (\'{"nonce":"%s","id":1,"raised":5}\\n\' % nonce).encode())\n',
        ("forged",),
    ),
    Hazard(
        "answer nested without end",
        FORGER + 'os.write(number, (\'{"nonce":"%s","id":1,"returned":\' % nonce).encode()'
        " + b'[' * 100_000 + b']' * 100_000 + b'}\\n')\nos._exit(0)\n",
        ("forged",),
    ),
    Hazard(
        "answer without end",
        FORGER + "while True: os.write(number, b'x' * 65536)\n",
        ("output", "forged", "crashed"),
    ),
    Hazard("closes the channel", "import os\nos.closerange(3, 1024)\n" + HONEST, ("crashed",)),
    Hazard("prints that it has passed", "print('2 passed')\nprint('OK')\n" + WRONG, ("failed",)),
    # A patched judge, if there were one to patch.
    Hazard(
        "patched builtins",
        "import builtins\nfor n in ('isinstance', 'len', 'type', 'repr', 'str', 'print', 'eval', 'all', 'any'):\n"
        "    setattr(builtins, n, lambda *a, **k: True)\n" + WRONG,
        ("failed", "crashed", "forged", "raised", "unrepresentable"),
    ),
    Hazard(
        "patched exits",
        "import os, sys\nsys.exit = os._exit = os.abort = lambda *a: None\n" + WRONG,
        ("failed",),
    ),
    Hazard(
        "patched exceptions",
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.BaseException = KeyError\n" + WRONG,
        ("failed",),
    ),
    Hazard(
        "patched harness",
        "import sys\nsys.modules['__main__'].candidate.call = lambda r: '\"returned\":true'\n" + WRONG,
        ("failed",),
    ),
    Hazard(
        "patched encoder",
        "import sys\nm = sys.modules['__main__']\nm.Encoder.text = lambda *a: '{\"anything\":1}'\n" + WRONG,
        ("failed", "raised"),
    ),
    Hazard(
        "stack frames of the judge",
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        frame.f_globals['f'] = frame.f_globals['__builtins__'] = None\n        frame = frame.f_back\n"
        "    return 0\n",
        ("failed", "crashed", "raised"),
    ),
    Hazard(
        "equal to everything",
        "class A:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return A()\n",
        ("unrepresentable",),
    ),
    Hazard(
        "integer equal to everything",
        "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return A(0)\n",
        ("failed",),
    ),
    Hazard(
        "disguised as an integer",
        "class A:\n    @property\n    def __class__(self): return int\n    def __index__(self): return 4\n"
        "    def __eq__(self, other): return True\ndef f(x): return A()\n",
        ("unrepresentable", "raised"),
    ),
    Hazard("ends the tests' loop", "def f(x): raise StopIteration\n", ("raised",)),
    Hazard("raises an assertion", "def f(x): raise AssertionError\n", ("raised",)),
    Hazard(
        "raises what cannot be shown",
        "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f(x): raise E\n",
        ("raised",),
    ),
    # Huge and strange values.
    Hazard("huge list", "def f(x): return [0] * 10**7\n", ("output", "memory")),
    Hazard("brackets of nothing", "def f(x): return [[]] * 400_000\n", ("output",)),
    Hazard("pairs of nothing", "def f(x): return {(i,): () for i in range(300_000)}\n", ("output",)),
    Hazard(
        "half a million lists past the encoder",
        FORGER
        + 'answer = (\'{"nonce":"%s","id":3,"returned":[\' % nonce).encode() + b\'[],\' * 500_000 + b\'[]]}\\n\'\n'
        "def f(x):\n    while answer_left: del answer_left[:os.write(number, answer_left)]\n"
        "answer_left = bytearray(answer)\n",
        ("output",),
    ),
    Hazard("huge text", "def f(x): return 'x' * (50 << 20)\n", ("output",)),
    Hazard("endless generator", "def f(x):\n    while True: yield x\n", ("failed",)),
    Hazard(
        "forged values of the library",
        FORGER + "import json\ndef f(x):\n"
        "    for made in (['os', 'system', ['true']], ['builtins', 'eval', ['4']], ['datetime', 'date', [x]]):\n"
        "        answer = {'nonce': nonce, 'id': 3, 'returned': {'made': made}}\n"
        "        os.write(number, (json.dumps(answer) + '\\n').encode())\n    os._exit(0)\n",
        ("forged", "crashed", "unrepresentable"),
    ),
    Hazard(
        "an iterator that is no iterator",
        FORGER
        + "import json\ndef f(x):\n    answer = {'nonce': nonce, 'id': 2, 'returned': {'lazy': [10**9, 'generator']}}\n"
        "    os.write(number, (json.dumps(answer) + '\\n').encode())\n    while True: pass\n",
        ("failed", "forged", "timeout"),
        wall=0.4,
    ),
    Hazard(
        "uses what was never lent",
        "import sys\nmain = sys.modules['__main__']\ndef f(x):\n    lent = main.Lent(-1)\n"
        "    try: lent()\n    except IndexError: pass\n    return 4 if lent.expected else 5\n",
        ("raised", "failed", "unrepresentable"),
    ),
    Hazard(
        "asks back without end",
        "import sys\nmain = sys.modules['__main__']\ndef f(x):\n    while True:\n"
        "        try: main.Lent(-1)()\n        except IndexError: pass\n",
        ("timeout", "output", "unrepresentable"),
        wall=0.4,
    ),
    Hazard(
        "asks back in a form of its own",
        FORGER + "def f(x):\n"
        '    os.write(number, (\'{"nonce":"%s","id":2,"back":{"function":["eval"],"args":[]}}\\n\' % nonce).encode())\n'
        "    return 4\n",
        ("forged",),
    ),
    Hazard(
        "has an expression evaluated by the tests",
        "import sys\nmain = sys.modules['__main__']\ndef f(x):\n"
        "    for use in ('eval', 'exec', '__import__', 'getattr', 'call'):\n"
        "        try: main.candidate.back(use, ('__import__(\"os\")._exit(0)', 'x'))\n"
        "        except TypeError: pass\n    return 4\n",
        ("failed", "raised", "unrepresentable"),
    ),
    Hazard(
        "named like what is made again",
        "class date:\n    __module__ = 'datetime'\n    year, month, day = 2026, 1, 2\n"
        "    def __eq__(self, other): return True\n"
        "date.__qualname__ = 'date'\ndef f(x): return date()\n",
        ("failed",),
    ),
    Hazard(
        "a tuple with names that is equal to everything",
        "class A(tuple):\n    _fields = ('x',)\n    def __eq__(self, other): return True\n"
        "    __hash__ = tuple.__hash__\ndef f(x): return A((4,))\n",
        ("failed",),
    ),
    Hazard(
        "list within itself", "def f(x):\n    a = []\n    a.append(a)\n    return a\n", ("unrepresentable",)
    ),
    Hazard("integer of too many digits", "def f(x): return 10 ** 10_000\n", ("failed",)),
    Hazard("lone surrogate", "def f(x): return '\\ud800'\n", ("failed",)),
    # The user's files, environment, processes and network.
    refused("a file of the user's", "open({secret!r}).read()"),
    refused(
        "a symbolic link to it", "import os\nos.symlink({secret!r}, '/tmp/link')\nopen('/tmp/link').read()"
    ),
    refused(
        "the user's home",
        "import os\nfor name in os.listdir({home!r}):\n    if not name.startswith('.'):\n        refused = None\n"
        "if refused is False: raise OSError",
    ),
    refused("passwords", "open('/etc/passwd').read()"),
    refused("the environment", "import os\nif 'METAGEN_TEST_SECRET' not in os.environ: raise OSError"),
    refused("the environment of others", "open('/proc/1/environ').read()"),
    refused("its own memory as a file", "open('/proc/self/mem').read()"),
    refused("the system's files", "open('/usr/bin/env', 'ab')"),
    refused("the root directory", "open('/planted', 'w')"),
    refused("the interpreter's files", "import os\nopen(os.__file__, 'a')"),
    refused(
        "packages of the system",
        "import glob, sys\nfor place in ('/usr', '/usr/local', sys.base_prefix):\n"
        "    if glob.glob(place + '/lib*/python3*/*-packages/*'): refused = None\nif refused is False: raise OSError",
    ),
    refused(
        "a file where packages are",
        "import sys\nfor place in ('/usr', '/usr/local', sys.base_prefix):\n"
        "    open(f'{place}/lib/python3/dist-packages/planted', 'w')",
    ),
    refused("a kernel device", "open('/dev/kmsg').read()"),
    refused(
        "shared memory beyond the disk",
        "for i in range(40):\n    with open(f'/dev/shm/{i}', 'wb') as file: file.write(bytes(1 << 20))",
    ),
    refused("the network", "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=5)"),
    refused("name service", "import socket\nsocket.getaddrinfo('example.org', 80)"),
    refused("a socket of the user's", "import socket\nsocket.socket(socket.AF_UNIX).connect({socket!r})"),
    refused(
        "an abstract socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r})"
    ),
    refused("the virtual machine's host", "import socket\nsocket.socket(40, socket.SOCK_STREAM)"),
    refused("root by setuid", "import os\nos.setuid(0)"),
    refused(
        "root by a program",
        "import subprocess\nif subprocess.run(['/bin/su', '-c', 'id'], capture_output=True, stdin=-3).returncode:\n"
        "    raise OSError",
    ),
    refused(
        "higher limits",
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))",
        "ValueError, OSError",
    ),
    refused("higher priority", "import os\nos.setpriority(os.PRIO_PROCESS, 0, -20)"),
    refused(
        "a device of its own",
        "import os, stat\nos.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))\nopen('/tmp/disk')",
    ),
    Hazard(
        "kills all it can",
        "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\ntry: os.kill(1, 9)\nexcept OSError: pass\n"
        + HONEST,
        ("passed",),
    ),
    Hazard(
        "removes where it works",
        "import os, shutil\nshutil.rmtree('/tmp', ignore_errors=True)\n" + HONEST,
        ("passed",),
    ),
    system_call("ptrace", 101, 117, 16, 1, 0, 0),
    system_call("reading another's memory", 310, 270, 1, 0, 0, 0, 0, 0),
    system_call("a user namespace", 272, 97, 0x10000000),
    system_call("a mount", 165, 40, 0, 0, 0, 0, 0),
    system_call("a file system in memory", 319, 279, 0, 0),
    system_call("kernel programs", 321, 280, 0, 0, 0),
    system_call("io_uring", 425, 425, 1, 0),
    system_call("a clone into a new namespace", 56, 220, 0x10000011, 0, 0, 0, 0),
)
