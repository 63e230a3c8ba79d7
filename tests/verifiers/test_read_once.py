"""Names of what is read, and a memory in which each is read by one caller."""

from __future__ import annotations

import asyncio

import pytest

from metagen.verifiers.read_once import ReadOnce, names_of, share_out


def test_a_name_is_that_of_all_that_is_read_before() -> None:
    first, second = names_of((1, 2, 3, 4), (1, 3))
    assert names_of((1, 2, 9, 9), (1, 3)) == (first, names_of((1, 2, 9, 9), (3,))[0])
    assert names_of((1, 2, 3, 4), (3,)) == (second,) and first != second
    assert names_of((1,), ()) == ()


def test_what_several_want_is_the_first_ones_to_read() -> None:
    a, b, c = (bytes([i]) for i in range(3))
    assert share_out([[a, b], [b, c], [a, c]], {a, b, c}) == [[0, 1], [1], []]
    assert share_out([[a, b], [b]], {b}) == [[1], []]


def test_who_comes_later_waits_and_finds_it_there() -> None:
    memory, read = ReadOnce(8), list[set[bytes]]()

    async def caller() -> float:
        async with memory.claim([b"x"]) as (known, missing):
            read.append(set(missing))
            if missing:
                await asyncio.sleep(0)
                memory.keep({b"x": 1.5})
                return 1.5
            return known[b"x"]

    async def both() -> list[float]:
        return await asyncio.gather(caller(), caller())

    assert asyncio.run(both()) == [1.5, 1.5] and read == [{b"x"}, set()]


def test_what_one_fails_to_read_falls_to_the_next() -> None:
    memory, tried = ReadOnce(8), list[str]()

    async def caller(name: str, fails: bool) -> None:
        async with memory.claim([b"x"]) as (_, missing):
            assert missing == {b"x"}
            tried.append(name)
            await asyncio.sleep(0)
            if fails:
                raise ValueError(name)

    async def both() -> None:
        results = await asyncio.gather(caller("one", True), caller("two", False), return_exceptions=True)
        assert [type(r) for r in results] == [ValueError, type(None)]

    asyncio.run(both())
    assert tried == ["one", "two"]


@pytest.mark.parametrize(("asked", "left"), [([b"a"], b"b"), ([b"b"], b"a")])
def test_beyond_the_limit_what_was_not_asked_for_the_longest_is_forgotten(
    asked: list[bytes], left: bytes
) -> None:
    memory = ReadOnce(2)

    async def known(*names: bytes) -> set[bytes]:
        async with memory.claim(names) as (found, _):
            return set(found)

    memory.keep({b"a": 1.0, b"b": 2.0})
    asyncio.run(known(*asked))
    memory.keep({b"c": 3.0})
    assert asyncio.run(known(b"a", b"b", b"c")) == {*asked, b"c"} and left not in asked
