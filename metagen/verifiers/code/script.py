"""A program run as a script: `python program.py < input`, and nothing of ours in its process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from metagen.verifiers.code.cgroup import Group
from metagen.verifiers.code.execution import Execution, Stopped
from metagen.verifiers.code.language import Start, script_lacks_package
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.process import Output, Process

#: Says on standard error that the sandbox stands, then becomes the program; where it cannot, says nothing.
_BEGIN = 'while [ "$1" != -- ]; do export "$1"; shift; done; shift; [ -x "$1" ] && echo "$0" >&2 && exec "$@"'
#: Characters of standard error that explain a failure.
_TOLD = 4000


@dataclass(frozen=True, slots=True)
class ScriptFiles:
    """The program and its input as files of ours: a script may read both again, and ask for the size of its input."""

    program: Path
    stdin: Path

    @classmethod
    @contextmanager
    def write(cls, program: str, stdin: str) -> Iterator[ScriptFiles]:
        with TemporaryDirectory(prefix="metagen-", ignore_cleanup_errors=True) as folder:
            found = cls(Path(folder, "program"), Path(folder, "stdin"))
            Path(folder).chmod(0o711)  # bubblewrap, or the candidate, may be another user
            for path, text in ((found.program, program), (found.stdin, stdin)):
                path.write_bytes(text.encode(errors="surrogatepass"))
                path.chmod(0o444)
            yield found


class Script(Execution):
    """The process of a script. Its exit status and its output are all that is learnt of it; both are its own words."""

    def __init__(self, limits: Limits, group: Group | None) -> None:
        super().__init__(limits, group)
        self._mark = secrets.token_hex(16)
        self._stands = asyncio.get_running_loop().create_future()
        self._before = bytearray()

    def mark(self, begin: Start) -> list[str]:
        """A command that says when it begins."""
        variables = [f"{name}={value}" for name, value in begin.environment.items()]
        return ["/bin/sh", "-c", _BEGIN, self._mark, *variables, "--", *begin.command]

    async def start(self, start: Callable[[Output], Process]) -> None:
        """Start the process, and wait until the program is about to begin. Raises SandboxError."""
        self.launch(start)
        assert self.process is not None
        try:
            ended = asyncio.ensure_future(self.wait())
            await asyncio.wait([self._stands, ended], return_when=asyncio.FIRST_COMPLETED)
            if not self._stands.done():
                raise self.start_error(f"exit status {await ended}")
            ended.cancel()
        except Stopped as stop:
            raise self.start_error(stop.detail) from None
        self.begin()

    async def wait_for_end(self) -> tuple[Literal["finished", "raised", "unavailable"], str]:
        """Wait for its end, and what it said where that is no good one. Stopped if something else ended it."""
        status = await self.wait()
        if not status:
            return "finished", ""
        said = self.stderr.decode(errors="replace")[-_TOLD:]
        if said.rstrip().rpartition("\n")[2].startswith("MemoryError"):
            self.end("memory", f"the program ran out of its {self._limits.memory} bytes of memory")
        verdict: Literal["raised", "unavailable"] = "unavailable" if script_lacks_package(said) else "raised"
        return verdict, said or f"the program ended with exit status {status}"

    def _keep(self, number: int, data: bytes) -> None:
        """As ever, but for what comes before the mark: it is of the sandbox."""
        if number == 2 and not self._stands.done():
            self._before += data
            head, found, data = bytes(self._before).partition(self._mark.encode() + b"\n")
            self.stderr[:] = head
            if not found:
                return
            self.stderr.clear()
            self._stands.set_result(None)
        super()._keep(number, data)
