"""What a part is made with: its constructor, its fingerprint, its repr."""

from __future__ import annotations

import operator
import re
import subprocess
import sys
from collections import abc, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

import metagen as mg
from metagen.errors import MetagenError
from metagen.parts import fingerprint, identity, name_of, part
from metagen.values import Amount, Count, Filled, Positive, Share, annotations_of, fits, hints, spell

ROOT = Path(__file__).parents[1]


@part
class Toy:
    """Fields of every sort."""

    first: Count = field(kw_only=False)
    second: Amount = field(default=2, kw_only=False)
    share: Share = 0.5
    rate: Positive = 1.0
    name: Filled = "toy"
    mode: Literal["a", "bb"] = "a"
    several: tuple[int, ...] = ()
    maker: Any = None

    def __post_init__(self) -> None:
        self.sum = self.first + self.second


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"first": 0}, "Toy: first=0; expected an integer ≥ 1"),
        ({"first": True}, "Toy: first=True; expected an integer ≥ 1"),
        ({"first": 1.0}, "Toy: first=1.0; expected an integer ≥ 1"),
        ({"first": 2_000_000}, "Toy: first=2000000; expected at most 1,000,000"),
        ({"first": 1, "share": 1.01}, "Toy: share=1.01; expected a number in [0, 1]"),
        ({"first": 1, "share": float("nan")}, "Toy: share=nan; expected a number in [0, 1]"),
        ({"first": 1, "rate": float("inf")}, "Toy: rate=inf; expected a finite number > 0"),
        ({"first": 1, "name": ""}, "Toy: name=''; expected a text that is not empty"),
        ({"first": 1, "mode": "b"}, "Toy: mode='b'; expected one of a, bb; did you mean 'bb'?"),
        ({"first": 1, "several": ("x",)}, "Toy: several=('x',); expected a list, each an integer"),
        ({"first": 1, "secnd": 1}, "did you mean 'second'?"),
        ({}, "Toy: first missing; it takes first (an integer ≥ 1), second"),
    ],
)
def test_what_is_given_is_checked_before_anything_is_done(given: dict[str, Any], said: str) -> None:
    with pytest.raises(mg.InputError) as caught:
        Toy(**given)
    assert said in str(caught.value)


@part
class Bounds:
    """Two fields that must go together."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        self.width = 1 / (self.high - self.low)

    @classmethod
    def conflict(cls, given: abc.Mapping[str, Any]) -> str | None:
        low, high = given["low"], given["high"]
        return f"low={low!r}, high={high!r}; expected low < high" if low >= high else None


@part
class NamedBounds(Bounds):
    """The same with one field more, and with a `__post_init__` of its own."""

    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shown = f"{self.label} {self.width}"


def test_fields_that_do_not_go_together_are_refused_before_anything_is_done() -> None:
    for made, name in ((Bounds, "Bounds"), (NamedBounds, "NamedBounds")):
        assert made(high=3.0, low=1.0).width == 0.5
        with pytest.raises(mg.InputError, match=f"^{name}: low=1.0, high=1.0; expected low < high$"):
            made(low=1.0)


def test_fields_by_place_are_those_that_say_so() -> None:
    assert Toy(1, 3).sum == 4
    with pytest.raises(mg.InputError, match=r"too many positional.*; give share, rate, .*, maker by name$"):
        Toy(1, 2, 0.3)  # type: ignore[misc]
    assert Toy(np.int64(3), share=np.float64(0.25), mode=np.str_("bb")).share == 0.25  # type: ignore[arg-type]


def test_equal_parts_have_equal_fingerprints_and_others_have_not() -> None:
    alike = [Toy(1), Toy(1, 2), Toy(1, share=0.5), Toy(1, rate=1)]
    assert len({fingerprint(one) for one in alike}) == 1
    others = [
        Toy(1), Toy(2), Toy(1, 3), Toy(1, share=0.25), Toy(1, rate=2.0), Toy(1, name="other"), Toy(1, mode="bb"),
        Toy(1, several=(1,)), Toy(1, several=(1, 1)), Toy(1, maker=len), Toy(1, maker=lambda x: x),
        Toy(1, maker=lambda x: x + 1), Toy(1, maker={"a": 1}), Toy(1, maker={"a": 2}), Toy(1, maker="None"),
    ]  # fmt: skip
    assert len({fingerprint(one) for one in others}) == len(others)
    assert identity(1) == identity(1.0) != identity(True) != identity("1.0")


def test_classes_of_one_name_in_two_modules_are_two() -> None:
    made = {}
    for module in ("one", "two"):
        space: dict[str, Any] = {"__name__": module, "part": part}
        sys.modules[module] = type(sys)(module)
        exec("@part\nclass Same:\n    n: int = 1\n", space)
        made[module] = fingerprint(space["Same"]())
        del sys.modules[module]
    assert len(set(made.values())) == 2


def test_its_repr_is_how_it_would_be_made() -> None:
    assert repr(Toy(1)) == "Toy(first=1)"
    assert repr(Toy(1, 3, mode="bb")) == "Toy(first=1, second=3, mode='bb')"


class Byhand(mg.Verifier):
    """A constructor of its own, without a fingerprint."""

    def __init__(self, least: int, tool: Any = None) -> None:
        self.least, self.tool = least, tool

    async def score(self, sequences: abc.Sequence[mg.Sequence], *, scope: mg.Scope) -> list[mg.Score]:
        return [mg.Score(1.0)] * len(sequences)


class Forgets(Byhand):
    """It keeps what it is made with under another name."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least)
        self.upper = most


def test_a_constructor_by_hand_is_read_too_and_what_it_forgets_is_an_error() -> None:
    assert Byhand(1).fingerprint == Byhand(1).fingerprint != Byhand(2).fingerprint
    with pytest.raises(MetagenError, match=r"Forgets is made with 'most'.*keep it as self\.most"):
        _ = Forgets(1, 2).fingerprint


def test_what_records_are_found_by_is_no_place_in_memory() -> None:
    with pytest.raises(MetagenError, match=r"Byhand is made with tool=.*another name in each process"):
        _ = Byhand(1, object()).fingerprint
    code = "from tests.test_parts import Byhand, Toy; from metagen.parts import fingerprint; "
    code += "print(Byhand(1, len).fingerprint, fingerprint(Toy(1, maker=lambda x: x + 1)))"
    said = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1] and said[0].strip()


def adder(n: int) -> Callable[[int], int]:
    return lambda x: x + n


class Known:
    fingerprint = "known"

    def __call__(self, x: int) -> int:
        return x


def test_what_is_defined_in_a_module_is_named_by_its_place() -> None:
    assert name_of(adder) == f"{__name__}.adder" and name_of(Known()) == "known"
    assert name_of(operator.add) != name_of(operator.sub)


def test_lambdas_are_told_apart_by_what_they_do_and_are_given() -> None:
    def inner(n: int) -> Callable[[int], int]:
        return lambda x: (lambda y: y + n)(x)

    several = [
        adder(1),
        adder(2),
        lambda x: x * 2,
        lambda x: x * 3,
        lambda x, k=1: x * k,
        lambda x, k=2: x * k,
    ]
    several += [
        lambda x: abs(x),
        lambda x: hash(x),
        inner(1),
        inner(2),
        partial(operator.add, 1),
        partial(operator.add, 2),
    ]
    assert len({name_of(f) for f in several}) == len(several)
    assert name_of(adder(1)) == name_of(adder(1))


class Reward:
    """Names itself by nothing, or by a text that leaves out its weight."""

    __slots__ = ("__weakref__", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def score(self, sequence: mg.Sequence) -> float:
        return self.weight


class Linear(Reward):
    def __repr__(self) -> str:
        return "Linear(bias=True)"


class Bare:
    """Nothing can refer to it weakly."""

    __slots__ = ("weight",)


@dataclass
class Holder:
    held: object


MAKERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "closure": lambda one: lambda s: one.score(s),
    "default": lambda one: lambda s, one=one: one.score(s),
    "method": lambda one: one.score,
    "partial": lambda one: partial(print, one),
    "partial of a method": lambda one: partial(one.score),
    "list": lambda one: lambda s: [one],
    "closure in a closure": lambda one: (lambda inner: lambda s: inner(s))(lambda s: one.score(s)),
    "dataclass": lambda one: (lambda held: lambda s: held.held)(Holder(one)),
    "namespace": lambda one: (lambda held: lambda s: held.one)(SimpleNamespace(one=one)),
    "queue": lambda one: (lambda held: lambda s: held[0])(deque([one])),
    "caller": lambda one: operator.methodcaller("score", one),
    "mapping of a kind": lambda one: (lambda held: lambda s: held[0])(defaultdict(lambda: one)),
    "class in a function": lambda one: (lambda held: lambda s: held())(
        type("R", (), {"__qualname__": "f.<locals>.R"})
    ),
    "wrapper": lambda one: wraps(adder)(lambda s: one.score(s)),
    "array of objects": lambda one: (lambda held: lambda s: held)(np.array([one, None])),
    "the object itself": lambda one: one,
    "global": lambda one: eval("lambda s: one.score(s)", {"one": one, "__name__": "script"}),
    "global of an inner function": lambda one: eval("lambda s: (lambda: one.score(s))()", {"one": one}),
}


@pytest.mark.parametrize("cls", [Reward, Linear])
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in MAKERS.items()])
def test_functions_of_two_objects_never_have_one_name(make: Callable[[Any], Any], cls: type) -> None:
    """Though the objects look alike, or live at the same place one after the other."""
    kept = [cls(weight) for weight in range(2)]
    assert len({name_of(make(one)) for one in kept}) == 2
    assert len({name_of(make(cls(weight))) for weight in range(20)}) == 20


@pytest.mark.parametrize("way", ["closure", "method", "partial", "list", "dataclass", "global"])
def test_a_function_of_the_same_object_has_the_same_name(way: str) -> None:
    one = Reward(0.0)
    assert name_of(MAKERS[way](one)) == name_of(MAKERS[way](one))


def test_what_nothing_can_refer_to_lives_as_long_as_its_name() -> None:
    def make() -> Callable[[], object]:
        one = Bare()
        return lambda: one

    assert len({name_of(make()) for _ in range(20)}) == 20


def test_parts_of_two_objects_that_nothing_names_never_have_one_fingerprint() -> None:
    assert len({fingerprint(Toy(1, maker=Reward(0.0))) for _ in range(20)}) == 20


def test_parts_with_equal_settings_around_one_object_have_one_fingerprint() -> None:
    one = Reward(0.0)
    assert fingerprint(Toy(1, maker=Holder(one))) == fingerprint(Toy(1, maker=Holder(one)))
    assert len({fingerprint(Toy(1, maker=Holder(Reward(0.0)))) for _ in range(20)}) == 20


def test_what_tells_all_of_itself_has_one_name_wherever_it_is() -> None:
    def make(*held: Any) -> Callable[[], object]:
        return lambda: held

    values: list[Callable[[], Any]] = [
        lambda: Path("a/b"), lambda: Fraction(1, 3), lambda: np.arange(2000) == 1000,
        lambda: np.arange(2000) == 900, lambda: re.compile("a" * 300),
        lambda: Holder([1, {"a": Path("b")}]), lambda: operator, lambda: Known(), lambda: adder(2), lambda: {1, 2},
    ]  # fmt: skip
    assert all(name_of(make(value())) == name_of(make(value())) for value in values)
    assert len({name_of(make(value())) for value in values}) == len(values)


def test_a_function_that_reads_itself_has_a_name() -> None:
    def fall(n: int) -> int:
        return fall(n - 1) if n else 0

    held: list[Any] = [1]
    held.append([*held, fall, held])
    assert name_of(fall) == name_of(fall) != name_of(lambda: held)


def test_scores_of_one_model_are_not_taken_for_those_of_the_next() -> None:
    journal, texts = mg.MemoryJournal(), mg.FunctionGenerator(lambda prefix, seed, index: str(index))
    for weight in (0.25, 0.5, 0.75):
        model = Linear(weight)
        # mypy infers no type of a lambda's default.
        judge = mg.FunctionVerifier(lambda s, model=model: model.score(s))  # type: ignore[misc]
        best = mg.BestOfN(texts, n=2, verifier=judge).solve("p", journal=journal)
        assert [one.value for one in best.candidates] == [weight] * 2
        del model, judge


# -- annotations ---------------------------------------------------------------------------------------------


def test_an_alias_is_what_it_stands_for() -> None:
    """NDArray of numpy 2.5 is one, made by a `type` statement, which Python 3.11 does not have."""
    item = TypeVar("item")
    dtype = np.dtype[item]  # type: ignore[type-var]
    array = TypeAliasType("array", np.ndarray[tuple[int, ...], dtype], type_params=(item,))
    hint = array[np.bool_]
    assert fits(np.zeros(2, np.bool_), hint, strict=False) and not fits(True, hint, strict=False)
    assert spell(hint) == "an array"
    name = TypeAliasType("name", str | None)
    assert fits(None, name, strict=True) and not fits(3, name, strict=True)
    assert spell(name) == "a text or None"


#: Without `from __future__ import annotations`, which this file has.
BARE = """
class Quoted:
    count: int
    other: "Absent"

def function(count: int, other: "Absent") -> float: ...
"""


def test_annotations_that_only_a_type_checker_can_read() -> None:
    """They are anything, also where Python makes objects of annotations when it is asked for them."""
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(BARE, "bare", "exec", dont_inherit=True), space)
    assert annotations_of(space["Quoted"]) == {"count": int, "other": "Absent"}
    assert hints(space["function"]) == {"count": int, "other": Any, "return": float}
    if sys.version_info >= (3, 14):
        exec(compile(BARE.replace('"', ""), "bare", "exec", dont_inherit=True), space)
        assert annotations_of(space["Quoted"]) == {"count": int, "other": "Absent"}
        assert hints(space["function"]) == {"count": int, "other": Any, "return": float}
