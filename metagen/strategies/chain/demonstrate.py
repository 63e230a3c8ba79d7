"""Demonstrations made by the program itself (the first stage of demonstrate–search–predict, Khattab et al. 2022)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, Inputs
from metagen.template import Template, escape

#: (problem, result) → whether the result is right: the caller knows the answers of the examples.
Accept = Callable[[Prompt, Sequence], Awaitable[bool]]


async def demonstrate(
    chain: Chain,
    examples: Iterable[Prompt],
    accept: Accept,
    scope: Scope,
    *,
    most: int = 3,
    between: str = "\n\n",
) -> Chain:
    """The chain with worked examples in front of each Ask: what it was asked and wrote where the result was right.

    Examples are solved one after the other, under `scope`, until `most` were right. The steps in between need no
    labels: that the result is right vouches for them. Steps that ask in chat form stay as they are. Raises
    InputError for most < 1, and if no example was solved.
    """
    if not is_count(most, 1):
        raise InputError(f"most={most!r}: expected how many examples are shown, at least 1")
    shots: dict[str, list[str]] = {name: [] for name in chain.steps}
    solved = 0
    for i, example in enumerate(examples):
        if solved == most:
            break
        prefix = Sequence(example)
        outputs = await chain.outputs(prefix, scope.child(f"example/{i}"))
        if not await accept(example, Inputs(prefix, outputs).sequence(chain.output)):
            continue
        solved += 1
        for name, step in chain.steps.items():
            if isinstance(step, Ask):
                before = {need: outputs[need] for need in step.needs if need in outputs}
                shots[name].append(
                    Template(step.template).fill(Inputs(prefix, before).texts) + outputs[name].text
                )
    if not solved:
        raise InputError(
            "the chain solved none of the examples, so there is nothing to demonstrate; give easier ones"
        )
    return _show(chain, {name: "".join(s.rstrip() + between for s in those) for name, those in shots.items()})


def _show(chain: Chain, before: Mapping[str, str]) -> Chain:
    """The chain with these texts, by step, in front of what its steps ask."""
    steps = {
        name: Ask(step.generator, escape(before[name]) + step.template)
        if isinstance(step, Ask) and not step.chat
        else step
        for name, step in chain.steps.items()
    }
    return Chain(steps, output=chain.output, answer=chain.answer)
