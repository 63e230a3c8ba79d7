"""Strategies that are plain functions."""

from __future__ import annotations

import pytest

from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.chain.function import FunctionStrategy, strategy
from metagen.testing import StrategyLaws, first_word, last_word, numbers, run
from metagen.verifiers.oracle import OracleVerifier
from tests.strategies.chain.toys import ECHO, PROMPT


def test_a_function_is_a_strategy() -> None:
    generator = numbers()

    async def twice(prefix: Sequence, scope: Scope) -> Sequence:
        (first,) = await generator.generate(prefix, scope=scope.child("first"))
        (second,) = await generator.generate(prefix, scope=scope.child("second"))
        return max(first, second, key=lambda s: s.text)

    made = FunctionStrategy(twice, answer=last_word)
    result = made.solve(PROMPT)
    assert {row.path for row in result.trace.rows} == {"0/first", "0/second"}
    assert result.text == max(row.payload["text"] for row in result.trace.rows if row.payload)
    assert result.answer is not None and result.answer.key == result.text.split()[-1]


def test_what_a_function_returns_is_rooted_or_is_the_answer_itself() -> None:
    @strategy()
    async def constant(prefix: Sequence, scope: Scope) -> str:
        return "42"

    @strategy(name="elsewhere", uses=[ECHO])
    async def other(prefix: Sequence, scope: Scope) -> Sequence:
        (got,) = await ECHO.generate(Sequence.of("another prompt"), scope=scope.child("ask"))
        return got

    prefix = Sequence(PROMPT).extend("so: ")
    texts, _ = run(lambda s: _both(constant, other, prefix, s))
    assert texts == ["so: 42", "so: [another prompt]"]


async def _both(a: Strategy, b: Strategy, prefix: Sequence, scope: Scope) -> list[str]:
    results = [(await s.generate(prefix, scope=scope.child(str(i))))[0] for i, s in enumerate((a, b))]
    assert all(r.extends(prefix) and r.finish == "eos" for r in results)
    return [r.text for r in results]


def test_the_parts_of_a_function_are_known() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    def made(generator: object, verifier: object) -> FunctionStrategy:
        async def program(prefix: Sequence, scope: Scope) -> Sequence:
            (got,) = await generator.generate(prefix, scope=scope.child("x"))  # type: ignore[attr-defined]
            await verifier.score([got], scope=scope.child("y"))  # type: ignore[attr-defined]
            return got  # type: ignore[no-any-return]

        return FunctionStrategy(program)

    plain, seeing = made(ECHO, first_word), made(ECHO, OracleVerifier(grade))
    assert not plain.oracle and seeing.oracle
    assert len({plain.fingerprint, seeing.fingerprint, made(numbers(), first_word).fingerprint}) == 3
    assert plain.fingerprint == made(ECHO, first_word).fingerprint

    async def inside(prefix: Sequence, scope: Scope) -> str:
        works = [ECHO.generate(prefix, scope=scope.child(str(i))) for i in range(2)]
        return str(len(await scope.gather(*works)))

    assert FunctionStrategy(inside).uses == (ECHO,), "also what a comprehension names"

    @strategy()
    async def itself(prefix: Sequence, scope: Scope) -> str:
        return itself.name

    assert itself.solve("q").text == "itself"

    async def nothing(prefix: Sequence, scope: Scope) -> str:
        return ""

    assert FunctionStrategy(nothing, uses=[OracleVerifier(grade)]).oracle
    with pytest.raises(InputError, match="no async function"):
        FunctionStrategy(lambda prefix, scope: "x")  # type: ignore[arg-type, return-value]


class TestFunctionStrategy(StrategyLaws):
    def make(self) -> Strategy:
        generator = numbers()

        async def program(prefix: Sequence, scope: Scope) -> Sequence:
            (got,) = await generator.generate(prefix, scope=scope.child("one"))
            (other,) = await generator.generate(prefix, scope=scope.child("two"))
            return max(got, other, key=lambda s: s.text)

        return FunctionStrategy(program)
