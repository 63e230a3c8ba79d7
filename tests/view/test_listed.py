"""The list of problems: searched, filtered, sorted and cut into pages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.view.listed import Listed, Wish

MARKS = ("voting", "verifier", "lost", "never")


def lines() -> st.SearchStrategy[list[dict[str, Any]]]:
    pool = st.builds(
        lambda generator, right, more, marks: {
            "name": generator, "generator": generator, "right": right, "size": right + more, "marks": marks,
        },
        st.sampled_from(["small", "large"]), st.integers(0, 3), st.integers(0, 3), st.lists(st.sampled_from(MARKS)),
    )  # fmt: skip
    line = st.fixed_dictionaries(
        {
            "level": st.none() | st.integers(1, 3),
            "head": st.sampled_from(["Sheep and COINS", "a=3;b?", ""]),
            "pools": st.lists(pool, max_size=2),
            "outcomes": st.dictionaries(st.sampled_from(["small/rebase@4", "large/beam@4"]), st.booleans()),
            "generated": st.none() | st.integers(0, 50),
            "solved": st.booleans(),
        }
    )
    return st.lists(line, max_size=12)


def listed(found: list[dict[str, Any]]) -> Listed:
    # Not in the order of their places.
    return Listed({place: {"id": f"task/{place}", **one} for place, one in reversed(list(enumerate(found)))})


WISHES = st.builds(
    Wish,
    q=st.sampled_from(["", "coins", " TASK/1 ", "nowhere"]),
    filter=st.sampled_from(["", *MARKS, "right:small/rebase@4", "wrong:large/beam@4", "right:nobody"]),
    level=st.sampled_from(["", "1", "2"]),
    generator=st.sampled_from(["", "small", "none"]),
    sort=st.sampled_from(["order", "level", "right", "left", "generated"]),
)


@given(lines(), WISHES, st.integers(0, 5), st.integers(0, 5))
def test_pages_and_neighbours_agree_with_the_whole_list(
    found: list[dict[str, Any]], wish: Wish, start: int, count: int
) -> None:
    made = listed(found)
    whole = made.find(wish)
    page = made.page(wish, start, count)
    assert page["problems"] == whole[start : start + count] and page["total"] == len(whole)
    for line in made.lines.values():
        beside = made.beside(wish, line["id"])
        if line not in whole:
            assert beside["at"] is None
            continue
        ids = [one["id"] for one in whole]
        assert ids[beside["at"]] == line["id"]
        assert beside["before"] == (ids[beside["at"] - 1] if beside["at"] else None)
        assert beside["next"] == (ids[beside["at"] + 1] if beside["at"] + 1 < len(ids) else None)


@given(lines())
def test_every_order_holds_all_and_has_the_unknown_last(found: list[dict[str, Any]]) -> None:
    made = listed(found)
    ids = [one["id"] for one in made.find(Wish())]
    assert ids == [f"task/{place}" for place in range(len(found))]
    for sort, key, down in (("level", "level", False), ("generated", "generated", True)):
        ordered = made.find(Wish(sort=sort))  # type: ignore[arg-type]
        assert sorted(one["id"] for one in ordered) == sorted(ids)
        values = [one[key] for one in ordered]
        known = [value for value in values if value is not None]
        assert values == sorted(known, reverse=down) + [None] * (len(values) - len(known))
    for right, left in zip(made.find(Wish(sort="right")), made.find(Wish(sort="left")), strict=True):
        assert {right["id"], left["id"]} <= set(ids)


@given(lines())
def test_right_and_wrong_part_those_that_ran_it(found: list[dict[str, Any]]) -> None:
    made, name = listed(found), "small/rebase@4"
    right, wrong = (made.find(Wish(filter=f"{kind}:{name}")) for kind in ("right", "wrong"))
    assert len(right) + len(wrong) == sum(name in one["outcomes"] for one in found)
    assert all(one["outcomes"][name] for one in right) and not any(one["outcomes"][name] for one in wrong)


def test_what_is_searched_is_the_id_and_the_beginning_of_the_prompt() -> None:
    base = {"level": None, "pools": [], "outcomes": {}, "generated": None, "solved": False}
    made = Listed({0: {"id": "a/1", "head": "Two SHEEP", **base}, 1: {"id": "sheep/2", "head": "", **base}})
    assert [one["id"] for one in made.find(Wish(q=" Sheep "))] == ["a/1", "sheep/2"]
    assert [one["id"] for one in made.find(Wish(q="a/"))] == ["a/1"]


def test_a_wish_from_an_address() -> None:
    assert Wish.of({"run": "one", "q": "x", "sort": "left", "level": ""}) == Wish(q="x", sort="left")
    with pytest.raises(InputError, match=r"sort='best' is unknown; expected one of: order, level"):
        Wish.of({"sort": "best"})
    for unknown in ("rigth:a", "right:", "all"):
        with pytest.raises(
            InputError, match=f"filter='{unknown}' is unknown; expected one of: right:NAME, wrong:NAME"
        ):
            Wish.of({"filter": unknown})
