"""The sandbox: runs an untrusted program in a fresh isolated process, within limits, and says how it went."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import abc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from metagen.errors import InputError
from metagen.sequence import digest
from metagen.verifiers.code import plain
from metagen.verifiers.code.bubblewrap import Bubblewrap
from metagen.verifiers.code.cgroup import Group, Groups
from metagen.verifiers.code.execution import Ending, Execution, Stopped
from metagen.verifiers.code.gate import Gate
from metagen.verifiers.code.isolation import Isolation, IsolationError, NoIsolation
from metagen.verifiers.code.language import Language, Python, lacks_package, source
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.nest import Inside, Nests
from metagen.verifiers.code.process import Child, Output, Process
from metagen.verifiers.code.script import Script, ScriptFiles
from metagen.verifiers.code.session import Session

#: The end of an execution. Only `finished` says that the program came to its end and answered all.
Verdict = Literal["finished", "raised", "unrepresentable", "unavailable"] | Ending

#: Bytes of address space of a script beside its memory, where a control group counts what is used.
STACKS = 1 << 30
#: The path of a script in its sandbox.
SCRIPT = "/tmp/program.py"
# Moves itself into the groups named before `--`, then becomes the command after it.
_JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of one expression.

    key: equal for equal values, None unless the verdict is `finished`. text: the value, or the
    exception, for people to read. traceback: of the exception.
    """

    verdict: Verdict
    key: str | None = None
    text: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one execution. answers: of the expressions that were reached, in order.

    detail: the reason of any other verdict than `finished`. stdout and stderr: within the limit on output.
    """

    verdict: Verdict
    answers: tuple[Answer, ...]
    detail: str
    stdout: str
    stderr: str
    seconds: float


class Sandbox:
    """Runs programs of one language under `limits`, at most `concurrency` at once over all event loops.

    judge: the Python that tests run in, with the packages that they import; by default the candidates', or one without
    packages where their language is another.
    Every execution has a process, a file system, and where available a control group of its own, used once.
    control_groups: use them, where they can be made.

    Raises IsolationError when the machine can isolate nothing. With `run_untrusted_programs_without_isolation`
    programs then run with the rights of the user, who should have written them. InputError for a concurrency below
    1.
    """

    def __init__(
        self,
        language: Language | None = None,
        limits: Limits | None = None,
        *,
        judge: Python | None = None,
        concurrency: int | None = None,
        isolation: Isolation | None = None,
        control_groups: bool = True,
        run_untrusted_programs_without_isolation: bool = False,
    ) -> None:
        if sys.platform != "linux":
            raise IsolationError(
                f"programs are isolated and limited on Linux only, and this is {sys.platform!r}"
            )
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise InputError(f"concurrency={concurrency!r}: expected how many may run at once, at least 1")
        self.language = language or Python()
        self.limits = limits or Limits()
        #: Tests are written in Python.
        self.judge = judge or (self.language if isinstance(self.language, Python) else Python())
        if isolation is None and run_untrusted_programs_without_isolation:
            isolation = NoIsolation()
        self.isolation: Isolation = isolation or Bubblewrap.find()
        self._groups = Groups.find() if control_groups else None
        self._nests = Nests(self.isolation)
        # More than processors: a start waits for the kernel as long as it computes.
        self._gate = Gate(concurrency or 2 * len(os.sched_getaffinity(0)))

    @property
    def fingerprint(self) -> str:
        """Names what candidates and tests run in: equal fingerprints promise equal verdicts within equal limits."""
        own, judge = self.language.fingerprint, self.judge.fingerprint
        return own if own == judge else digest("sandbox", own, judge).hex()

    @property
    def holds(self) -> tuple[str, ...]:
        """The guarantees here, in words, one sentence each."""
        memory = "memory of all processes of a run together, by a control group"
        pids = "processes and threads of a run together, by a control group"
        each = "no group can be made here that bounds memory: each process has its limit, all of a run as many limits"
        groups = self._groups
        return (
            *self.isolation.holds,
            "the wall deadline, the output and the answers, by this process",
            memory if groups and groups.memory else each,
            *([pids] if groups and groups.pids else []),
        )

    async def execute(self, program: str, *, stdin: str = "", limits: Limits | None = None) -> Outcome:
        """Run `program` as a script, as by `python program.py < input`. `finished`: it ended with exit status 0.

        An exit status proves nothing about what a script was to do: judge its output.
        """
        limits = limits or self.limits
        async with self.place(), self._script(program, stdin, limits) as script:
            verdict: Verdict
            try:
                verdict, detail = await script.wait_for_end()
            except Stopped as stop:
                verdict, detail = stop.verdict, stop.detail
            return _outcome(script, verdict, (), detail)

    async def evaluate(
        self, program: str, expressions: abc.Sequence[str], *, limits: Limits | None = None
    ) -> Outcome:
        """Load `program`, then evaluate expressions in its namespace, one after another.

        The verdict is `finished` when it loaded and the process lived until the last answer; single
        answers may still be `raised` or `unrepresentable`.
        """
        answers: list[Answer] = []
        async with self.place(), self.open(limits or self.limits) as session:
            verdict, detail = await load(session, program, "solution")
            if verdict == "finished":
                try:
                    for expression in expressions:
                        data = await session.ask({"op": "eval", "code": expression})
                        answers.append(
                            await asyncio.to_thread(_answer, data) if session.long else _answer(data)
                        )
                except Stopped as stop:
                    verdict, detail = stop.verdict, stop.detail
            return _outcome(session, verdict, tuple(answers), detail)

    def place(self) -> AbstractAsyncContextManager[None]:
        """A place among those that may run at once; `open` is to be called within one."""
        return self._gate.place()

    async def pair(self, stack: AsyncExitStack, limits: Limits) -> tuple[Session, Session]:
        """A candidate's process and a judge's, started at the same time, closed with `stack`."""
        try:
            # Waits for both, also where one fails: an open process is in the stack, and closed with it.
            async with asyncio.TaskGroup() as group:
                candidate = group.create_task(stack.enter_async_context(self.open(limits)))
                judge = group.create_task(stack.enter_async_context(self.open(limits, inside="judge")))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        return candidate.result(), judge.result()

    @asynccontextmanager
    async def open(self, limits: Limits, *, inside: Inside = "candidate") -> AsyncIterator[Session]:
        """A fresh process that is ready to be asked; when the block is left, it is killed with all it started."""
        judge = inside == "judge"
        if judge:
            limits = replace(limits, answer=16 * limits.answer)  # what it asks counts as well
        group = self._groups.create(limits) if self._groups else None
        outer, inner = socket.socketpair()
        session = Session(limits, group, "the code of the tests" if judge else "the program")
        try:
            with self._starting(inside, limits, group, inner) as (start, preamble):
                await _to_its_end(session.start(start, inner, outer, preamble=preamble))
            yield session
        finally:
            inner.close()
            try:
                await _to_its_end(session.close())
            finally:
                outer.close()

    @contextmanager
    def _starting(
        self, inside: Inside, limits: Limits, group: Group | None, inner: socket.socket
    ) -> Iterator[tuple[Callable[[Output], Process], bytes]]:
        """A start of a fresh inside, to be called within the block, and what it is to be sent first."""
        language: Language = self.judge if inside == "judge" else self.language
        number = inner.fileno()
        if (python := self._nests.offer(language)) is not None:
            directories = group.directories if group else []
            yield partial(self._nests.fork, inside, python, limits, number, directories), b""
            return
        begin = self.judge.run(source("judge"), number) if inside == "judge" else language.start(number)
        with self._command(begin.command, limits, group, language) as (command, calls):
            contained = self.isolation.contains
            yield partial(Child, command, inherited=(number, *calls), contained=contained), begin.preamble

    @asynccontextmanager
    async def _script(self, program: str, stdin: str, limits: Limits) -> AsyncIterator[Script]:
        """A script that has begun; when the block is left, it is killed with all it started."""
        group = self._groups.create(limits) if self._groups else None
        script = Script(limits, group)
        with ScriptFiles.write(program, stdin) as files:
            try:
                inner = script.mark(self.language.script(self.isolation.path_inside(files.program, SCRIPT)))
                seen = {SCRIPT: files.program, "/dev/stdin": files.stdin}
                # Address space is no memory: a program may ask for a large stack, and use little of it.
                grouped = group is not None and group.memory is not None
                each = replace(limits, memory=limits.memory + STACKS) if grouped else limits
                contained = self.isolation.contains
                with (
                    self._command(inner, each, group, self.language, seen) as (command, calls),
                    files.stdin.open("rb") as given,
                ):
                    start = partial(
                        Child, command, inherited=calls, contained=contained, stdin=given.fileno()
                    )
                    await _to_its_end(script.start(start))
                yield script
            finally:
                await _to_its_end(script.close())

    @contextmanager
    def _command(
        self,
        inner: list[str],
        limits: Limits,
        group: Group | None,
        language: Language,
        files: Mapping[str, Path] = MappingProxyType({}),
    ) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The command that runs `inner` isolated, and the file descriptors that it inherits until the block is left."""
        calls = _pipe(self.isolation.filter)
        try:
            command = self.isolation.command(
                inner,
                limits,
                readable=language.readable,
                hidden=language.hidden,
                files=files,
                filter_fd=calls[0] if calls else None,
            )
            if group is not None:
                command = ["/bin/sh", "-c", _JOIN, "sh", *map(str, group.directories), "--", *command]
            yield command, calls
        finally:
            for fd in calls:
                os.close(fd)


async def _to_its_end(step: Coroutine[Any, Any, None]) -> None:
    """Await a start or a close, and put a cancellation off until then: half of one would leave processes or groups."""
    task, cancelled = asyncio.create_task(step), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    task.result()


def _pipe(data: bytes | None) -> tuple[int, ...]:
    """A file descriptor to read `data` from; none for None. A pipe holds far more than a filter."""
    if data is None:
        return ()
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return (reader,)


async def load(session: Session, program: str, name: str) -> tuple[Verdict, str]:
    """Load a program: the verdict, and what went wrong."""
    try:
        answer = await session.ask({"op": "load", "source": program, "name": name})
    except Stopped as stop:
        return stop.verdict, stop.detail
    if "raised" not in answer:
        return "finished", ""
    kind, message, traceback, _ = answer["raised"]
    return "unavailable" if lacks_package(kind, message) else "raised", traceback or f"{kind}: {message}"


def _answer(data: dict[str, Any]) -> Answer:
    if "raised" in data:
        kind, message, traceback, _ = data["raised"]
        return Answer("raised", None, f"{kind}: {message}", traceback)
    key = plain.key(data.get("returned")) if "returned" in data else None
    if key is None:
        return Answer(
            "unrepresentable", None, str(data.get("unrepresentable", plain.literal(data.get("returned"))))
        )
    return Answer("finished", key, plain.literal(data["returned"]))


def _outcome(run: Execution, verdict: Verdict, answers: tuple[Answer, ...], detail: str) -> Outcome:
    return Outcome(verdict, answers, detail, *run.output(), run.elapsed)
