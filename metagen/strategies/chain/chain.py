"""A chain: a program of named steps on a directed graph without cycles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import networkx as nx

from metagen.errors import InputError, MetagenError
from metagen.history import Seen
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import conclude
from metagen.strategies.chain.steps import PREFIX, PROMPT, ChainStep, Continue, Inputs, Output, Verify
from metagen.verifiers.base import AnswerRule


class Chain(Strategy):
    r"""Runs its steps, each as soon as what it needs is there, and returns the output of one of them.

        Chain({
            "thought": Ask(model, "{prompt}\nLet us think step by step."),
            "answer": Ask(model, "{prompt}\n{thought}\nThe answer is"),
        })

    steps: by name, in any order; a list of pairs will do. A step runs under a scope of its name, and reads others by
    theirs. output: the step whose sequence is returned, as a completion of the problem; by default the last one given.
    graph: the program, a networkx digraph with an edge from each step to those that need it.

    A partial answer can be continued where some step reads `{prefix}` or goes on from it.

    When a budget ends, what there is of the sequence that the output would have continued is returned, as far as no
    other step ran beside it.
    Raises InputError for a cycle, a name that is missing or not a word, and a step that nothing needs.
    """

    def __init__(
        self,
        steps: Mapping[str, ChainStep] | Iterable[tuple[str, ChainStep]],
        *,
        output: str | None = None,
        answer: AnswerRule | None = None,
    ) -> None:
        self.steps = _by_name(steps)
        self.output = next(reversed(self.steps)) if output is None else output
        self.answer = answer
        going_on = [step for step in self.steps.values() if isinstance(step, Continue)]
        self.accepts_prefix = all(step.generator.accepts_prefix for step in going_on) and (
            any(step.after is None for step in going_on)
            or any(PREFIX in step.needs for step in self.steps.values())
        )
        self.graph = _graph(self.steps)
        _check(self.graph, self.steps, self.output)
        self._beginnings = _beginnings(self.graph, self.steps, self.output)

    @property
    def fingerprint(self) -> str:
        parts = [part for name, step in self.steps.items() for part in (name, step.fingerprint)]
        return digest("chain", *parts, self.output, self.answer.fingerprint if self.answer else "").hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        outputs = await self.outputs(prefix, scope)
        sequence = Inputs(prefix, outputs).sequence(self.output)
        scored = None
        for name, step in self.steps.items():
            score = outputs[name].value
            if isinstance(step, Verify) and step.of == self.output and isinstance(score, Score):
                sequence, scored = sequence.with_score(step.verifier.name, score), score
        return await conclude(sequence, scope, self.answer, scored)

    async def outputs(self, prefix: Sequence, scope: Scope) -> dict[str, Output]:
        """What every step has made. Independent steps run side by side, each under the child scope of its name."""
        loop = asyncio.get_running_loop()
        made: dict[str, asyncio.Future[tuple[Output, Seen]]] = {
            name: loop.create_future() for name in self.steps
        }
        begun = scope.history.now()

        async def perform(name: str) -> Output:
            try:
                waited = {need: await made[need] for need in self.graph.predecessors(name)}
                scope.history.join(begun, (seen for _, seen in waited.values()))
                before = {need: output for need, (output, _) in waited.items()}
                place = scope.child(name, speaks=name == self.output)
                output = await self.steps[name].perform(Inputs(prefix, before), place)
            except MetagenError as refusal:
                made[name].set_exception(refusal)
                made[name].exception()  # it has been seen, also where no other step waits for it
                raise
            made[name].set_result((output, scope.history.now()))
            self._offer(name, output, prefix, scope)
            return output

        # Under a limit one after the other: each after those that it needs.
        order = [*nx.lexicographical_topological_sort(self.graph, key=[*self.steps].index)]
        outputs = await scope.batch(order, perform, whole=True)
        results = dict(zip(order, outputs.whole(), strict=True))
        return {name: results[name] for name in self.steps}

    def _offer(self, name: str, output: Output, prefix: Sequence, scope: Scope) -> None:
        """Offer the output as soon as it is made, or before that what it goes on from: what a spent budget returns."""
        if name == self.output:
            scope.offers.clear()
            scope.offer(Inputs(prefix, {name: output}).sequence(name))
            return
        sequence = output.sequence
        if name in self._beginnings and sequence is not None and sequence.extends(prefix):
            scope.offer(sequence, float(len(sequence.text)))


def _by_name(steps: Mapping[str, ChainStep] | Iterable[tuple[str, ChainStep]]) -> dict[str, ChainStep]:
    """The steps by name; InputError for none, a name given twice, and what cannot be a name."""
    pairs = list(steps.items() if isinstance(steps, Mapping) else steps)
    if not pairs:
        raise InputError(
            "a chain has no steps; give at least one, such as {'answer': Ask(model, '{prompt}')}"
        )
    named: dict[str, ChainStep] = {}
    for name, step in pairs:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in (PROMPT, PREFIX):
            raise InputError(
                f"a step is called {name!r}; expected letters, digits and _, and neither {PROMPT!r} nor {PREFIX!r}"
            )
        if name in named:
            raise InputError(
                f"two steps are called {name!r}; their outputs are read by name, so give each its own"
            )
        if not isinstance(step, ChainStep):
            raise InputError(f"the step {name!r} is {step!r:.60}; expected Ask, Continue, Verify or Use")
        named[name] = step
    return named


def _graph(steps: Mapping[str, ChainStep]) -> nx.DiGraph:
    """The edges from what is needed to what needs it; InputError for a name that is no step."""
    graph = nx.DiGraph()
    graph.add_nodes_from(steps)
    for name, step in steps.items():
        for need in step.needs:
            if need in steps:
                graph.add_edge(need, name)
            elif need not in (PROMPT, PREFIX):
                near = get_close_matches(need, [*steps, PROMPT, PREFIX], 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"the step {name!r} needs {need!r}, which no step is called; expected one of {', '.join(steps)}, "
                    f"{PROMPT}, {PREFIX} (write {{{{{need}}}}} for a word in braces){hint}"
                )
    return graph


def _beginnings(graph: nx.DiGraph, steps: Mapping[str, ChainStep], output: str) -> frozenset[str]:
    """The steps that the output goes on from, and that run beside no other.

    Whether one that runs beside others is done when a budget ends is a matter of their speed.
    """
    found, step = set(), steps[output]
    while isinstance(step, Continue) and step.after is not None:
        name, step = step.after, steps[step.after]
        if len(nx.ancestors(graph, name)) + len(nx.descendants(graph, name)) + 1 == len(steps):
            found.add(name)
    return frozenset(found)


def _check(graph: nx.DiGraph, steps: Mapping[str, ChainStep], output: str) -> None:
    """InputError for an output that there is not, a cycle, and steps that are run for nothing."""
    if output not in steps:
        raise InputError(f"output={output!r}: expected one of the steps {', '.join(steps)}")
    if isinstance(steps[output], Verify):
        raise InputError(
            f"the output is {output!r}, which scores and writes nothing; name the step to return with output="
        )
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        raise InputError(
            f"the steps need one another in a circle: {' → '.join([*cycle, cycle[0]])}; let one of them read less"
        )
    for name, step in steps.items():
        if fault := step.fault(steps):
            raise InputError(f"the step {name!r} {fault}")
    wanted = {output, *nx.ancestors(graph, output)}
    for name, step in steps.items():
        scores = isinstance(step, Verify) and step.of == output
        if name not in wanted and not scores:
            raise InputError(
                f"nothing reads the step {name!r}, and the output is {output!r}; "
                f"put {{{name}}} where it belongs, or leave it out"
            )
