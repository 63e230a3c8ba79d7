"""Chains on the embedded models: what each buys, on problems that nothing was tuned on.

    python examples/chains.py                  a minute or so
    python examples/chains.py --per-level 100  for figures that mean something

Where the small models cannot do a step (rewrite a problem, or decompose it), a function takes their place, as a
generator like any other. What needs a real model is in examples/templates/.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterable
from fractions import Fraction

import metagen as mg
from metagen.strategies.chain.function import strategy
from metagen.strategies.chain.interleaved import Interleaved
from metagen.strategies.chain.least_to_most import LeastToMost
from metagen.strategies.chain.patterns import chain_of_thought, direct, system_two_attention
from metagen.strategies.tools import ToolError
from metagen.tasks import arithmetic
from metagen.verifiers.numbers import parse

# --------------------------------------------------------------------------------------------------------- the parts


def calculate(expression: str) -> str:
    """The value of an expression with one operator, such as `(-3/2)*4`."""
    try:
        problem, _ = arithmetic.read_prompt(f"Q:a={expression};a?\nS:\n")
        return arithmetic.reference_answer(problem)
    except ValueError:
        raise ToolError("?") from None


def with_calculator(generator: mg.Generator) -> mg.Strategy:
    """The model writes `a=12+7=`, the tool writes 19: a line of thought whose arithmetic is right."""
    return Interleaved(
        generator,
        calculate,
        call=r"(?:\A|\n)[a-h]=(?P<expression>[^=\n]+)=",
        result="{result}\n",
        until=mg.Step("="),
    )


def distracted(problem: mg.Problem, rng: random.Random) -> mg.Problem:
    """The same problem with two definitions more, which nobody needs."""
    asked, _ = arithmetic.read_prompt(problem.prompt.text)
    free = [name for name in arithmetic.NAMES if name not in {d.name for d in asked.definitions}]
    extra = [
        arithmetic.Definition(name, str(rng.randint(2, 12)), "+", str(rng.randint(2, 12)))
        for name in free[:2]
    ]
    definitions = [*asked.definitions]
    for one in extra:
        definitions.insert(rng.randrange(len(definitions) + 1), one)
    text = arithmetic.prompt(arithmetic.Problem(tuple(definitions), asked.target))
    return mg.Problem(mg.Prompt(problem.id, text=text), problem.reference, problem.level)


def needed(problem: arithmetic.Problem) -> list[arithmetic.Definition]:
    """The definitions that the target depends on, in an order of computation."""
    wanted = {problem.target}
    kept = []
    for one in reversed(arithmetic.in_order(problem)):
        if one.name in wanted:
            kept.append(one)
            wanted |= {one.left, one.right}
    return kept[::-1]


def rewrite(prefix: mg.Sequence, seed: int, index: int) -> str:
    """What a model that can rewrite would do: leave out what the question does not need."""
    problem, _ = arithmetic.read_prompt(prefix.prompt.text)
    return arithmetic.prompt(arithmetic.Problem(tuple(needed(problem)), problem.target))


def decompose(prefix: mg.Sequence, seed: int, index: int) -> str:
    """What a model that can decompose would do: a line for each definition, the target's last."""
    problem, _ = arithmetic.read_prompt(prefix.prompt.text)
    return "\n".join(map(str, needed(problem)))


def one_by_one(generator: mg.Generator) -> mg.Strategy:
    """Least-to-most: every definition is a problem of its own, with the values found so far in place of names."""

    @strategy(name="one definition", uses=[generator])
    async def solve(prefix: mg.Sequence, scope: mg.Scope) -> mg.Sequence:
        *known, line = prefix.prompt.text.splitlines()
        values = dict(one.split("=", 1) for one in known)
        name, definition = line.split("=", 1)
        for other, value in values.items():
            written = f"({value})" if "/" in value or value.startswith("-") else value
            definition = definition.replace(other, written)
        asked = mg.Prompt(prefix.prompt.problem_id, text=f"Q:{name}={definition};{name}?\nS:\n")
        (written_out,) = await generator.generate(mg.Sequence(asked), scope=scope.child("write"))
        answer = arithmetic.extract_answer(written_out.text) or "?"
        return prefix.extend(f"{name}={answer}", finish="eos")

    functions = mg.FunctionGenerator(decompose, name="decompose", count=len, max_tokens=400)
    return LeastToMost(
        functions, solver=solve, decompose="{prompt}", solve="{solved}{question}", solved="{reply}\n"
    )


class LastValue(mg.AnswerRule):
    """The value in `name=value`, as least-to-most leaves it."""

    async def read(self, sequences: Iterable[mg.Sequence]) -> list[mg.Answer]:
        texts = [s.text.rpartition("=")[2] for s in sequences]
        return [mg.Answer(t, await self.key(t), None if await self.key(t) else "unparsable") for t in texts]

    async def key(self, answer: str) -> str | None:
        value = parse(answer)
        return None if value is None else str(Fraction(value))


# ------------------------------------------------------------------------------------------------------ the programs


async def accuracy(
    chain: mg.Strategy, problems: list[mg.Problem], rule: mg.AnswerRule
) -> tuple[float, float]:
    """Percent right, and tokens generated a problem."""
    results = await asyncio.gather(*(chain.asolve(problem.prompt) for problem in problems))
    answers = await rule.read([result.sequence for result in results])
    right = [
        a.key is not None and a.key == await rule.key(p.reference)
        for a, p in zip(answers, problems, strict=True)
    ]
    return 100 * sum(right) / len(right), sum(r.usage.generated or 0 for r in results) / len(results)


async def compare(engine: mg.TorchEngine, per_level: int) -> None:
    task = mg.ArithmeticTask("validation", levels=(2, 4), per_level=per_level, seed=40)
    problems, rule = list(task.problems()), task.answer
    rng = random.Random(0)
    noisy = [distracted(problem, rng) for problem in problems]
    greedy = engine.generator(temperature=0.0, max_tokens=240)
    rewriter = mg.FunctionGenerator(rewrite, name="rewrite", count=len, max_tokens=400)
    rows = [
        ("the answer at once", direct(greedy, cue="A:"), problems, rule),
        ("thought, then answer", chain_of_thought(greedy, cue="A:"), problems, rule),
        ("… with a calculator", with_calculator(greedy), problems, rule),
        ("least to most", one_by_one(greedy), problems, LastValue()),
        ("distracted", mg.Sample(greedy), noisy, rule),
        (
            "… rewritten first",
            system_two_attention(greedy, rewriter=rewriter, rewrite="{prompt}"),
            noisy,
            rule,
        ),
    ]
    print(f"{'greedy, ' + str(len(problems)) + ' problems':30} right %   tokens")
    for name, chain, asked, reads in rows:
        right, tokens = await accuracy(chain, asked, reads)
        print(f"{name:30} {right:7.1f} {tokens:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny-0.5m", help="one of the embedded models")
    parser.add_argument("--per-level", type=int, default=20, help="problems of each of two levels")
    options = parser.parse_args()
    with mg.TorchEngine(options.model) as engine:
        asyncio.run(compare(engine, options.per_level))


if __name__ == "__main__":
    main()
