"""The laws of generators, as tests: subclass `GeneratorLaws` in a test module and give `make`."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from abc import abstractmethod
from collections import abc
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.journal import Journal, MemoryJournal, Row
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step, Tokens, Until

T = TypeVar("T")
#: Steps that the law of steps asks for at most; characters that a token may have behind a delimiter.
STEPS, HANG_OVER = 12, 16


def run(work: Callable[[Scope], Awaitable[T]], *, seed: int = 0, journal: Journal | None = None,
        budget: Budget | None = None, problem: str = "law") -> tuple[T, list[Row]]:  # fmt: skip
    """Run `work` under a fresh root scope; returns its result and the rows that it touched."""

    async def main() -> tuple[T, list[Row]]:
        scope = Scope.root(problem, seed=seed, journal=journal, budget=budget, label="law")
        result = await work(scope)
        return result, list(scope.trace.rows)

    return asyncio.run(main())


class CountingJournal(MemoryJournal):
    """A journal that knows how many results were recorded, hence how often something was really run.

    Examples:
        >>> import metagen as mg
        >>> from metagen.testing.generators import CountingJournal
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "7", name="sevens")
        >>> journal = CountingJournal()
        >>> result = mg.Sample(draw).solve("A digit?", journal=journal)
        >>> journal.recorded
        1
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorded = 0

    async def record(self, rows: abc.Sequence[Row]) -> None:
        self.recorded += sum(row.status != "refused" for row in rows)
        await super().record(rows)


class UnsteadyJournal(MemoryJournal):
    """A journal that takes its time, by chance: with one seed this call is faster, with another seed that one.

    All leaf calls are recorded, so it reaches every generator and verifier.

    Examples:
        >>> import metagen as mg
        >>> from metagen.testing.generators import UnsteadyJournal
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "7", name="sevens")
        >>> mg.Sample(draw).solve("A digit?", journal=UnsteadyJournal(1)).text
        '7'
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._moods = random.Random(f"mood {seed}")

    async def record(self, rows: abc.Sequence[Row]) -> None:
        for _ in range(self._moods.randrange(12)):
            await asyncio.sleep(0)
        await super().record(rows)


class GeneratorLaws:
    """What every Generator promises. Set `prompt` to one that it can continue, and `begun` to how it may go on.

    Examples:
        >>> import metagen as mg
        >>> from metagen.testing import GeneratorLaws
        >>> class TestMine(GeneratorLaws):  # pytest runs all laws
        ...     def make(self):
        ...         return mg.FunctionGenerator(lambda prefix, seed, index: " more", name="mine")
        >>> TestMine().test_results_extend_the_prefix_and_come_in_the_number_asked_for()
    """

    prompt: Prompt = Prompt("law", text="A prompt.")
    begun: str = "some text"

    @abstractmethod
    def make(self) -> AbstractContextManager[Generator] | Generator:
        """The generator under test; a context manager if it needs one."""

    def _open(self) -> AbstractContextManager[Generator]:
        made = self.make()
        return nullcontext(made) if isinstance(made, Generator) else made

    def _draw(self, generator: Generator, n: int, start: int = 0, **kwargs: object) -> list[Sequence]:
        prefix = Sequence.of(self.prompt)
        texts, _ = run(
            lambda s: generator.generate(prefix, n=n, start=start, scope=s.child("sample")),
            problem=self.prompt.problem_id,
            **kwargs,  # type: ignore[arg-type]
        )
        return texts

    def test_results_extend_the_prefix_and_come_in_the_number_asked_for(self) -> None:
        with self._open() as generator:
            drawn = self._draw(generator, 3)
        assert len(drawn) == 3
        assert all(s.extends(Sequence.of(self.prompt)) for s in drawn)

    def test_a_text_that_was_begun_is_gone_on_with(self) -> None:
        begun = Sequence.of(self.prompt).extend(self.begun)
        with self._open() as generator:
            if not generator.accepts_prefix:
                return
            drawn, _ = run(
                lambda s: generator.generate(begun, n=2, scope=s.child("sample")),
                problem=self.prompt.problem_id,
            )
        assert all(s.extends(begun) for s in drawn)

    def test_same_seed_same_samples_and_more_samples_begin_with_the_fewer(self) -> None:
        with self._open() as generator:
            few, many = self._draw(generator, 2), self._draw(generator, 5)
        assert [s.text for s in many[:2]] == [s.text for s in few]

    def test_start_gives_the_samples_with_those_numbers(self) -> None:
        with self._open() as generator:
            all_five, last_two = self._draw(generator, 5), self._draw(generator, 2, start=3)
        assert [s.text for s in last_two] == [s.text for s in all_five[3:]]

    def test_a_recorded_sample_is_never_run_again(self) -> None:
        journal = CountingJournal()
        with self._open() as generator:
            first = self._draw(generator, 3, journal=journal)
            paid = journal.recorded
            again = self._draw(generator, 3, journal=journal)
            assert journal.recorded == paid
            self._draw(generator, 4, journal=journal)
            kept = not getattr(generator, "recorded", False)
        assert [s.text for s in again] == [s.text for s in first]
        assert journal.recorded > paid or not kept, "sample number 3 is new, and has to be run"

    def test_bad_requests_are_refused_before_anything_is_paid_for(self) -> None:
        journal = CountingJournal()
        prefix = Sequence.of(self.prompt)
        finished = dataclasses.replace(prefix, finish="eos")
        with self._open() as generator:
            for asked, n, start in ((prefix, 0, 0), (prefix, 1, -1), (finished, 1, 0)):
                generate = partial(generator.generate, asked, n=n, start=start)
                with pytest.raises(InputError):
                    run(lambda s, generate=generate: generate(scope=s), journal=journal)  # type: ignore[misc]
        assert journal.recorded == 0

    def test_what_is_declared_unsupported_is_an_error(self) -> None:
        prefix = Sequence.of(self.prompt)
        with self._open() as generator:
            if not generator.accepts_until:
                with pytest.raises(UnsupportedError):
                    run(lambda s: generator.generate(prefix, until=Step("\n"), scope=s))
            if not generator.accepts_prefix:
                with pytest.raises(UnsupportedError):
                    run(lambda s: generator.generate(prefix.extend(self.begun), scope=s))

    @pytest.mark.parametrize("until", [Step("\n"), Step("\n", max_tokens=3), Tokens(1), Tokens(3)], ids=repr)
    def test_it_stops_where_it_is_asked_to_or_says_before_it_pays_that_it_cannot(self, until: Until) -> None:
        """A generator that declares `accepts_until` ends each sample with the step or the block, and writes no more.

        Another one refuses, since what goes on behind a step would be taken for the step.
        """
        prefix, journal = Sequence.of(self.prompt), CountingJournal()
        with self._open() as generator:
            ask = partial(generator.generate, prefix, n=4, until=until)

            def draw() -> tuple[list[Sequence], list[Row]]:
                return run(
                    lambda s: ask(scope=s.child("sample")), journal=journal, problem=self.prompt.problem_id
                )

            if not generator.accepts_until:
                with pytest.raises(UnsupportedError):
                    draw()
                assert journal.recorded == 0
                return
            drawn, rows = draw()
        for sample in drawn:
            beyond = _beyond(sample, prefix, until)
            assert beyond is None, (
                f"asked for {until!r}, it gave {sample.text!r} (finish={sample.finish!r}): {beyond}"
            )
            new = sample.text[len(prefix.text) :]
            written = [str((row.payload or {}).get("text", "")) for row in rows if row.kind == "generate"]
            whole = [
                text
                for text in written
                if text.startswith(new) and _beyond(prefix.extend(text), prefix, until)
            ]
            assert not new or new in written or not whole, (
                f"{whole[0]!r} was written, and cut to {new!r} afterwards"
            )

    def test_steps_join_into_a_longer_sequence(self) -> None:
        with self._open() as generator:
            if not (generator.accepts_until and generator.accepts_prefix):
                return

            async def steps(scope: Scope) -> list[Sequence]:
                found = [Sequence.of(self.prompt)]
                while found[-1].finish is None and len(found) < STEPS:
                    place = scope.child(f"step/{len(found)}")
                    found += await generator.generate(found[-1], until=Step("\n"), scope=place)
                return found

            found, _ = run(steps, problem=self.prompt.problem_id)
        for before, after in pairwise(found):
            assert after.extends(before) and (len(after.text) > len(before.text) or after.finish is not None)
            assert _beyond(after, before, Step("\n")) is None

    def test_blocks_of_tokens_join_into_a_longer_sequence(self) -> None:
        with self._open() as generator:
            if not (generator.accepts_until and generator.accepts_prefix):
                return

            async def two_blocks(scope: Scope) -> tuple[Sequence, Sequence]:
                (first,) = await generator.generate(
                    Sequence.of(self.prompt), until=Tokens(2), scope=scope.child("block/0")
                )
                if first.finish is not None:
                    return first, first
                (second,) = await generator.generate(first, until=Tokens(2), scope=scope.child("block/1"))
                return first, second

            (first, second), _ = run(two_blocks, problem=self.prompt.problem_id)
        assert second.extends(first)
        assert second is first or len(second.text) > len(first.text) or second.finish is not None

    def test_a_budget_of_calls_is_never_overshot_and_gives_the_first_samples(self) -> None:
        prefix = Sequence.of(self.prompt)
        with self._open() as generator:
            free = self._draw(generator, 3)
            got, rows = (
                run(
                    lambda s: generator.generate(prefix, n=3, scope=s.child("sample")),
                    budget=Budget(calls=2),
                    problem=self.prompt.problem_id,
                )
                if self._is_leaf(generator)
                else (free[:2], [])
            )
            assert sum(row.usage.calls for row in rows) <= 2
            assert [s.text for s in got] == [s.text for s in free[:2]]
            if self._is_leaf(generator):
                with pytest.raises(BudgetExhausted):
                    run(lambda s: generator.generate(prefix, scope=s), budget=Budget(calls=0))

    @staticmethod
    def _is_leaf(generator: Generator) -> bool:
        from metagen.generators.primitive import Primitive

        return isinstance(generator, Primitive)


def _beyond(sample: Sequence, prefix: Sequence, until: Until) -> str | None:
    """What a sample holds beyond the step or block that it was asked for, or lacks of it; None if nothing is wrong."""
    new = sample.text[len(prefix.text) :]
    if isinstance(until, Step):
        hung_over = prefix.text[prefix.steps[-1] :] if prefix.steps else ""
        end = (hung_over + new).find(until.delimiter)
        left = len(hung_over + new) - end - len(until.delimiter)
        if end >= 0 and left > HANG_OVER:
            return f"{left} characters follow the delimiter"
        marked = len(sample.steps) - len(prefix.steps)
        if end >= 0 and sample.finish is None and marked != 1:
            return f"a step ends here, and {marked} are marked"
        limited = until.max_tokens is not None or sample.exhausted
        return (
            "neither step nor sequence has ended"
            if end < 0 and sample.finish is None and not limited
            else None
        )
    count = len(sample.token_logprobs or ()) - len(prefix.token_logprobs or ())
    if isinstance(until, Tokens) and sample.token_logprobs is not None and count > until.count:
        return f"it has {count} tokens"
    return None
