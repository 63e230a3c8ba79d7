"""The calls of a run as a table: each sample and score that a pool or a configuration needed, and what it waited for.

What a configuration's calls waited for is known from its history (see `metagen.history`): `depth` is the clock of a
call, `parents` are the latest calls behind which it was asked. A call behind many that waits for all of a lesser depth
`waits`, and names none.

The samples of a pool wait for nothing, and each verifier stands as if it were the only one: its first calls wait for
the samples of the text that they judge, which digests tell. Where they do not, as in a comparison of two, a call is
taken to wait for all samples, and is `assumed`.
"""

from __future__ import annotations

from collections import abc, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metagen.cost import ModelShape
from metagen.journal import Row
from metagen.runs.table.costs import POOL, SAMPLING, is_scoring
from metagen.sequence import Sequence, digest
from metagen.tasks.base import Problem
from metagen.trace import Trace
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.judge import Judge

if TYPE_CHECKING:
    from metagen.runs.directory import Cell
    from metagen.runs.work.build import Setup
    from metagen.runs.work.makers import Makers

GENERATION = "generation"
#: Parents of a call that are named one by one, where it waits for all of a lesser depth.
NAMED = 16
#: What a call that waits for nothing of its own trace waits for: table rows, and whether they are taken.
Before = Callable[[Row], tuple[list[int], bool]]


@dataclass(frozen=True)
class Calls:
    """Makes the rows of the table `calls` of a run. makers: the names of who answers."""

    setup: Setup
    makers: Makers

    def pool(
        self,
        problem: Problem,
        generator: str,
        sequences: abc.Sequence[Sequence],
        drawn: Trace,
        judged: Mapping[str, Trace],
    ) -> list[dict[str, Any]]:
        """The calls of a pool, under its generator's name. judged: those of each verifier, as if it stood alone."""
        found: list[dict[str, Any]] = []
        self._add(found, generator, drawn, lambda row: GENERATION, _nothing)
        samples = _last(found)
        every = sorted(i for rows in samples.values() for i in rows)
        for name, trace in judged.items():
            texts = self._texts(name, sequences)

            def before(row: Row, texts: Mapping[bytes, list[int]] = texts) -> tuple[list[int], bool]:
                numbers = texts.get(row.content)
                if numbers is None:
                    return every, True
                return sorted(i for number in numbers for i in samples[number]), False

            self._add(found, generator, trace, lambda row, name=name: name, before)  # type: ignore[misc]
        return found

    def direct(self, configuration: Cell, trace: Trace) -> list[dict[str, Any]]:
        """The calls of a configuration that ran by itself."""
        verifier = configuration.verifier or "verification"
        found: list[dict[str, Any]] = []
        part = lambda row: verifier if is_scoring(row) else GENERATION  # noqa: E731
        self._add(found, configuration.name, trace, part, _nothing)
        return found

    def _add(
        self,
        found: list[dict[str, Any]],
        configuration: str,
        trace: Trace,
        part: Callable[[Row], str],
        before: Before,
    ) -> None:
        """Append the rows of a trace; refused ones are no calls. before: of calls that waited for none of them."""
        waits, made = _waits(trace), list[list[int]]()
        for number, delivery in enumerate(trace.deliveries):
            behind = [] if waits[number] else [i for other in delivery.after for i in made[other]]
            made.append([])
            for row in trace.rows[delivery.first : delivery.first + delivery.count]:
                if row.payload is None:  # refused
                    continue
                parents, assumed = (behind, False) if delivery.after else before(row)
                usage, known = row.usage, (row.usage.prefilled, row.usage.cached)
                made[number].append(len(found))
                found.append({
                    "configuration": configuration, "part": part(row), "index": len(found), "kind": row.kind,
                    "maker": self.makers.name(row.by), "path": row.path, "sample": _sample(row),
                    "parents": parents, "depth": delivery.clock, "waits": waits[number], "assumed": assumed,
                    "prefilled": usage.prefilled, "cached": usage.cached, "generated": usage.generated,
                    "context": None if None in known else sum(n or 0 for n in known),
                    "physical": row.physical.tokens,
                })  # fmt: skip

    def _texts(self, verifier: str, sequences: abc.Sequence[Sequence]) -> dict[bytes, list[int]]:
        """Numbers of samples by the digests under which a verifier, or a judge in it, asks about their texts."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        judges = [one for one in _members(self.setup.verifiers[verifier]) if isinstance(one, Judge)]
        for number, sequence in enumerate(sequences):
            answered = sequence.answered
            names = {sequence.digest, answered.digest}
            for judge in judges:
                question = judge.respondent.question.prompt(sequence.prompt, candidate=answered.text)
                asked = Sequence(judge.respondent.judge_prompt(question))
                names.add(digest(asked.digest, "None"))
            for name in names:
                found[name].append(number)
        return found


def _nothing(row: Row) -> tuple[list[int], bool]:
    return [], False


def _last(found: Iterable[Mapping[str, Any]]) -> dict[int, list[int]]:
    """The rows with which each sample of a pool ended."""
    last: dict[int, list[int]] = {}
    for row in found:
        rows = last.setdefault(row["sample"], [])
        rows[:] = [*(i for i in rows if i not in row["parents"]), row["index"]]
    return last


def _waits(trace: Trace) -> list[bool]:
    """Whether each delivery came behind many others, and behind all of a lesser clock."""
    lesser: defaultdict[int, int] = defaultdict(int)
    for number, one in enumerate(trace.deliveries):
        lesser[one.clock] |= 1 << number
    total = 0
    for clock in sorted(lesser):
        lesser[clock], total = total, total | lesser[clock]
    behind: list[int] = []
    for one in trace.deliveries:
        mine = 0
        for other in one.after:
            mine |= behind[other] | 1 << other
        behind.append(mine)
    deliveries = trace.deliveries
    return [
        sum(deliveries[other].count for other in one.after) > NAMED and mine == lesser[one.clock]
        for one, mine in zip(deliveries, behind, strict=True)
    ]


def shapes(setup: Setup, makers: Makers) -> dict[str, ModelShape | None]:
    """The shape of the model behind each maker of the table `calls`, by name; None where it is not known.

    What a strategy makes of its generator by other parameters has that one's model, unless the strategy is given other
    generators: then it is not known which of them it is.
    """
    found: dict[str, ModelShape | None] = {}
    for name in dict.fromkeys((*setup.generators, *setup.verifiers, *makers.names.values())):
        found[name] = next((s for one in name.split(", ") if (s := _shape(setup, one)) is not None), None)
    return found


def _shape(setup: Setup, name: str) -> ModelShape | None:
    spec: Any = None
    if name in setup.generators:
        engine = getattr(setup.generators[name], "engine", None)
        return _shape_of(engine)
    if name in setup.verifiers:
        spec = setup.experiment.verifiers.get(name)
        used = {
            getattr(spec, field)
            for field, section in (spec.uses if spec else {}).items()
            if section == "engines"
        }
        # Of several engines it is not known which of them reads.
        engines = [setup.engines.get(engine) for engine in used - {None}]
        return _shape_of(engines[0]) if len(engines) == 1 else None
    generator, _, strategy = name.partition("/")
    spec = setup.experiment.strategies.get(strategy)
    if spec is None or generator not in setup.generators:
        return None
    others = [
        field for field, section in spec.uses.items() if section == "generators" and getattr(spec, field)
    ]
    return None if others else _shape(setup, generator)


def _shape_of(engine: object) -> ModelShape | None:
    shape = getattr(engine, "shape", None)
    return shape if isinstance(shape, ModelShape) else None


def _sample(row: Row) -> int:
    """The number of the sample that a call belongs to."""
    sampling = f"{POOL}/{SAMPLING}"
    if row.path.startswith(f"{sampling}/"):
        first = row.path.removeprefix(f"{sampling}/").partition("/")[0]
        return int(first) if first.isdecimal() else row.index
    return row.index


def _members(verifier: Verifier) -> Iterator[Verifier]:
    yield verifier
    for member in verifier.members:
        yield from _members(member)
