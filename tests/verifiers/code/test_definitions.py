"""What a program defines, and what of it only tries it."""

from __future__ import annotations

import pytest

from metagen.sequence import Prompt, Sequence
from metagen.verifiers.code import definitions
from metagen.verifiers.code.definitions import Definitions
from metagen.verifiers.code.program import FencedProgram

F = "def f(x):\n    return x\n"
G = "@cache\ndef g(x):\n    return f(x)\nclass C:\n    f = 1\n"


def read(text: str, *points: str, finish: str = "eos") -> str | None:
    prompt = Prompt("p", text="?", public={"entry_points": list(points)} if points else {})
    return Definitions(FencedProgram()).read(Sequence(prompt, text, finish=finish))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("below", "kept"),
    [
        ("print(f(1))\n", ""),
        ("# An example\nprint(f(1))  # 1\n", "# An example\n"),
        ("for i in range(3):\n    f(i)\nTABLE = [1]\n", "TABLE = [1]\n"),
        ("y = f(1)\nz: int = f(2)\nw = len([1])\n", "w = len([1])\n"),
        ("import sys\nfrom os import path\nsys.exit(f(1))\n", "import sys\nfrom os import path\n"),
        (f"{G}f(G)\n", G),
        ("f = cache(f)\nf(1)\n", "f = cache(f)\n"),
        ("try:\n    f(1)\nexcept ValueError:\n    pass\n", ""),
        ("print(\n    f(1),\n)\n", ""),
        ("x = 1; print(f(x))\n", "x = 1; print(f(x))\n"),
        ('"""\nHow to use f.\n"""\n', ""),
    ],
)  # fmt: skip
def test_below_the_function(below: str, kept: str) -> None:
    assert read(f"```python\n{F}{below}```", "f") == f"{F}{kept}"


def test_above_the_function_and_between_functions_all_stays() -> None:
    program = f"import sys\nsys.setrecursionlimit(10)\n{F}print(f(1))\ndef g(x):\n    return 1\n"
    assert read(f"```python\n{program}f(2)\n```", "f", "g") == program
    assert read(f"```python\n{program}f(2)\n```") == program, "without entry points, the last function counts"


@pytest.mark.parametrize(
    "text", ["print(1)\n", "g = 1\nprint(g)\n", "```python\ndef g(x):\n    return 1\ng(1)\n```"]
)
def test_a_program_that_defines_nothing_of_it_stays(text: str) -> None:
    assert read(text, "f") == FencedProgram().read(Sequence(Prompt("p", text="?"), text, finish="eos"))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"The code:\n\n{F}\nIt is done.", f"{F}\n"),
        (f"From here.\nimport math\nfrom there on we go:\n{F}Done so.", F),
        (f"```python\n{F}print(f(", F),
        (f"```python\n{F}\nIt gives x", f"{F}\n"),
        ("```python\ndef f(x):\n    return (", "def f(x):\n    return ("),
        ("```python\ndef f(x):\n    return (\n```", "def f(x):\n    return (\n"),
        (f"```python\n{F}It gives x\n```", f"{F}It gives x\n"),
        ("```def f(x): return x```", "def f(x): return x"),
        ("no code, and no function", None),
        ("This function counts (and adds) numbers.\nIt returns: the sum.", None),
        ("x = \n  1", "x = \n  1"),
        ("    return (x", "return (x"),
        ("f(1", "f(1"),
        ("", None),
    ],
)
def test_code_between_sentences(text: str, program: str | None) -> None:
    assert read(text, "f", finish="length") == program


def test_long_texts_stay_as_they_are_and_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = F + "print(1)\n" * 10_000
    assert len(long) > definitions.LONGEST and read(long, "f") == long
    tried: list[str] = []
    whole = definitions._tree

    def count(program: str) -> object:
        tried.append(program)
        return whole(program)

    monkeypatch.setattr(definitions, "_tree", count)
    assert read("def f(:\nand so on\n" * 1_000, "f") is not None
    assert len(tried) <= 1 + definitions.STARTS * definitions.TRIES


def test_it_is_named_by_the_rule_within() -> None:
    assert Definitions(FencedProgram()).fingerprint == Definitions(FencedProgram()).fingerprint
    assert Definitions(FencedProgram()).fingerprint != Definitions(FencedProgram("js")).fingerprint
