"""Answers that were written to hang, to break or to run something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen.sequence import Prompt, Sequence
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.arithmetic import WORK
from metagen.verifiers.math.extract import find
from metagen.verifiers.math.keys import attempt, verdict

#: Seconds of this process, however busy the machine is; the longest takes a third.
LIMIT = 2.0
CANARY = "canary"

TOWERS = [
    "9^{9^{9}}", "9**9**9**9", "2^{2^{2^{2^{2^{2}}}}}", "10^{-10^{10}}", "x^{x^{x^{x}}}", "(1+x)^{10^{9}}", "0^{0^0}",
    "((((9!)!)!)!)!", "9!!!!!!!!!!!!", "(10^{10})!", "\\binom{10^9}{5\\cdot10^8}", "\\gcd(10^{9999},3^{9999})",
    "\\sqrt[10^9]{2}", "e^{e^{e^{e^{e}}}}", "\\sin(10^{10^{10}})", "\\lfloor 10^{300}\\pi\\rfloor", "1e999", "1e-999",
    "1.5e999999", "\\log(\\log(\\log(0.5)))", "*".join(["7^{7777}"] * 60), "0.\\overline{" + "1" * 900 + "}",
    "+".join(f"\\frac{{1}}{{{10**9 + k}}}" for k in range(40)), "\\frac{1}{\\sqrt{2}-\\sqrt{2}}",
]  # fmt: skip
NESTS = [
    "(" * 500 + "1" + ")" * 500, "{" * 1000, "[" * 300 + "]" * 300, "\\frac" * 200, "\\sqrt{" * 200 + "2" + "}" * 200,
    "\\frac{1}{" * 100 + "2" + "}" * 100, "-" * 900 + "1", "1\\pm" * 100 + "1",
    "|" * 400, "|x" * 300, "f(" * 200,
    "\\sin(" * 39 + "1" + ")" * 39, "1," * 499 + "1", "x<1," * 200, "x^2<4 or " * 100 + "x<1", "1:" * 300 + "1",
    "\\begin{pmatrix}" * 60, "\\begin{pmatrix}" + "&".join(["1"] * 450) + "\\end{pmatrix}", "x_{" * 100,
    "\\begin{pmatrix}" + "\\\\".join(["&".join(["9^9"] * 12)] * 12) + "\\end{pmatrix}", "^" * 500, "\\" * 999,
    "\\cup".join(f"({k},{k + 1})" for k in range(60)), "\\det\\operatorname{zeros}(9999,9999)",
    "\\operatorname{eye}(2000)^{-1}", "\\operatorname{svd}(\\begin{pmatrix}a&b\\\\c&d\\end{pmatrix})",
]  # fmt: skip
CODE = [
    f"__import__('pathlib').Path('{CANARY}').touch()", f"f\"{{open('{CANARY}', 'w')}}\"", f"open('{CANARY}','w')",
    "().__class__.__bases__[0].__subclasses__()", f"exec(\"open('{CANARY}','w')\")", "{{7*7}}", "${7*7}", "lambda: 1",
    f"\\input{{{CANARY}}}", f"\\write18{{touch {CANARY}}}", f"\\immediate\\write18{{touch {CANARY}}}", "`touch canary`",
    f"Symbol('x').subs(open('{CANARY}','w'))", f"$(touch {CANARY})", "x.func.__globals__",
    "\\operatorname{__import__}(os)",
    f"\\operatorname{{eval}}(open('{CANARY}','w'))", "\\mathrm{exec}(1)", "\\text{exit}()", "quit()", "os._exit(0)",
    "sys.exit()", "\\int_0^1 \\operatorname{exec}(x) dx", "\\sum_{k=1}^{3} __import__", "raise SystemExit",
    "%x", "%s%n",
    "\x00", "\x1b[2J", "\ud800", "\\\x00frac12",
]  # fmt: skip
UNICODE = [
    "١٢٣", "１２", "𝟙", "ⅷ", "²³", "х", "∑", "😀", "1\u200b2", "1\u202e2", "é" * 300, "\u0301" * 999, "Ω" * 999,
    "ﬁ", "½½",
]  # fmt: skip
SLOW = [
    "\\sum_{k=1}^{10^{9}} k!", "\\int_0^\\infty \\frac{\\sin(x^5)\\ln(1+x^3)}{x^{x}} dx", "\\prod_{k=1}^{10^7} \\sin k",
    "9^{9^{9^{9}}}\\cdot\\sum_{k=1}^{2}k", "\\sum_{k=1}^{9999} \\sum_{j=1}^{9999} \\sqrt{k+j}",
    "\\int_0^1 \\int_0^1 \\int_0^1 x^y \\sin z dx dy dz", "\\lim_{x \\to 0} \\lim_{y \\to 0} \\lim_{z \\to 0} x^{y^z}",
    "\\prod_{k=1}^{10000} (x+k)", "\\sum_{k=0}^{5000} \\binom{5000}{k} x^k", "\\sum_{n=1}^\\infty \\frac{1}{n^2}",
    "x^{20}|x^{30}-7|", "|x+y+z+w+a+b+c+d-9|", "\\max(a,b,c,d,e,f,g,h)", "|\\tan x|", "\\lfloor x!\\rfloor",
    "\\lfloor x^2\\rfloor+\\lfloor y^2\\rfloor", "||||||x-1|-2|-3|-4|-5|-6|", "|x^x-5|", "\\ln\\ln\\ln\\ln x",
    "\\sqrt{x+\\sqrt{x+\\sqrt{x+\\sqrt{x+y}}}}", "\\sqrt[7]{x^5-x+1}", "\\frac{1}{|x|-\\frac{1}{|x|-\\frac{1}{|x|}}}",
    "+".join(f"|x-{k}|" for k in range(40)), "*".join(f"\\lfloor x/{k}\\rfloor" for k in range(1, 20)),
    "+".join(f"\\sin({k}x)!" for k in range(1, 30)), "|x^{26}-x-1| < |x^{25} - 3x|", "\\sin(1/x)|\\sin(1/x)|",
    "+".join(f"({k}x)!" for k in range(1, 40)), "\\binom{x}{y}\\binom{y}{x}!", "\\begin{pmatrix}" + "\\\\".join(
        ["&".join(["|x-5|"] * 8)] * 8) + "\\end{pmatrix}",
    *(f"\\frac{{|x-{k}|}}{{\\sqrt{{(x+{k})^2}}}} < \\max(x, {k}, x^2-{k})" for k in range(3)),
]  # fmt: skip
LONG = [
    "1" * 10**6,
    "x" * 10**6,
    "\\boxed{" * 10**5,
    "(" * 10**6,
    "$" * 10**6,
    "\\frac{1}{" * 10**5,
    " " * 10**6,
]
REPEATED = [
    "\\[", "\\(", "\\(x", "$x", "$$x", "answer to ", "the answer is $", "1,", "1,111", "\\boxed{1} and ", "####", "a1 ",
    "\\boxed{{", ". ", "answer:", "-", "\n", "\\text{ and }", "answer is **",
    "1 h ", "1 hour and ", "3 million ", "Antwort ", "答",
    "1:2:", "\\boxed{1} papers and ", "12 AM ", "1 {,} ", "12 and a ",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever creates a file where we are is caught."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", TOWERS + NESTS + CODE + UNICODE + SLOW + LONG, ids=lambda a: repr(a[:24]))
def test_no_answer_takes_long(answer: str) -> None:
    verdict.cache_clear()
    attempt.cache_clear()
    begun = time.process_time()
    found = verdict(answer)
    assert time.process_time() - begun < LIMIT
    assert (found.key is None) == (found.verdict == "unparsable")


@pytest.mark.parametrize("answer", SLOW)
def test_the_work_of_an_answer_is_counted_and_ends(answer: str) -> None:
    """What is too much work has a key by its form: the same each time, and on each machine."""
    attempt.cache_clear()
    cheap = attempt(answer, "hundredths", 50)
    full = attempt(answer, "hundredths", WORK)
    assert cheap in (None, full) and full is not None
    attempt.cache_clear()
    assert attempt(answer, "hundredths", WORK) == full


@pytest.mark.parametrize("piece", REPEATED)
def test_finding_takes_linear_time(piece: str) -> None:
    begun = time.process_time()
    find(piece * (10**6 // len(piece)), pattern=None)
    find(piece * 300 + "\\boxed{" + piece * 300, pattern=None)
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("text", CODE + UNICODE, ids=lambda a: repr(a[:24]))
def test_in_a_solution_they_are_answers_like_others(text: str) -> None:
    rule = MathRule()
    sequences = [Sequence(Prompt("p", "?"), f"So \\boxed{{{text}}}", finish="eos")]
    (answer,) = asyncio.run(rule.read(sequences))
    assert (answer.key is None) == (answer.verdict in ("missing", "unparsable"))
