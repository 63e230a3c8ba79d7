"""A script behaves as under `python program.py < input`: each of these is first run so, without any sandbox."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.verifiers.code.language import Python
from metagen.verifiers.code.sandbox import Sandbox

INPUT = "3 4\n5\n"
#: What programs of contests do beside `print(input())`.
IDIOMS = {
    "exit": "print(input())\nexit()\nprint('late')",
    "quit with a status": "print(input())\nquit(0)",
    "sys.exit": "import sys\nprint(input())\nsys.exit(0)",
    "exit from a function in a thread that waits": (
        "import sys, threading\ndef main():\n    print(sum(map(int, input().split())))\n    sys.exit()\n"
        "threading.stack_size(1 << 25)\nt = threading.Thread(target=main)\nt.start()\nt.join()"
    ),
    "a name that is __main__": "def main(): print(input())\nif __name__ == '__main__': main()",
    "the module __main__": "import __main__\nx = 5\nprint(__main__.x, sorted(vars(__main__))[:3])",
    "input to its end": "try:\n    while True: print(input())\nexcept EOFError: print('end')",
    "lines of standard input": "import sys\nfor line in sys.stdin: print(line.split())",
    "bytes of standard input": "import sys\nprint(sys.stdin.buffer.read().split())",
    "readline as input": "import sys\ninput = sys.stdin.readline\nprint(int(input().split()[1]), [input(), input()])",
    "standard input by number": "print(open(0).read().split())",
    "standard input by name": "print(open('/dev/stdin').read().split())",
    "standard input as a descriptor": "print(open('/dev/fd/0').read().split())",
    "all of it by its size": (
        "import io, os\ndata = io.BytesIO(os.read(0, os.fstat(0).st_size))\nprint(data.readline(), data.readline())"
    ),
    "mapped into memory": "import mmap\nm = mmap.mmap(0, 0, access=mmap.ACCESS_READ)\nprint(m.readline())",
    "written as bytes": "import os, sys\nsys.stdout.write('1 ')\nsys.stdout.flush()\nos.write(1, b'2\\n')",
    "an end without ceremony, after flush": "import os\nprint(input(), flush=True)\nos._exit(0)",
    "an end without ceremony loses what waits": "import os\nprint('lost')\nos._exit(0)",
    "a handler at the end": "import atexit\natexit.register(print, 'bye')\nprint('hi')",
    "its own source": "print(len(open(__file__).read()))",
    "arguments": "import sys\nprint(len(sys.argv), sys.argv[0] == __file__)",
    "a pool of processes": (
        "import multiprocessing as mp\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with mp.Pool(2) as pool: print(pool.map(f, range(4)))"
    ),
    "processes that are spawned": (
        "import multiprocessing as mp\ndef f(q): q.put(input_)\ninput_ = 7\nif __name__ == '__main__':\n"
        "    c = mp.get_context('spawn')\n    q = c.Queue()\n    p = c.Process(target=f, args=(q,))\n"
        "    p.start()\n    print(q.get())\n    p.join()"
    ),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
        "    print(list(pool.map(abs, [-1, 2])))"
    ),
    "a child": "import os\nif os.fork() == 0: os._exit(0)\nos.wait()\nprint('parent')",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50000))",
    "asyncio": "import asyncio\nasync def main(): print(await asyncio.to_thread(input))\nasyncio.run(main())",
    "the type of its streams": "import sys\nprint(sys.stdin.isatty(), sys.stdout.encoding, sys.stdin.seekable())",
    "not UTF-8": "import sys\nsys.stdout.buffer.write(b'\\xff')",
    "an error": "print(1)\nraise ValueError(2)",
    "an exit status": "print(1)\nexit(3)",
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_a_script_is_main(sandbox: Sandbox, idiom: str, tmp_path: Path) -> None:
    program, given = tmp_path / "program.py", tmp_path / "input"
    program.write_text(IDIOMS[idiom])
    given.write_text(INPUT)
    with given.open() as stdin:
        plain = subprocess.run(
            [Python().interpreter, "-B", program], stdin=stdin, capture_output=True, env={}, timeout=120
        )
    limits = replace(sandbox.limits, wall=60.0)
    outcome = asyncio.run(sandbox.execute(IDIOMS[idiom], stdin=INPUT, limits=limits))
    assert outcome.stdout == plain.stdout.decode(errors="replace"), outcome
    assert outcome.verdict == ("raised" if plain.returncode else "finished"), outcome


def test_packages_are_those_that_are_named(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "somewhere").mkdir(mode=0o755)
    (tmp_path / "somewhere" / "found.py").write_text("x = 6")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    with_packages = Sandbox(Python(packages=(tmp_path / "somewhere",)), sandbox.limits)
    assert asyncio.run(with_packages.execute("import found\nprint(found.x)")).stdout == "6\n"
    assert "No module named 'found'" in asyncio.run(sandbox.execute("import found")).detail


def test_what_is_named_like_a_signal_is_a_status(sandbox: Sandbox) -> None:
    assert asyncio.run(sandbox.execute("exit(255)")).verdict == "raised"


def test_a_large_stack_is_no_memory(sandbox: Sandbox) -> None:
    """Programs of contests ask for half a gigabyte of stack, whatever the problem's limit is."""
    if "memory of all processes of a run together, by a control group" not in sandbox.holds:
        pytest.skip("no control group here counts memory")
    program = (
        "import threading\nthreading.stack_size(1 << 29)\nt = threading.Thread(target=lambda: print('deep'))\n"
        "t.start()\nt.join()"
    )
    assert asyncio.run(sandbox.execute(program)).stdout == "deep\n"
    hungry = "x = bytearray(b'x') * (400 << 20)"
    assert asyncio.run(sandbox.execute(hungry)).verdict == "memory"
