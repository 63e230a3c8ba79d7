"""A generator made of a function."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.generators.engine import Sample
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step, TokenIds, Tokens, digest
from metagen.verifiers.function import FunctionVerifier

T = TypeVar("T")
PREFIX = Sequence(Prompt("p", text="one two"))


def words(text: str) -> int:
    return len(text.split())


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return asyncio.run(main())


def test_the_function_sees_prefix_seed_and_index() -> None:
    scope = Scope.root("p", seed=1)
    seen: list[tuple[str, int, int]] = []

    def function(prefix: Sequence, seed: int, index: int) -> str:
        seen.append((prefix.text, seed, index))
        return f" {index}"

    prefix = PREFIX.extend("so far")
    results = run(FunctionGenerator(function).generate(prefix, n=3, start=2, scope=scope))
    assert [r.text for r in results] == ["so far 2", "so far 3", "so far 4"]
    assert all(r.finish == "eos" and r.extends(prefix) for r in results)
    assert [(t, i) for t, _, i in seen] == [("so far", 2), ("so far", 3), ("so far", 4)]
    assert len({seed for _, seed, _ in seen}) == 3


def test_a_text_ends_with_the_step_that_was_asked_for() -> None:
    lines = ["a=1\n", "b=2\n", "A:2\n"]

    def rest(prefix: Sequence, seed: int, index: int) -> str:
        return "".join(lines[prefix.text.count("\n") :])

    generator = FunctionGenerator(rest, count=words)
    found = PREFIX
    for i, line in enumerate(lines):
        scope = Scope.root("p")
        (found,) = run(generator.generate(found, until=Step("\n"), scope=scope))
        assert found.text == "".join(lines[: i + 1])
        assert scope.trace.usage.generated == 1, line
    assert (found.steps, found.finish) == ((4, 8), "eos")
    # Whole where no step is asked for, or where there is none of its kind.
    for until in (None, Step("\n\n"), Tokens(1)):
        (whole,) = run(generator.generate(PREFIX, until=until, scope=Scope.root("p")))
        assert (whole.text, whole.finish, whole.steps) == ("".join(lines), "eos", ())


def test_it_may_be_async_and_say_more_than_text() -> None:
    async def function(prefix: Sequence, seed: int, index: int) -> Sample:
        await asyncio.sleep(0)
        return Sample("a\n", None, 2, logprob=-1.5, finish=None, cut=True, step_end=2)

    (result,) = run(FunctionGenerator(function).generate(PREFIX, scope=Scope.root()))
    assert (result.text, result.finish, result.cut, result.steps, result.logprob) == (
        "a\n",
        None,
        True,
        (2,),
        -1.5,
    )
    assert result.tokens is None


def test_without_a_count_tokens_are_unknown_and_cannot_be_limited() -> None:
    generator = FunctionGenerator(lambda prefix, seed, index: "a b c")
    scope = Scope.root()
    run(generator.generate(PREFIX, n=2, scope=scope))
    assert (scope.usage.generated, scope.usage.prefilled, scope.usage.calls) == (None, None, 2)
    with pytest.raises(UnsupportedError, match="cannot bound its generated"):
        run(generator.generate(PREFIX, scope=Scope.root(budget=Budget(generated=5))))


def test_with_a_count_and_a_bound_it_is_charged_by_what_it_wrote() -> None:
    generator = FunctionGenerator(lambda p, s, i: "w " * (i + 1), count=words, max_tokens=4)
    scope = Scope.root(budget=Budget(generated=8))
    # 1 + 2 + 3 words; the fourth could have four, and two are left.
    assert [words(s.text) for s in run(generator.generate(PREFIX, n=4, scope=scope))] == [1, 2, 3]
    assert scope.exhausted and scope.left().generated == 2
    with pytest.raises(BudgetExhausted, match="generated"):
        run(generator.generate(PREFIX, start=9, scope=scope))


def test_a_prompt_is_counted_once_for_all_its_samples() -> None:
    """A count may be a tokenizer of a model, which takes its time."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return words(text)

    generator = FunctionGenerator(lambda *_: " x", count=count, max_tokens=4)
    scope = Scope.root("p", budget=Budget(generated=100))
    run(generator.generate(PREFIX, n=8, scope=scope))
    run(generator.generate(PREFIX.extend(" x"), n=8, scope=scope))
    assert counted == ["one two", *[" x"] * 8, "one two x", *[" x"] * 8]


def test_its_name_is_its_fingerprint() -> None:
    assert FunctionGenerator(words, name="a").fingerprint != FunctionGenerator(words, name="b").fingerprint


@pytest.mark.parametrize(("n", "start"), [(0, 0), (-1, 0), (1, -1)])
def test_bad_numbers_are_refused(n: int, start: int) -> None:
    with pytest.raises(InputError, match="FunctionGenerator"):
        run(FunctionGenerator(lambda p, s, i: "").generate(PREFIX, n=n, start=start, scope=Scope.root()))


def test_finished_prefixes_and_unknown_parameters_are_refused() -> None:
    generator = FunctionGenerator(lambda p, s, i: "")
    with pytest.raises(InputError, match="is finished"):
        run(generator.generate(PREFIX.extend("x", finish="stop"), scope=Scope.root()))
    with pytest.raises(UnsupportedError, match="temperature"):
        generator.replace(temperature=0.5)


def test_ids_of_an_unknown_tokenizer_are_not_kept() -> None:
    generator = FunctionGenerator(lambda p, s, i: Sample("x", (1, 2), 2, finish="eos"))
    (result,) = run(generator.generate(PREFIX.extend("y", tokens=TokenIds((9,), "t")), scope=Scope.root()))
    assert result.tokens is None


def test_functions_without_a_name_are_told_apart_and_a_name_names_alone() -> None:
    scope = Scope.root("p")
    texts = [run(FunctionGenerator(lambda *_, x=x: x).generate(PREFIX, n=2, scope=scope)) for x in "xy"]
    assert [[r.text for r in each] for each in texts] == [["x", "x"], ["y", "y"]]
    one, other = (FunctionGenerator(lambda *_, x=x: x, name="mine") for x in "xy")
    assert one.fingerprint == other.fingerprint == digest("function", "mine").hex()


def test_what_no_other_process_would_find_is_told_where_the_journal_is_a_file(tmp_path: Path) -> None:
    class Client:
        def ask(self, prefix: Sequence, seed: int, index: int) -> str:
            return "yes"

    def write(generator: FunctionGenerator, journal: SQLiteJournal | MemoryJournal) -> None:
        run(generator.generate(PREFIX, n=2, scope=Scope.root("p", journal=journal)))

    client = Client()
    inner = FunctionGenerator(client.ask)

    async def around(prefix: Sequence, seed: int, index: int) -> str:
        return (await inner.generate(prefix, scope=Scope.root("inner")))[0].text

    with SQLiteJournal(tmp_path / "j.sqlite") as file:
        for function in (client.ask, lambda *given: client.ask(*given), around):
            with pytest.warns(UserWarning, match=r"nothing names the .*Client that it holds; give name="):
                write(FunctionGenerator(function), file)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write(FunctionGenerator(client.ask, name="client 1"), file)
            write(FunctionGenerator(lambda prefix, seed, index: "no"), file)
            write(FunctionGenerator(client.ask), MemoryJournal())
        scores = FunctionVerifier(lambda sequence: float(bool(client)))
        with pytest.warns(UserWarning, match="Client"):
            run(scores.score([PREFIX.extend("a")], scope=Scope.root("q", journal=file)))


def test_the_most_tokens_of_a_text_that_nobody_counts_are_refused() -> None:
    def told(prefix: Sequence, seed: int, index: int) -> Sample:
        return Sample("one two", None, 2, finish="eos")

    (sequence,) = run(FunctionGenerator(told, max_tokens=3).generate(PREFIX, n=1, scope=Scope.root("p")))
    assert sequence.text == "one two", "it brings its own number"
    with pytest.raises(InputError, match="max_tokens=3 is counted by count, which is missing"):
        run(FunctionGenerator(lambda *_: "one", max_tokens=3).generate(PREFIX, n=1, scope=Scope.root("p")))
