"""Tests run outside of the candidate: in a sandbox of their own, their calls answered by the candidate in another.

The candidate's process gets arguments, and answers with plain values. The tests' process gets those, and
never the candidate's code. The verdict is put together here, outside of both: a test has passed when the
tests' process says so with the nonce of this run, while the candidate's was alive to answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast, get_args

from metagen.errors import DataError
from metagen.sequence import digest
from metagen.verifiers.code import plain
from metagen.verifiers.code.execution import Stopped
from metagen.verifiers.code.language import lacks_package
from metagen.verifiers.code.limits import Limits, check_option
from metagen.verifiers.code.report import Case, JudgeVerdict, Report, TestVerdict, decisive
from metagen.verifiers.code.sandbox import Sandbox, load
from metagen.verifiers.code.session import LONG, Session

#: Changes whenever the verdict on a program may, so that what was recorded before is not mixed with it.
EDITION = "4"
#: Calls of tests and program within each other.
DEEPEST = 50
#: Uses of what tests lend, in one test, after which a limit on time or on the bytes of messages shows nothing about
#: the program: each use is a message, and takes the time of two processes.
MANY = 50
#: Ends by limits, which the tests before in the same process may have used up.
SHARED: Final = ("timeout", "memory", "output")
#: Of the limit on time: so much may be gone before a test.
GONE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests in Python, for candidates in any language.

    tests: each a piece of code that calls the candidate's functions by name, such as `assert f(2) == 4`. setup: code
    that they share; run after the candidate has been loaded. entry_points: functions that are the candidate's even if
    the setup defines them, as where the setup is a prompt with a stub. names: other names of the candidate's that the
    tests may use, where neither they nor the setup define them, and instead of Python's own. Without entry points and
    names, the candidate is asked for every name that neither tests, nor setup, nor Python defines, and may bring its
    own `math`. objects: for tests of classes. These then trust the candidate's objects: their methods' results, and
    their truth. seconds: of processor time, at most, for each test; the wall limit is four times as much. memory:
    bytes. None: those of the sandbox.

    Raises DataError where there are no tests, for code that is no Python, and for limits that are none.
    """

    tests: tuple[str, ...]
    setup: str = ""
    entry_points: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    objects: bool = False
    seconds: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, public: Mapping[str, Any]) -> Suite | None:
        """The tests in a prompt's public data, under the names of the fields; None if there are none."""
        tests = tuple(public.get("tests", ()))
        points, names = tuple(public.get("entry_points", ())), tuple(public.get("names", ()))
        limits = {name: public.get(name) for name in ("seconds", "memory")}
        objects = bool(public.get("objects", False))
        return cls(tests, public.get("setup", ""), points, names, objects, **limits) if tests else None

    @property
    def digest(self) -> bytes:
        more = [repr((self.names, self.objects))] if self.names or self.objects else []
        limits = (self.seconds, self.memory)
        more += [repr(limits)] if limits != (None, None) else []
        return digest(str(len(self.tests)), *self.tests, self.setup, *self.entry_points, *more)

    def __post_init__(self) -> None:
        if not self.tests:
            raise DataError("there are no tests; give at least one, such as 'assert f(2) == 4'")
        for kind, code in (("setup", self.setup), *(("test", test) for test in self.tests)):
            if (fault := syntax_fault(code)) is not None:
                raise DataError(
                    f"the {kind} {code.strip()!r:.200} is no Python: {fault}; mend it, or leave it out"
                )
        check_option("seconds", self.seconds)
        check_option("memory", self.memory)

    @property
    def names_to_ask(self) -> list[str] | None:
        """Names beside the entry points that the candidate is asked for; None: all."""
        return list(self.names) if self.names or self.entry_points else None


@lru_cache(4096)
def syntax_fault(code: str) -> str | None:
    """A compiler's objection to a piece of code; None if it has none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(code, "<test>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
    except (RecursionError, MemoryError):  # code that is nested without end: the sandbox will tell
        return None
    return None


async def check(
    sandbox: Sandbox,
    program: str,
    tests: Suite,
    *,
    limits: Limits | None = None,
    stop: bool = True,
    pairs: int = 16,
) -> Report:
    """Run `tests` against `program`. stop: not beyond the first that shows it wrong; the rest are `unreached`.

    Limits are of each test: one that comes to a limit of time, memory, output or answers behind others is run again in
    a fresh pair of sandboxes, unless those took less than a tenth of the time. Without `stop` all are run, after one
    that ended its process in a fresh pair: at worst the wall limit, twice, for each of `pairs`, beside what passing
    tests take; then the rest are `unreached`.
    """
    limits = (limits or sandbox.limits).of_test(tests.seconds, tests.memory)
    cases: list[Case] = []
    stdout = ""
    while len(cases) < len(tests.tests) and pairs:
        run = _Run(sandbox, program, tests, limits, first=len(cases), stop=stop)
        cases += await run.cases()
        pairs -= cases[-1].verdict != "passed" and not run.again
        stdout = stdout or run.stdout
        if stop and any(decisive(case.verdict) for case in cases):
            break
    cases += [Case(test, "unreached") for test in tests.tests[len(cases) :]]
    return Report(tuple(cases), stdout)


class _Run:
    """One pair of sandboxes, and the tests that they live to see; at least one."""

    def __init__(
        self, sandbox: Sandbox, program: str, tests: Suite, limits: Limits, *, first: int, stop: bool
    ) -> None:
        self._sandbox, self._program, self._tests = sandbox, program, tests
        self._limits, self._first, self._stop = limits, first, stop
        #: Of references to what the tests know by name.
        self._names: dict[int, str] = {}
        self._call: str | None = None
        self._trace: str | None = None
        self._lacks = False
        self._uses = 0
        #: Whether it ended at a limit that its tests share, so that the one which met it has not been judged.
        self.again = False
        self.stdout = ""

    async def cases(self) -> list[Case]:
        async with self._sandbox.place(), AsyncExitStack() as stack:
            candidate, judge = await self._sandbox.pair(stack, self._limits)
            verdict, detail = await load(candidate, self._program, "solution")
            done = [] if verdict != "finished" else await self._judge(candidate, judge)
            if verdict != "finished":
                # It would not load the next time either.
                done = [Case(t, verdict, detail=detail) for t in self._tests.tests[self._first :]]
            self.stdout, _ = candidate.output()
            return done

    async def _judge(self, candidate: Session, judge: Session) -> list[Case]:
        """The cases up to the first that ends one of the two, or that stops the run."""
        pending = list(enumerate(self._tests.tests))[self._first :]
        tests = self._tests
        names = {"entry_points": tests.entry_points, "names": tests.names_to_ask, "objects": tests.objects}
        judge.send({"setup": tests.setup, **names})
        done: list[Case] = []
        gone = 0.0
        try:
            message = await self._answer(candidate, judge, "setup", True)
            if message["verdict"] != "passed":
                return [self._case(t, message) for _, t in pending]
            for number, test in pending:
                self._call, self._trace, self._lacks, self._uses = None, None, False, 0
                gone = candidate.elapsed
                await judge.forward({"test": [number, test]}, long=len(test) > LONG)
                done.append(self._case(test, await self._answer(candidate, judge, "test", number)))
                if self._stop and decisive(done[-1].verdict):
                    break
        except Stopped as stop:
            test = pending[len(done)][1]
            verdict: TestVerdict = stop.verdict
            if verdict in ("timeout", "output") and self._uses > MANY:
                verdict = "unrepresentable"
            early = verdict == "timeout" and gone < GONE * (self._limits.cpu or self._limits.wall)
            if done and verdict in SHARED and not early:
                self.again = True
                return done
            done.append(Case(test, verdict, call=self._call, detail=stop.detail))
        return done

    async def _answer(self, candidate: Session, judge: Session, place: str, number: Any) -> dict[str, Any]:
        """Carry calls to the candidate and answers back, until the judge says how the code at `place` went."""
        while "ask" in (message := await judge.receive()):
            request = message["ask"]
            answer = await self._carry(candidate, judge, request)
            match answer:
                case {"returned": {"ref": [int(reference), *_]}} if request["op"] == "name":
                    self._names[reference] = request["name"]
            self._trace = answer["raised"][2] if "raised" in answer else None
            self._lacks = "raised" in answer and lacks_package(*answer["raised"][:2])
            await judge.forward(answer, long=candidate.long)
        if message.get(place) != number or message.get("verdict") not in get_args(JudgeVerdict):
            judge.end("forged", "the code of the tests wrote a verdict of its own making")
        return message

    async def _carry(
        self, candidate: Session, judge: Session, request: Any, depth: int = 0
    ) -> dict[str, Any]:
        """The candidate's answer to a request; its uses of the tests' objects meanwhile are carried back to them."""
        if not _is_request(request):
            judge.end("forged", "the code of the tests wrote a call of its own making")
        if depth > DEEPEST:
            error = "RecursionError"
            return {"raised": [error, "the program and the tests call each other without end", "", error]}
        if request["op"] == "call":
            self._call = self._show_call(request) or self._call
        answer = await candidate.ask(request, long=judge.long)
        while "back" in answer:
            if not _is_use(answer["back"]):
                candidate.end("forged", "the program asked for something of the tests' that it was not given")
            number, self._uses = answer["id"], self._uses + 1
            await judge.forward({"back": answer["back"]}, long=candidate.long)
            while "ask" in (message := await judge.receive()):
                inner = await self._carry(candidate, judge, message["ask"], depth + 1)
                await judge.forward(inner, long=candidate.long)
            if "given" not in message:
                judge.end("forged", "the code of the tests wrote a verdict of its own making")
            answer = await candidate.give(number, message["given"], long=judge.long)
        return answer

    def _case(self, test: str, message: dict[str, Any]) -> Case:
        verdict = cast(TestVerdict, message["verdict"])
        if verdict == "raised" and self._lacks:
            verdict = "unavailable"
        parts = {name: _text(message.get(name)) for name in ("case", "expected", "got")}
        detail = self._trace if verdict == "raised" and self._trace else _text(message.get("message"))
        return Case(test, verdict, call=None if verdict == "passed" else self._call, detail=detail, **parts)

    def _show_call(self, request: dict[str, Any]) -> str | None:
        """A call as Python would write it; None for the access to an attribute and the like."""
        kind, name = request["target"]
        if kind == "function":
            return None
        args = [plain.literal(a) for a in request["args"]]
        args += [f"{k}={plain.literal(v)}" for k, v in request.get("kwargs", {}).items()]
        return f"{name if kind == 'name' else self._names.get(name, '…')}({', '.join(args)})"


def _is_request(request: Any) -> bool:
    """Whether this is a call, or asks for a name, as the judge's inside writes them."""
    match request:
        case {"op": "name", "name": str()} | {"op": "more", "ref": int(), "count": int()}:
            return True
        case {
            "op": "call",
            "target": ["name" | "function", str()] | ["ref", int()],
            "args": list(),
            "kwargs": dict(),
        }:
            return True
    return False


def _is_use(back: Any) -> bool:
    """Whether the candidate uses what was lent to it, as its inside writes that."""
    match back:
        case {"function": str(), "args": [_, *_], "kwargs": dict()}:
            return True
    return False


def _text(data: Any) -> str | None:
    return None if data is None else str(data)
