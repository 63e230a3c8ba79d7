"""Values as JSON: what leaves a process comes back equal, and what a forger writes does no harm."""

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.verifiers.code.inside.values import Encoder, NotPlain, TooLarge, decode, parse
from metagen.verifiers.code.plain import key, literal

ATOMS: Any = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.integers(-(10**60), 10**60)
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3))
)
HASHABLE: Any = st.recursive(ATOMS, lambda v: st.tuples(v, v) | st.frozensets(v, max_size=3), max_leaves=5)
PLAIN: Any = st.recursive(
    ATOMS | st.sets(HASHABLE, max_size=3) | st.dictionaries(HASHABLE, ATOMS, max_size=3),
    lambda v: st.lists(v, max_size=4) | st.tuples(v, v) | st.dictionaries(HASHABLE, v, max_size=3),
    max_leaves=12,
)
ANY_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: (
        st.lists(v, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "tuple",
                    "set",
                    "dict",
                    "int",
                    "float",
                    "bytes",
                    "complex",
                    "range",
                    "ref",
                    "decimal",
                    "fraction",
                    "type",
                    "made",
                    "of",
                    "named",
                    "lazy",
                    "numpy",
                    "defaultdict",
                ]
            )
            | st.text(),
            v,
            max_size=2,
        )
    ),
    max_leaves=10,
)


def encoded(value: object) -> Any:
    return parse(Encoder(10**6).text(value))


def same(a: object, b: object) -> bool:
    """Equal, of one type, and nan where there was nan."""
    return type(a) is type(b) and repr(a) == repr(b)


@given(PLAIN)
def test_there_and_back(value: object) -> None:
    text = Encoder(10**6).text(value)
    assert json.loads(text) == parse(text) or "NaN" in text
    back = decode(parse(text))
    assert key(encoded(back)) == key(encoded(value))
    if not isinstance(value, (set, frozenset, dict)):  # their order is not kept
        assert type(back) is type(value)


@given(st.floats() | st.integers() | st.text() | st.binary() | st.complex_numbers())
def test_atoms_are_kept_to_the_bit(value: object) -> None:
    assert same(decode(encoded(value)), value)


@given(PLAIN, PLAIN)
def test_keys_are_equal_where_values_are(a: object, b: object) -> None:
    assert (key(encoded(a)) == key(encoded(b))) == _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    """Python's `==`, where nan equals nan: what agreement between programs means by equal."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, complex) or isinstance(b, complex):
        return repr(complex(a) + 0) == repr(complex(b) + 0) if _number(a) and _number(b) else False
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return key(encoded(list(a))) is not None and _members(a.items(), b.items())
    if isinstance(a, (set, frozenset)) and isinstance(b, (set, frozenset)):
        return _members(a, b)
    return bool(a == b)


def _number(a: object) -> bool:
    return isinstance(a, (bool, int, float, complex)) and (not isinstance(a, int) or abs(a) < 2**53)


def _members(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(any(_equal(x, y) for y in b) for x in a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (2**80, float(2**80)),
        ({1, 2}, frozenset((2, 1))),
        ({1: 2, 3: 4}, {3.0: 4, 1: 2.0}),
        (Fraction(1, 2), 0.5),
        (Fraction(4, 2), 2),
        (Decimal("0.50"), 0.5),
        (float("nan"), float("nan")),
        (1 + 0j, 1),
        (b"a", bytearray(b"a")),
        (range(0), range(5, 5)),
        (range(0, 3, 2), range(0, 4, 2)),
        ({1: 2}.keys(), {1}),
        (iter([1]), (x for x in [1])),
    ],
)
def test_one_key(a: object, b: object) -> None:
    assert key(encoded(a)) == key(encoded(b)) is not None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, "1"),
        ([1], (1,)),
        ((), []),
        (0.1, Fraction(1, 10)),
        (None, False),
        ("a", b"a"),
        ({1}, [1]),
        (int, float),
        (2**53, 2.0**53 + 2),
        ({}, set()),
        (Decimal("1e9999"), float("inf")),
    ],
)
def test_two_keys(a: object, b: object) -> None:
    assert key(encoded(a)) != key(encoded(b))


@given(ANY_JSON)
def test_what_a_forger_writes_is_no_error(data: Any) -> None:
    assert isinstance(key(data), (str, type(None)))
    assert isinstance(literal(data), str)
    assert len(literal(data, 50)) <= 2 * 50 + 10


def test_nested_without_end() -> None:
    data: Any = 1
    for _ in range(5000):
        data = {"tuple": [data]}
    assert key(data) is None
    assert len(literal(data)) < 1000


@pytest.mark.parametrize("value", [[1, (2,), {3}], {"a": [None], (1,): b"x"}, (), {1: ()}, 1.5, "é\n", int])
def test_a_literal_reads_as_python(value: object) -> None:
    text = literal(encoded(value))
    assert eval(text) == value


def test_long_values_are_cut() -> None:
    assert len(literal(["x" * 10_000] * 1000, room=100)) < 120
    assert literal([0] * 10**6, room=20).startswith("[0, 0,")


def test_subclasses_are_their_base_and_refuse_the_rest() -> None:
    class Text(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    class Items(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise AssertionError

    for value, plain in ((Text("a"), "a"), (Items([1]), [1]), ({Text("k"): Items()}, {"k": []})):
        back: Any = decode(encoded(value))
        assert back == plain and repr(back) == repr(plain) and key(encoded(value)) == key(encoded(plain))
    assert type(decode(encoded(Text("a")))).__mro__[1] is str
    with pytest.raises(NotPlain, match=r"'shout' of a value of type '.*Text'"):
        decode(encoded(Text("a"))).shout()


@pytest.mark.parametrize("data", [
    ["os", "system", ["true"]],
    ["datetime", "date", [1, 2]], ["collections", "deque", [5]], ["builtins", "eval", ["1"]],
    ["array", "array", ["z", ["x"]]], ["datetime", "__builtins__", []],
])  # fmt: skip
def test_nothing_else_is_made(data: Any) -> None:
    """What a forger writes calls no constructor but those that are known, and an error of theirs is no crash."""
    with pytest.raises(NotPlain):
        decode({"made": data})


def test_what_is_not_plain() -> None:
    kept: list[object] = []
    thing = object()
    with pytest.raises(NotPlain, match="object"):
        Encoder(100).text([thing])
    encoder = Encoder(100, lambda value: kept.append(value) or 7)  # type: ignore[func-returns-value]
    assert parse(encoder.text(thing)) == {"ref": [7, "object"]} and kept == [thing]
    with pytest.raises(NotPlain):
        decode({"ref": [7, "object"]})
    with pytest.raises(NotPlain, match="no builtin type"):
        decode({"type": "eval"})
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="nested"):
        Encoder(10**6).text(loop)


@pytest.mark.parametrize(
    "value", ["x" * 101, [0] * 60, b"x" * 60, 10**200, {i: i for i in range(30)}, (x for x in iter(int, 1))]
)
def test_too_large(value: object) -> None:
    with pytest.raises(TooLarge):
        Encoder(100).text(value)


def test_room_is_for_all_values_together() -> None:
    encoder = Encoder(100)
    encoder.text("x" * 60)
    with pytest.raises(TooLarge):
        encoder.text("x" * 60)
