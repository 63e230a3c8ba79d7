"""Tests by standard input and output: programs of contests, in any language, one run for each test.

The program runs as a script. Expected outputs never enter its sandbox: its output is compared here, so that no exit
status, and nothing else that it says of itself, can pass a test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from itertools import zip_longest
from typing import Any, Final, Literal, get_args

from metagen.errors import DataError
from metagen.sequence import digest
from metagen.verifiers.code.limits import Limits, check_option
from metagen.verifiers.code.report import Case, Report, TestVerdict, decisive
from metagen.verifiers.code.sandbox import Outcome, Sandbox
from metagen.verifiers.code.session import LONG

#: `exact`: white space at the end of a line, and empty lines at the end, do not count. `lines`: nor do those at the
#: beginning. `tokens`: no white space does.
Compare = Literal["exact", "lines", "tokens"]
#: Tests that run out of time before the rest is not tried.
PATIENCE: Final = 4
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class IOTests:
    """inputs[i] on standard input is to give outputs[i] on standard output, with exit status 0.

    compare: which white space counts. tolerance: numbers in one place may differ by so much, absolutely or relative to
    the expected one; two that are written as integers must be equal; 0: only by how they are written. None: outputs are
    compared as texts. fold_case: letters of either case are the same. seconds: of processor time, at most, for each
    test; the wall limit is four times as much. memory: bytes. None: those of the sandbox.

    Raises DataError for no tests, unequal numbers of inputs and outputs, and for options that are none.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    compare: Compare = "exact"
    tolerance: float | None = None
    fold_case: bool = False
    seconds: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise DataError(
                f"there are {len(self.inputs)} inputs and {len(self.outputs)} outputs; expected at least one of each, "
                "and as many outputs as inputs"
            )
        for name, texts in (("input", self.inputs), ("output", self.outputs)):
            for text in texts:
                if not isinstance(text, str):
                    raise DataError(f"an {name} is {text!r:.80}; expected a text")
        if self.compare not in get_args(Compare):
            raise DataError(f"compare={self.compare!r}; expected one of {', '.join(get_args(Compare))}")
        for name in ("tolerance", "seconds", "memory"):
            check_option(name, getattr(self, name))

    @classmethod
    def of(cls, public: Mapping[str, Any]) -> IOTests | None:
        """The tests in a prompt's public data, under `io`; None if there are none. Raises DataError."""
        given = public.get("io")
        if not given:
            return None
        try:
            named = dict(given)
            return cls(tuple(named.pop("inputs")), tuple(named.pop("outputs")), **named)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"io is {given!r:.120} ({error}); expected inputs and outputs, lists of texts, and options of IOTests"
            ) from None

    @property
    def data(self) -> dict[str, Any]:
        """The tests as plain data, as `of` reads them; options that are not given are left out."""
        options = {
            name: getattr(self, name) for name in ("compare", "tolerance", "fold_case", "seconds", "memory")
        }
        told = {name: value for name, value in options.items() if value is not None and value is not False}
        return {"io": {"inputs": list(self.inputs), "outputs": list(self.outputs), **told}}

    @property
    def digest(self) -> bytes:
        options = repr((self.compare, self.tolerance, self.fold_case, self.seconds, self.memory))
        return digest("io tests", str(len(self.inputs)), *self.inputs, *self.outputs, options)

    def limits(self, limits: Limits, expected: str) -> Limits:
        """The limits of one run: the limit on output is widened by the length of the expected one."""
        most = limits.output + 2 * len(expected.encode(errors="replace"))
        return replace(limits.of_test(self.seconds, self.memory), output=most)

    def matches(self, output: str, expected: str) -> bool:
        """Whether an output is the expected one."""
        if self.fold_case:
            output, expected = output.casefold(), expected.casefold()
        if self.compare == "tokens":
            return self._same(output.split(), expected.split())
        left, right = (_lines(text, self.compare) for text in (output, expected))
        if left == right or self.tolerance is None or len(left) != len(right):
            return left == right
        return all(a == b or self._same(a.split(), b.split()) for a, b in zip(left, right, strict=True))

    def _same(self, tokens: list[str], expected: list[str]) -> bool:
        if len(tokens) != len(expected):
            return False
        return all(
            a == b or (self.tolerance is not None and close(a, b, self.tolerance))
            for a, b in zip(tokens, expected, strict=True)
        )


def close(token: str, expected: str, tolerance: float) -> bool:
    """Whether two texts are numbers that differ by at most `tolerance`, absolutely or relative to the expected one.

    Two integers must be equal: a tolerance is meant for what is rounded.
    """
    if _INTEGER.fullmatch(token) and _INTEGER.fullmatch(expected):
        return token.lstrip("+") == expected.lstrip("+") or Decimal(token) == Decimal(expected)
    if not (_NUMBER.fullmatch(token) and _NUMBER.fullmatch(expected)):
        return False
    with localcontext() as context:
        context.prec = 60
        a, b = Decimal(token), Decimal(expected)
        return abs(a - b) <= Decimal(tolerance) * max(Decimal(1), abs(b)) if tolerance else a == b


def _lines(text: str, compare: Compare) -> list[str]:
    if compare == "lines":
        return [line.strip() for line in text.strip().split("\n")]
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


async def check_io(
    sandbox: Sandbox, program: str, tests: IOTests, *, limits: Limits | None = None, stop: bool = True
) -> Report:
    """Run `program` once for each test, in a fresh sandbox. stop: not beyond the first that shows it wrong.

    Otherwise all are run, but none after four that ran out of time; the rest are `unreached`.
    """
    limits = limits or sandbox.limits
    cases: list[Case] = []
    stdout = ""
    for given, expected in zip(tests.inputs, tests.outputs, strict=True):
        outcome = await sandbox.execute(program, stdin=given, limits=tests.limits(limits, expected))
        # Long outputs must not hold up the others.
        if len(outcome.stdout) > LONG:
            cases.append(await asyncio.to_thread(_case, tests, given, expected, outcome))
        else:
            cases.append(_case(tests, given, expected, outcome))
        stdout = stdout or outcome.stdout
        late = sum(case.verdict == "timeout" for case in cases) >= PATIENCE
        if late or (stop and decisive(cases[-1].verdict)):
            break
    cases += [Case(_input_text(given), "unreached") for given in tests.inputs[len(cases) :]]
    return Report(tuple(cases), stdout)


def _case(tests: IOTests, given: str, expected: str, outcome: Outcome) -> Case:
    if outcome.verdict == "finished":
        right = tests.matches(outcome.stdout, expected)
        verdict: TestVerdict = "passed" if right else "failed"
        shown = {} if right else _show_difference(outcome.stdout, expected)
        return Case(_input_text(given), verdict, **shown)
    return Case(_input_text(given), outcome.verdict, detail=outcome.detail)


def _input_text(given: str) -> str:
    return f"with the input\n{given if len(given) <= _SHOWN else given[:_SHOWN] + ' …'}"


def _show_difference(output: str, expected: str) -> dict[str, str]:
    """Both, from the first line on which they differ, where they are long."""
    if max(len(output), len(expected)) <= _SHOWN:
        return {"expected": expected.rstrip("\n"), "got": output.rstrip("\n")}
    pairs = zip_longest(output.splitlines(), expected.splitlines())
    number, (got, wanted) = next(
        ((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1]), (1, (output, expected))
    )
    told = {
        name: "nothing" if text is None else text[:_SHOWN]
        for name, text in (("expected", wanted), ("got", got))
    }
    return {name: f"{text} (line {number})" for name, text in told.items()}
