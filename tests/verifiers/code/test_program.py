"""Which part of a sequence is the program."""

import pytest

from metagen.sequence import Prompt, Sequence
from metagen.verifiers.code.program import CompletedProgram, FencedProgram

PROMPT = 'def f(x):\n    """Twice x."""\n'


def sequence(text: str, prompt: str = PROMPT) -> Sequence:
    return Sequence.of(Prompt("p", text=prompt)).extend(text, finish="eos")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```py\nx = 1\n```\n```text\n3\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nBetter:\n```Python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\ny = ", "x = 1\ny = "),
        ("x = 1\n", "x = 1\n"),
        ("  ```python title='a.py'\nx = 1\n  ```", "x = 1\n"),
        ("```python\ns = '```'\n```", "s = '```'\n"),
        ("1. So:\n   ```python\n   def f(x):\n       return x\n   ```", "def f(x):\n    return x\n"),
        ("```python3\nx = 1\n```\n```\n3\n```", "x = 1\n"),
        ("", None),
        ("```python\n\n```", None),
    ],
)
def test_fenced(text: str, program: str | None) -> None:
    assert FencedProgram().read(sequence(text)) == program


def test_the_block_that_defines_what_is_asked_for() -> None:
    prompt = Prompt("p", text="?", public={"entry_points": ["f"]})
    first, second = "def f(x):\n    return x\n", "async def f(x):\n    return 2\n"
    example = "# Example usage\nprint(f(1))\n"

    def read(*blocks: str) -> str | None:
        text = "\n".join(f"```python\n{block}```" for block in blocks)
        return FencedProgram().read(Sequence.of(prompt).extend(text, finish="eos"))

    assert read(first, example) == first
    assert read(first, second, example) == second
    assert read(example, "def g(f):\n    pass\n") == "def g(f):\n    pass\n"
    # Under another name it is the program all the same, and not the example of its use.
    assert read("def g(x):\n    return x\n", "print(g(1))\n") == "def g(x):\n    return x\n"
    assert read("print(1)\n", "print(2)\n") == "print(2)\n"


def test_a_fence_that_is_closed_and_was_not_opened() -> None:
    prompt = Prompt("p", text="?", public={"entry_points": ["f"]})
    code, words = "def f(x):\n    return x\n", "This function returns its argument.\n"

    def read(text: str) -> str | None:
        return FencedProgram().read(Sequence.of(prompt).extend(text, finish="eos"))

    assert read(f"{code}```\n\n{words}") == code
    assert read(f"{words}```\n{code}```") == code
    assert read(f"{words}```\n    return x\n```") == "return x\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("    return 2 * x\n", "    return 2 * x\n"),
        ("    return 2 * x\nprint(f(1))\n", "    return 2 * x\n"),
        (
            "    return g(x)\n\ndef g(x):\n    return 2 * x\n\nif __name__ == '__main__':\n    f(1)\n",
            "    return g(x)\n\ndef g(x):\n    return 2 * x\n\n",
        ),
        ("    return [\n1,\n]\n", "    return [\n"),
        ("    return (\n        2 * x\n)\nf(2)", "    return (\n        2 * x\n)\n"),
        ("return 2 * x", "return 2 * x"),
        ("", ""),
    ],
)
def test_completed(text: str, kept: str) -> None:
    assert CompletedProgram().read(sequence(text)) == PROMPT + kept


@pytest.mark.parametrize(
    "more",
    ['def g(x):\n    """Thrice', "def g(x", "@cache\ndef g(x):\n    return h(", 'class A:\n    """One\nTwo'],
)
def test_what_the_length_cut_below_the_function_is_left_out(more: str) -> None:
    body, helper = "    return h(x)\n\n\n", "def h(x):\n    return 2 * x\n\n\n"
    for kept in (body, body + helper):
        assert CompletedProgram().read(sequence(kept + more)) == PROMPT + kept
    unreadable = f"    return h(\n\n\n{more}"
    assert str(CompletedProgram().read(sequence(unreadable))).startswith(PROMPT + "    return h(\n\n\n")


def test_of_a_completion_something_is_kept() -> None:
    """A prompt whose body is its docstring alone is no answer of anybody."""
    text = '\ndef g(x):\n    """Thr'
    assert CompletedProgram().read(sequence(text)) == PROMPT + text


def test_completed_alone() -> None:
    text = "    return g(x)\n\ndef g(x):\n    return 2 * x\n"
    assert CompletedProgram(functions=False).read(sequence(text)) == PROMPT + "    return g(x)\n\n"


def test_fingerprints_differ() -> None:
    rules = (FencedProgram(), FencedProgram("cpp"), CompletedProgram(), CompletedProgram(functions=False))
    assert len({rule.fingerprint for rule in rules}) == 4
