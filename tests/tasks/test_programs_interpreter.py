"""The interpreter agrees with Python inside its subset, and refuses what is outside."""

from __future__ import annotations

import asyncio
import random
import re
import time
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import MetagenError
from metagen.tasks.programs import grammar
from metagen.tasks.programs.interpreter import MAX_ITEMS, Output, outputs
from metagen.tasks.programs.task import interpret
from metagen.verifiers.code.sandbox import Sandbox

lists = st.lists(st.integers(-20, 20), max_size=8)
OPERATIONS = list(grammar.KIND)
#: What programs of the grammar are written in, and some more of the subset.
TOKENS = sorted(
    {t for operation in OPERATIONS for t in re.findall(r"\w+|==|!=|//|\W", operation)}
    | {"None", "True", "y", "<=", "and", "or", "not", "(x)", "list", "index", "reverse=True"}
)


def python(source: str, x: list[int]) -> Output:
    """What Python does. Only for programs whose syntax tree the interpreter has accepted as harmless."""
    names: dict[str, Any] = {}
    exec(source, names)
    try:
        return Output("returned", names["f"](x))
    except Exception as error:  # noqa: BLE001 - every error is what is compared
        return Output("raised", error=type(error).__name__)


def same(ours: Output, theirs: Output) -> bool:
    return ours == theirs and repr(ours.value) == repr(theirs.value)


@given(st.integers(0, 2**32), st.integers(1, 6), lists)
def test_programs_of_the_grammar_do_what_python_does(seed: int, length: int, x: list[int]) -> None:
    program = grammar.draw(random.Random(seed), length)
    (ours,) = outputs(str(program), "f", [[x]])
    theirs = python(str(program), list(x))
    assert theirs.status == "returned"
    assert program(x) == theirs.value
    # Squares of squares, and joins of joins, may leave the bounds of the interpreter, which says so.
    assert same(ours, theirs) or ours.status == "limit"


@settings(max_examples=400)
@given(st.randoms(use_true_random=False), lists)
def test_mangled_programs_do_what_python_does(rng: random.Random, x: list[int]) -> None:
    """Operations with tokens exchanged, dropped and doubled: syntax errors, unknown names, wrong types."""
    lines = []
    for name in rng.choices(["x", "y", "return"], k=3):
        tokens = re.findall(r"\w+|==|!=|//|\W", rng.choice(OPERATIONS))
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(tokens))
            tokens[place : place + rng.randrange(2)] = rng.choices(TOKENS, k=rng.randrange(3))
            tokens = tokens or ["x"]
        lines.append(f" return {''.join(tokens)}" if name == "return" else f" {name}={''.join(tokens)}")
    source = "\n".join(["def f(x):", *lines, " return y"])
    (ours,) = outputs(source, "f", [[x]])
    if ours.status == "syntax":
        with pytest.raises(SyntaxError), warnings.catch_warnings(action="ignore"):
            compile(source, "mangled", "exec")
    elif ours.status in ("returned", "raised"):
        with warnings.catch_warnings(action="ignore"):  # of numbers that run into words
            assert same(ours, python(source, list(x))), source


@pytest.mark.parametrize(
    ("body", "x", "value"),
    [
        (" if x:\n  return x[0]\n return -1", [], -1),
        (" if len(x)>1:\n  x=x[1:]\n else:\n  x=[7]\n return x", [1, 2], [2]),
        (" a=5\n x=[a for a in x if 0<a<=9]\n return x+[a]", [10, 3], [3, 5]),
        (" return [a*b for a in x for b in x if a<b]", [1, 2, 3], [2, 3, 6]),
        (" return x.index(3)", [1, 3], 1),
        (" return sorted(x,reverse=True)", [1, 3], [3, 1]),
        (" x=x", [1], None),
        (" return 3 in x and not x[0]", [0, 3], True),
    ],
)
def test_what_the_grammar_does_not_use(body: str, x: list[int], value: object) -> None:
    (output,) = outputs(f"def f(x):\n{body}\n", "f", [[x]])
    assert same(output, Output("returned", value))
    assert same(output, python(f"def f(x):\n{body}\n", x))


@pytest.mark.parametrize(
    ("source", "status", "error"),
    [
        ("def f(x):\n return y\n", "raised", "NameError"),
        ("def f(x):\n y=[a for a in x]\n return a\n", "raised", "NameError"),
        ("def f(x):\n x=y\n y=1\n return x\n", "raised", "UnboundLocalError"),
        ("def f(x):\n return x[9]\n", "raised", "IndexError"),
        ("def f(x):\n return 1//0\n", "raised", "ZeroDivisionError"),
        ("def f(x):\n return x+1\n", "raised", "TypeError"),
        ("def f(x):\n return x.index(77)\n", "raised", "ValueError"),
        ("def g(x):\n return x\n", "raised", "NameError"),
        ("def f(x)\n return x\n", "syntax", "SyntaxError"),
        ("", "unsupported", ""),
    ],
)
def test_errors_have_their_python_names(source: str, status: str, error: str) -> None:
    (output,) = outputs(source, "f", [[[1, 2]]])
    assert output.status == status
    assert error in output.error


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "return __import__('os')",
        "return open",
        "return x.__class__",
        "return x.append(1)",
        "return 'text'",
        "return 1.5",
        "return 2**9",
        "return 1<<9",
        "return (lambda a: a)(1)",
        "while x: x=x[1:]",
        "for a in x: x=a",
        "return {1: 2}",
        "return f(x)",
        "return eval('1')",
        "return sorted(x,key=abs)",
        "return len(*x)",
        "global x",
        "return (y:=1)",
        "return sum",
        "return range(3)",
        "del x",
        "x[0]=1",
    ],
)
def test_what_lies_outside_is_refused(line: str) -> None:
    assert outputs(f"def f(x):\n {line}\n", "f", [[[1]]])[0].status == "unsupported"


DOUBLED = "def f(x):\n" + " x=[x,x]\n" * 30 + " return x\n"


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n return [1]*1000000000\n",
        "def f(x):\n return [range(1000000000)]\n",
        "def f(x):\n" + " x=x+x\n" * 60 + " return x\n",
        DOUBLED,
        DOUBLED.replace("[x,x]", "(x,x)"),
        DOUBLED.replace("[x,x]", "list(zip(x,x))"),
        DOUBLED.replace("[x,x]", "[x for a in x]"),
        "def f(x):\n x=sum(x)+9\n" + " x=x*x\n" * 60 + " return x\n",
        "def f(x):\n return [a for a in x for b in x for c in x for d in x]\n",
    ],
)
def test_work_is_bounded(source: str) -> None:
    began = time.process_time()
    (output,) = outputs(source, "f", [[list(range(9))]])
    assert output.status == "limit"
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "source",
    [
        "(" * 190 + ")" * 190,
        "x" * 5000,
        "def f(x):\n\0",
        "def f(x):\n return " + "9" * 900,
        "\ud800",
        "async def f(x): 1",
    ],
)
def test_hostile_texts_are_refused(source: str) -> None:
    assert outputs(source, "f", [[[1]]])[0].status in ("unsupported", "syntax")


@pytest.mark.parametrize("nested", ["-" * 900 + "1", "not " * 200 + "1", "[" * 90 + "]" * 90])
def test_deep_nesting_is_python_s_or_refused(nested: str) -> None:
    source = f"def f(x):\n return {nested}\n"
    (output,) = outputs(source, "f", [[[1]]])
    assert output.status == "unsupported" or same(output, python(source, [1]))


def test_an_input_is_left_as_it_is() -> None:
    x = [3, 1, 2]
    assert outputs("def f(x):\n x=sorted(x)\n return x\n", "f", [[x]])[0].value == [1, 2, 3]
    assert x == [3, 1, 2]


def test_turns_are_counted_for_each_call() -> None:
    x = list(range(MAX_ITEMS // 2))
    source = "def f(x):\n return [a for a in x]\n"
    assert {o.status for o in outputs(source, "f", [[x]] * 50)} == {"returned"}


def test_a_sandbox_gives_the_same_keys() -> None:
    """With real Python in a real sandbox, and the values of several types."""
    try:
        sandbox = Sandbox()
    except MetagenError as error:
        pytest.skip(f"no sandbox can be made here: {error}")
    rng = random.Random(0)
    programs = [str(grammar.draw(rng, length)) for length in (1, 3, 5)]
    programs += ["def f(x):\n return (x,set(x),len(x)>2,None)\n", "def f(x):\n return x[3]\n"]
    calls = ["f([5,3,8,-1])", "f([])", "f([2,2])"]

    async def compared() -> None:
        for program in programs:
            outcome = await sandbox.evaluate(program, calls)
            assert [a.key for a in outcome.answers] == await interpret(program, calls), program

    asyncio.run(compared())
