"""What the text of a problem gives away."""

import pytest

from metagen.verifiers.code.examples import docstring_examples, entry_points

PROMPT = '''def f(x):
    """Twice x.
    >>> f(2)
    4
    >>> f([1,
    ...    2])
    [1, 2, 1, 2]
    >>> print(f(1))
    2
    >>> f(None)
    Traceback (most recent call last):
        ...
    TypeError
    >>> y = f(3)
    >>> f("a")
    'aa'
    """
'''


def test_examples_become_assertions() -> None:
    assert docstring_examples(PROMPT) == [
        "assert (f(2)) == (4)",
        "assert (f([1,\n   2])) == ([1, 2, 1, 2])",
        "assert (f(\"a\")) == ('aa')",
    ]
    assert docstring_examples("Examples:\n>>> f(1)\n2\n") == ["assert (f(1)) == (2)"]
    assert docstring_examples("no examples") == [] == docstring_examples(">>>f(1)\n2")


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        (["assert f(1) == 2", "assert f(g(1)) == 2"], ("f",)),
        (["assert set(f(1)) == {2}", "assert set(f(2)) == {3}"], ("f",)),
        (["assert sum(10, 15) == 6"], ("sum",)),
        (["assert f(1)", "assert g(1)"], ()),
        (["assert True"], ()),
        ([], ()),
    ],
)
def test_entry_points(tests: list[str], names: tuple[str, ...]) -> None:
    assert entry_points(tests) == names
